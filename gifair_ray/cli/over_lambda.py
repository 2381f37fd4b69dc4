"""The λ-sensitivity of an experiment of the paper: runs, figure and tables."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gifair_ray.errors import RunFailed

if TYPE_CHECKING:
    from gifair_ray.api import BatchRun
    from gifair_ray.cli.paper import Plan
    from gifair_ray.scenario import Scenario
    from gifair_ray.scenarios.load import Study

LAMBDAS = tuple(i / 10 for i in range(10))
STEPS = {"smoke": 9, "small": 3, "paper": 1}
"""Of the λ/λ_max, every so many are tried."""
RANKS = ("estimated", "received")
"""The paper's, and those that cost the same messages and are nearer to its theory."""
NONE = "0"
"""The label of λ = 0, which has no use for ranks: it is run once."""


def study(one: Plan, budget: str) -> Study:
    """GIFAIR over all seeds, for every λ/λ_max and kind of ranks."""
    from gifair_ray.cli.tune import over_seeds
    from gifair_ray.scenarios.load import Study

    runs: list[tuple[str, Scenario]] = []
    fractions = LAMBDAS[:: STEPS[budget]]
    for ranks in RANKS:
        for fraction in fractions[0 if ranks == RANKS[0] else 1 :]:
            label = f"{ranks} {fraction:g}" if fraction else NONE
            weighting = {"lambda_fraction": fraction, "ranks": ranks}
            change = {"algorithm": "gifair-global", "weighting": weighting}
            runs += over_seeds(label, one.base, change, one.seeds)
    return Study(one.name, tuple(runs))


def over_lambda(one: Plan, arguments: argparse.Namespace) -> str:
    """Run them and draw the paper's figure: sensitivity.png, .md; the tables as text."""
    from gifair_ray.analysis import by_lambda, load
    from gifair_ray.cli.tune import run_batch_shown

    done = run_batch_shown(study(one, arguments.budget), one.out / "sensitivity", arguments)
    if failed := [run for run in done if run.error is not None]:
        raise RunFailed(f"{one.name}, ranks and λ/λ_max {failed[0].label}: {failed[0].error}")
    figure = by_lambda([load(run.folder) for run in done])
    figure.savefig(one.out / "sensitivity.png", dpi=200)
    text = _tables(one, done)
    (one.out / "sensitivity.md").write_text(text, encoding="utf-8")
    return text


def _tables(one: Plan, done: list[BatchRun]) -> str:
    from gifair_ray.analysis import load
    from gifair_ray.analysis import paper as tables
    from gifair_ray.analysis.reweighting import NAMES, reweighting

    groups = one.experiment.groups
    found: dict[str, dict[int, dict[str, float]]] = {}
    for run in done:
        loaded = load(run.folder)
        figures = tables.figures(loaded, False, groups) | reweighting(loaded)
        found.setdefault(run.label, {})[run.scenario.seed] = figures
    unfair = "discrepancy" if groups else "std corrected"
    return f"""## {one.experiment.table}, over λ

Ranks and λ/λ_max, means over {one.seeds} seeds:

{tables.means_markdown(found, [*groups, "mean", unfair, *NAMES])}
Seed by seed, with 95 % intervals:

{tables.pairs_markdown(found, NONE, ["mean", unfair, "loss spread"])}"""
