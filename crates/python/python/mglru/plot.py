"""Figures with matplotlib: miss-ratio curves, generations over time, effects of mechanisms.

Every function draws into ``axes``, or into a new figure without it, and returns the axes:
``mglru.plot.mrc(table).figure.savefig("curve.svg")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from ._errors import UsageError
from ._table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _axes(axes: Optional["Axes"]) -> "Axes":
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("plots need matplotlib: pip install matplotlib") from None
    # A figure of its own: pyplot would keep it open, and shows it only where there is a screen.
    return Figure(figsize=(7, 4), layout="constrained").subplots()


def _need(table: Table, what: str, *columns: str) -> None:
    if not isinstance(table, Table):
        raise UsageError(f"{what}: expected a mglru.Table, not a {type(table).__name__}")
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise UsageError(f"{what}: the table has no column {missing[0]}")
    if not len(table):
        raise UsageError(f"{what}: the table has no rows")


def mrc(table: Table, axes: Optional["Axes"] = None, *, warm: bool = False) -> "Axes":
    """Miss ratio over memory, a curve per policy, from :func:`mglru.mrc` or :func:`mglru.replay`.

    Args:
        warm: the miss ratio since counting began, instead of that of all accesses.

    >>> import mglru
    >>> table = mglru.mrc(mglru.Trace(range(100)), policy=["lru", "opt"])
    >>> len(mglru.plot.mrc(table).lines)
    2
    """
    ratio = "warm_miss_ratio" if warm else "miss_ratio"
    _need(table, "a miss-ratio curve", "trace", "policy", "memory_pages", ratio)
    traces = set(table["trace"])
    names = {trace: trace.rsplit("/", 1)[-1] for trace in traces}
    if len(set(names.values())) < len(traces):
        # Files of several folders may have the same name.
        names = {trace: trace for trace in traces}
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in table:
        name = f"{names[row['trace']]}, {row['policy']}" if len(traces) > 1 else row["policy"]
        curves.setdefault(name, []).append((row["memory_pages"], row[ratio]))
    axes = _axes(axes)
    for name, points in curves.items():
        points.sort()
        axes.plot(*zip(*points), marker=".", label=name)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("memory in pages of 4 KiB")
    axes.set_ylabel("miss ratio")
    axes.grid(alpha=0.3)
    axes.legend()
    return axes


def generations(table: Table, axes: Optional["Axes"] = None, *, run: Optional[str] = None) -> "Axes":
    """Pages of the generations over time, youngest on top, from :func:`mglru.timeline`.

    Args:
        run: one of the values of the column ``run``; needed if there are several.
    """
    _need(table, "generations", "run", "access", "generation", "file_pages", "anon_pages")
    runs = list(dict.fromkeys(table["run"]))
    if run is None and len(runs) > 1:
        raise UsageError(f"generations: choose one run of {', '.join(runs)}")
    if run is not None and run not in runs:
        raise UsageError(f"generations: no run {run!r}; there is {', '.join(runs)}")
    rows = [row for row in table if run in (None, row["run"]) and row["generation"] is not None]
    if not any(row["file_pages"] or row["anon_pages"] for row in rows):
        raise UsageError(f"generations: {runs[0]} has none; choose a preset with the multi-gen LRU")
    times = sorted({row["access"] for row in rows})
    numbers = sorted({row["generation"] for row in rows})
    at = {time: position for position, time in enumerate(times)}
    pages: dict[int, list[int]] = {number: [0] * len(times) for number in numbers}
    for row in rows:
        pages[row["generation"]][at[row["access"]]] += row["file_pages"] + row["anon_pages"]
    axes = _axes(axes)
    shades = [0.25 + 0.7 * (position % 8) / 7 for position in range(len(numbers))]
    from matplotlib import colormaps

    axes.stackplot(times, list(pages.values()), colors=[colormaps["viridis"](shade) for shade in shades])
    axes.set_xlabel("accesses")
    axes.set_ylabel("pages, by generation")
    axes.margins(x=0)
    axes.set_title(runs[0] if run is None else run)
    return axes


def ablation(table: Table, axes: Optional["Axes"] = None, *, metric: Optional[str] = None) -> "Axes":
    """Effect of switching each mechanism off, with its confidence interval, from
    :func:`mglru.ablate`. Effects within the noise are grey.

    Args:
        metric: a value of the column ``metric``; ``None``: the first.
    """
    _need(table, "an ablation", "without", "metric", "change", "change_low", "change_high", "is_noise")
    metrics = list(dict.fromkeys(name for name in table["metric"] if name is not None))
    chosen = metrics[0] if metric is None and metrics else metric
    rows: list[dict[str, Any]] = [row for row in table if row["metric"] == chosen]
    if not rows:
        raise UsageError(f"an ablation: no metric {metric!r}; there is {', '.join(metrics)}")
    rows.reverse()
    axes = _axes(axes)
    names = [row["without"] for row in rows]
    changes = [row["change"] for row in rows]
    below = [max(row["change"] - row["change_low"], 0) for row in rows]
    above = [max(row["change_high"] - row["change"], 0) for row in rows]
    colors = ["0.75" if row["is_noise"] is not False else "C0" for row in rows]
    axes.barh(names, changes, xerr=[below, above], color=colors, ecolor="0.3")
    axes.axvline(0, color="0.3", linewidth=0.8)
    unit = " in percent" if rows[0]["is_percent"] else ""
    axes.set_xlabel(f"change of {chosen}{unit} without the mechanism")
    return axes
