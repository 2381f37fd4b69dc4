"""The report's sections on results: figures, how to read them, and the tables behind them."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis import figures, views
from gifair_ray.analysis.answer import answer
from gifair_ray.analysis.columns import BRIEF, LABELS, number
from gifair_ray.analysis.section import About, Section, plot_of, table_of
from gifair_ray.analysis.sensitivity import sensitivity as lambda_series

PANELS = 12  # labels that are shown together


def _pages(labels: list[str]) -> dict[str, list[str]]:
    """Labels by the name of the page that shows them."""
    pages = [labels[i : i + PANELS] for i in range(0, len(labels), PANELS)]
    return {f"{i * PANELS + 1}–{i * PANELS + len(page)}": page for i, page in enumerate(pages)}


def summary(about: About) -> Section:
    """The answer first, then the figures that matter most."""
    by_name = {column.name: column for column in LABELS}
    shown = [by_name[n] for n in (*BRIEF, "virtual_hours", "megabytes", "wasted_share")]
    rows = []
    for line in about.comparison.to_pylist():
        cells = [figures.called(line), line["seeds"]]
        for column in shown:
            mean, sd = line[column.name], line[f"{column.name}_sd"]
            told = "–" if mean is None else number(mean, column.kind)
            cells.append(told if sd is None else f"{told} ({number(sd, column.kind)})")
        rows.append(cells)
    units = {"percent": "%", "percent²": "%²"}
    heads = [f"{c.name} ({units.get(c.kind, c.unit)})" for c in shown]
    heads = ["setting", "seeds", *(head.replace("_", " ") for head in heads)]
    tables = [
        table_of("comparison", "All figures, by setting", about.comparison),
        table_of("groups", "All figures, by setting and group", about.groups),
    ]
    if about.pairs is not None and len(about.pairs):
        tables.append(table_of("pairs", "Paired tests, seed by seed", about.pairs))
    return {
        "id": "summary",
        "title": "Summary",
        "answer": answer(about.comparison, about.groups, about.pairs),
        "read": f"At the last evaluation, split {about.split}: mean (standard deviation over "
        "seeds). The std of clients is corrected for the noise of finite test sets; the "
        "discrepancy is the best group's accuracy minus the worst group's.",
        "main": {"name": "summary", "columns": heads, "rows": rows},
        "notes": json.loads(about.comparison.schema.metadata[b"notes"]),
        "tables": tables,
    }


def over_time(about: About) -> Section | None:
    """Accuracy and loss of the groups, over rounds and over virtual time: a panel per label."""
    table = views.over_time(about.runs, about.split)
    labels = list(dict.fromkeys(table["label"].to_pylist()))
    if not labels:
        return None
    pages = _pages(labels)
    graded = table["accuracy"].null_count < len(table)
    shown = ["accuracy", "loss"] if graded else ["loss"]
    overs = {"rounds": "rounds", "virtual time": "hours"}
    controls = [{"name": "show", "options": shown}, {"name": "over", "options": list(overs)}]
    controls.append({"name": "settings", "options": list(pages)})
    plots = [
        plot_of(
            figures.curves(table, label, what, over),
            label,
            small=len(labels) > 1,
            show=what,
            over=told,
            settings=page,
        )
        for page, some in pages.items()
        for label in some
        for what in shown
        for told, over in overs.items()
    ]
    return {
        "id": "over-time",
        "title": "Groups over time",
        "read": "A line per group at every evaluation, as the mean over seeds; the shade reaches "
        "from the lowest seed to the highest. Lines that come together are groups that are "
        "served alike. All panels have the same scale.",
        "controls": [control for control in controls if len(control["options"]) > 1],
        "plots": plots,
        "tables": [table_of("groups-over-time", "Table behind the figure", table)],
    }


def clients(about: About) -> Section | None:
    """How the clients are spread, by label."""
    table = views.over_clients(about.runs, about.split)
    if not len(table) or table["q50"].null_count == len(table):
        return None
    table = table.filter(table["q50"].is_valid())
    return {
        "id": "clients",
        "title": "Distribution over clients",
        "read": "The clients of all seeds at the last evaluation. Half of them are inside the "
        "box, with the median as its line and the mean dashed; eight in ten are between the "
        "whiskers. A short box far to the right is good and fair"
        + (". " if table["measure"][0].as_py() == "accuracy" else " (for losses: to the left). ")
        + "Spread that finite test sets cause is in it.",
        "plots": [plot_of(figures.distribution(table))],
        "tables": [table_of("clients", "Table behind the figure: quantiles", table)],
    }


def sensitivity(about: About) -> Section | None:
    """Results by λ, if it is varied."""
    table = lambda_series(about.runs, about.comparison)
    if not len(table):
        return None
    drawn = figures.lambdas(table)
    return {
        "id": "lambda",
        "title": "Sensitivity to λ",
        "read": "Results at the last evaluation by the strength of the fairness penalty, as a "
        "fraction of its bound; 0 is FedAvg. Bars are the standard deviation over seeds. Look for "
        "the λ up to which the worst group gains and the mean does not lose.",
        "plots": [plot_of(figure, title, small=len(drawn) > 1) for title, figure in drawn],
        "tables": [table_of("lambda", "Table behind the figure", table)],
    }


def ranks(about: About) -> Section | None:
    """Ranks in use beside the exact ones."""
    table = views.ranks(about.runs)
    if not len(table):
        return None
    overs = {"rounds": "rounds", "virtual time": "hours"}
    known = [what for what in figures.RANKS if table[what].null_count < len(table)]
    pages = _pages(list(dict.fromkeys(table["label"].to_pylist())))
    parts = {
        page: table.filter(pc.is_in(table["label"], pa.array(labels)))
        for page, labels in pages.items()
    }
    plots = [
        plot_of(
            figures.rank_curves(part, what, over),
            figures.RANKS[what][0],
            over=told,
            settings=page,
        )
        for page, part in parts.items()
        for told, over in overs.items()
        for what in known
    ]
    controls = [
        {"name": "over", "options": list(overs)},
        {"name": "settings", "options": list(pages)},
    ]
    return {
        "id": "ranks",
        "title": "Ranks in use against exact ranks",
        "read": "At audits, which cost nothing in the simulated world: the share of pairs of "
        "groups that the server had in the wrong order (half for a pair it could not tell), how "
        "old the losses were that it went by, and δ, by which the objective it pursued missed the "
        "true one. All three are 0 with exact ranks. Lines of settings that do alike lie on each "
        "other: click a name to hide its line, or double-click it to see it alone.",
        "controls": [control for control in controls if len(control["options"]) > 1],
        "plots": plots,
        "tables": [table_of("ranks", "Table behind the figures", table)],
    }
