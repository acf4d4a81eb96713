"""Sweeps: a grid of replays on this machine, on Dask, or on Ray."""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union

from . import _mglru, _stream
from ._errors import Error, UsageError, WorkError
from ._trace import _threads

if TYPE_CHECKING:
    import pyarrow.dataset

_GRID_BYTES_MAX = 16 << 20
"""The longest grid that is read, as for a file."""
_IDENTITY = "_sweep.txt"
_TRIES = 3
_READ_AT_ONCE = 64
"""Parts that are read at once, at about 50 KB each."""


@dataclass(frozen=True)
class SweepReport:
    """The outcome of a sweep."""

    out: str
    """Folder of the rows."""
    units: int
    """Units of the grid."""
    done_units: int
    """Units that this run did; those of earlier runs are not among them."""
    failed_units: int
    """Units that failed; with ``on="local"`` those of earlier runs, too. Their rows have an ``error``."""
    first_failure: Optional[str]
    """The error of one of them."""
    seconds: float
    """Duration of the run."""

    def dataset(self) -> "pyarrow.dataset.Dataset":
        """All rows, of earlier runs too. Needs pyarrow."""
        import pyarrow.dataset

        if "://" not in self.out:
            return pyarrow.dataset.dataset(self.out)
        store = _Store(self.out)
        # Workers wrote there: what this process has listed before is outdated.
        store.system.invalidate_cache()
        return pyarrow.dataset.dataset(store.folder, filesystem=store.system)


def sweep(
    grid: Union[str, "os.PathLike[str]", Mapping[str, Any]],
    out: Union[str, "os.PathLike[str]"],
    *,
    on: Any = "local",
    threads: Optional[int] = None,
) -> SweepReport:
    """Replays a grid of traces, policies, sizes and seeds, with the rows in Parquet files.

    A sweep that was interrupted goes on with the units whose rows are not there. The rows but for
    ``seconds`` depend on the grid alone, not on where and in which order the units ran.

    Args:
        grid: the path of a TOML file as ``mglru sweep`` has it, or the same as a dictionary:
            ``{"traces": [...], "policies": [...], "memory": [...], "seeds": [...]}``. Every worker
            reads the traces by their absolute paths.
        out: folder for the rows, which is made if it is missing; with Dask or Ray also an fsspec URL such
            as ``s3://bucket/rows``. Workers write there. With them, what the folder is in must exist.
        on: ``"local"``, a ``dask.distributed.Client``, or ``"ray"``.
        threads: with ``"local"``, replays at a time; ``None``: one per processor.

    Raises:
        UsageError: the grid is invalid, ``out`` has the rows of another sweep, or a worker has another
            version of this package. No unit was run.
        WorkError: nothing can be written to ``out``.

    >>> import mglru, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     trace = pathlib.Path(folder, "loop.plain")
    ...     _ = trace.write_text("".join(f"{page % 100}\\n" for page in range(1000)))
    ...     grid = {"traces": [str(trace)], "policies": ["lru", "opt"], "memory": ["50%", "100%"]}
    ...     report = mglru.sweep(grid, pathlib.Path(folder, "rows"))
    ...     report.units, report.failed_units, report.dataset().to_table()["accesses"].to_pylist()
    (4, 0, [1000, 1000, 1000, 1000])
    """
    threads = _threads(threads)
    description = _describe(grid)
    native = _of(description)
    if not isinstance(out, (str, os.PathLike)):
        raise UsageError(f"out: expected the path of a folder, not {out!r}")
    out = os.fspath(out)
    if not out:
        raise UsageError("out: expected the path of a folder, which is not empty")
    if isinstance(on, str) and on == "local":
        if "://" in out:
            raise UsageError(f"out: {out}: a sweep with on=\"local\" writes to a folder; a cluster writes to URLs")
        out = os.path.abspath(out)
        report = native.run_here(out, threads)
        return SweepReport(out, **report)
    if threads is not None:
        raise UsageError("threads: only with on=\"local\"; a cluster has its own")
    if isinstance(on, str) and on == "ray":
        return _run(native, description, out, _Ray())
    if hasattr(on, "submit") and hasattr(on, "scheduler_info"):
        return _run(native, description, out, _Dask(on))
    raise UsageError(f"on: expected \"local\", a dask.distributed.Client or \"ray\", not {on!r}")


