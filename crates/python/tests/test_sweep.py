"""Sweeps on this machine; `tests_cluster` has those on Dask and Ray."""

import pyarrow.parquet
import pytest

import mglru


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
