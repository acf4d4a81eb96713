"""Sweeps on this machine; `tests_cluster` has those on Dask and Ray."""

import sys

import pyarrow.parquet
import pytest

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
        ({"seeds": [1] * 1_300_000}, "10400000 units"),
        ({"sizes": []}, "unknown field `sizes`"),
        ({"traces": []}, "no traces"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_wrong_grids_are_refused(grid, tmp_path, change, words):
    with pytest.raises(mglru.UsageError, match=words):
        mglru.sweep({**grid, **change}, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()


def test_other_engines_are_refused(grid, tmp_path):
    with pytest.raises(mglru.UsageError, match='on: expected "local"'):
        mglru.sweep(grid, tmp_path / "rows", on="slurm")
    with pytest.raises(mglru.UsageError, match="cannot write rows there"):
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
def work(grid, tmp_path):
    """A range of units, as a worker of a cluster runs it."""
    description = _sweep._describe(grid)
    (tmp_path / "rows").mkdir()
    yield lambda start, end: _sweep._work(
        description, str(tmp_path / "rows"), mglru.__version__, start, end
    )
    if _process._shared is not None:
        _process._shared.close()


def test_a_unit_that_kills_its_process_fails_alone(work, tmp_path, monkeypatch):
    monkeypatch.setattr(_process, "command", lambda: [sys.executable, "-c", CHILD, "5"])
    assert work(0, 4) == (0, None)
    reason = "its process died 2 times: SIGKILL, SIGKILL"
    assert work(4, 8) == (1, f"unit 5: {reason}")
    assert work(8, 16) == (0, None), "the worker has a new child"
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
    first._process.wait()
    assert work(1, 2) == (0, None) and _process._shared is not None
    assert _mglru.sweep_part_name(1, 2).startswith("units-")
