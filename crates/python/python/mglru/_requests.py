"""Requests: replays, ablations, scenarios and comparisons with kernels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _mglru, _stream
from ._errors import UsageError
from ._table import Table
from ._trace import Trace, _is_flag, _name, _number, _samples, _threads

TraceLike = Union[Trace, str, "os.PathLike[str]"]
"""A trace, or the path of one."""
Size = Union[str, int]
"""An amount of memory: ``"64MiB"``, ``"8192p"`` (pages), ``"10%"`` of the distinct pages, or bytes."""

_CURVE = ("1%", "2%", "5%", "10%", "20%", "40%", "60%", "80%", "100%")


def _several(values: Any) -> list[Any]:
    """A single value or several, as a list."""
    # An open file gives lines, too.
    is_single = isinstance(values, (str, bytes, Trace, os.PathLike)) or hasattr(values, "read")
    is_single = is_single or not isinstance(values, Iterable)
    return [values] if is_single else list(values)


def _text(name: str, value: Any) -> Optional[str]:
    """A size or a share as the command line has it."""
    if value is None:
        return None
    if hasattr(value, "__index__") and not _is_flag(value):
        return str(value.__index__())
    if _is_flag(value) or not (isinstance(value, str) or hasattr(value, "__float__")):
        raise UsageError(f"{name}: expected text or a number, not {value!r}")
    return value if isinstance(value, str) else str(float(value))


def _memory(value: Any) -> Optional[str]:
    text = _text("memory", value)
    if value is not None and not isinstance(value, str) and not hasattr(value, "__index__"):
        raise UsageError(
            f'memory: {value!r} is no number of bytes; a share of the distinct pages is text such as "10%"'
        )
    return text


def _memories(values: Any) -> list[str]:
    sizes = [_memory(size) for size in _several(values)]
    if None in sizes:
        raise UsageError("memory: expected text or a number, not None")
    return [str(size) for size in sizes]


def _text_of(path: Union[str, "os.PathLike[str]"]) -> Optional[str]:
    """The text of a pipe, read here: Ctrl-C must end the wait for its writer. ``None`` for a file."""
    return _stream.text_of_pipe(path) if _stream.is_pipe(path) else None


def _path(name: str, value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise UsageError(f"{name}: expected a path, not {value!r}")
    return os.fspath(value)


def _optional(name: str, value: Any) -> Optional[str]:
    return None if value is None else _name(name, value)


def _trace(source: TraceLike) -> Trace:
    if hasattr(source, "__index__"):
        raise UsageError(
            f"trace: expected a trace or a path, not {source!r}; mglru.Trace(pages) makes a trace of page numbers"
        )
    return source if isinstance(source, Trace) else Trace(source)


def _options(
    memory: Any,
    policy: Any,
    seeds: Any,
    *,
    warm: Any = None,
    writes: str = "rmw",
    swap: Any = None,
    swap_device: str = "disk",
    swappiness: Any = 60,
    swap_readahead: Any = None,
    readahead: Any = None,
    fault_around: Any = None,
) -> dict[str, Any]:
    policies: list[str] = []
    for name in _several(policy):
        if not isinstance(name, str):
            raise UsageError(f"policy: expected names, not {name!r}")
        names = _mglru.names()[2] if name == "all" else [name]
        policies += [name for name in names if name not in policies]
    return {
        "policy": policies,
        "memory": _memories(memory),
        "seeds": [_number("seeds", seed) for seed in _several(seeds)],
        "warm": _text("warm", warm),
        "writes": _name("writes", writes),
        "swap": _text("swap", swap),
        "swap_device": _name("swap_device", swap_device),
        "swappiness": str(swappiness),
        "swap_readahead": _text("swap_readahead", swap_readahead),
        "readahead": _text("readahead", readahead),
        "fault_around": _text("fault_around", fault_around),
    }


def replay(
    trace: Union[TraceLike, Iterable[TraceLike]],
    memory: Union[Size, Iterable[Size]] = "10%",
    policy: Union[str, Iterable[str]] = "default",
    seeds: Union[int, Iterable[int]] = 1,
    *,
    warm: Union[float, str, None] = None,
    writes: str = "rmw",
    swap: Optional[Size] = None,
    swap_device: str = "disk",
    swappiness: Union[int, str] = 60,
    swap_readahead: Optional[Size] = None,
    readahead: Optional[Size] = None,
    fault_around: Optional[Size] = None,
    threads: Optional[int] = None,
    sample: Optional[float] = None,
    salts: int = 1,
) -> Table:
    """Replays each trace with each policy, memory size and seed, in parallel.

    Args:
        trace: a trace or several; paths are read first.
        memory: one size or several: ``"10%"`` of the distinct pages, ``"64MiB"``, ``"8192p"`` (pages)
            or bytes.
        policy: one name or several: a preset (``mglru.PRESETS``), which ``+MECHANISM``,
            ``-MECHANISM`` and ``lru=POLICY`` may follow (``"linux-7.2 -reclaim_loop"``), another
            policy (``mglru.BASELINES``), or ``"all"`` of these.
        seeds: seeds of random choices. A single trace makes none, so more seeds give equal rows.
        warm: count only from this share of the accesses on, such as 0.25 or ``"25%"``; ``None``: as
            the trace says, or 0. The columns ``warm_…`` have these counts.
        writes: a write to a page that is not cached reads it first (``"rmw"``) or overwrites it whole
            (``"blind"``).
        swap: size of swap; without it anonymous pages stay in memory.
        swap_device: ``"disk"``, or ``"zram"`` for compressed memory.
        swappiness: preference for anonymous pages in reclaim, 0 to 200, or ``"max"``.
        swap_readahead: most that a fault reads from a swap disk, such as ``"32KiB"``, the kernel's
            default; ``None`` for the page alone.
        readahead: read ahead of sequential misses up to this size; the kernel's is ``"128KiB"``.
        fault_around: map cached pages around a mapped miss in pieces of this size.
        threads: replays at a time; ``None``: one per processor.
        sample: replay only this share of the pages of each trace, such as 0.01, in the same share of
            the memory; a file of any length is read once, as a stream. See :meth:`mglru.Trace.sample`.
        salts: with ``sample``, so many samples of other pages, with the salts 0, 1 and so on. The rows
            are their means; ``miss_ratio_deviation`` and ``warm_miss_ratio_deviation`` are the standard
            deviations of one sample, and those of the mean are smaller by the root of ``salts``.

    Returns:
        A row per replay, in the order of the arguments: ``trace``, ``policy``, ``memory``,
        ``memory_pages``, ``seed``, ``accesses``, ``hits``, ``misses``, ``miss_ratio``, the same counts
        since counting began, ``seconds`` the replay took, and the engine's counters under the
        kernel's names. All but ``seconds`` are equal on every machine.

    Raises:
        UsageError: an argument is invalid.
        WorkError: a trace is damaged, or its anonymous pages do not fit into memory and swap.

    >>> import mglru
    >>> trace = mglru.Trace([page * page % 97 for page in range(3000)])
    >>> table = mglru.replay(trace, memory=["10%", "50%"], policy=["linux-7.2", "opt"])
    >>> len(table), table["policy"]
    (4, ['linux-7.2', 'linux-7.2', 'opt', 'opt'])
    >>> mean = mglru.replay(trace, "50%", "lru", sample=0.5, salts=4)
    >>> len(mean), mean["salts"], mean["miss_ratio_deviation"][0] > 0
    (1, [4], True)
    """
    options = _options(
        memory,
        policy,
        seeds,
        warm=warm,
        writes=writes,
        swap=swap,
        swap_device=swap_device,
        swappiness=swappiness,
        swap_readahead=swap_readahead,
        readahead=readahead,
        fault_around=fault_around,
    )
    threads = _threads(threads)
    salts = _number("salts", salts, 16)
    if salts < 1 or (sample is None and salts > 1):
        raise UsageError(f"salts: {salts}: at least 1, and several only for a sample: give sample=0.01")
    natives: list[_mglru.Trace] = []
    for source in _several(trace):
        natives += [_trace(source)._native] if sample is None else _samples(source, sample, salts)
    return Table(_mglru.replay(natives, options, threads, salts))


def mrc(
    trace: Union[TraceLike, Iterable[TraceLike]],
    policy: Union[str, Iterable[str]] = "default",
    memory: Iterable[Size] = _CURVE,
    **options: Any,
) -> Table:
    """Miss-ratio curves: :func:`replay` with nine sizes from 1 % to all of the distinct pages.

    >>> import mglru
    >>> curve = mglru.mrc(mglru.Trace(range(100)), policy="lru")
    >>> set(curve["miss_ratio"]), curve["memory"][0]
    ({1.0}, '1%')
    """
    return replay(trace, memory, policy, **options)


def timeline(
    trace: TraceLike,
    memory: Size = "10%",
    policy: Union[str, Iterable[str]] = "default",
    *,
    seeds: Union[int, Iterable[int]] = 1,
    **options: Any,
) -> Table:
    """Hit ratio and generations over time, of replays by the engine, with the options of :func:`replay`
    from ``warm`` to ``fault_around``.

    Returns:
        A row per piece of the trace and generation: ``run`` names policy and memory, ``access`` is
        the end of the piece, ``hit_ratio`` is of the piece, and ``file_pages`` and ``anon_pages`` are
        the generation's. A run under ``ranked`` or the classic LRU has no generations.
    """
    return Table(_mglru.timeline(_trace(trace)._native, _options(memory, policy, seeds, **options)))


def events(
    trace: TraceLike,
    memory: Size = "10%",
    policy: str = "default",
    accesses: Optional[tuple[int, int]] = None,
    *,
    seed: int = 1,
    **options: Any,
) -> Table:
    """Every event of one replay by the engine: touches, insertions, moves, verdicts, evictions. Options
    are those of :func:`replay` from ``warm`` to ``fault_around``.

    Args:
        accesses: only events from the first to before the second of these access numbers. More than
            four million events are refused.

    Returns:
        A row per event: ``access``, ``nanos`` of simulated time, ``event``, ``page``, and a column for
        each field that some event has. ``docs/book/src/events.md`` describes them.
    """
    try:
        start, end = (0, (1 << 64) - 1) if accesses is None else accesses
    except (TypeError, ValueError):
        raise UsageError(f"accesses: expected the first and the one after the last, not {accesses!r}") from None
    bounds = _number("accesses", start), _number("accesses", end)
    return Table(_mglru.events(_trace(trace)._native, _options(memory, policy, seed, **options), *bounds))


def ablate(
    trace: Union[TraceLike, "os.PathLike[str]"],
    memory: Optional[Size] = None,
    *,
    preset: Optional[str] = None,
    lru: Optional[str] = None,
    with_: Sequence[str] = (),
    without: Sequence[str] = (),
    runs: int = 6,
    seed: int = 1,
    pairs: bool = False,
    warm: Union[float, str, None] = None,
    swap: Optional[Size] = None,
    swap_device: str = "disk",
    swappiness: Union[int, str] = 60,
    swap_readahead: Optional[Size] = None,
) -> Table:
    """Measures each mechanism's effect by switching it off, with confidence intervals.

    Args:
        trace: a trace, its path, or the path of a scenario (``.toml``).
        memory: ``None``: a tenth of a trace's distinct pages, or the scenario's own.
        preset, lru, with_, without: the full set of mechanisms.
        runs: number of seeds; with fewer than six no effect reaches 95 % confidence. A seed varies a
            scenario's random choices, or a trace's memory by at most 1 % or 3 pages.
        pairs: also switch off two at a time; ``beyond_sum`` is what they do beyond the sum.

    Returns:
        A row per mechanism and metric, the largest effect first: ``change`` is the median of the
        differences with the same seed, ``change_low`` and ``change_high`` bound it with
        ``confidence``, in percent where ``is_percent``; ``is_noise`` where the interval contains 0.
    """
    options = {
        "memory": _memory(memory),
        "preset": _optional("preset", preset),
        "lru": _optional("lru", lru),
        "with_": [_name("with_", name) for name in _several(with_)],
        "without": [_name("without", name) for name in _several(without)],
        "runs": _number("runs", runs, 32),
        "seed": _number("seed", seed),
        "pairs": bool(pairs),
        "warm": _text("warm", warm),
        "swap": _text("swap", swap),
        "swap_device": _name("swap_device", swap_device),
        "swappiness": str(swappiness),
        "swap_readahead": _text("swap_readahead", swap_readahead),
    }
    if isinstance(trace, (str, os.PathLike)) and os.fspath(trace).endswith(".toml"):
        effects, _ = _mglru.ablate(None, trace, _text_of(trace), options)
    else:
        effects, _ = _mglru.ablate(_trace(trace)._native, None, None, options)
    return Table(effects)


@dataclass(frozen=True)
class Scenario:
    """Result of a scenario."""

    seconds: float
    """Duration on the clock of its world."""
    tenants: Table
    """A row per tenant; the root has no name."""
    actions: Table
    """A row per action, with its error if it failed."""
    kills: Table
    """A row per OOM kill."""
    readings: Table
    """A row per reading of a control file."""
    failures: list[str]
    """Errors of failed jobs."""


def scenario(
    path: Union[str, "os.PathLike[str]"] = "scenario.toml",
    text: Optional[str] = None,
    *,
    world: str = "sim",
    directory: Union[str, "os.PathLike[str]", None] = None,
    memory: Optional[Size] = None,
    seed: Optional[int] = None,
    preset: Optional[str] = None,
    lru: Optional[str] = None,
    with_: Sequence[str] = (),
    without: Sequence[str] = (),
    oom_policy: Optional[str] = None,
) -> Scenario:
    """Runs a scenario of tenants, jobs and timed actions (``docs/book/src/scenario-files.md``).

    Args:
        path: the scenario's file.
        text: the scenario itself; ``path`` then only names it.
        world: ``"sim"``, or ``"real"`` for the cache on real files.
        directory: for the files of jobs in the real world; ``None``: a temporary one.
        memory, seed, preset, lru, with_, without, oom_policy: instead of the file's values.

    >>> import mglru
    >>> result = mglru.scenario(text='''
    ... [machine]
    ... memory = "4MiB"
    ... [[tenant]]
    ... path = "web"
    ... [[job]]
    ... tenant = "web"
    ... fio = "[pages]\\\\nrw=read\\\\nsize=1m"
    ... ''')
    >>> result.tenants["misses"]
    [0, 256]
    """
    options = {
        "world": _name("world", world),
        "directory": None if directory is None else _path("directory", directory),
        "memory": _memory(memory),
        "seed": None if seed is None else _number("seed", seed),
        "preset": _optional("preset", preset),
        "lru": _optional("lru", lru),
        "with_": [_name("with_", name) for name in _several(with_)],
        "without": [_name("without", name) for name in _several(without)],
        "oom_policy": _optional("oom_policy", oom_policy),
    }
    text = _optional("text", text)
    if text is None:
        text = _text_of(path)
    seconds, tables, failures = _mglru.scenario(path, text, options)
    tenants, actions, kills, readings = (Table(table) for table in tables)
    return Scenario(seconds, tenants, actions, kills, readings, failures)


def fidelity(
    results: Union[str, "os.PathLike[str]"],
    also: Union[str, "os.PathLike[str]", None] = None,
    *,
    kernel: Union[str, Iterable[str]] = (),
    workload: Union[str, Iterable[str]] = (),
    lru: Optional[str] = None,
) -> Table:
    """Repeats recorded runs of real kernels, and compares the counts.

    Args:
        results: a table of the kernel lab; its traces lie beside it.
        also: further runs of the same cases, for a table of OOM kills.
        kernel, workload, lru: only these rows.

    Returns:
        A row per count: ``kernel_count``, ``our_count``, ``difference_percent``,
        ``tolerance_percent``, and whether it is ``within`` that.
    """
    results = _path("results", results)
    also = None if also is None else _path("also", also)
    return Table(_mglru.fidelity(results, also, _several(kernel), _several(workload), lru))
