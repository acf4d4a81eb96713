/* Runs a trace of page accesses inside the guest of the kernel lab, as root. Statically linked.
 * SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Trace: little-endian u32 records.
 *   bit31 write, bit30 mapped (mmap touch) else fd, bit29 anon, bits 0..28 page index
 *   (bits 29..31 are flags, so the index proper is 29 bits: 0..2^29-1)
 *
 * fd read     = pread(rbytes) at page offset            (one folio_mark_accessed per access)
 * fd write    = rmw (default): pread(rbytes)+pwrite(wbytes); "blind": pwrite(wbytes) only
 * mapped      = load (or load+store for writes) of one byte
 * anon        = load (write: store) of one byte in a private anonymous mapping
 *
 * --tasks N: access i belongs to task i mod N; the tasks are threads with descriptors of their own and run freely.
 * --leave PAGES: no limit of the memcg; locked memory of another memcg leaves that many pages of the machine free, so
 *   that kswapd reclaims. With --part, it reclaims from all memcgs.
 * --part PAGES --anon-part PAGES: as many memcgs as parts, a, b, c, … below the limited one, each with a process. Page p
 *   of the file belongs to process p / PAGES. The processes take turns in the order of the trace, on one CPU.
 * --set FILE=VALUE: writes a control file of the limited memcg, or of one below it (b/memory.low), before the replay.
 * --at ACCESS:FILE=VALUE: the same before that access. A comma in a value becomes a space, and a request that falls short is
 *   no error.
 * --readahead 1: no random advice on the descriptors, so that the kernel reads ahead as the queue's read_ahead_kb allows.
 *
 * The trace is in this process' memory before the process joins the limited cgroup, so it is
 * charged to the root cgroup.  Only faults/insertions after the join are charged.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PG 4096UL
#define MAXK 160
struct snap { int n; char k[MAXK][40]; long long v[MAXK]; };

static void die(const char *m) { printf("KLAB-ERROR %s: %s\n", m, strerror(errno)); fflush(stdout); exit(2); }
static int rd(const char *p, char *b, int n) {
	int f = open(p, O_RDONLY); if (f < 0) { b[0] = 0; return -1; }
	int t = 0, r; while (t < n - 1 && (r = read(f, b + t, n - 1 - t)) > 0) t += r;
	b[t] = 0; close(f); return t;
}
static void wr(const char *p, const char *s) {
	int f = open(p, O_WRONLY); if (f < 0) die(p);
	if (write(f, s, strlen(s)) < 0) die(p);
	close(f);
}
/* Commands: control files that are written before the replay (--set) or before an access of it (--at). */
static struct { size_t at; const char *file, *value; } commands[64];
static int ncommands, ncommand;
static void command(size_t at, char *text) {
	char *value = strchr(text, '='); if (!value || ncommands == 64) { errno = EINVAL; die(text); }
	for (char *c = value; *c; c++) if (*c == ',') *c = ' ';
	*value = 0; commands[ncommands].at = at; commands[ncommands].file = text; commands[ncommands++].value = value + 1;
}
static void put(struct snap *s, const char *k, long long v) {
	if (s->n >= MAXK) return;
	snprintf(s->k[s->n], 40, "%s", k); s->v[s->n++] = v;
}
static long long get(struct snap *s, const char *k) {
	for (int i = 0; i < s->n; i++) if (!strcmp(s->k[i], k)) return s->v[i];
	return 0;
}
static char *cg, *diskstat, *swapstat, buf[1 << 16];
static long long now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }

static void kvfile(struct snap *s, const char *path, const char *prefix, const char *const *want) {
	if (rd(path, buf, sizeof buf) < 0) return;
	for (char *l = strtok(buf, "\n"); l; l = strtok(NULL, "\n")) {
		char k[64], kk[80]; long long v;
		if (sscanf(l, "%63s %lld", k, &v) != 2) continue;
		if (want) { int ok = 0; for (int i = 0; want[i]; i++) if (!strncmp(k, want[i], strlen(want[i]))) ok = 1; if (!ok) continue; }
		snprintf(kk, sizeof kk, "%s%s", prefix, k); put(s, kk, v);
	}
}
static void blk(struct snap *s, const char *path, const char *prefix) {
	long long f[11] = {0}; char k[40];
	if (!path || !*path || rd(path, buf, sizeof buf) < 0) return;
	sscanf(buf, "%lld %lld %lld %lld %lld %lld %lld %lld", f, f+1, f+2, f+3, f+4, f+5, f+6, f+7);
	snprintf(k, 40, "%srd_ios", prefix); put(s, k, f[0]);
	snprintf(k, 40, "%srd_sectors", prefix); put(s, k, f[2]);
	snprintf(k, 40, "%swr_ios", prefix); put(s, k, f[4]);
	snprintf(k, 40, "%swr_sectors", prefix); put(s, k, f[6]);
	snprintf(k, 40, "%swr_ms", prefix); put(s, k, f[7]); /* of all writes together, from request to end */
}
static const char *const mwant[] = { "anon", "file", "file_mapped", "file_dirty", "file_writeback", "kernel", "slab", "pagetables",
	"inactive_", "active_", "workingset_", "pg", "swapcached", 0 };
