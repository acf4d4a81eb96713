"""A sweep on a local cluster of Dask or of Ray: miss ratios of two loads under four policies.

Run it by ``make sweep-dask`` or ``make sweep-ray``, or where ``mglru[dask]`` or ``mglru[ray]`` is
installed by ``python sweep.py dask``. Only ``on=`` differs between the two, and between them and
a cluster of many machines. A second run in the same folder finds the rows there and replays nothing.
"""

import os
import pathlib
import subprocess
import sys
from contextlib import contextmanager

import pyarrow.parquet

import mglru

LOADS = {"one warehouse": ["--warehouses", "1"], "four warehouses": ["--warehouses", "4"]}
POLICIES = ["default", "linux-7.2", "lru", "s3-fifo"]
MEMORY = ["2%", "10%", "40%"]
WORKERS = 2


@contextmanager
def cluster(engine: str):
    """What ``on=`` takes: a client of Dask's local cluster, or the word for Ray."""
    if engine == "dask":
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as local:
            with Client(local) as client:
                yield client
    else:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
        try:
            yield "ray"
        finally:
            ray.shutdown()


def main(engine: str, folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    traces = {}
    for load, options in LOADS.items():
        trace = (folder / f"{load}.bin.zst").resolve()
        if not trace.exists():
            command = ["mglru", "trace", "generate", "tpcc", str(trace), "--accesses", "200000", *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        traces[load] = str(trace)
    grid = {"traces": list(traces.values()), "policies": POLICIES, "memory": MEMORY, "swap": "64MiB"}
    rows = folder / f"rows-{engine}"
    with cluster(engine) as on:
        print(mglru.sweep(grid, rows, on=on))
    ratios = {
        (row["trace"], row["memory"], row["policy"]): row["miss_ratio"]
        for row in pyarrow.parquet.read_table(rows).to_pylist()
    }
    print(f"\n{'misses, percent':24}" + "".join(f"{policy:>11}" for policy in POLICIES))
    for load, trace in traces.items():
        for memory in MEMORY:
            found = [100 * ratios[trace, memory, policy] for policy in POLICIES]
            print(f"{load + ', ' + memory:24}" + "".join(f"{ratio:11.1f}" for ratio in found))


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("dask", "ray"):
        sys.exit(f"usage: {sys.argv[0]} dask|ray FOLDER")
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
