"""Sweeps on this machine; `tests_cluster` has those on Dask and Ray."""

import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import types

import fsspec
import numpy
import pyarrow.parquet
import pytest
from fsspec import AbstractFileSystem

import mglru
from mglru import _mglru, _process, _sweep


@pytest.fixture
def grid(tmp_path) -> dict:
    for name in ("a", "b"):
        (tmp_path / f"{name}.plain").write_text("".join(f"{n * n % 251}\n" for n in range(2000)))
    return {
        "traces": [str(tmp_path / "a.plain"), {"path": str(tmp_path / "b.plain"), "sample": "50%"}],
        "policies": ["default", "arc"],
        "memory": ["10%", "64p"],
        "seeds": [1, 2],
    }


def test_rows_are_those_of_a_replay(grid, tmp_path):
    report = mglru.sweep(grid, tmp_path / "rows")
    assert (report.units, report.done_units, report.failed_units) == (16, 16, 0)
    swept = report.dataset().to_table().sort_by("unit").to_pylist()
    traces = [mglru.Trace(grid["traces"][0]), mglru.Trace(grid["traces"][1]["path"], sample=0.5)]
    replayed = mglru.replay(traces, grid["memory"], grid["policies"], grid["seeds"]).to_pylist()
    for row, expected in zip(swept, replayed, strict=True):
        assert row.pop("error") is None and row.pop("unit") is not None
        row["seconds"] = expected["seconds"]
        assert row == expected
    assert mglru.sweep(grid, tmp_path / "rows", threads=1).done_units == 0