static const char *const vwant[] = { "workingset_", "pgscan_", "pgsteal_", "pgrefill", "pgactivate", "pgdeactivate", "pgmajfault", "pswp",
	"pgrotated", "nr_vmscan_write", "nr_vmscan_immediate", "allocstall", "pageoutrun", "kswapd_", "slabs_scanned", "swap_ra", 0 };
static const char *const fwant[] = { "nr_free_pages", 0 };
static void take(struct snap *s) {
	char p[300]; struct rusage ru; s->n = 0;
	put(s, "t_ns", now_ns());
	blk(s, diskstat, "disk_"); blk(s, swapstat, "swap_");
	snprintf(p, 300, "%s/memory.stat", cg); kvfile(s, p, "", mwant);
	snprintf(p, 300, "%s/memory.events", cg); kvfile(s, p, "ev_", NULL);
	kvfile(s, "/proc/vmstat", "vm_", vwant);
	snprintf(p, 300, "%s/memory.current", cg); rd(p, buf, sizeof buf); put(s, "memory_current", atoll(buf));
	snprintf(p, 300, "%s/memory.swap.current", cg); rd(p, buf, sizeof buf); put(s, "swap_current", atoll(buf));
	getrusage(RUSAGE_SELF, &ru);
	put(s, "ru_majflt", ru.ru_majflt); put(s, "ru_minflt", ru.ru_minflt);
	put(s, "ru_inblock", ru.ru_inblock); put(s, "ru_oublock", ru.ru_oublock);
}
static int gauge(const char *k) {
	static const char *g[] = { "anon", "file", "file_mapped", "file_dirty", "file_writeback", "kernel", "slab", "slab_reclaimable", "slab_unreclaimable",
		"kernel_stack", "pagetables", "file_thp", "anon_thp", "swapcached", "inactive_anon", "active_anon", "inactive_file", "active_file",
		"memory_current", "swap_current", "t_ns", 0 };
	for (int i = 0; g[i]; i++) if (!strcmp(k, g[i])) return 1;
	return 0;
}
static void out_delta(const char *name, struct snap *a, struct snap *b) {
	int first = 1; printf("\"%s\":{", name);
	for (int i = 0; i < b->n; i++) {
		if (gauge(b->k[i]) && strcmp(b->k[i], "t_ns")) continue;
		long long d = b->v[i] - get(a, b->k[i]);
		printf("%s\"%s\":%lld", first ? "" : ",", strcmp(b->k[i], "t_ns") ? b->k[i] : "elapsed_ns", d); first = 0;
	}
	printf("}");
}
static void out_abs(const char *name, struct snap *a) {
	printf("\"%s\":{", name);
	for (int i = 0, f = 1; i < a->n; i++) if (gauge(a->k[i]) && strcmp(a->k[i], "t_ns")) { printf("%s\"%s\":%lld", f ? "" : ",", a->k[i], a->v[i]); f = 0; }
	printf("}");
}
/* generations of our memcg from debugfs lru_gen: returns text lines; also max_seq/min_seq */
static int lrugen(char *o, int n, const char *cgname) {
	static char b[1 << 18]; o[0] = 0;
	if (rd("/sys/kernel/debug/lru_gen", b, sizeof b) < 0) return -1;
	int on = 0, t = 0;
	for (char *l = strtok(b, "\n"); l; l = strtok(NULL, "\n")) {
		if (!strncmp(l, "memcg", 5)) { char *s = strrchr(l, '/'); on = s && !strcmp(s + 1, cgname); continue; }
		if (on) { while (*l == ' ') l++; char c[160]; int j = 0; int sp = 0;
			for (char *q = l; *q && j < 150; q++) { if (*q == ' ') { if (!sp) c[j++] = ' '; sp = 1; } else { c[j++] = *q; sp = 0; } }
			while (j && c[j-1] == ' ') j--;
			c[j] = 0; t += snprintf(o + t, n - t, "%s\"%s\"", t ? "," : "", c); if (t > n - 200) break; }
	}
	return 0;
}
/* The kernel's accounting of delays (taskstats, generic netlink). */
static int stats_socket = -1;
static uint16_t stats_family;
static char answer[1 << 14] __attribute__((aligned(8)));
static int ask(uint16_t type, uint8_t what, uint16_t attribute, const void *value, int length) {
	struct { struct nlmsghdr n; struct genlmsghdr g; char a[64]; } m; memset(&m, 0, sizeof m);
	struct nlattr *a = (struct nlattr *)m.a;
	m.n.nlmsg_type = type; m.n.nlmsg_flags = NLM_F_REQUEST; m.g.cmd = what; m.g.version = 1;
	a->nla_type = attribute; a->nla_len = NLA_HDRLEN + length; memcpy(m.a + NLA_HDRLEN, value, length);
	m.n.nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN) + NLA_ALIGN(a->nla_len);
	if (send(stats_socket, &m, m.n.nlmsg_len, 0) < 0) return -1;
	int got = recv(stats_socket, answer, sizeof answer, 0);
	return ((struct nlmsghdr *)answer)->nlmsg_type == NLMSG_ERROR ? -1 : got;
}
static struct nlattr *find(void *from, int length, int type) {
	for (char *at = from; at + NLA_HDRLEN <= (char *)from + length;) {
		struct nlattr *a = (struct nlattr *)at; if (a->nla_len < NLA_HDRLEN) break;
		if ((a->nla_type & NLA_TYPE_MASK) == type) return a;
		at += NLA_ALIGN(a->nla_len);
	}
	return NULL;
}
static void open_stats(void) {
	stats_socket = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC); if (stats_socket < 0) return;
	int got = ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, TASKSTATS_GENL_NAME, sizeof TASKSTATS_GENL_NAME);
	struct nlattr *a = got < 0 ? NULL : find(answer + NLMSG_LENGTH(GENL_HDRLEN), got - NLMSG_LENGTH(GENL_HDRLEN), CTRL_ATTR_FAMILY_ID);
	if (a) stats_family = *(uint16_t *)((char *)a + NLA_HDRLEN);
}
/* Nanoseconds that the threads of this process have spent in reclaim. */
static long long reclaim_ns(void) {
	uint32_t pid = getpid(); if (!stats_family) return 0;
	int got = ask(stats_family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_TGID, &pid, sizeof pid); if (got < 0) return 0;
	struct nlattr *a = find(answer + NLMSG_LENGTH(GENL_HDRLEN), got - NLMSG_LENGTH(GENL_HDRLEN), TASKSTATS_TYPE_AGGR_TGID);
	if (a) a = find((char *)a + NLA_HDRLEN, a->nla_len - NLA_HDRLEN, TASKSTATS_TYPE_STATS);
	return a ? (long long)((struct taskstats *)((char *)a + NLA_HDRLEN))->freepages_delay_total : 0;
}
/* Locked memory that leaves `leave` pages of the machine free. */
static void fill_machine(long leave) {
	long free_kb = 0;
	rd("/proc/meminfo", buf, sizeof buf);
	char *at = strstr(buf, "MemFree:"); if (!at || sscanf(at, "MemFree: %ld", &free_kb) != 1) die("meminfo");
	long bytes = free_kb * 1024 - leave * (long)PG;
	if (bytes <= 0) { errno = ENOMEM; die("--leave: more than is free"); }
	void *locked = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);
	/* A process of a part would have page tables for it. */
	if (locked == MAP_FAILED || madvise(locked, bytes, MADV_DONTFORK)) die("locked memory");
}
/* The zones that have pages, lowest first: their watermarks, their pages, and those that a request spares which a higher
 * zone serves, too ("protection"). */
