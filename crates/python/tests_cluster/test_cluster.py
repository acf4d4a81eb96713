"""Sweeps on real local clusters of Dask and of Ray: equal rows, lost workers, poisoned units."""

import os
import pathlib
import signal
import sys
import threading

import pyarrow.parquet
import pytest

import mglru
from mglru import _process, _sweep

SEEDS = 24
KILLS = int(os.environ.get("MGLRU_KILLS", "10"))


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("traces")
    for name, step in (("a", 7), ("b", 13)):
        (folder / f"{name}.plain").write_text("".join(f"{n * n * step % 251}\n" for n in range(1000)))
    return folder


@pytest.fixture(scope="module")
def grid(traces) -> dict:
    return {
        "traces": [str(traces / "a.plain"), str(traces / "b.plain")],
        "policies": ["default", "arc"],
        "memory": ["20%", "64p"],
        "seeds": list(range(SEEDS)),
    }


def rows(out) -> list[dict]:
    """All rows in order, without what depends on the machine."""
    table = pyarrow.parquet.read_table(out).sort_by("unit")
    return table.drop_columns(["seconds"]).to_pylist()


@pytest.fixture(scope="module")
def expected(grid, tmp_path_factory) -> list[dict]:
    out = tmp_path_factory.mktemp("local")
    assert mglru.sweep(grid, out).failed_units == 0
    found = rows(out)
    assert [row["unit"] for row in found] == list(range(2 * 2 * 2 * SEEDS))
    return found


@pytest.fixture(scope="module")
def dask():
    import dask
    from distributed import Client, LocalCluster

    # A local cluster looks this long after a death whether the worker is there, and closes it for good if it
    # happens to be down, for another death.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}):
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                yield client


@pytest.fixture(scope="module")
def ray():
    import ray

    # Its telemetry needs a network.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for attempt in range(3):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
            break
        except Exception as error:
            # Ray waits 30 seconds for its processes, which may take longer on a busy machine.
            if "timed out during startup" not in str(error) or attempt == 2:
                raise
            ray.shutdown()
    yield "ray"
    ray.shutdown()


@pytest.fixture(params=["dask", "ray"])
def cluster(request):
    return request.getfixturevalue(request.param)


def test_rows_are_those_of_this_machine(cluster, grid, expected, tmp_path):
    report = mglru.sweep(grid, tmp_path / "rows", on=cluster)
    assert (report.units, report.done_units, report.failed_units) == (len(expected), len(expected), 0)
    assert rows(tmp_path / "rows") == expected
    assert mglru.sweep(grid, tmp_path / "rows", on=cluster).done_units == 0


def test_traces_and_rows_may_be_at_urls(cluster, grid, expected, tmp_path):
    urls = [f"file://{path}" for path in grid["traces"]]
    report = mglru.sweep({**grid, "traces": urls}, f"file://{tmp_path}/rows", on=cluster)
    assert report.failed_units == 0
    found = rows(tmp_path / "rows")
    assert [row.pop("trace") for row in found] == [f"file://{row['trace']}" for row in expected]
    assert found == [{key: row[key] for key in row if key != "trace"} for row in expected]
    for wrong, words in [
        (f"file://{tmp_path}/nowhere", "FileNotFoundError"),
        ("tape://a.plain", "Protocol not known: tape"),
    ]:
        with pytest.raises(mglru.UsageError, match=words):
            mglru.sweep({**grid, "traces": [wrong]}, tmp_path / "none", on=cluster)
    assert not (tmp_path / "none").exists()


def test_an_interrupted_sweep_goes_on_elsewhere(cluster, grid, expected, tmp_path):
    out = tmp_path / "rows"
    mglru.sweep(grid, out)
    parts = sorted(out.glob("units-*"))
    for part in parts[::3]:
        part.unlink()
    report = mglru.sweep(grid, out, on=cluster)
    assert 0 < report.done_units < len(expected) and rows(out) == expected
    assert mglru.sweep(grid, out).done_units == 0


def _dask_workers(client) -> list[int]:
    from distributed.core import Status

    # Dask gives a worker up that is killed while it starts.
    nannies = [nanny for nanny in client.cluster.workers.values() if nanny.status == Status.running]
    pids = [
        nanny.pid
        for nanny in nannies
        if nanny.process is not None and nanny.process.status == Status.running
    ]
    return [pid for pid in pids if pid is not None]


def _ray_workers() -> list[int]:
    """Workers of this program's cluster that run a range: they have its name."""

    def parent(pid: int) -> int:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    workers = []
    for name in os.listdir("/proc"):
        try:
            command = pathlib.Path(f"/proc/{name}/cmdline").read_bytes() if name.isdigit() else b""
            if command.startswith(b"ray::_work") and parent(parent(int(name))) == os.getpid():
                workers.append(int(name))
        except OSError:
            # It has just ended.
            pass
    return workers


