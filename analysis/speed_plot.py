"""The figure of `gifair bench`: every arm's rate and CPU time, medians and range."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gifair_ray.analysis.speed import Place, Spread

ENGINE, LIMIT, SMALL = "#D55E00", "#0072B2", 8.0
BY_HAND = ("loop", "batched")  # how the names of limits begin
PANELS = (("rate", 1.0, "client updates per second"), ("cpu", 1e3, "CPU ms per update"))


def speeds(found: Mapping[Place, Mapping[str, Spread]]) -> Figure:
    """A row per arm that updates clients; limits in blue, the engine in orange."""
    places = [place for place in found if found[place]["rate"].median > 0]  # nor is NaN
    figure = Figure(figsize=(8.0, 1.1 + 0.24 * max(1, len(places))), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for ax, (measure, times, label) in zip(axes, PANELS, strict=True):
        for y, place in enumerate(places):
            _draw(ax, y, found[place][measure], times, _colour(place))
        if places:
            ax.set_xscale("log")
        ax.set_xlabel(label, fontsize=SMALL + 1)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, color="#E5E5E5", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=SMALL)
    axes[0].set_yticks(range(len(places)), [f"{workload} {arm}" for workload, arm in places])
    axes[0].set_ylim(len(places) - 0.4, -0.6)
    marks = [
        Line2D([], [], color=colour, marker="o", linestyle="", markersize=5, label=label)
        for colour, label in ((ENGINE, "the engine"), (LIMIT, "written by hand"))
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False, fontsize=SMALL)
    return figure


def _colour(place: Place) -> str:
    return LIMIT if place[1].startswith(BY_HAND) else ENGINE


def _draw(ax: Axes, y: int, spread: Spread, times: float, colour: str) -> None:
    ax.plot([times * spread.low, times * spread.high], [y, y], color=colour, alpha=0.4, lw=4)
    ax.plot(times * spread.median, y, "o", color=colour, markersize=5)