struct zone { long min, low, high, managed, spared; };
static struct zone zones[8]; static int n_zones;
static void read_zones(void) {
	static char text[1 << 18]; struct zone z = {0}; long v;
	rd("/proc/zoneinfo", text, sizeof text);
	for (char *l = strtok(text, "\n"); l; l = strtok(NULL, "\n")) {
		if (sscanf(l, " min %ld", &v) == 1) z.min = v; else if (sscanf(l, " low %ld", &v) == 1) z.low = v;
		else if (sscanf(l, " high %ld", &v) == 1 && !strstr(l, ":")) z.high = v;
		else if (sscanf(l, " managed %ld", &v) == 1) z.managed = v;
		else if (strstr(l, "protection:")) {
			/* The last number is for requests that any zone serves. */
			char *last = strrchr(l, ' '); z.spared = last ? atol(last) : 0;
			if (z.managed > 0 && n_zones < 8) zones[n_zones++] = z;
		}
	}
}
static struct zone largest_zone(void) {
	struct zone z = {0};
	for (int i = 0; i < n_zones; i++) if (zones[i].managed > z.managed) z = zones[i];
	return z;
}
/* What the threads of a replay share. Task 0 takes the samples and the state at the warm point. */
static struct { long i; long long file, anon, dirty, act, rd, swrd, cur, refault, t, free, unmapped, steal; } smp[2048];
static struct snap s0, sw, s1, ss;
static char g0[8192], gw[8192], g1[8192];
static const uint32_t *tr;
static volatile uint8_t *m, *a;
static const char *data, *cgname;
static size_t n, wi, every;
static int tasks = 1, rb = 4096, wb = 4096, blind, ahead, samples = 100, debuggen = 1, ns, warmed;
static unsigned long sum;
static pthread_barrier_t all_here;

