"""The types that the package declares are those that it has."""

import pathlib
import subprocess
import sys

import pytest

CONFIGURATION = pathlib.Path(__file__).parents[1] / "pyproject.toml"
# PyO3 adds a list of names, and Python knows these classes' memory.
ALLOWED = ["--ignore-disjoint-bases", "--allowlist", "allowed"]


@pytest.mark.parametrize(
    "check",
    [
        ["mypy", "--config-file", str(CONFIGURATION), "--package", "mglru"],
        ["mypy.stubtest", "--mypy-config-file", str(CONFIGURATION), *ALLOWED, "mglru._mglru"],
    ],
    ids=["package", "stubs"],
)
def test_types(check, tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "allowed").write_text("mglru._mglru.__all__\n")
    done = subprocess.run([sys.executable, "-m", *check], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_misspelled_name_is_an_error_of_types(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text("import mglru\nmglru.plot.mrc(mglru.mrc('x'))\nmglru.replya('x')\n")
    check = [sys.executable, "-m", "mypy", "--config-file", str(CONFIGURATION), "program.py"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert 'has no attribute "replya"' in done.stdout and "Found 1 error" in done.stdout, done.stdout + done.stderr
