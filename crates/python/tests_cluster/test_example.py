"""The example of the Makefile's `sweep-dask` and `sweep-ray`."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parent.parent / "examples" / "sweep.py"


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_the_sweep_prints_its_table_and_a_second_run_replays_nothing(engine, tmp_path):
    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, EXAMPLE, engine, tmp_path], capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    first, second = run(), run()
    assert "done_units=24, failed_units=0" in first[0] and "done_units=0" in second[0]
    assert len(first) == 9 and first[1:] == second[1:]


def test_wrong_usage_is_refused():
    done = subprocess.run([sys.executable, EXAMPLE, "spark", "x"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "dask|ray" in done.stderr