static int opened(void) {
	int fd = open(data, O_RDWR); if (fd < 0) die(data);
	if (!ahead && posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM)) die("fadvise");
	return fd;
}
static void sample(size_t i) {
	char p[300];
	ss.n = 0; blk(&ss, diskstat, "disk_"); blk(&ss, swapstat, "swap_");
	snprintf(p, 300, "%s/memory.stat", cg); kvfile(&ss, p, "", mwant);
	snprintf(p, 300, "%s/memory.current", cg); rd(p, buf, sizeof buf);
	smp[ns].i = i + 1; smp[ns].file = get(&ss, "file") / PG; smp[ns].anon = get(&ss, "anon") / PG; smp[ns].dirty = get(&ss, "file_dirty") / PG;
	/* Pages that wait in the swap cache, without a mapping: `anon` does not have them, the lists do. */
	long long unmapped = (get(&ss, "inactive_anon") + get(&ss, "active_anon") - get(&ss, "anon")) / (long long)PG; smp[ns].unmapped = unmapped > 0 ? unmapped : 0;
	smp[ns].act = get(&ss, "active_file") / PG; smp[ns].rd = (get(&ss, "disk_rd_sectors") - get(&s0, "disk_rd_sectors")) / 8;
	smp[ns].swrd = (get(&ss, "swap_rd_sectors") - get(&s0, "swap_rd_sectors")) / 8;
	smp[ns].refault = get(&ss, "workingset_refault_file") - get(&s0, "workingset_refault_file"); smp[ns].t = now_ns() - get(&s0, "t_ns");
	smp[ns].cur = atoll(buf) / PG; smp[ns].steal = get(&ss, "pgsteal") - get(&s0, "pgsteal");
	ss.n = 0; kvfile(&ss, "/proc/vmstat", "", fwant); smp[ns++].free = get(&ss, "nr_free_pages");
}
/* Writes the control files whose turn comes before access i. */
static void commands_before(size_t i) {
	char p[300];
	for (; ncommand < ncommands && commands[ncommand].at <= i; ncommand++) {
		snprintf(p, 300, "%s/%s", cg, commands[ncommand].file);
		int f = open(p, O_WRONLY); if (f < 0) die(p);
		if (write(f, commands[ncommand].value, strlen(commands[ncommand].value)) < 0 && errno != EAGAIN) die(p);
		close(f);
	}
}
static void access_page(int fd, size_t i, char *io, char *wbuf, unsigned long *part) {
	uint32_t r = tr[i]; unsigned long pg = r & 0x1fffffff;
	if (r & (1u << 29)) { if (r >> 31) a[pg * PG] = (uint8_t)i | 1; else *part += a[pg * PG]; }
	else if (r & (1u << 30)) { *part += m[pg * PG]; if (r >> 31) m[pg * PG] = (uint8_t)i | 1; }
	else {
		if (!(r >> 31) || !blind) if (pread(fd, io, rb, pg * PG) != rb) die("pread");
		if (r >> 31) if (pwrite(fd, wbuf, wb, pg * PG) != wb) die("pwrite");
	}
}
/* Processes in memcgs of their own, which take turns. */
static unsigned long part_pages, anon_part_pages;
static int procs;
static struct snap p0[26], pw[26], p1[26];
static char disk_number[32]; /* of the data disk, as io.stat has it */
static char pg0[26][4096], pg1[26][4096];
static const char *memcg_name(int k) { static char name[2]; name[0] = 'a' + k; return name; }
static size_t owner(size_t i) {
	unsigned long pg = tr[i] & 0x1fffffff;
	return tr[i] & (1u << 29) ? pg / anon_part_pages : pg / part_pages;
}
static void take_memcg(struct snap *s, int k) {
	char p[300]; s->n = 0;
	snprintf(p, 300, "%s/%c/memory.stat", cg, 'a' + k); kvfile(s, p, "", mwant);
	snprintf(p, 300, "%s/%c/memory.events", cg, 'a' + k); kvfile(s, p, "ev_", NULL);
	long long bytes = 0; snprintf(p, 300, "%s/%c/io.stat", cg, 'a' + k); rd(p, buf, sizeof buf);
	char *line = strstr(buf, disk_number); if (line && (line = strstr(line, "rbytes="))) bytes = atoll(line + 7);
	put(s, "disk_rd_sectors", bytes / 512);
	snprintf(p, 300, "%s/%c/memory.current", cg, 'a' + k); rd(p, buf, sizeof buf); put(s, "memory_current", atoll(buf));
	snprintf(p, 300, "%s/%c/memory.swap.current", cg, 'a' + k); rd(p, buf, sizeof buf); put(s, "swap_current", atoll(buf));
}
static void process(int k, int from, int to) {
	char p[300], q[64]; size_t turn[2]; unsigned long part = 0;
	snprintf(p, 300, "%s/%c/cgroup.procs", cg, 'a' + k); snprintf(q, 64, "%d", getpid()); wr(p, q);
	int fd = opened();
	char *io = aligned_alloc(PG, PG), *wbuf = aligned_alloc(PG, PG); memset(io, 1, PG); memset(wbuf, 0x5a, PG);
	if (write(to, "", 1) != 1) exit(3);
	while (read(from, turn, sizeof turn) == sizeof turn) {
		for (size_t i = turn[0]; i < turn[1]; i++) access_page(fd, i, io, wbuf, &part);
		if (write(to, "", 1) != 1) exit(3);
	}
	exit(part == 42);
}
static int feeds[26], answers[2];
static void wait_turn(void) { char c; if (read(answers[0], &c, 1) != 1) { errno = ECHILD; die("a process ended"); } }
static void start_processes(void) {
	if (pipe(answers)) die("pipe");
	for (int k = 0; k < procs; k++) {
		int ends[2]; if (pipe(ends)) die("pipe");
		int child = fork(); if (child < 0) die("fork");
		if (!child) {
			for (int j = 0; j < k; j++) close(feeds[j]);
			close(ends[1]); close(answers[0]); process(k, ends[0], answers[1]);
		}
		close(ends[0]); feeds[k] = ends[1]; wait_turn();
	}
	close(answers[1]);
}
static void replay_processes(void) {
	size_t next = every;
	for (size_t i = 0; i < n;) {
		commands_before(i);
		if (i == wi) { take(&sw); for (int k = 0; k < procs; k++) take_memcg(&pw[k], k); warmed = 1; if (debuggen) lrugen(gw, sizeof gw, cgname); }
		size_t k = owner(i), end = n;
		if (ncommand < ncommands && commands[ncommand].at < end) end = commands[ncommand].at;
		if (i < wi && wi < end) end = wi;
		if (next < end && next > i) end = next;
		size_t turn[2] = { i, i + 1 };
		while (turn[1] < end && owner(turn[1]) == k) turn[1]++;
		if (write(feeds[k], turn, sizeof turn) != sizeof turn) die("turn");
		wait_turn(); i = turn[1];
		if (i >= next && ns < 2000) { sample(i - 1); next += every; }
	}
}
/* Accesses of each task by the logarithm of their time, in steps of half an octave. */
static unsigned long times[64][128];
static double log_of(int step) { return step / 2 * 0.693147 + step % 2 * 0.405465; }
static void note_time(size_t task, long long ns) {
	int octave = 63 - __builtin_clzll(ns | 1);
	times[task][2 * octave + (octave > 0 && (ns >> (octave - 1)) & 1)]++;
}
/* Prints the variance of the logarithm of a read's time, and the mean time of the other accesses. An access is a read if it takes
 * more than a fifth of the average, `mean` ns. */