def _describe(grid: Any) -> str:
    """The grid as text that every machine understands: absolute paths, as JSON. Each sweep has another
    one, because the files may have changed since a worker read them for the last."""
    sweep = f"{os.getpid()}-{time.time_ns()}"
    if isinstance(grid, Mapping):
        return json.dumps({"sweep": sweep, "folder": os.getcwd(), "grid": dict(grid)}, default=_plain)
    if not isinstance(grid, (str, os.PathLike)):
        raise UsageError(f"grid: expected the path of a file or a dictionary, not {grid!r}")
    if _stream.is_pipe(grid):
        # Read here, once for all workers: Ctrl-C must end the wait for its writer.
        text = _stream.text_of_pipe(grid, _GRID_BYTES_MAX)
        return json.dumps({"sweep": sweep, "path": os.path.abspath(os.fspath(grid)), "text": text})
    return json.dumps({"sweep": sweep, "path": os.path.abspath(os.fspath(grid))})


def _plain(value: Any) -> Any:
    """A path, a number or an array of numpy as JSON has it."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise UsageError(f"grid: expected text, numbers, lists and dictionaries, not {value!r}")


@lru_cache(maxsize=8)
def _of(description: str) -> "_mglru.Sweep":
    fields = json.loads(description)
    if "path" in fields:
        return _mglru.Sweep.read(fields["path"], fields.get("text"))
    return _mglru.Sweep.of_json(json.dumps(fields["grid"]), fields["folder"])


class _Store:
    """The folder of the rows, through fsspec."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            raise UsageError("a sweep on a cluster needs fsspec: pip install fsspec") from None
        url = url if "://" in url else os.path.abspath(url)
        try:
            self.system, self.folder = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"out: {url}: {error}") from error

    def path(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def begin(self, identity: str) -> None:
        """Makes the folder. Refuses one where nothing can be written, or with the rows of another sweep."""
        try:
            # Others may have written there since it was listed.
            self.system.invalidate_cache()
            self._make_folder()
            there = self._identity()
            if there is None:
                self.write(_IDENTITY, identity.encode())
        except FileNotFoundError as error:
            raise UsageError(
                f"out: {self.folder}: what it is in does not exist; correct the path, or make that folder or bucket"
            ) from error
        except Exception as error:
            raise WorkError(f"{self.folder}: cannot write rows there: {error}") from error
        if there is not None and there != identity:
            lines = zip(identity.splitlines(), there.splitlines())
            now, before = next((pair for pair in lines if pair[0] != pair[1]), ("more lines", "fewer"))
            raise UsageError(
                f"{self.folder}: the rows of another sweep are there (now `{now}`, there `{before}`); choose another "
                "folder, or remove it"
            )

    def _make_folder(self) -> None:
        """Makes the folder and nothing that it is in, which would also make a misspelt bucket. A bucket is in
        nothing."""
        if "/" in self.folder and not self.system.isdir(self.folder):
            # Another sweep makes it at the same time, or it is a file, which the first write refuses.
            with contextlib.suppress(FileExistsError):
                self.system.mkdir(self.folder, create_parents=False)

    def _identity(self) -> Optional[str]:
        """What the rows there depend on; ``None`` if there are none. Not by `exists`: that is also no for a store
        that does not answer."""
        try:
            return str(self.system.cat_file(self.path(_IDENTITY)).decode())
        except FileNotFoundError:
            return None

    def parts(self) -> list[str]:
        """The names of the parts that count. A damaged part is removed, and so is one whose rows are in
        another, too: those that read the folder read all its files.

        Raises:
            WorkError: the folder cannot be read, or such a part cannot be removed.
        """
        self.system.invalidate_cache()
        try:
            found = [posixpath.basename(path) for path in self.system.ls(self.folder, detail=False)]
            names = [name for name in found if name.startswith("units-") and name.endswith(".parquet")]
            whole = []
            for at in range(0, len(names), _READ_AT_ONCE):
                whole += self._whole(names[at : at + _READ_AT_ONCE])
            contained = set(_mglru.sweep_parts_contained(whole))
            for name in contained:
                self.system.rm_file(self.path(name))
        except Error:
            raise
        except Exception as error:
            raise WorkError(f"{self.folder}: cannot read the rows there: {error}") from error
        return [name for name in whole if name not in contained]

    def _whole(self, names: list[str]) -> list[str]:
        """Those of the parts that are whole. The others are removed."""
        whole = []
        for name, part in zip(names, self._contents(names)):
            if isinstance(part, FileNotFoundError):
                continue
            if isinstance(part, BaseException):
                raise part
            if _mglru.sweep_part_errors(name, part) is not None:
                whole.append(name)
            else:
                self.system.rm_file(self.path(name))
        return whole

    def _contents(self, names: list[str]) -> list[Any]:
        paths = [self.path(name) for name in names]
        return self.system.cat_ranges(paths, None, None, on_error="return")

    def holds(self, name: str) -> bool:
        """Whether a part is there and whole."""
        self.system.invalidate_cache()
        part = self._contents([name])[0]
        if isinstance(part, FileNotFoundError):
            return False
        if isinstance(part, BaseException):
            raise WorkError(f"{self.path(name)}: cannot read it: {part}") from part
        return _mglru.sweep_part_errors(name, part) is not None

    def write(self, name: str, data: bytes) -> None:
        # An object store shows an object whole. Elsewhere a worker may be killed in the middle.
        if "file" in _protocols(self.system):
            # Workers on several machines may have the same process number, and run the same range.
            unfinished = self.path(f".unfinished-{uuid.uuid4().hex}-{name}")
            with open(unfinished, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.path(name))
        else:
            self.system.pipe_file(self.path(name), data)


def _protocols(system: Any) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)


