"""Linux's page reclaim in user space: replay traces, compare policies, draw miss-ratio curves.

>>> import mglru
>>> trace = mglru.Trace([page % 100 for page in range(2000)], name="loop")
>>> table = mglru.replay(trace, memory=["50%", "100%"], policy=["default", "lru"])
>>> [(row["policy"], row["memory"], row["misses"]) for row in table.to_pylist()][2:]
[('lru', '50%', 2000), ('lru', '100%', 100)]

Units: memory is a size (``"64MiB"``, or an integer in bytes), pages (``"8192p"``) or a share of the
trace's distinct pages (``"10%"``). A page is 4096 bytes. Columns end with their unit.
"""

import typing as _typing

from ._cache import Cache, CachedFile, Page, Tenant
from ._errors import Error, UsageError, WorkError
from ._mglru import __version__, names as _names
from ._requests import Scenario, ablate, events, fidelity, mrc, replay, scenario, timeline
from ._sweep import SweepReport, sweep
from ._table import Table
from ._trace import Trace

PRESETS, MECHANISMS, BASELINES = (tuple(names) for names in _names())
"""Names of presets, of mechanisms that ``+NAME`` and ``-NAME`` switch, and of other policies."""

__all__ = [
    "BASELINES",
    "Cache",
    "CachedFile",
    "Error",
    "MECHANISMS",
    "PRESETS",
    "Page",
    "Scenario",
    "SweepReport",
    "Table",
    "Tenant",
    "Trace",
    "UsageError",
    "WorkError",
    "__version__",
    "ablate",
    "events",
    "fidelity",
    "mrc",
    "plot",
    "replay",
    "scenario",
    "sweep",
    "timeline",
]


if _typing.TYPE_CHECKING:
    # Without the function below, so that a misspelled name is an error of types.
    from . import plot
else:

    def __getattr__(name: str) -> _typing.Any:
        # Plots need matplotlib, which takes longer to import than everything else here.
        if name == "plot":
            import importlib

            return importlib.import_module("mglru.plot")
        raise AttributeError(f"module 'mglru' has no attribute {name!r}")
