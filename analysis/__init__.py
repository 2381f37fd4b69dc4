"""What happened: read the tables of runs, measure, compare and plot.

`plots` and the two figures in it need matplotlib, which is imported when they are first used.
"""

if __name__ != "gifair_ray.analysis":
    raise ImportError(f"import this package as gifair_ray.analysis, not as {__name__}")

from typing import TYPE_CHECKING, Any

from gifair_ray.analysis.compare import Group, Row, Summary, compare, render, summarise
from gifair_ray.analysis.load import RunTables, find_runs, load
from gifair_ray.analysis.paired import paired, render_paired

if TYPE_CHECKING:
    from gifair_ray.analysis.plots import compare_groups, group_losses

__all__ = [
    "Group",
    "Row",
    "RunTables",
    "Summary",
    "compare",
    "compare_groups",
    "find_runs",
    "group_losses",
    "load",
    "paired",
    "render",
    "render_paired",
    "summarise",
]


def __getattr__(name: str) -> Any:
    if name in ("compare_groups", "group_losses"):
        from gifair_ray.analysis import plots

        return getattr(plots, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