def test_a_grid_of_python_has_paths_and_numbers_of_numpy(grid, tmp_path):
    grid["traces"] = [pathlib.Path(grid["traces"][0])]
    report = mglru.sweep({**grid, "seeds": numpy.arange(1, 3)}, tmp_path / "rows")
    assert (report.units, report.failed_units) == (8, 0)
    assert mglru.sweep({**grid, "seeds": [numpy.int64(1), 2]}, tmp_path / "rows").done_units == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"out": "s3://bucket/rows"}, "out: s3://bucket/rows: a sweep with .* writes to a folder"),
        ({"out": 5}, "out: expected the path of a folder, not 5"),
        ({"out": ""}, "out: expected the path of a folder, which is not empty"),
        ({"threads": -1}, "threads: -1 is not in 0"),
        ({"threads": 0}, "threads: 0: at least 1"),
        ({"grid": [1]}, "grid: expected the path of a file or a dictionary"),
        ({"grid": {"traces": [object()]}}, "grid: expected text, numbers, lists and dictionaries"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(grid, tmp_path, arguments, words, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mglru.UsageError, match=words):
        mglru.sweep(**{"grid": grid, "out": tmp_path / "rows", **arguments})
    assert not (tmp_path / "rows").exists() and not (tmp_path / "s3:").exists()


def test_the_store_of_a_cluster_refuses_unknown_urls():
    with pytest.raises(mglru.UsageError, match="out: tape://rows: Protocol not known: tape"):
        _sweep._Store("tape://rows")


@pytest.mark.parametrize("url", ["file://{}/rows", "memory://rows-of-a-cluster"], ids=["file", "memory"])
def test_parts_of_a_cluster_are_read_before_they_count(grid, tmp_path, url):
    """Some stores show a file that a worker was killed in the middle of."""
    mglru.sweep(grid, tmp_path / "parts")
    part = [(tmp_path / "parts" / _mglru.sweep_part_name(unit, unit + 1)).read_bytes() for unit in range(16)]
    store = _sweep._Store(url.format(tmp_path))
    store.system.makedirs(store.folder)
    contents = {
        (0, 1): part[0],
        (1, 4): _mglru.sweep_parts_joined(part[1:4]),
        (2, 3): part[2],
        (4, 5): b"",
        (5, 6): part[5][:-100],
        (6, 7): part[5],
        (8, 10): part[8],
    }
    for (start, end), content in contents.items():
        store.system.pipe_file(store.path(_mglru.sweep_part_name(start, end)), content)
    store.system.pipe_file(store.path("notes.txt"), b"of somebody else")
    whole = [_mglru.sweep_part_name(0, 1), _mglru.sweep_part_name(1, 4)]
    assert [store.holds(_mglru.sweep_part_name(*units)) for units in contents] == [True] * 3 + [False] * 4
    assert not store.holds(_mglru.sweep_part_name(15, 16))
    assert sorted(store.parts()) == whole
    left = sorted(path.rpartition("/")[2] for path in store.system.ls(store.folder, detail=False))
    assert left == ["notes.txt", *whole]


def test_what_workers_wrote_is_seen_beside_an_old_listing(grid, tmp_path):
    """File systems of object stores list a folder once, so that `dataset()` raised `FileNotFoundError`."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Listed(MemoryFileSystem):
        protocol = "listed"
        listings: dict = {}

        @classmethod
        def _strip_protocol(cls, path):
            return MemoryFileSystem._strip_protocol(path.removeprefix("listed://"))

        def ls(self, path, detail=True, **options):
            path = self._strip_protocol(path)
            if path not in self.listings:
                self.listings[path] = super().ls(path, detail=True)
            return self.listings[path] if detail else [entry["name"] for entry in self.listings[path]]

        def info(self, path, **options):
            path = self._strip_protocol(path)
            found = [entry for entry in self.ls(self._parent(path)) if entry["name"] == path]
            if not found:
                raise FileNotFoundError(path)
            return found[0]

        def isfile(self, path):
            try:
                return self.info(path)["type"] == "file"
            except FileNotFoundError:
                return False

        def invalidate_cache(self, path=None):
            self.listings.clear()

    fsspec.register_implementation("listed", Listed, clobber=True)
    mglru.sweep(grid, tmp_path / "rows")
    worker = fsspec.filesystem("memory")
    worker.makedirs("/listed-rows")
    store = _sweep._Store("listed://listed-rows")
    assert store.system.ls(store.folder) == []
    for part in (tmp_path / "rows").glob("units-*"):
        worker.pipe_file(f"/listed-rows/{part.name}", part.read_bytes())
    assert _sweep.SweepReport("listed://listed-rows", 16, 16, 0, None, 0.0).dataset().count_rows() == 16
    assert not store.system.exists(store.path("_sweep.txt"))
    worker.pipe_file("/listed-rows/_sweep.txt", b"a\nseeds [1]\n")
    with pytest.raises(mglru.UsageError, match=r"another sweep are there \(now `seeds \[2\]`, there `seeds \[1\]`\)"):
        store.begin("a\nseeds [2]\n")


class Buckets(AbstractFileSystem):
    """A store of objects, as s3fs is one: there are no folders, and a bucket that is missing is made with them."""

    protocol = "buckets"
    buckets: dict = {}
    fails = False

    def mkdir(self, path, create_parents=True, **options):
        bucket, _, key = self._strip_protocol(path).partition("/")
        if bucket not in self.buckets:
            if key and not create_parents:
                raise FileNotFoundError(bucket)
            self.buckets[bucket] = {}

    def makedirs(self, path, exist_ok=False):
        self.mkdir(path)

    def info(self, path, **options):
        if self.fails:
            raise TimeoutError("no answer")
        bucket, _, key = self._strip_protocol(path).partition("/")
        if key not in self.buckets.get(bucket, {}):
            raise FileNotFoundError(path)
        return {"name": path, "type": "file", "size": len(self.buckets[bucket][key])}

    def cat_file(self, path, start=None, end=None, **options):
        self.info(path)
        bucket, _, key = self._strip_protocol(path).partition("/")
        return self.buckets[bucket][key][start:end]

    def pipe_file(self, path, value, mode="overwrite", **options):
        bucket, _, key = self._strip_protocol(path).partition("/")
        if bucket not in self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        self.buckets[bucket][key] = value


@pytest.fixture
def buckets(monkeypatch):
    fsspec.register_implementation("buckets", Buckets, clobber=True)
    monkeypatch.setattr(Buckets, "buckets", {"there": {}})
    return Buckets


def test_a_cluster_makes_neither_a_misspelt_bucket_nor_a_misspelt_folder(tmp_path, buckets):
    for out in ("buckets://their/a/rows", "buckets://their", f"file://{tmp_path}/mispelt/rows", f"{tmp_path}/a/rows"):
        with pytest.raises(mglru.UsageError, match="what it is in does not exist; correct the path"):
            _sweep._Store(out).begin("seeds [1]\n")
    assert list(buckets.buckets) == ["there"] and not list(tmp_path.iterdir())
    for out in ("buckets://there", "buckets://there/a/rows", f"file://{tmp_path}/a", f"{tmp_path}/b"):
        for _ in range(2):
            _sweep._Store(out).begin("seeds [1]\n")
        with pytest.raises(mglru.UsageError, match="the rows of another sweep are there"):
            _sweep._Store(out).begin("seeds [2]\n")


def test_a_store_that_does_not_answer_has_not_lost_the_rows_of_another_sweep(buckets, monkeypatch):
    store = _sweep._Store("buckets://there/rows")
    store.begin("seeds [1]\n")
    monkeypatch.setattr(buckets, "fails", True)
    with pytest.raises(mglru.WorkError, match="cannot write rows there: no answer"):
        store.begin("seeds [2]\n")
    assert buckets.buckets["there"] == {"rows/_sweep.txt": b"seeds [1]\n"}


@pytest.fixture
def children():
    """The next test has a new child."""
    yield
    if _process._shared is not None:
        _process._shared.close()


class Cluster:
    """A cluster of one worker, which dies in some ranges."""

    def __init__(self, *deadly):
        self.deadly = deadly
        self.lost = 0

    def submit(self, *arguments):
        return arguments

    def finished(self, tasks):
        (task,) = list(tasks)[:1]
        range_ = task[3:]
        # The rows of the last range are there when its worker dies.
        if range_ not in self.deadly or range_ == self.deadly[-1]:
            result = _sweep._work(*task)
        if range_ in self.deadly:
            self.lost += 1
            result = _sweep._Lost("killed")
        yield task, result

    def slots(self):
        return 1


def test_the_rows_of_a_range_are_one_file_whoever_dies(grid, tmp_path, children):
    description = _sweep._describe(grid)

    class Ranges:
        """The grid in ranges of four units."""

        def __init__(self):
            self.of = _sweep._of(description)

        def __getattr__(self, name):
            return getattr(self.of, name)

        def pending(self, names):
            assert names == []
            return [(start, start + 4) for start in range(0, 16, 4)]

    out = tmp_path / "rows"
    cluster = Cluster((4, 8), (6, 7), (8, 12))
    report = _sweep._run(Ranges(), description, str(out), cluster)
    assert cluster.lost == 3 + 3 + 1
    assert (report.done_units, report.failed_units) == (16, 1)
    assert report.first_failure == "unit 6: its worker died 3 times"
    assert sorted(path.name for path in out.glob("units-*")) == [
        _mglru.sweep_part_name(start, start + 4) for start in range(0, 16, 4)
    ]
    rows = pyarrow.parquet.read_table(out).sort_by("unit").to_pylist()
    assert [row["unit"] for row in rows] == list(range(16))
    assert [row["unit"] for row in rows if row["error"] is not None] == [6]


def test_another_version_of_the_package_has_another_child(monkeypatch):
    before = _process._meeting_point()
    assert _process._meeting_point() == before
    monkeypatch.setattr(_mglru, "__version__", "9.9")
    assert _process._meeting_point() != before


def test_two_sweeps_at_once_decode_each_trace_once(grid, tmp_path):
    other = {**grid, "policies": ["lru"]}
    sweeps = [_sweep._of(_sweep._describe(each)) for each in (grid, other)]
    ranges = [[sweep.pending([])[0] for sweep in sweeps], [sweep.pending([])[-1] for sweep in sweeps]]
    for _ in range(2):
        for of_trace in ranges:
            for sweep, (start, end) in zip(sweeps, of_trace, strict=True):
                assert sweep.run(start, end)[1] == 0, "no unit failed"
        # From here on, nothing can be read.
        for name in ("a", "b"):
            (tmp_path / f"{name}.plain").unlink(missing_ok=True)
    fresh = _sweep._of(_sweep._describe(other))
    start, end = ranges[0][1]
    assert fresh.run(start, end)[1] == end - start, "another sweep reads the files, which may have changed"


def test_a_file_and_a_dictionary_are_the_same_grid(grid, tmp_path):
    (tmp_path / "grid.toml").write_text(
        "traces = ['a.plain', { path = 'b.plain', sample = '50%' }]\n"
        "policies = ['default', 'arc']\nmemory = ['10%', '64p']\nseeds = [1, 2]\n"
    )
    mglru.sweep(tmp_path / "grid.toml", tmp_path / "of-file")
    mglru.sweep(grid, tmp_path / "of-dictionary")

    def rows(out):
        table = pyarrow.parquet.read_table(tmp_path / out).sort_by("unit")
        return table.drop_columns(["seconds", "trace"]).to_pylist()

    assert rows("of-file") == rows("of-dictionary")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policies": ["mru"]}, "policies: unknown policy `mru`"),
        ({"memory": [None]}, "expected text such as"),
        ({"seeds": list(range(1_300_000))}, "10400000 units"),
        ({"sizes": []}, "unknown field `sizes`"),
        ({"traces": []}, "no traces"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_wrong_grids_are_refused(grid, tmp_path, change, words):
    with pytest.raises(mglru.UsageError, match=words):
        mglru.sweep({**grid, **change}, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_traces_at_urls_are_those_of_files(grid, tmp_path, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    memory = fsspec.filesystem("memory")
    for name in ("a", "b"):
        memory.pipe_file(f"/{name}.plain", (tmp_path / f"{name}.plain").read_bytes())
    opens = []
    open_file = MemoryFileSystem._open
    monkeypatch.setattr(
        MemoryFileSystem, "_open", lambda self, path, *a, **k: opens.append(path) or open_file(self, path, *a, **k)
    )
    urls = ["memory://a.plain", {"path": "memory://b.plain", "sample": "50%", "storage_options": {}}]
    mglru.sweep(grid, tmp_path / "files")
    report = mglru.sweep({**grid, "traces": urls}, tmp_path / "urls")
    assert report.failed_units == 0 and sorted(opens) == ["/a.plain", "/b.plain"]

    def rows(out):
        table = pyarrow.parquet.read_table(tmp_path / out).sort_by("unit")
        return table.drop_columns(["seconds", "trace"]).to_pylist()

    assert rows("urls") == rows("files")
    assert report.dataset().to_table()["trace"][0].as_py() == "memory://a.plain"
    # A trace that was replaced has other rows.
    memory.pipe_file("/a.plain", b"1\n2\n")
    with pytest.raises(mglru.UsageError, match="the rows of another sweep"):
        mglru.sweep({**grid, "traces": urls}, tmp_path / "urls")


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ("memory://nowhere.plain", "memory://nowhere.plain: FileNotFoundError: "),
        ("tape://a.plain", "tape://a.plain: ValueError: Protocol not known: tape"),
        ("memory://folder", "memory://folder: a folder, not a trace"),
        ({"path": "memory://a.plain", "storage_options": 1}, "expected the path of a trace"),
        ({"path": "a.plain", "storage_options": {}}, "storage_options: only for a URL, and `a.plain` is a file"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_urls_are_refused_before_it_starts(grid, tmp_path, trace, words):
    import fsspec

    fsspec.filesystem("memory").pipe_file("/folder/a.plain", b"1\n")
    with pytest.raises(mglru.UsageError, match=words):
        mglru.sweep({**grid, "traces": [trace]}, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_a_pipe_is_refused_before_anybody_waits_for_its_writer(grid, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(mglru.UsageError, match="pipe: a pipe or a device can be read once only"):
        mglru.sweep({**grid, "traces": [str(tmp_path / "pipe")]}, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_a_url_that_breaks_is_rows_with_errors(grid, tmp_path, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFile

    memory = fsspec.filesystem("memory")
    memory.pipe_file("/breaks.plain", b"1\n" * 1000)
    memory.pipe_file("/damaged.plain", b"1\n2\nthree\n")
    damaged = {"path": "memory://damaged.plain", "format": "plain"}
    report = mglru.sweep({**grid, "traces": [damaged]}, tmp_path / "damaged")
    assert report.failed_units == report.units and "memory://damaged.plain" in report.first_failure

    def read(self, size=-1):
        raise ConnectionResetError("the store hung up")

    monkeypatch.setattr(MemoryFile, "read", read)
    report = mglru.sweep({**grid, "traces": ["memory://breaks.plain"]}, tmp_path / "breaks")
    assert report.failed_units == report.units
    assert report.first_failure == "memory://breaks.plain: ConnectionResetError: the store hung up"


def test_an_interrupted_range_runs_again(grid, interrupted, monkeypatch):
    import fsspec
    from fsspec.implementations.memory import MemoryFile

    fsspec.filesystem("memory").pipe_file("/endless.plain", b"1\n2\n1\n")
    sweep = _sweep._of(_sweep._describe({**grid, "traces": ["memory://endless.plain"]}))
    begun = threading.Event()

    def read(self, size=-1):
        begun.set()
        return b"1\n" * 1000

    with monkeypatch.context() as patched, interrupted(begun), pytest.raises(KeyboardInterrupt):
        patched.setattr(MemoryFile, "read", read)
        sweep.run(0, 1)
    _, failed, first = sweep.run(0, 1)
    assert (failed, first) == (0, None), "what was not read was kept for the whole process"


def test_only_a_timeout_of_dask_is_a_lost_worker(monkeypatch):
    """A store that does not answer raises the same class as a wait for a result. It is not tried again."""
    dask, scheduler = types.ModuleType("distributed"), types.ModuleType("distributed.scheduler")
    dask.wait = lambda tasks, return_when: types.SimpleNamespace(done=tasks)
    scheduler.KilledWorker = type("KilledWorker", (Exception,), {})
    monkeypatch.setitem(sys.modules, "distributed", dask)
    monkeypatch.setitem(sys.modules, "distributed.scheduler", scheduler)

    class Task:
        def __init__(self, status, error):
            self.status, self.error = status, error

        def result(self, timeout):
            raise self.error

    def found(status, error):
        ((_, result),) = _sweep._Dask(None).finished({Task(status, error)})
        return result

    assert isinstance(found("finished", asyncio.TimeoutError("10 s")), _sweep._Lost)
    assert isinstance(found("error", scheduler.KilledWorker()), _sweep._Lost)
    for error in (asyncio.TimeoutError("the store"), TimeoutError("the store")):
        assert found("error", error) is error


def test_other_engines_are_refused(grid, tmp_path):
    with pytest.raises(mglru.UsageError, match='on: expected "local"'):
        mglru.sweep(grid, tmp_path / "rows", on="slurm")
    with pytest.raises(mglru.WorkError, match="cannot write rows there"):
        mglru.sweep(grid, tmp_path / "a.plain")


CHILD = """
import os, signal, sys
from mglru import _process, _sweep

of = _sweep._of

class Deadly:
    def __init__(self, description):
        self.sweep = of(description)

    def run(self, start, end):
        if start <= int(sys.argv[1]) < end:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.sweep.run(start, end)

_sweep._of = Deadly
_process.serve()
"""


@pytest.fixture
def work(grid, tmp_path, children):
    """A range of units, as a worker of a cluster runs it."""
    description = _sweep._describe(grid)
    (tmp_path / "rows").mkdir()

    def run(start, end):
        failed, first, rows = _sweep._work(description, str(tmp_path / "rows"), mglru.__version__, start, end)
        assert rows is None, "they are written"
        return failed, first

    return run


def test_a_unit_that_kills_its_process_fails_alone(work, tmp_path, monkeypatch):
    monkeypatch.setattr(_process, "command", lambda: [sys.executable, "-c", CHILD, "5"])
    assert work(0, 4) == (0, None)
    reason = "its process died 2 times: SIGKILL, SIGKILL"
    assert work(4, 8) == (1, f"unit 5: {reason}")
    assert work(8, 16) == (0, None), "the worker has a new child"
    parts = [_mglru.sweep_part_name(*units) for units in ((0, 4), (4, 8), (8, 16))]
    assert sorted(os.listdir(tmp_path / "rows")) == parts, "also the range that was run one by one is one file"
    rows = pyarrow.parquet.read_table(tmp_path / "rows").sort_by("unit").to_pylist()
    assert [row["unit"] for row in rows] == list(range(16))
    assert [(row["unit"], row["error"]) for row in rows if row["error"] is not None] == [(5, reason)]


def test_errors_of_a_range_come_back_from_its_process(work, grid, tmp_path, monkeypatch):
    with pytest.raises(mglru.UsageError, match="this worker has mglru .*, the sweep is of 9.9"):
        _sweep._work(_sweep._describe(grid), str(tmp_path / "rows"), "9.9", 0, 1)
    with pytest.raises(mglru.UsageError, match="unknown policy `mru`"):
        _sweep._work(
            _sweep._describe({**grid, "policies": ["mru"]}), str(tmp_path / "rows"), mglru.__version__, 0, 1
        )
    assert work(0, 1) == (0, None)


def test_a_child_that_was_closed_gets_no_work(work):
    assert work(0, 1) == (0, None)
    _process._shared.close()
    assert not _process._shared.is_alive
    assert work(1, 2) == (0, None)


def test_an_idle_child_ends_and_the_next_range_has_another(work, monkeypatch):
    code = "from mglru import _process; _process.IDLE_S = 0.01; _process.serve()"
    monkeypatch.setattr(_process, "command", lambda: [sys.executable, "-c", code])
    assert work(0, 1) == (0, None)
    first = _process._shared
    first.listener.join()
    assert not first.is_alive
    assert work(1, 2) == (0, None) and _process._shared is not None
    assert _mglru.sweep_part_name(1, 2).startswith("units-")


MACHINE = """
import os, sys
from mglru import _process, _sweep

of = _sweep._of

def noted(description):
    if of.cache_info().misses == 0:
        with open(sys.argv[1], "a") as file:
            print(os.getpid(), file=file)
    return of(description)

_sweep._of = noted
_process.serve()
"""

WORKER = """
import sys
import mglru
from mglru import _process, _sweep

_process.command = lambda: [sys.executable, *sys.argv[4:]]
description, out, start = sys.argv[1:4]
print(_sweep._work(description, out, mglru.__version__, int(start), int(start) + 4))
"""


def test_the_workers_of_a_machine_share_a_child(grid, tmp_path):
    description = _sweep._describe(grid)
    rows = tmp_path / "rows"
    rows.mkdir()
    pids = tmp_path / "pids"
    child = ["-c", MACHINE, str(pids)]
    workers = [
        subprocess.Popen([sys.executable, "-c", WORKER, description, str(rows), str(start), *child])
        for start in (0, 4, 8)
    ]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    assert pyarrow.parquet.read_table(rows).num_rows == 12
    assert len(pids.read_text().split()) == 1, "the grid was read once, by one process"


def test_a_worker_without_a_socket_has_a_child_of_its_own(work, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 40)))
    (tmp_path / ("long" * 40)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert work(0, 1) == (0, None)
    assert _process._shared._process is not None


def test_a_folder_of_others_has_no_socket(work, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"mglru-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(OSError, match="others may write there"):
        _process._of_machine()
    assert work(0, 1) == (0, None)
    folder.chmod(0o700)
    _process._of_machine().close()