static void out_times(double mean) {
	double count = 0, sum = 0, squares = 0, hits = 0, hits_ns = 0;
	for (int step = 0; step < 128; step++) {
		double least = (1ull << step / 2) * (1 + step % 2 * 0.5);
		for (long task = 0; task < tasks; task++) {
			double number = times[task][step];
			if (least <= mean / 5) { hits += number; hits_ns += number * least * 1.22; /* the middle of the step */ continue; }
			count += number; sum += number * log_of(step); squares += number * log_of(step) * log_of(step);
		}
	}
	double variance = count > 1 ? squares / count - sum / count * (sum / count) : 0;
	printf("\"read_log_variance\":%.3f,\"hit_ns\":%.0f,\n", variance, hits > 0 ? hits_ns / hits : 0);
}
static void *replay(void *number) {
	size_t task = (size_t)number; unsigned long part = 0; int fd = opened();
	char *io = aligned_alloc(PG, PG), *wbuf = aligned_alloc(PG, PG); memset(io, 1, PG); memset(wbuf, 0x5a, PG);
	size_t next = every; int counting = 0;
	for (size_t i = task; i < n; i += tasks) {
		if (!counting && i >= wi) {
			/* All tasks are here when counting begins. */
			counting = 1; pthread_barrier_wait(&all_here);
			if (task == 0) { take(&sw); warmed = 1; if (debuggen) lrugen(gw, sizeof gw, cgname); }
			pthread_barrier_wait(&all_here);
		}
		if (task == 0) commands_before(i);
		long long began = tasks > 1 ? now_ns() : 0;
		access_page(fd, i, io, wbuf, &part);
		if (tasks > 1) note_time(task, now_ns() - began);
		if (task == 0 && i + 1 >= next && ns < 2000) { sample(i); next += every; }
	}
	if (!counting && wi < n) { pthread_barrier_wait(&all_here); pthread_barrier_wait(&all_here); }
	__atomic_fetch_add(&sum, part, __ATOMIC_RELAXED);
	return NULL;
}
int main(int ac, char **av) {
	const char *trace = 0; long limit = 0, leave = 0; double warm = 0.2; int sync_end = 0, madvr = 0;
	unsigned long anon_pages = 0, file_pages = 0;
	for (int i = 1; i + 1 < ac; i += 2) {
		char *k = av[i], *v = av[i + 1];
		if (!strcmp(k, "--trace")) trace = v; else if (!strcmp(k, "--data")) data = v; else if (!strcmp(k, "--cg")) cg = v;
		else if (!strcmp(k, "--limit")) limit = atol(v); else if (!strcmp(k, "--warm")) warm = atof(v); else if (!strcmp(k, "--leave")) leave = atol(v);
		else if (!strcmp(k, "--rbytes")) rb = atoi(v); else if (!strcmp(k, "--wbytes")) wb = atoi(v);
		else if (!strcmp(k, "--wmode")) blind = !strcmp(v, "blind"); else if (!strcmp(k, "--anon")) anon_pages = atol(v);
		else if (!strcmp(k, "--disk")) diskstat = v; else if (!strcmp(k, "--swap")) swapstat = v; else if (!strcmp(k, "--samples")) samples = atoi(v);
		else if (!strcmp(k, "--debuggen")) debuggen = atoi(v); else if (!strcmp(k, "--madv-random")) madvr = atoi(v); else if (!strcmp(k, "--sync-end")) sync_end = atoi(v);
		else if (!strcmp(k, "--tasks")) tasks = atoi(v); else if (!strcmp(k, "--readahead")) ahead = atoi(v);
		else if (!strcmp(k, "--part")) part_pages = atol(v); else if (!strcmp(k, "--anon-part")) anon_part_pages = atol(v);
		else if (!strcmp(k, "--set")) command(0, v);
		else if (!strcmp(k, "--at")) { char *colon = strchr(v, ':'); if (!colon) { errno = EINVAL; die(v); } command(atol(v), colon + 1); }
		else { errno = EINVAL; die(k); }
	}
	int tf = open(trace, O_RDONLY); if (tf < 0) die(trace);
	struct stat st; fstat(tf, &st); n = st.st_size / 4;
	uint32_t *words = mmap(0, n * 4 + PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (words == MAP_FAILED) die("mmap trace");
	tr = words;
	for (size_t o = 0; o < n * 4;) { ssize_t r = read(tf, (char *)words + o, n * 4 - o); if (r <= 0) die("read trace"); o += r; }
	close(tf); unlink(trace);
	if (stat(data, &st)) die(data);
	file_pages = st.st_size / PG;
	int fdm = open(data, O_RDWR); if (fdm < 0) die(data);   /* separate struct file for the mapping */
	m = mmap(0, file_pages * PG, PROT_READ | PROT_WRITE, MAP_SHARED, fdm, 0); if (m == MAP_FAILED) die("mmap");
	/* NOT MADV_RANDOM by default: vma_has_recency() is false for VM_RAND_READ mappings, so reclaim (classic and MGLRU) then
	 * ignores their PTE accessed bits altogether.  Readahead is off through queue/read_ahead_kb=0 instead. */
	if (madvr && madvise((void *)m, file_pages * PG, MADV_RANDOM)) die("madvise");
	madvise((void *)m, file_pages * PG, MADV_NOHUGEPAGE);
	if (anon_pages) { a = mmap(0, anon_pages * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); if (a == MAP_FAILED) die("anon"); madvise((void *)a, anon_pages * PG, MADV_NOHUGEPAGE); if (madvr) madvise((void *)a, anon_pages * PG, MADV_RANDOM); }
	/* validate, count, and find distinct pages of each kind (compulsory misses) */
	long c_fd = 0, c_map = 0, c_anon = 0, c_w = 0, d_file = 0, d_anon = 0;
	uint8_t *seen = calloc(file_pages + anon_pages + 1, 1);
	for (size_t i = 0; i < n; i++) {
		uint32_t r = tr[i]; unsigned long p = r & 0x1fffffff; int an = !!(r & (1u << 29)), mp = !!(r & (1u << 30));
		if (an ? p >= anon_pages : p >= file_pages) { errno = ERANGE; die("trace index"); }
		if (an) c_anon++; else if (mp) c_map++; else c_fd++;
		if (r >> 31) c_w++;
		if (!seen[an ? file_pages + p : p]) { seen[an ? file_pages + p : p] = 1; if (an) d_anon++; else d_file++; }
	}
	free(seen);
	take(&s0);                /* also pre-faults our statics */
	open_stats();
	memset(g0, 0, sizeof g0); memset(gw, 0, sizeof gw); memset(g1, 0, sizeof g1);
	memset(smp, 0, sizeof smp);
	if (samples > 2000) samples = 2000;
	cgname = strrchr(cg, '/') + 1;
	if (tasks < 1 || tasks > 64) { errno = ERANGE; die("--tasks"); }
	if (!anon_part_pages) anon_part_pages = anon_pages ? anon_pages : 1;
	for (size_t i = 0; part_pages && i < n; i++) if ((int)owner(i) >= procs) procs = owner(i) + 1;
	if (procs > 26 || (procs && tasks > 1)) { errno = EINVAL; die("--part"); }
	if (tasks == 1) { cpu_set_t cs; CPU_ZERO(&cs); CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &cs); sched_setaffinity(0, sizeof cs, &cs); }
	char p[300], q[64];
	if (!leave) { snprintf(p, 300, "%s/memory.max", cg); snprintf(q, 64, "%ld", limit); wr(p, q); }
	sync(); wr("/proc/sys/vm/drop_caches", "3"); sync(); wr("/proc/sys/vm/drop_caches", "3");
	if (leave) { fill_machine(leave); read_zones(); }
	if (procs) { snprintf(p, 300, "%s/cgroup.subtree_control", cg); wr(p, "+memory +io");
		snprintf(p, 300, "%.*s/dev", (int)(strrchr(diskstat, '/') - diskstat), diskstat); rd(p, disk_number, sizeof disk_number - 1);
		char *end = strchr(disk_number, '\n'); if (end) *end = ' '; else { errno = ENODEV; die(p); } }
	for (int k = 0; k < procs; k++) { snprintf(p, 300, "%s/%c", cg, 'a' + k); if (mkdir(p, 0755)) die(p); }
	commands_before(0);
	if (procs) start_processes(); else { snprintf(p, 300, "%s/cgroup.procs", cg); snprintf(q, 64, "%d", getpid()); wr(p, q); }
	printf("KLAB-START n=%zu file_pages=%lu\n", n, file_pages); fflush(stdout);
	if (debuggen) lrugen(g0, sizeof g0, cgname);
	take(&s0);
	wi = (size_t)(n * warm); every = n / samples ? n / samples : 1;
	pthread_t threads[64]; pthread_barrier_init(&all_here, NULL, tasks);
	for (int task = 1; task < tasks; task++) if (pthread_create(&threads[task], NULL, replay, (void *)(size_t)task)) die("thread");
	for (int k = 0; k < procs; k++) { take_memcg(&p0[k], k); pw[k] = p0[k]; if (debuggen) lrugen(pg0[k], sizeof pg0[k], memcg_name(k)); }
	if (procs) replay_processes(); else replay((void *)0);
	for (int k = 0; k < procs; k++) { take_memcg(&p1[k], k); if (debuggen) lrugen(pg1[k], sizeof pg1[k], memcg_name(k)); }
	for (int task = 1; task < tasks; task++) pthread_join(threads[task], NULL);
	long long reclaimed_ns = reclaim_ns();
	take(&s1); if (!warmed) { sw = s0; memcpy(gw, g0, sizeof gw); }
	if (debuggen) lrugen(g1, sizeof g1, cgname);
	if (sync_end) sync();
	/* leave the limited cgroup for printing */
	struct zone marks = largest_zone();
	double mf = 0, ma = 0, md = 0, mx = 0, mc = 0, me = 0, mu = 0; int k = 0; long long fmin = 1LL << 60, fmax = 0;
	/* Memory that is not full yet says nothing about the capacity: if anything was reclaimed, the means begin with that. */
	int full = ns && smp[ns - 1].steal > 0;
	for (int i = 0; i < ns; i++) if ((size_t)smp[i].i > wi && (!full || smp[i].steal > 0)) { mf += smp[i].file; ma += smp[i].anon; md += smp[i].dirty; mx += smp[i].act; mc += smp[i].cur; me += smp[i].free; mu += smp[i].unmapped; if (smp[i].file < fmin) fmin = smp[i].file; if (smp[i].file > fmax) fmax = smp[i].file; k++; }
	if (!k) k = 1, fmin = 0;
	printf("\nKLAB-JSON-BEGIN\n{\"n\":%zu,\"warm_index\":%zu,\"limit_pages\":%ld,\"file_pages\":%lu,\"anon_pages\":%lu,\"rbytes\":%d,\"wbytes\":%d,\"wmode\":\"%s\",\"tasks\":%d,\"readahead\":%d,", n, wi, limit / (long)PG, file_pages, anon_pages, rb, wb, blind ? "blind" : "rmw", tasks, ahead);
	printf("\"acc_fd\":%ld,\"acc_mapped\":%ld,\"acc_anon\":%ld,\"acc_write\":%ld,\"distinct_file\":%ld,\"distinct_anon\":%ld,\n", c_fd, c_map, c_anon, c_w, d_file, d_anon);
	printf("\"cap_file_mean\":%.1f,\"cap_file_min\":%lld,\"cap_file_max\":%lld,\"cap_anon_mean\":%.1f,\"cap_unmapped_mean\":%.1f,\"dirty_mean\":%.1f,\"active_file_mean\":%.1f,\"current_mean\":%.1f,\"free_mean\":%.1f,\"watermark_min\":%ld,\"watermark_low\":%ld,\"watermark_high\":%ld,\"sum\":%lu,\n", mf / k, fmin, fmax, ma / k, mu / k, md / k, mx / k, mc / k, me / k, marks.min, marks.low, marks.high, sum & 1);
	printf("\"zones\":\"");
	for (int i = 0; i < n_zones; i++) printf("%s%ld:%ld:%ld:%ld:%ld", i ? ";" : "", zones[i].managed, zones[i].min, zones[i].low, zones[i].high, zones[i].spared);
	printf("\",\n");
	long long reads = get(&s1, "disk_rd_ios") - get(&s0, "disk_rd_ios");
	printf("\"reclaim_ns\":%lld,\n", procs ? 0 : reclaimed_ns);
	if (tasks > 1 && reads > 0) out_times((double)(get(&s1, "t_ns") - get(&s0, "t_ns")) * tasks / reads);
	out_delta("total", &s0, &s1); printf(",\n"); out_delta("warm", &sw, &s1); printf(",\n"); out_abs("start", &s0); printf(",\n"); out_abs("end", &s1);
	printf(",\n\"memcgs\":[");
	for (int k = 0; k < procs; k++) {
		printf("%s{\"name\":\"%c\",", k ? ",\n" : "", 'a' + k);
		out_delta("total", &p0[k], &p1[k]); printf(","); out_delta("warm", &pw[k], &p1[k]); printf(","); out_abs("end", &p1[k]); printf(",\"lru_gen_start\":[%s],\"lru_gen_end\":[%s]}", pg0[k], pg1[k]);
	}
	printf("],\n\"lru_gen_start\":[%s],\n\"lru_gen_warm\":[%s],\n\"lru_gen_end\":[%s],\n\"samples\":[", g0, gw, g1);
	for (int i = 0; i < ns; i++) printf("%s[%ld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld]%s", i ? "," : "", smp[i].i, smp[i].file, smp[i].anon, smp[i].dirty, smp[i].act, smp[i].rd, smp[i].swrd, smp[i].refault, smp[i].cur, smp[i].t / 1000000, i % 10 == 9 ? "\n" : "");
	printf("],\n\"sample_columns\":[\"i\",\"file\",\"anon\",\"dirty\",\"active_file\",\"disk_pages_read\",\"swap_pages_read\",\"refault_file\",\"memory_current\",\"t_ms\"]}\nKLAB-JSON-END\n");
	fflush(stdout);
	return 0;
}
