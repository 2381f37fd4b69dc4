"""The paper's sensitivity figure: what λ does, by the ranks in use. Drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gifair_ray.analysis.course import lambda_fraction
from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.plots import COLOURS, MARKERS, MOST, SMALL, WIDTH, plain, safe
from gifair_ray.analysis.summary import Row, summarise
from gifair_ray.errors import BadInput

LINES = ("-", "--", ":", "-.")
BLACK = "#000000"


class _Point(NamedTuple):
    ranks: str
    fraction: float
    seed: int
    row: Row


def by_lambda(runs: Iterable[RunTables], split: str = "test") -> Figure:
    """Accuracies of the global model by λ/λ_max: a panel of the groups for each kind of ranks.

    Means over seeds, with bars of one standard deviation. A last panel has the discrepancy, best
    group minus worst, and a thin line for every seed: seeds differ by more than λ does. Of more
    than eight groups: the mean over clients, and their standard deviation, corrected for test-set
    noise. A run with λ = 0 has no use for ranks, and is the first point of all kinds.
    """
    points = [
        # λ_max differs by seed, and with it the last bit of λ/λ_max
        _Point(run.settings.get("weighting.ranks", ""), round(fraction, 9), found.seed, row)
        for run in runs
        for found in [summarise(run, split)]
        for row in found.rows[:1]
        if not math.isnan(fraction := lambda_fraction(run))
    ]
    if not points:
        raise BadInput(f"no run has evaluated split {split!r}: choose another, or wait for it")
    fair = [p for p in points if p.fraction > 0]
    kinds = {
        ranks: [p for p in points if p.ranks == ranks or p.fraction == 0]
        for ranks in dict.fromkeys(p.ranks for p in fair or points)
    }
    grouped = len(points[0].row.groups) <= MOST
    return _grouped(kinds, split) if grouped else _clients(kinds, split)


def _grouped(kinds: dict[str, list[_Point]], split: str) -> Figure:
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    *panels, last = figure.subplots(1, len(kinds) + 1, squeeze=False)[0]
    for ax, (ranks, points) in zip(panels, kinds.items(), strict=True):
        for i, group in enumerate(points[0].row.groups):
            values = [p.row.groups[i].accuracy for p in points]
            _curve(ax, points, values, safe(group.name), COLOURS[i], MARKERS[i])
        if ax is not panels[0]:
            ax.sharey(panels[0])
            ax.tick_params(labelleft=False)
        ax.set_title(f"{ranks} ranks".strip().capitalize(), fontsize=SMALL + 1)
    panels[0].set_ylabel(f"accuracy ({split}, %)")
    for style, (ranks, points) in zip(LINES, kinds.items(), strict=False):
        values = [p.row.discrepancy for p in points]
        _seeds(last, points, values, style)
        _curve(last, points, values, f"{ranks} ranks".strip(), BLACK, "", style, bars=False)
    last.set_title("Discrepancy", fontsize=SMALL + 1)
    last.set_ylabel("best − worst group (points)")
    last.set_ylim(bottom=0)
    _finish(figure, panels[:1] + [last] * (len(kinds) > 1))
    return figure


def _clients(kinds: dict[str, list[_Point]], split: str) -> Figure:
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    axes = figure.subplots(1, 2)
    measures = ("mean_accuracy", "std_clients_corrected")
    labels = (f"mean of clients ({split}, %)", "std of clients, corrected (points)")
    for ax, measure, label in zip(axes, measures, labels, strict=True):
        for i, (style, (ranks, points)) in enumerate(zip(LINES, kinds.items(), strict=False)):
            values = [float(getattr(p.row, measure)) for p in points]
            name = f"{ranks} ranks".strip()
            _curve(ax, points, values, name, COLOURS[i], MARKERS[i], style)
        ax.set_ylabel(label)
    _finish(figure, [axes[0]] * (len(kinds) > 1))
    return figure


def _curve(
    ax: Axes, points: Sequence[_Point], values: Sequence[float], label: str, colour: str,
    marker: str, style: str = "-", bars: bool = True,
) -> None:  # fmt: skip
    """Means over the seeds at every λ, and a bar of one standard deviation where there are two."""
    x = sorted({p.fraction for p in points})
    at = [
        [100 * v for p, v in zip(points, values, strict=True) if p.fraction == where] for where in x
    ]
    deviations = [float(np.std(found, ddof=1)) if len(found) > 1 else 0.0 for found in at]
    ax.errorbar(
        x, [float(np.mean(found)) for found in at], deviations if bars else None, label=label,
        color=colour, linestyle=style, marker=marker, markersize=4.5, capsize=2.5, linewidth=1.4,
    )  # fmt: skip


def _seeds(ax: Axes, points: Sequence[_Point], values: Sequence[float], style: str) -> None:
    for seed in sorted({p.seed for p in points}):
        mine = sorted(
            (p.fraction, 100 * v) for p, v in zip(points, values, strict=True) if p.seed == seed
        )
        ax.plot(*zip(*mine, strict=True), color="#8A8A8A", linestyle=style, linewidth=0.7)


def _finish(figure: Figure, named: Sequence[Axes]) -> None:
    """Common looks, and one legend of what these axes show."""
    for ax in figure.axes:
        ax.set_xlabel(r"$\lambda\,/\,\lambda_{\max}$")
        plain(ax)
    if named:
        handles = [handle for ax in named for handle in ax.get_legend_handles_labels()[0]]
        figure.legend(
            handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=SMALL
        )
