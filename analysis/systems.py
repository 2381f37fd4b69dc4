"""The report's sections on the system: timeline, participation, cost, and how to repeat it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from gifair_ray.analysis import system_figures as figures
from gifair_ray.analysis.gantt import gantt
from gifair_ray.analysis.participation import CAUSES
from gifair_ray.analysis.section import About, Section, plain, plot_of, table_of
from gifair_ray.analysis.timeline import timeline as stretch_of
from gifair_ray.errors import BadInput

TIMELINES = 12  # labels that have one


def timeline(about: About, rounds: tuple[int, int] | None) -> Section | None:
    """Every dispatch of a stretch of rounds, for the first seed of each label."""
    found = []
    for label, runs in list(about.labels.items())[:TIMELINES]:
        stretch = stretch_of(runs[0], rounds)
        if stretch is not None:
            told = f"{label}, rounds {stretch.first} to {stretch.last}"
            found.append((told, runs[0], stretch))
    if not found:
        if rounds is not None:
            raise BadInput(f"no run has dispatches for rounds {rounds[0]} to {rounds[1]}")
        return None
    plots, tables = [], []
    for told, run, stretch in found:
        for by in ("outcome", "group"):
            title = f"{told} (seed {run.manifest['seed']})"
            if stretch.left_out:
                title += f"; {stretch.left_out} further clients are not shown"
            plots.append(plot_of(gantt(stretch, by), title, run=told, colours=by))
        name = pa.array([told] * len(stretch.dispatches), pa.string())
        tables.append(stretch.dispatches.add_column(0, "run", name))
    left_out = max(0, len(about.labels) - TIMELINES)
    controls = [{"name": "run", "options": [told for told, *_ in found]}]
    controls.append({"name": "colours", "options": ["outcome", "group"]})
    return {
        "id": "timeline",
        "title": "Timeline",
        "read": "A row per client, a bar per dispatch: pale from the sending of the model until "
        "the server has the reply or knows that none will come, full while the client computes. "
        "Dotted lines are server updates. Drag across the chart to zoom in, double-click to go "
        "back.",
        "notes": [f"Of {left_out} further settings there is no timeline here."] * bool(left_out),
        "controls": [control for control in controls if len(control["options"]) > 1],
        "plots": plots,
        "tables": [table_of("timeline", "Table behind the figure", pa.concat_tables(tables))],
    }


def participation(about: About) -> Section | None:
    """Who took part, what became of the work, and how it goes with accuracy."""
    table = about.groups
    if not any(table["selected"].to_pylist()):
        return None
    few = len(about.labels) <= figures.NUMBERED
    named = " · ".join(f"{i} {label}" for i, label in enumerate(about.labels, start=1))
    plots = [
        plot_of(figures.participation(table, column), "Weight in the model and result", weight=told)
        for column, (told, _) in figures.WEIGHTS.items()
    ]
    failed = any(any(table[cause].to_pylist()) for cause in CAUSES)
    if failed:
        plots.insert(0, plot_of(figures.outcomes(table), "What became of the dispatches"))
    return {
        "id": "participation",
        "title": "Participation",
        "read": (
            "What became of the work that each group was sent; then each" if failed else "Each"
        )
        + " group's result by its weight in the model, relative to its share of the data: left of "
        "the dotted line a group counts for less than its data would give it. If lower marks are "
        "further left, who takes part decides who is served."
        + (f" The numbers are the settings: {named}." if few else ""),
        "notes": [] if failed else ["Every dispatch was completed: no work was wasted."],
        "controls": [{"name": "weight", "options": [t for t, _ in figures.WEIGHTS.values()]}],
        "plots": plots,
        "tables": [table_of("participation", "Table behind the figures", table)],
    }


def cost(about: About) -> Section | None:
    """Cost against fairness; for several labels."""
    if len(about.comparison) < 2:
        return None
    table = fronts(about.comparison)
    return {
        "id": "cost",
        "title": "Cost against fairness",
        "read": "A numbered mark per setting: what its run cost until the last evaluation, and "
        "the gap between groups that is left. Down and to the left is better. Settings on the "
        "dotted line, round and in colour, are those that no other beats in both. Bars are the "
        "standard deviation over seeds. Marks that lie on each other have their numbers together.",
        "controls": [{"name": "cost", "options": list(figures.COSTS.values())}],
        "plots": [
            plot_of(figures.pareto(table, column), cost=told)
            for column, told in figures.COSTS.items()
        ],
        "tables": [table_of("cost", "Table behind the figure", table)],
    }


def fronts(comparison: pa.Table) -> pa.Table:
    """Costs and gaps of a comparison, and which settings no other beats in both."""
    rows = comparison.to_pylist()
    gap = "discrepancy" if any(row["discrepancy"] is not None for row in rows) else "loss_spread"
    columns = ["label", "model", *figures.COSTS, *(f"{c}_sd" for c in figures.COSTS)]
    columns += ["discrepancy", "discrepancy_sd", "loss_spread", "loss_spread_sd"]
    table = comparison.select(columns).replace_schema_metadata(None)
    for column in figures.COSTS:
        flags = [
            row[gap] is not None
            and row[column] is not None
            and not any(_beats(other, row, column, gap) for other in rows)
            for row in rows
        ]
        table = table.append_column(f"front_{column}", pa.array(flags, pa.bool_()))
    return table


def _beats(other: dict[str, Any], row: dict[str, Any], cost: str, gap: str) -> bool:
    if other[gap] is None or other[cost] is None:
        return False
    theirs, mine = (other[cost], other[gap]), (row[cost], row[gap])
    return theirs != mine and all(a <= b for a, b in zip(theirs, mine, strict=True))


def repeat(about: About) -> Section:
    """All that is needed to do it again."""
    names = ("name", "label", "seed", "status", "digest", "scenario_digest", "backend", "started")
    rows = [[plain(run.manifest.get(name)) for name in names] for run in about.runs]
    texts = []
    for i, (label, runs) in enumerate(about.labels.items(), start=1):
        if runs[0].scenario:
            file = f"scenario-{i}.toml"
            texts.append({"title": f"Scenario: {label}", "name": file, "text": runs[0].scenario})
    manifest = json.dumps(dict(about.runs[0].manifest), indent=2, ensure_ascii=False)
    texts.append({"title": "Manifest of the first run", "name": "manifest.json", "text": manifest})
    return {
        "id": "repeat",
        "title": "Do it again",
        "read": "One scenario and one seed have one digest, on any number of workers, with the "
        "library versions of the manifest and one kind of CPU. Download a scenario below and run "
        "it with: gifair run scenario-1.toml --seed 0; then gifair digest tells whether the "
        "results are the same.",
        "main": {"name": "runs", "columns": list(names), "rows": rows},
        "texts": texts,
    }
