/* The dirty writer of the kernel lab: joins a memcg and writes one buffer of 1 MiB over and over to a new file.
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * writer FILE CGROUP.PROCS COUNT: prints the seconds that COUNT buffers took, and marks each in the kernel's trace.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void say(int file, const char *text, int bytes) {
	if (file >= 0 && write(file, text, bytes) < 0) perror("writer");
}

int main(int argc, char **argv) {
	if (argc != 4) return 2;
	int count = atoi(argv[3]);
	char *buffer = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char text[32];
	say(open(argv[2], O_WRONLY), text, sprintf(text, "%d", getpid()));
	memset(buffer, 1, MIB);
	int file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);
	int marker = open("/sys/kernel/tracing/trace_marker", O_WRONLY);
	double from = seconds();
	for (int written = 1; written <= count; written++) {
		if (write(file, buffer, MIB) != MIB) return 3;
		say(marker, text, sprintf(text, "mib %d", written));
	}
	printf("WRITER done %d %.3f\n", count, seconds() - from);
	return 0;
}
