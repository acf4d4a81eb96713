"""Programs without a server: fio, ripgrep over a source tree, RocksDB's db_bench, and a parallel compile."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time

from bench import ROOT, Failure, call


class Program:
    """A program that has no server."""

    def start(self, _point):
        """There is no server."""

    def stop(self):
        """There is no server."""


class Fio(Program):
    """fio itself on the mount."""

    name = "fio"
    packages = {"fio": "fio"}
    workloads = ["randread zipf 0.99", "randread and a scan", "randrw 80/20"]

    def __init__(self, quick):
        self.mib = 128 if quick else 1024

    def prepare(self, data):
        call("fio", "--name=lay", f"--filename={data}/file", "--rw=write", "--bs=1m", f"--size={self.mib}m",
             "--end_fsync=1")

    def job(self, workload, seconds, path):
        job = ["--name=job", "--bs=4k", "--ioengine=psync", "--numjobs=4", "--group_reporting", "--norandommap",
               "--random_distribution=zipf:0.99", "--randrepeat=1"]
        jobs = {
            "randread zipf 0.99": [*job, "--rw=randread"],
            "randread and a scan": [*job, "--rw=randread", "--name=scan", "--rw=read", "--bs=128k", "--numjobs=1",
                                    "--random_distribution=random", "--rate=50m"],
            "randrw 80/20": [*job, "--rw=randrw", "--rwmixread=80"],
        }
        return [f"--filename={path}/file", f"--size={self.mib}m", "--time_based", f"--runtime={seconds}", *jobs[workload]]

    @staticmethod
    def measured(text):
        read = json.loads(text)["jobs"][0]["read"]
        return {"reads/s": read["iops"], "p99 ms": read["clat_ns"]["percentile"]["99.000000"] / 1e6}


    def work(self, workload, point, seconds):
        return self.measured(call("fio", "--output-format=json", *self.job(workload, seconds, point)))

    def apart(self, workload, copy, seconds, cache):
        """The same job in `mglru fio`, which uses the cache without a mount."""
        return self.measured(call(*cache[:1], "fio", "--json", *cache[1:], *self.job(workload, seconds, copy)))


class Ripgrep(Program):
    """Searches of this repository's sources with those of its dependencies, one after the other."""

    name = "ripgrep"
    packages = {"rg": "ripgrep"}
    workloads = ["search all", "search one crate ten times"]

    def __init__(self, quick):
        self.crates = 60 if quick else 1000

    def prepare(self, data):
        call("cp", "-a", ROOT / "crates", ROOT / "docs", data)
        sources = cargo_sources()
        found = sorted(path for index in sources.glob("*") for path in index.iterdir())[: self.crates]
        if not found:
            raise Failure(f"{sources} has no sources of crates: build the project first")
        (data / "registry").mkdir()
        call("cp", "-a", *found, data / "registry")

    def work(self, workload, point, seconds):
        where, times = (point, 1) if workload == "search all" else (point / "crates", 10)
        end, late = time.monotonic() + seconds, []
        while not late or time.monotonic() < end:
            began = time.monotonic()
            for _ in range(times):
                call("rg", "--no-mmap", "--no-ignore", "--threads=2", "--count-matches", r"fn \w+_pages", where)
            late.append(time.monotonic() - began)
        late.sort()
        return {"searches/s": times * len(late) / sum(late), "slowest ms": late[-1] / times * 1000, "of": len(late)}


class RocksDb(Program):
    """db_bench with a block cache of 1 MiB and a log that is synced in the background."""

    name = "RocksDB with db_bench"
    packages = {"db_bench": "rocksdb-tools"}
    workloads = ["readrandom", "readwhilewriting", "seekrandom"]

    def __init__(self, quick):
        self.keys = 200_000 if quick else 3_000_000
        self.loading = None

    def command(self, point, benchmarks, *options):
        return ["db_bench", f"--benchmarks={benchmarks}", f"--db={point}/db", f"--num={self.keys}", "--key_size=16",
                "--value_size=400", "--compression_type=none", "--bloom_bits=10", "--cache_size=1048576",
                "--write_buffer_size=8388608", "--seed=7", *options]

    def prepare(self, data):
        call(*self.command(data, "fillrandom,compact", "--disable_wal=1"))

    def work(self, workload, point, seconds):
        # Skewed to few keys, as `mixgraph` of Facebook's loads.
        text = call(*self.command(point, workload, "--use_existing_db=1", "--threads=4", f"--duration={seconds}",
                                  "--read_random_exp_range=15", "--histogram=1"))
        per_second = re.search(r"micros/op ([\d.]+) ops/sec", text)
        late = re.search(r"P99: ([\d.]+)", text)
        if per_second is None or late is None:
            raise Failure(f"db_bench printed no rate:\n{text[-3000:]}")
        return {"operations/s": float(per_second[1]), "p99 ms": float(late[1]) / 1000}

    def load(self, point):
        command = self.command(point, "readwhilewriting", "--use_existing_db=1", "--threads=2", "--duration=600")
        self.loading = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return self.loading

    def kill(self):
        if self.loading is not None:
            self.loading.kill()

    def check(self, point):
        call(*self.command(point, "verifychecksum", "--use_existing_db=1"))
        keys = call("ldb", f"--db={point}/db", "dump", "--count_only")
        found = re.search(r"Keys in range: (\d+)", keys)
        if found is None or int(found[1]) == 0:
            raise Failure(f"ldb found no keys:\n{keys[-3000:]}")
        return f"verifychecksum: OK; {found[1]} keys"


MAKEFILE = """
OBJECTS := $(patsubst %.c,objects/%.o,$(wildcard common/*.c compress/*.c decompress/*.c dictBuilder/*.c))
libzstd.a: $(OBJECTS)
\tar rcs $@ $^
objects/%.o: %.c
\t@mkdir -p $(@D)
\t$(CC) $(CFLAGS) -DZSTD_DISABLE_ASM -MMD -c -o $@ $<
"""


class Compile(Program):
    """The C library of zstd, compiled in parallel; objects and dependencies are written to the mount, too."""

    name = "make -j4"
    packages = {"make": "make", "cc": "gcc"}
    workloads = ["from nothing"]
    without_host = "the compilers' own memory changes by many times the budget, so no limit of a cgroup leaves just that"

    def __init__(self, quick):
        self.flags = "-O0" if quick else "-O2"

    def prepare(self, data):
        found = sorted(cargo_sources().glob("*/zstd-sys-*/zstd/lib"))
        if not found:
            raise Failure("there are no sources of zstd-sys: build the project first")
        call("cp", "-a", f"{found[-1]}/.", data)
        (data / "Makefile").write_text(MAKEFILE)
        # How much data there is: sources and what becomes of them.
        self.make(data)

    def make(self, point):
        call("make", "-C", point, "-j4", f"CFLAGS={self.flags}")

    def work(self, _workload, point, seconds):
        end, late = time.monotonic() + seconds, []
        while not late or time.monotonic() < end:
            shutil.rmtree(point / "objects")
            (point / "libzstd.a").unlink()
            began = time.monotonic()
            self.make(point)
            late.append(time.monotonic() - began)
        return {"builds/min": 60 * len(late) / sum(late), "slowest ms": max(late) * 1000, "of": len(late)}


def cargo_sources():
    """Where cargo keeps the sources of crates."""
    home = pathlib.Path(call("rustc", "--print", "sysroot").strip()).parents[1]
    return pathlib.Path(os.environ.get("CARGO_HOME", home.parent / ".cargo")) / "registry/src"
