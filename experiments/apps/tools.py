"""fio, and ripgrep over a source tree."""

import json
import os
import pathlib
import time

from bench import ROOT, Failure, call


class Fio:
    """fio itself on the mount."""

    name = "fio"
    packages = {"fio": "fio"}
    workloads = ["randread zipf 0.99", "randread and a scan", "randrw 80/20"]

    def __init__(self, quick):
        self.mib = 128 if quick else 1024

    def prepare(self, data):
        call("fio", "--name=lay", f"--filename={data}/file", "--rw=write", "--bs=1m", f"--size={self.mib}m",
             "--end_fsync=1")

    def start(self, _point):
        """There is no server."""

    def stop(self):
        """There is no server."""

    def work(self, workload, point, seconds):
        job = ["--name=job", "--bs=4k", "--ioengine=psync", "--numjobs=4", "--group_reporting", "--norandommap",
               "--random_distribution=zipf:0.99", "--randrepeat=1"]
        jobs = {
            "randread zipf 0.99": [*job, "--rw=randread"],
            "randread and a scan": [*job, "--rw=randread", "--name=scan", "--rw=read", "--bs=128k", "--numjobs=1",
                                    "--random_distribution=random", "--rate=50m"],
            "randrw 80/20": [*job, "--rw=randrw", "--rwmixread=80"],
        }
        text = call("fio", "--output-format=json", f"--filename={point}/file", f"--size={self.mib}m", "--time_based",
                    f"--runtime={seconds}", *jobs[workload])
        read = json.loads(text)["jobs"][0]["read"]
        return {"reads/s": read["iops"], "p99 ms": read["clat_ns"]["percentile"]["99.000000"] / 1e6}


class Ripgrep:
    """Searches of this repository's sources with those of its dependencies, one after the other."""

    name = "ripgrep"
    packages = {"rg": "ripgrep"}
    workloads = ["search all", "search one crate ten times"]

    def __init__(self, quick):
        self.crates = 60 if quick else 1000

    def prepare(self, data):
        call("cp", "-a", ROOT / "crates", ROOT / "docs", data)
        home = pathlib.Path(call("rustc", "--print", "sysroot").strip()).parents[1]
        sources = pathlib.Path(os.environ.get("CARGO_HOME", home.parent / ".cargo")) / "registry/src"
        found = sorted(path for index in sources.glob("*") for path in index.iterdir())[: self.crates]
        if not found:
            raise Failure(f"{sources} has no sources of crates: build the project first")
        (data / "registry").mkdir()
        call("cp", "-a", *found, data / "registry")

    def start(self, _point):
        """There is no server."""

    def stop(self):
        """There is no server."""

    def work(self, workload, point, seconds):
        where, times = (point, 1) if workload == "search all" else (point / "crates", 10)
        end, late = time.monotonic() + seconds, []
        while not late or time.monotonic() < end:
            began = time.monotonic()
            for _ in range(times):
                call("rg", "--no-mmap", "--no-ignore", "--threads=2", "--count-matches", r"fn \w+_pages", where)
            late.append(time.monotonic() - began)
        late.sort()
        return {"searches/s": times * len(late) / sum(late), "slowest ms": late[-1] / times * 1000}