_Done = tuple[int, Optional[str], Optional[bytes]]
"""The number of failed units, the first error, and the rows where they were not written."""


def _work(description: str, out: Optional[str], version: str, start: int, end: int) -> _Done:
    """The work of a worker: runs the units of a range in its child, and writes their rows as one part, or
    returns them without a folder. So a worker that dies leaves all rows of a range or none."""
    from . import __version__, _process

    if version != __version__:
        raise UsageError(f"this worker has mglru {__version__}, the sweep is of {version}; install the same")
    done = _process.run(description, start, end)
    failures = sum(failed for _, failed, _ in done)
    first = next((error for _, _, error in done if error is not None), None)
    rows = done[0][0] if len(done) == 1 else _mglru.sweep_parts_joined([rows for rows, _, _ in done])
    if out is None:
        return failures, first, rows
    _Store(out).write(_mglru.sweep_part_name(start, end), rows)
    return failures, first, None


class _Lost(Exception):
    """A worker died while it ran a range."""


class _Cluster(Protocol):
    def submit(self, *arguments: Any) -> Any:
        """Starts :func:`_work` on a worker."""
        ...

    def finished(self, tasks: set[Any]) -> Iterator[tuple[Any, Any]]:
        """At least one task with its result or its exception; :class:`_Lost` if the worker died."""
        ...

    def slots(self) -> int:
        """Tasks that can run at a time."""
        ...


class _Dask:
    def __init__(self, client: Any) -> None:
        self.client = client

    def submit(self, *arguments: Any) -> Any:
        # Not pure: a range that was lost is tried again under a new key.
        return self.client.submit(_work, *arguments, pure=False)

    def finished(self, tasks: set[Any]) -> Iterator[tuple[Any, Any]]:
        # It is another class than the built-in one before Python 3.11.
        from asyncio import TimeoutError
        from concurrent.futures import CancelledError

        from distributed import wait
        from distributed.scheduler import KilledWorker

        for task in wait(tasks, return_when="FIRST_COMPLETED").done:
            try:
                # A worker may die with the result; its rows are there even so.
                yield task, task.result(timeout=10)
            except (KilledWorker, CancelledError) as error:
                yield task, _Lost(str(error))
            except TimeoutError as error:
                # The work may raise one, too: of a store that does not answer.
                yield task, error if task.status == "error" else _Lost(str(error))
            except Exception as error:
                yield task, error

    def slots(self) -> int:
        return max(1, sum(self.client.nthreads().values()))


