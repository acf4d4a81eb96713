"""The recipes of `docs/book/src/clusters.md`, as far as a machine without Slurm and Kubernetes can run
them: their classes take the arguments, and the rest of the code runs on a local cluster instead."""

import json
import pathlib
import re
import subprocess
import sys

import dask_jobqueue
import dask_jobqueue.local
import dask_kubernetes.operator
import distributed
import pyarrow.parquet
import pytest

import mglru

BOOK = pathlib.Path(__file__).parents[3] / "docs/book/src/clusters.md"
GRID = {"traces": ["loop.plain"], "policies": ["default", "lru"], "memory": ["10%", "64p"], "seeds": list(range(8))}


def recipe(chapter: str) -> str:
    """The Python code of a chapter."""
    text = BOOK.read_text().split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return code


def rows(out) -> list[dict]:
    return pyarrow.parquet.read_table(out).sort_by("unit").drop_columns(["seconds"]).to_pylist()


@pytest.fixture
def shared(tmp_path) -> pathlib.Path:
    """A folder with a grid, in place of one that all machines see."""
    (tmp_path / "loop.plain").write_text("".join(f"{n * n % 251}\n" for n in range(1000)))
    grid = "\n".join(f"{name} = {json.dumps(value)}" for name, value in GRID.items())
    (tmp_path / "grid.toml").write_text(grid)
    assert mglru.sweep(tmp_path / "grid.toml", tmp_path / "expected").failed_units == 0
    return tmp_path


def ran(code: str, shared: pathlib.Path, replacements: dict[str, str]) -> None:
    """Runs a recipe with other places, and compares its rows."""
    for name, here in replacements.items():
        assert name in code, name
        code = code.replace(name, here)
    names: dict = {}
    try:
        exec(code, names)
    finally:
        if "cluster" in names:
            names["cluster"].close()
    assert names["report"].failed_units == 0 and names["report"].done_units == 32
    assert rows(shared / "rows") == rows(shared / "expected")


def test_slurm(shared, monkeypatch):
    slurm, scripts = dask_jobqueue.SLURMCluster, []

    def local(**arguments):
        with slurm(**arguments) as cluster:
            scripts.append(cluster.job_script())
        # These are for the queue. The jobs are the same scripts, started by a shell.
        queued = {"queue", "walltime"}
        kept = {name: value for name, value in arguments.items() if name not in queued}
        return dask_jobqueue.local.LocalCluster(**kept)

    monkeypatch.setattr(dask_jobqueue, "SLURMCluster", local)
    places = {
        "/shared/venv/bin/python": sys.executable,
        "/shared/grid.toml": str(shared / "grid.toml"),
        "/shared/rows": str(shared / "rows"),
        "maximum_jobs=20": "maximum_jobs=2",
    }
    ran(recipe("Slurm"), shared, places)
    (script,) = scripts
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    for line in ("#SBATCH -p batch", "#SBATCH -n 1", "#SBATCH --cpus-per-task=32", "#SBATCH -t 04:00:00"):
        assert f"\n{line}\n" in script, script
    assert f"\n{sys.executable} -m distributed.cli.dask_worker" in script, script
    assert "--nthreads 32" in script and "--lifetime 230m --lifetime-stagger 5m" in script, script


def test_kubernetes(shared, monkeypatch):
    specs = []

    def local(**arguments):
        specs.append(dask_kubernetes.operator.make_cluster_spec(**arguments))
        return distributed.LocalCluster(n_workers=1, threads_per_worker=8, dashboard_address=None)

    monkeypatch.setattr(dask_kubernetes.operator, "KubeCluster", local)
    places = {"/data/grid.toml": str(shared / "grid.toml"), "s3://bucket/rows": str(shared / "rows")}
    ran(recipe("Kubernetes"), shared, places)
    (spec,) = specs
    assert spec["kind"] == "DaskCluster" and spec["spec"]["worker"]["replicas"] == 4
    (container,) = spec["spec"]["worker"]["spec"]["containers"]
    command = container["args"]
    assert command[:6] == ["dask", "worker", "--nworkers", "1", "--nthreads", "8"]
    assert container["resources"]["limits"] == {"memory": "8Gi"}
    helped = subprocess.run([sys.executable, "-m", "dask", "worker", "--help"], capture_output=True, text=True)
    options = [word for word in command if word.startswith("--")]
    assert helped.returncode == 0 and all(option in helped.stdout for option in options), helped
