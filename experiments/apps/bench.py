"""Runs real programs on a mount of mglru: presets in turn, several runs, one table.

An application is a class with `packages`, `prepare`, `start`, `stop`, `work` and, for databases, `check`. This file
mounts, measures the cache through the mount's state, and compares runs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PRESETS = ["linux-6.12", "linux-7.1", "linux-7.2", "default"]
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failure(Exception):
    """Something that the user has to know: what happened, where, what to do."""


def call(*command, **options):
    """Runs a program to its end, and returns its output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"`{' '.join(map(str, command))}` failed with status {done.returncode}:\n"
                      f"{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def need(programs):
    """Installs the packages of programs that are missing. `programs` maps a program's path or name to its package."""
    missing = sorted({package for name, package in programs.items() if shutil.which(name) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failure(f"these packages are missing, and only root with apt-get can install them: {' '.join(missing)}")
    print(f"installing {' '.join(missing)}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-o", "DPkg::Lock::Timeout=100", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if subprocess.run(install, env=environment, capture_output=True).returncode != 0:
        call("apt-get", "update", "-qq", env=environment)
        call(*install, env=environment)


def wait_until(what, done, seconds=120, process=None):
    """Waits until `done` returns true."""
    end = time.monotonic() + seconds
    while not done():
        if process is not None and process.poll() is not None:
            raise Failure(f"waiting until {what}: the program ended with status {process.returncode}")
        if time.monotonic() > end:
            raise Failure(f"waiting until {what}: not within {seconds} seconds")
        time.sleep(0.05)


def bytes_of(directory):
    """Bytes that the files below a directory occupy."""
    files = (path for path in pathlib.Path(directory).rglob("*") if path.is_file() and not path.is_symlink())
    return sum(min(path.stat().st_size, path.stat().st_blocks * 512) for path in files)


class Mount:
    """`mglru mount DIR POINT`, until `close`."""

    def __init__(self, mglru, directory, point, budget, preset, trace=None):
        self.point = pathlib.Path(point)
        self.log = open(f"{point}.log", "w+")
        command = [mglru, "mount", directory, point, "--memory", str(budget), "--preset", preset]
        command += ["--record", trace] if trace else []
        self.process = subprocess.Popen([str(word) for word in command], stderr=self.log, start_new_session=True)
        try:
            wait_until("the mount is there", lambda: (self.point / ".mglru/mglru.state").exists(), 30, self.process)
        except Failure as failure:
            self.process.kill()
            self.process.wait()
            if "cannot mount at" in self.said():
                raise Failure(f"skipped: {self.said().strip()}") from None
            raise Failure(f"{failure}\n{self.said()}") from None

    def said(self):
        """Lines that the mount printed."""
        self.log.seek(0)
        return self.log.read()

    def state(self):
        """The state of the cache."""
        return json.loads((self.point / ".mglru/mglru.state").read_text())

    def close(self):
        """Unmounts, with everything written."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self.process.wait(300) != 0:
                raise Failure(f"the mount ended with status {self.process.returncode}:\n{self.said()}")

    def kill(self):
        """Kills the process of the mount, and frees the mount point."""
        self.process.kill()
        self.process.wait()
        call("umount", "--lazy", self.point)


class Cgroup:
    """A memory cgroup on the host, of version 1 or 2, until `close`."""

    def __init__(self):
        top, name = pathlib.Path("/sys/fs/cgroup"), f"mglru-apps-{os.getpid()}"
        try:
            if (top / "memory/memory.limit_in_bytes").exists():
                self.home, limit, rss, self.none = top / "memory", "memory.limit_in_bytes", "total_rss", "-1"
            else:
                self.home, limit, rss, self.none = top, "memory.max", "anon", "max"
                (top / "cgroup.subtree_control").write_text("+memory")
            self.path, self.rss = self.home / name, rss
            self.path.mkdir()
            self.limit = self.path / limit
            self.limit.read_text()
        except OSError as error:
            raise Failure(f"memory cgroups cannot be made here ({error})") from None
        self.procs = self.path / "cgroup.procs"

    @contextlib.contextmanager
    def inside(self, wanted=True):
        """This process and the children that it starts are in the cgroup, until the block ends."""
        if wanted:
            self.procs.write_text(str(os.getpid()))
        try:
            yield
        finally:
            if wanted:
                (self.home / "cgroup.procs").write_text(str(os.getpid()))

    def own_bytes(self):
        """Memory that the programs allocated themselves."""
        lines = (self.path / "memory.stat").read_text().splitlines()
        return max(int(line.split()[1]) for line in lines if line.split()[0] == self.rss)

    def set_limit(self, budget, work):
        """Does work without a limit, then limits files to the budget: programs keep the most that they had for
        themselves. The limit of an earlier load would kill one that needs more."""
        self.limit.write_text(self.none)
        most, done = [self.own_bytes()], threading.Event()

        def watch():
            while not done.wait(0.1):
                most.append(self.own_bytes())
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            work()
        finally:
            done.set()
            watcher.join()
        self.limit.write_text(str(budget + max(most)))

    def close(self):
        """Removes the cgroup, once its processes have ended."""
        with contextlib.suppress(OSError):
            wait_until("the cgroup is empty", lambda: not self.procs.read_text(), 10)
            self.path.rmdir()


def out_of_memory(directory):
    """Drops the pages of all files below a directory, which their copying left in memory."""
    for path in pathlib.Path(directory).rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb+") as file:
                os.fsync(file)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure_host(application, options, data, budget, results, run):
    """One run on the host's own file system, in a memory cgroup with the budget for files."""
    # Without a server, the work itself is the program.
    is_server = hasattr(application, "answers")
    cgroup = Cgroup()
    try:
        with copied(options, data) as (copy, _):
            out_of_memory(copy)
            with cgroup.inside():
                application.start(copy)
            try:
                for workload in application.workloads:
                    with cgroup.inside(not is_server):
                        cgroup.set_limit(budget, lambda: application.work(workload, copy, options.warm))
                        values = application.work(workload, copy, options.seconds)
                    nothing = {"hits": None, "misses/s": None, "refaults/s": None}
                    results.add(workload, "host", {**nothing, **values})
                    print(f"run {run + 1}: host, {workload}: done", file=sys.stderr)
            finally:
                application.stop()
    finally:
        cgroup.close()


class Replays:
    """Traces that were recorded on mounts, replayed with the memory and the preset of the mount."""

    def __init__(self, options, name):
        self.options = options
        self.name = name
        self.rows = []

    def trace(self, preset, run):
        """Where to record a run."""
        if not self.options.record:
            return None
        folder = pathlib.Path(self.options.record)
        folder.mkdir(parents=True, exist_ok=True)
        trace = folder / f"{self.name}-{preset}-{run + 1}.zst"
        # Of an earlier call.
        trace.unlink(missing_ok=True)
        return trace

    def add(self, trace, said, state):
        """Replays a trace as the mount said, and notes its counts beside those of the mount's last state."""
        options = re.search(r"as it was mounted: `mglru replay \S+ ([^`]*)`", said)[1].split()
        pages = options[options.index("--memory") + 1]
        again = json.loads(call(self.options.mglru, "replay", trace, *options, "--json"))["runs"][0]
        counters, mounted = again["warm"]["counters"], state["tenants"][0]
        pairs = [(mounted["hits"] + mounted["misses"], again["accesses"]),
                 (mounted["refaults"], counters["workingset_refault_file"]),
                 (mounted["reclaimed"], counters["pgsteal"])]
        cells = [cell for mount, replay in pairs
                 for cell in (mount, replay, f"{100 * (replay - mount) / max(mount, 1):+.1f}")]
        self.rows.append([trace.name, pages, *map(str, cells)])

    def show(self):
        """Prints both counts and the differences in percent."""
        if self.rows:
            table(self.rows, ["trace", "pages", "accesses", "replay", "%", "refaults", "replay", "%", "reclaimed",
                              "replay", "%"])


class Difference:
    """Work of the cache between two states."""

    def __init__(self, before, after):
        first, second = before["tenants"][0], after["tenants"][0]
        seconds = max(after["at_ms"] - before["at_ms"], 1) / 1000
        hits, misses = (second[key] - first[key] for key in ("hits", "misses"))
        self.values = {
            "hits": 100 * hits / max(hits + misses, 1),
            "misses/s": misses / seconds,
            "refaults/s": (second["refaults"] - first["refaults"]) / seconds,
        }


def interval(values):
    """The median, with the smallest and the largest value."""
    def short(value):
        return f"{value:.1f}" if value < 1000 else f"{value:.0f}"
    if None in values:
        return "-"
    median = short(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({short(min(values))}..{short(max(values))})"


def table(rows, headings):
    """Rows of text below headings, in columns."""
    widths = [max(len(row[at]) for row in [headings, *rows]) for at in range(len(headings))]
    for row in [headings, *rows]:
        print("  ".join(cell.ljust(width) if at < 2 else cell.rjust(width)
                        for at, (cell, width) in enumerate(zip(row, widths))).rstrip(), flush=True)


class Results:
    """Values by workload, preset and measure, of several runs."""

    def __init__(self):
        self.of = {}

    def add(self, workload, preset, values):
        """Adds a run."""
        for name, value in values.items():
            self.of.setdefault(workload, {}).setdefault(preset, {}).setdefault(name, []).append(value)

    def show(self):
        """Prints a table for each workload."""
        for workload, presets in self.of.items():
            names = list(next(iter(presets.values())))
            rows = [[workload, preset, *(interval(values.get(name, [None])) for name in names)] for preset, values in presets.items()]
            table(rows, ["workload", "preset", *("hits %" if name == "hits" else name for name in names)])
            print()


@contextlib.contextmanager
def copied(options, data):
    """A copy of the data and an empty mount point, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="mglru-apps-", dir=options.directory) as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        copy, point = folder / "data", folder / "point"
        call("cp", "-a", "--reflink=auto", data, copy)
        point.mkdir()
        try:
            yield copy, point
        finally:
            point.rmdir()


def measure(application, options, data, budget, results, replays, run):
    """One run of each preset, which take turns so that a slow minute meets all."""
    for preset in options.presets:
        with copied(options, data) as (copy, point):
            trace = replays.trace(preset, run)
            mount = Mount(options.mglru, copy, point, budget, preset, trace)
            try:
                application.start(point)
                try:
                    for workload in application.workloads:
                        application.work(workload, point, options.warm)
                        before = mount.state()
                        values = application.work(workload, point, options.seconds)
                        difference = Difference(before, mount.state())
                        results.add(workload, preset, {**difference.values, **values})
                        print(f"run {run + 1}: {preset}, {workload}: done", file=sys.stderr)
                finally:
                    application.stop()
                last = mount.state()
            finally:
                mount.close()
        if trace:
            replays.add(trace, mount.said(), last)


def measure_apart(application, options, data, budget, results, run):
    """One run of each preset by the program's own counterpart, without a mount."""
    for preset in options.presets:
        with copied(options, data) as (copy, _):
            cache = [options.mglru, "--memory", str(budget), "--preset", preset]
            for workload in application.workloads:
                nothing = {"hits": None, "misses/s": None, "refaults/s": None}
                values = application.apart(workload, copy, options.seconds, cache)
                results.add(workload, f"{preset}, no mount", {**nothing, **values})
                print(f"run {run + 1}: {preset} without a mount, {workload}: done", file=sys.stderr)


def crash(application, options, data, budget):
    """Kills the server, then the mount, each under load; the program's own checks must find nothing."""
    with copied(options, data) as (copy, point):
        for victim in ["server", "mount"]:
            mount = Mount(options.mglru, copy, point, budget, "default")
            try:
                application.start(point)
                load = application.load(point)
                time.sleep(options.warm)
                if victim == "server":
                    application.kill()
                else:
                    mount.kill()
                    application.kill()
                load.kill()
                load.wait()
                if victim == "mount":
                    mount = Mount(options.mglru, copy, point, budget, "default")
                application.start(point)
                found = application.check(point)
                print(f"{application.name}: after kill -9 of the {victim} under load: {found}", flush=True)
            finally:
                application.stop()
                mount.close()


def main(applications):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        epilog="Examples: run mariadb --quick | run postgresql --presets linux-6.12,default --runs 5 | run all")
    parser.add_argument("application", choices=[*applications, "all"])
    parser.add_argument("--quick", action="store_true", help="little data, two presets, one short run")
    parser.add_argument("--runs", type=int, help="runs of each preset [3]")
    parser.add_argument("--seconds", type=int, help="measured seconds of each workload [30]")
    parser.add_argument("--presets", help=f"presets, by commas [{','.join(PRESETS)}]")
    parser.add_argument("--share", type=float, default=0.25, help="the budget as a share of the data [0.25]")
    parser.add_argument("--no-host", dest="host", action="store_false",
                        help="without rows of the host's file system in a memory cgroup")
    parser.add_argument("--record", help="record each run into this directory, and compare with replays of the traces")
    parser.add_argument("--directory", default="/var/tmp", help="where to put the data [/var/tmp]")
    parser.add_argument("--mglru", help="the program [target/release/mglru, built if it is missing]")
    parser.add_argument("--json", help="write all values into this file")
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else 3)
    options.seconds = options.seconds or (5 if options.quick else 30)
    options.warm = max(options.seconds // 3, 2)
    options.presets = (options.presets or ("linux-7.1,default" if options.quick else ",".join(PRESETS))).split(",")
    try:
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            raise Failure("skipped: there is no /dev/fuse that this user may use")
        if options.mglru is None:
            options.mglru = ROOT / "target/release/mglru"
            call("cargo", "build", "--release", "--quiet", "-p", "mglru-cli", cwd=ROOT)
        options.mglru = pathlib.Path(options.mglru).absolute()
        everything = {}
        for name in applications if options.application == "all" else [options.application]:
            everything[name] = one(name, applications[name](options.quick), options)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(everything, indent=1) + "\n")
    except Failure as failure:
        print(f"apps: {failure}", file=sys.stderr)
        sys.exit(0 if str(failure).startswith("skipped") else 1)


def one(name, application, options):
    """All runs of an application."""
    need(application.packages)
    with tempfile.TemporaryDirectory(prefix="mglru-apps-data-", dir=options.directory) as folder:
        folder = pathlib.Path(folder)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir()
        application.prepare(data)
        size = bytes_of(data)
        budget = max(int(size * options.share) >> 20, 4) << 20
        print(f"{application.name}: {size >> 20} MiB of data, {budget >> 20} MiB of cache", flush=True)
        results, replays, host = Results(), Replays(options, name), options.host
        if host and (reason := getattr(application, "without_host", None)):
            print(f"no rows of the host's file system: {reason}", flush=True)
            host = False
        for run in range(options.runs):
            measure(application, options, data, budget, results, replays, run)
            if hasattr(application, "apart"):
                measure_apart(application, options, data, budget, results, run)
            if host:
                try:
                    measure_host(application, options, data, budget, results, run)
                except Failure as failure:
                    host = False
                    print(f"no rows of the host's file system: {failure}", flush=True)
        results.show()
        replays.show()
        if hasattr(application, "check"):
            crash(application, options, data, budget)
        return results.of