class _Ray:
    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("on=\"ray\" needs Ray: pip install ray") from None
        self.ray = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self.remote = ray.remote(max_retries=0)(_work)

    def submit(self, *arguments: Any) -> Any:
        return self.remote.remote(*arguments)

    def finished(self, tasks: set[Any]) -> Iterator[tuple[Any, Any]]:
        done, _ = self.ray.wait(list(tasks), num_returns=1)
        for task in done:
            try:
                yield task, self.ray.get(task)
            except (self.ray.exceptions.WorkerCrashedError, self.ray.exceptions.NodeDiedError) as error:
                yield task, _Lost(str(error))
            except self.ray.exceptions.OutOfMemoryError as error:
                yield task, _Lost(str(error))
            except self.ray.exceptions.RayTaskError as error:
                yield task, error.cause or error

    def slots(self) -> int:
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))


class _Task:
    """Units that a worker runs: a range, or one unit of a broken range."""

    def __init__(self, start: int, end: int, of: Optional["_Broken"] = None) -> None:
        self.start, self.end, self.of = start, end, of
        self.tries = 1


class _Broken:
    """A range whose units are run one by one, because its workers died. Its rows are written together."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.rows: dict[int, bytes] = {}

    def tasks(self) -> list[_Task]:
        return [_Task(unit, unit + 1, self) for unit in range(self.start, self.end)]


def _run(native: "_mglru.Sweep", description: str, out: str, cluster: _Cluster) -> SweepReport:
    """Runs the ranges whose rows are not there on a cluster. A range whose worker died is tried again;
    then its units are tried one by one. A unit that kills its process does not get here: the worker
    survives it, and its row has the error."""
    from . import __version__

    began = time.monotonic()
    out = out if "://" in out else os.path.abspath(out)
    store = _Store(out)
    store.begin(native.check())
    waiting = [_Task(start, end) for start, end in reversed(native.pending(store.parts()))]
    running: dict[Any, _Task] = {}
    done = failed = 0
    first: Optional[str] = None
    while waiting or running:
        # Few tasks ahead: the memory of a scheduler does not grow with the grid.
        while waiting and len(running) < 2 * cluster.slots():
            task = waiting.pop()
            to = out if task.of is None else None
            running[cluster.submit(description, to, __version__, task.start, task.end)] = task
        for future, result in cluster.finished(set(running)):
            task = running.pop(future)
            start, end = task.start, task.end
            if isinstance(result, _Lost):
                if task.of is None and store.holds(_mglru.sweep_part_name(start, end)):
                    # It died after its work.
                    done += end - start
                    continue
                if task.tries < _TRIES:
                    task.tries += 1
                    waiting.append(task)
                    continue
                if end - start > 1:
                    waiting += _Broken(start, end).tasks()
                    continue
                reason = f"its worker died {_TRIES} times"
                result = 1, f"unit {start}: {reason}", native.failed(start, end, reason)
            elif isinstance(result, UsageError):
                raise result
            elif isinstance(result, BaseException):
                raise WorkError(f"units {start} to {end - 1}: {result}") from result
            failures, error, rows = result
            if rows is not None:
                broken = task.of or _Broken(start, end)
                broken.rows[start] = rows
                if len(broken.rows) == broken.end - broken.start:
                    whole = _mglru.sweep_parts_joined([broken.rows[unit] for unit in sorted(broken.rows)])
                    store.write(_mglru.sweep_part_name(broken.start, broken.end), whole)
            done, failed, first = done + end - start, failed + failures, first or error
    return SweepReport(out, native.units(), done, failed, first, time.monotonic() - began)