def test_killed_workers_lose_no_row(cluster, grid, tmp_path):
    """10,000 units on two workers, which are killed in turn, each as soon as some more rows are there."""
    grid = {**grid, "seeds": list(range(1250))}
    out = tmp_path / "rows"
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        seen = 0
        while len(killed) < KILLS and not ended.wait(0.02):
            parts = len(list(out.glob("units-*")))
            workers = _ray_workers() if cluster == "ray" else _dask_workers(cluster)
            pids = [pid for pid in workers if pid not in killed]
            if parts > seen and pids:
                seen = parts
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])

    thread = threading.Thread(target=kill)
    thread.start()
    report = mglru.sweep(grid, out, on=cluster)
    ended.set()
    thread.join()
    assert len(killed) == KILLS, f"only {killed} were killed: the sweep was too short"
    assert (report.done_units, report.failed_units) == (10_000, 0)
    found = rows(out)
    assert [row["unit"] for row in found] == list(range(10_000))
    assert len({row["misses"] for row in found if row["policy"] == "arc"}) <= 4
    print(f"10,000 units, {KILLS} workers killed: {report.seconds:.1f} s")


CHILD = """
import os, signal
from mglru import _process, _sweep

of = _sweep._of

class Deadly:
    def __init__(self, description):
        self.sweep = of(description)

    def run(self, start, end):
        if start <= 17 < end:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.sweep.run(start, end)

_sweep._of = Deadly
_process.serve()
"""


def _deadly(child, *arguments):
    """The work of a worker whose processes unit 17 kills, as a bug in native code would."""
    command = [sys.executable, "-c", child]
    if _process.command() != command:
        _process._shared, _process.command = None, lambda: command
    return _sweep._work(*arguments)


def test_a_unit_that_kills_its_process_fails_alone(cluster, traces, tmp_path, monkeypatch):
    grid = {
        "traces": [str(traces / "a.plain")],
        "policies": ["arc"],
        "memory": ["10%"],
        "seeds": list(range(512)),
    }
    if cluster == "ray":
        import ray

        on = _sweep._Ray()
        # This file is not on the workers.
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        remote = on.ray.remote(max_retries=0)(_deadly)
        monkeypatch.setattr(on, "submit", lambda *arguments: remote.remote(CHILD, *arguments))
    else:
        on = _sweep._Dask(cluster)
        submit = lambda *arguments: cluster.submit(_deadly, CHILD, *arguments, pure=False)  # noqa: E731
        monkeypatch.setattr(on, "submit", submit)
    description = _sweep._describe(grid)
    report = _sweep._run(_sweep._of(description), description, str(tmp_path / "rows"), on)
    assert (report.done_units, report.failed_units) == (512, 1)
    reason = "its process died 2 times: SIGKILL, SIGKILL"
    assert report.first_failure == f"unit 17: {reason}"
    failed = [row for row in rows(tmp_path / "rows") if row["error"] is not None]
    assert [(row["unit"], row["misses"], row["error"]) for row in failed] == [(17, None, reason)]


def test_a_damaged_trace_is_rows_with_errors(cluster, traces, tmp_path):
    damaged = tmp_path / "damaged.plain"
    damaged.write_text("1\n2\nthree\n")
    grid = {
        "traces": [{"path": str(damaged), "format": "plain"}, str(traces / "a.plain")],
        "policies": ["lru"],
        "memory": ["10%", "20%"],
    }
    report = mglru.sweep(grid, tmp_path / "rows", on=cluster)
    assert (report.done_units, report.failed_units) == (4, 2) and "line 3" in report.first_failure
    assert [row["error"] is None for row in rows(tmp_path / "rows")] == [False, False, True, True]


def test_workers_of_another_version_are_refused(cluster, grid, tmp_path, monkeypatch):
    monkeypatch.setattr(mglru, "__version__", "9.9")
    with pytest.raises(mglru.UsageError, match="this worker has mglru .*, the sweep is of 9.9"):
        mglru.sweep(grid, tmp_path / "rows", on=cluster)


def test_a_wrong_grid_is_refused_before_it_starts(cluster, grid, tmp_path):
    for change, words in [
        ({"policies": ["mru"]}, "policies: unknown policy `mru`"),
        ({"seeds": list(range(2_000_000))}, "16000000 units"),
        ({"memory": []}, "no memory sizes"),
        ({"sizes": ["10%"]}, "unknown field `sizes`"),
    ]:
        with pytest.raises(mglru.UsageError, match=words):
            mglru.sweep({**grid, **change}, tmp_path / "rows", on=cluster)
        assert not (tmp_path / "rows").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(mglru.WorkError, match="cannot write rows there"):
        mglru.sweep(grid, tmp_path / "file", on=cluster)
    mglru.sweep({**grid, "seeds": [1]}, tmp_path / "rows")
    with pytest.raises(mglru.UsageError, match="the rows of another sweep"):
        mglru.sweep({**grid, "seeds": [2]}, tmp_path / "rows", on=cluster)
    with pytest.raises(mglru.UsageError, match="threads: only with"):
        mglru.sweep(grid, tmp_path / "rows", on=cluster, threads=2)
    with pytest.raises(mglru.UsageError, match="on: expected"):
        mglru.sweep(grid, tmp_path / "rows", on="slurm")
