"""The paper's sensitivity figure: what λ does to accuracy, by group or over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from gifair_ray.analysis import measures
from gifair_ray.analysis.accuracies import accuracies
from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.plots import COLOURS, MARKERS


def sensitivity(runs: Mapping[float, Sequence[RunTables]], grouped: bool) -> Figure:
    """Test accuracy of the global model against λ/λ_max: mean over seeds, bars of one deviation.

    By group; or, where every client is a group, the mean over clients and their standard
    deviation, corrected for test-set noise.
    """
    fractions = sorted(runs)
    curves: dict[str, list[list[float]]] = {}
    for fraction in fractions:
        for name in (per_run := [_figures(run, grouped) for run in runs[fraction]])[0]:
            curves.setdefault(name, []).append([100 * one[name] for one in per_run])
    figure = Figure(figsize=(5.0, 3.6), layout="constrained")
    panels = figure.subplots(1 if grouped else len(curves), sharex=True, squeeze=False)[:, 0]
    for i, (name, values) in enumerate(curves.items()):
        mean = [float(np.mean(v)) for v in values]
        spread = [float(np.std(v, ddof=1)) if len(v) > 1 else 0.0 for v in values]
        axes = panels[0 if grouped else i]
        beside = 0.006 * (2 * i - len(curves) + 1) * grouped  # so that bars can be told apart
        at = [fraction + beside for fraction in fractions]
        axes.errorbar(
            at, mean, spread, label=name, color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)], markersize=5, capsize=3, linewidth=1.5,
        )  # fmt: skip
        axes.set_ylabel("test accuracy, %" if grouped else f"{name}, %")
        axes.grid(alpha=0.3, linewidth=0.5)
    if grouped:
        panels[0].legend(frameon=False, loc="best")
    panels[-1].set_xlabel(r"$\lambda\,/\,\lambda_{\max}$")
    return figure


def _figures(run: RunTables, grouped: bool) -> dict[str, float]:
    found = accuracies(run, "test", personal=False)
    if not grouped:
        return {
            "mean accuracy": measures.mean_accuracy(found.accuracy),
            "std over clients": measures.corrected_deviation(found.accuracy, found.samples),
        }
    means = measures.group_means(found.accuracy, found.group)
    return {
        found.names[int(i)].lower(): float(mean)
        for i, mean in zip(np.unique(found.group), means, strict=True)
    }
