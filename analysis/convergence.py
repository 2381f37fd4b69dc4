"""Gaps against steps on log–log axes: runs, and the bounds that theory puts above them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gifair_ray.analysis.plots import COLOURS, GREY, SMALL, WIDTH

Floats = npt.NDArray[np.float64]
BLUE, ORANGE, GREEN = COLOURS[:3]
STRETCHES = 72  # means over so many stretches of the logarithmic axis
Dashes = tuple[float, tuple[float, ...]]
SMALLEST = 1e-16  # what rounding leaves of nothing


@dataclass(frozen=True)
class Run:
    """A run's gaps at T steps, and the bound that belongs to it."""

    label: str
    T: Floats
    gaps: Floats
    bound_label: str
    bound: Floats


@dataclass(frozen=True)
class Bound:
    """A bound at T steps, whatever the run."""

    label: str
    T: Floats
    values: Floats


def convergence(
    title: str, runs: Sequence[Run], bounds: Sequence[Bound], slope: float | None = None
) -> Figure:
    """H(θ) − H* against T: for every run its mean, the range about it, and its bound (dashed).

    A grey line falls with `slope`, below the first run.
    """
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    ax = figure.subplots()
    for run, colour, width in zip(runs, (BLUE, ORANGE), (1.3, 3.0), strict=False):
        T, low, mean, high = _stretches(run.T, run.gaps)
        ax.fill_between(T, low, high, color=colour, alpha=0.18, linewidth=0)
        # The first is the thin one, on top, so that both can be seen where they agree.
        ax.plot(T, mean, color=colour, linewidth=width, label=run.label, zorder=2.5 - width / 10)
    for n, (run, colour) in enumerate(zip(runs, (BLUE, ORANGE), strict=False)):
        # Where two bounds lie on each other, their dashes take turns.
        _line(ax, run.T, run.bound, colour, (2.5 * n, (2.2, 2.8)), run.bound_label)
    for bound, colour, dashes in zip(
        bounds, (GREEN, "black"), ((0, (6, 1.5, 1, 1.5)), (0, (1, 1.4))), strict=False
    ):
        _line(ax, bound.T, bound.values, colour, dashes, bound.label)
    if slope is not None:
        T, _, mean, _ = _stretches(runs[0].T, runs[0].gaps)
        T, mean = T[len(T) // 2 :], mean[len(mean) // 2 :]
        guide = 0.35 * np.min(mean * T**-slope) * T**slope
        ax.plot(T, guide, color=GREY, linewidth=1, label=f"slope −{-slope:g}")
    _dress(ax, title)
    return figure


def _line(ax: Axes, T: Floats, values: Floats, colour: str, dashes: Dashes, label: str) -> None:
    at = np.unique(np.geomspace(1, len(T), 200).astype(int)) - 1
    ax.plot(T[at], values[at], color=colour, linestyle=dashes, linewidth=1.3, label=label)


def _stretches(T: Floats, gaps: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """(T, lowest, mean, highest) over stretches of about equal length on the logarithmic axis."""
    edges = np.unique(np.geomspace(1, len(T) + 1, STRETCHES + 1).astype(int)) - 1
    parts = [slice(a, b) for a, b in pairwise(edges.tolist())]
    shown = np.maximum(gaps, SMALLEST)
    low, mean, high = (
        np.array([f(shown[part]) for part in parts]) for f in (np.min, np.mean, np.max)
    )
    return np.array([np.sqrt(T[part][0] * T[part][-1]) for part in parts]), low, mean, high


def _dress(ax: Axes, title: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("local steps $T$", fontsize=SMALL + 1)
    ax.set_ylabel(r"$H(\theta) - H^*$", fontsize=SMALL + 1)
    ax.set_title(title, fontsize=SMALL + 1, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, which="major", color="#E5E5E5", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=SMALL)
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        frameon=False,
        fontsize=SMALL,
        labelspacing=0.8,
    )


def write(figure: Figure, stem: Path) -> list[Path]:
    """The figure as PNG and SVG; the same bytes for the same figure."""
    files = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]
    with mpl.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "path"}):
        figure.savefig(files[0], dpi=200)
        figure.savefig(files[1], metadata={"Date": None})
    return files
