"""What happened: read the tables of runs, measure, compare and show.

`plots` and the figures in it need matplotlib, which is imported when they are first used. The
report (`report`) and its figures (`figures`, `gantt`) need plotly, and are imported by name.
"""

if __name__ != "gifair_ray.analysis":
    raise ImportError(f"import this package as gifair_ray.analysis, not as {__name__}")

from typing import TYPE_CHECKING, Any

from gifair_ray.analysis.compare import (
    Group,
    Row,
    Summary,
    compare,
    compare_by_group,
    summarise,
)
from gifair_ray.analysis.load import RunTables, find_runs, load, open_runs
from gifair_ray.analysis.paired import paired, pairs, render_paired
from gifair_ray.analysis.participation import by_client, by_group
from gifair_ray.analysis.render import render, render_groups, to_csv, to_latex, to_markdown, write

if TYPE_CHECKING:
    from gifair_ray.analysis.lambda_plot import by_lambda
    from gifair_ray.analysis.plots import compare_groups, group_losses

__all__ = [
    "Group",
    "Row",
    "RunTables",
    "Summary",
    "by_client",
    "by_group",
    "by_lambda",
    "compare",
    "compare_by_group",
    "compare_groups",
    "find_runs",
    "group_losses",
    "load",
    "open_runs",
    "paired",
    "pairs",
    "render",
    "render_groups",
    "render_paired",
    "summarise",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write",
]


def __getattr__(name: str) -> Any:
    if name == "by_lambda":
        from gifair_ray.analysis.lambda_plot import by_lambda

        return by_lambda
    if name in ("compare_groups", "group_losses"):
        from gifair_ray.analysis import plots

        return getattr(plots, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
