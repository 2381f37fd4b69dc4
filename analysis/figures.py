"""The report's figures, for the browser and for notebooks: each from the table behind it.

Every function returns a `plotly.graph_objects.Figure` that can be changed, shown and saved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.style import (
    DASHES,
    GREY,
    OUTCOME,
    SYMBOLS,
    colour,
    faint,
    figure,
    hours_unit,
    told_apart,
    wrapped,
)

PERCENT = {"accuracy": 100.0}


def curves(
    table: pa.Table, label: str, what: str = "accuracy", over: str = "rounds", height: int = 300
) -> go.Figure:
    """A label's groups from evaluation to evaluation: the mean over seeds in the range of them.

    `table` is that of `views.over_time`, `what` accuracy or loss, `over` rounds or hours.
    """
    factor = PERCENT.get(what, 1.0)
    x_title, x_factor = _x_axis(table, over)
    top = _top(table, what) * factor
    low = min(0.0, _least(table, what) * factor) if what == "loss" else _least(table, what) * factor
    pad = 0.04 * (top - low or 1.0)
    title = "accuracy (%)" if what == "accuracy" else "loss"
    made = figure(height, x_title, title)
    made.update_yaxes(range=[low - pad, top + pad])
    mine = table.filter(pc.equal(table["label"], label))
    for i, group in enumerate(dict.fromkeys(table["group"].to_pylist())):
        rows = mine.filter(pc.equal(mine["group"], group)).to_pydict()
        x = [value * x_factor for value in rows[over]]
        if not x:
            continue
        line = {"color": colour(i), "width": 2, "dash": DASHES[i % len(DASHES)]}
        known = [i for i, value in enumerate(rows[what]) if value is not None]
        edge = [(x[i], rows[f"{what}_high"][i]) for i in known]
        edge += [(x[i], rows[f"{what}_low"][i]) for i in reversed(known)]
        if max(rows["seeds"]) > 1 and edge:
            made.add_scatter(
                x=[at for at, _ in edge], y=[value * factor for _, value in edge],
                fill="toself", mode="lines",
                fillcolor=faint(colour(i), 0.18), line={"width": 0}, hoverinfo="skip",
                legendgroup=group, showlegend=False, name=wrapped(group),
            )  # fmt: skip
        made.add_scatter(
            x=x, y=_times(rows[what], factor), mode="lines+markers", name=wrapped(group), line=line,
            marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 6 if len(x) < 60 else 3},
            legendgroup=group, hovertemplate="%{y:.4g} at %{x:.4g}<extra>%{fullData.name}</extra>",
        )  # fmt: skip
    return made


def distribution(table: pa.Table) -> go.Figure:
    """A box per label: half of the clients in it, eight in ten between the whiskers.

    `table` is that of `views.over_clients`.
    """
    rows = table.to_pylist()[::-1]
    graded = all(row["measure"] == "accuracy" for row in rows)
    factor = 100.0 if graded else 1.0
    title = "accuracy of a client (%)" if graded else "loss of a client"
    made = figure(90 + 34 * len(rows), title, "", showlegend=True)
    y = told_apart([row["label"] for row in rows], 20)
    ends = {e: [row[f"q{e}"] * factor for row in rows] for e in (0, 10, 25, 50, 75, 90, 100)}
    made.add_box(
        y=y, lowerfence=ends[10], q1=ends[25], median=ends[50], q3=ends[75], upperfence=ends[90],
        mean=[row["mean"] * factor for row in rows], orientation="h", name="10, 25, 50, 75, 90 %",
        line={"color": colour(0), "width": 1.5}, fillcolor=faint(colour(0), 0.25), boxmean=True,
    )  # fmt: skip
    for end, name, symbol in (
        (0, "worst client", "triangle-left"),
        (100, "best client", "triangle-right"),
    ):
        made.add_scatter(
            x=ends[end], y=y, mode="markers", name=name,
            marker={"symbol": symbol, "size": 9, "color": colour(1 if end == 0 else 2)},
        )  # fmt: skip
    return made


def lambdas(table: pa.Table, height: int = 340) -> list[tuple[str, go.Figure]]:
    """Accuracy, and the gap between groups, by λ/λ_max: two figures with what they show.

    `table` is that of `sensitivity.sensitivity`.
    """
    made = []
    graded = table["mean_accuracy"].null_count < len(table)
    shown: list[tuple[str, str, Sequence[tuple[str, str, str]]]] = [
        ("Accuracy", "accuracy (%)", [("mean_accuracy", "mean of clients", "solid"),
                                      ("worst_group", "worst group", "dash")]),
        ("Gap", "accuracy, best − worst group (points)", [("discrepancy", "gap", "solid")]),
    ]  # fmt: skip
    if not graded:
        shown = [("Loss", "loss, worst − best group", [("loss_spread", "spread", "solid")])]
    series = list(dict.fromkeys(table["series"].to_pylist()))
    for title, y, measures in shown:
        one = figure(height, "λ / λ_max", y)
        for i, name in enumerate(series):
            rows = table.filter(pc.equal(table["series"], name)).to_pydict()
            for column, called, dash in measures:
                factor = 1.0 if column == "loss_spread" else 100.0
                told = f"{name}: {called}" if name and len(measures) > 1 else name or called
                one.add_scatter(
                    x=rows["lambda_fraction"], y=_times(rows[column], factor), name=wrapped(told),
                    mode="lines+markers", line={"color": colour(i), "dash": dash, "width": 2},
                    marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
                    error_y={"array": _times(rows[f"{column}_sd"], factor), "thickness": 1},
                )  # fmt: skip
        made.append((title, one))
    return made


RANKS = {
    "wrong_signs": ("Wrong order", "pairs in the wrong order (%)", 100.0),
    "age_mean": ("Age of losses", "mean age (versions)", 1.0),
    "delta": ("Error δ", "δ (loss)", 1.0),
}


def rank_curves(table: pa.Table, what: str, over: str = "rounds", height: int = 320) -> go.Figure:
    """Wrong signs, the age of losses or δ from audit to audit, a line per label.

    `table` is that of `views.ranks`, `what` a key of `RANKS`, `over` rounds or hours.
    """
    x_title, x_factor = _x_axis(table, over)
    _, title, factor = RANKS[what]
    made = figure(height, x_title, title, showlegend=True)
    made.update_yaxes(rangemode="tozero")
    for i, label in enumerate(dict.fromkeys(table["label"].to_pylist())):
        rows = table.filter(pc.equal(table["label"], label)).to_pydict()
        made.add_scatter(
            x=[value * x_factor for value in rows[over]], y=_times(rows[what], factor),
            mode="lines+markers", name=wrapped(label),
            line={"color": colour(i), "dash": DASHES[(i // 8 + i) % len(DASHES)], "width": 2},
            marker={"symbol": SYMBOLS[(i + i // 8) % len(SYMBOLS)], "size": 5},
        )  # fmt: skip
    return made


def outcomes(table: pa.Table) -> go.Figure:
    """What became of the dispatches to each group: shares, a bar per label and group.

    `table` is that of `compare_by_group`.
    """
    rows = [row for row in table.to_pylist() if row["selected"]][::-1]
    y = [
        [wrapped(row["label"], 15) for row in rows],
        [wrapped(row["group_name"], 15) for row in rows],
    ]
    made = figure(110 + 30 * len(rows), "share of dispatches (%)", "", barmode="stack")
    made.update_yaxes(dividercolor=GREY, tickfont={"size": 10})
    for name, (shade, pattern) in OUTCOME.items():
        column = name.replace("-", "_")
        values = [100 * row[column] / row["selected"] for row in rows]
        if any(values):
            made.add_bar(
                x=values, y=y, orientation="h", name=name,
                marker={"color": shade, "pattern": {"shape": pattern, "fillmode": "overlay",
                                                    "fgcolor": "white"}},
                customdata=[row[column] for row in rows],
                hovertemplate=f"{name}: %{{x:.1f}} % (%{{customdata:.4g}} dispatches)<extra></extra>",  # noqa: E501
            )  # fmt: skip
    made.update_xaxes(range=[0, 100])
    made.update_layout(legend_traceorder="normal")
    return made


WEIGHTS = {
    "weight_ratio": ("aggregation ω", "aggregation weight ÷ share of the data"),
    "effective_ratio": ("with multipliers", "effective weight ω·m ÷ share of the data"),
}
NUMBERED = 6  # labels whose marks have a number


def participation(table: pa.Table, weight: str = "weight_ratio", height: int = 380) -> go.Figure:
    """A group's accuracy (loss, where there is none) by the weight that it had in the model.

    `table` is that of `compare_by_group`, `weight` a key of `WEIGHTS`. A mark per label and group;
    few labels are numbered.
    """
    what = "accuracy" if table["accuracy"].null_count < len(table) else "loss"
    factor = PERCENT.get(what, 1.0)
    title = "accuracy of the group (%)" if factor != 1 else "loss of the group"
    made = figure(height, WEIGHTS[weight][1], title, showlegend=True)
    names, labels = (list(dict.fromkeys(table[of].to_pylist())) for of in ("group_name", "label"))
    many = len(names) > len(SYMBOLS)
    numbers = len(labels) <= NUMBERED and not many
    for i, name in enumerate(names):
        rows = table.filter(pc.equal(table["group_name"], name)).to_pydict()
        made.add_scatter(
            x=rows[weight],
            y=_times(rows[what], factor),
            mode="markers+text" if numbers else "markers",
            name="groups" if many else wrapped(name),
            showlegend=not many or i == 0,
            customdata=[f"{wrapped(label)}<br>{wrapped(name)}" for label in rows["label"]],
            hovertemplate="%{customdata}: %{y:.4g} at %{x:.3g}<extra></extra>",
            marker={
                "color": faint(colour(0 if many else i), 1.0 if numbers else 0.7),
                "size": 19 if numbers else 9,
                "symbol": SYMBOLS[0 if many else i],
            },
            text=[str(labels.index(label) + 1) for label in rows["label"]] if numbers else None,
            textfont={"color": "white", "size": 10},
        )
    made.add_vline(x=1, line={"color": GREY, "dash": "dot", "width": 1})
    return made


COSTS = {"virtual_hours": "virtual time", "megabytes": "bytes"}


def pareto(table: pa.Table, cost: str = "virtual_hours", height: int = 420) -> go.Figure:
    """Cost against the gap between groups, a numbered mark per label; the front is a line.

    `table` is that of `compare`, with a column `front_<cost>` (`report.fronts`).
    """
    rows = [row for row in table.to_pylist() if row[cost] is not None]
    graded = any(row["discrepancy"] is not None for row in rows)
    column, factor = ("discrepancy", 100.0) if graded else ("loss_spread", 1.0)
    y_title = "best − worst group (points of accuracy)" if graded else "worst − best group (loss)"
    unit, scale = hours_unit(max((row["virtual_hours"] for row in rows), default=1.0))
    x_title = f"virtual time ({unit})"
    if cost == "megabytes":
        x_title, scale = "moved to and from clients (MB)", 1.0
    made = figure(height, x_title, y_title)
    front = sorted((row for row in rows if row[f"front_{cost}"]), key=lambda row: row[cost])
    made.add_scatter(
        x=[row[cost] * scale for row in front], y=[row[column] * factor for row in front],
        mode="lines", line={"color": GREY, "dash": "dot", "width": 2, "shape": "hv"},
        name="Pareto front",
    )  # fmt: skip
    for i, row in enumerate(rows):
        if row[column] is None:
            continue
        made.add_scatter(
            x=[row[cost] * scale], y=[row[column] * factor], mode="markers+text",
            text=[str(i + 1)], textfont={"color": "white", "size": 10},
            name=f"{i + 1} {wrapped(called(row))}",
            marker={"color": colour(i) if row[f"front_{cost}"] else GREY, "size": 19,
                    "symbol": "circle" if row[f"front_{cost}"] else "square"},
            error_x=_bar(row[f"{cost}_sd"], scale), error_y=_bar(row[f"{column}_sd"], factor),
            hovertemplate="%{fullData.name}<br>%{y:.3g} at %{x:.3g}<extra></extra>",
        )  # fmt: skip
    return made


def called(row: Mapping[str, Any]) -> str:
    """A row of `compare` by its name."""
    label = str(row["label"])
    return label if row["model"] == "global" else f"{label}, {row['model']}"


def _bar(sd: float | None, factor: float) -> dict[str, Any]:
    return {"visible": bool(sd), "array": [(sd or 0.0) * factor], "color": GREY, "thickness": 1}


def _times(values: Sequence[float | None], factor: float) -> list[float | None]:
    return [None if value is None else value * factor for value in values]


def _x_axis(table: pa.Table, over: str) -> tuple[str, float]:
    if over == "rounds":
        return "round (server updates)", 1.0
    unit, factor = hours_unit(pc.max(table["hours"]).as_py() or 0.0)
    return f"virtual time ({unit})", factor


def _top(table: pa.Table, what: str) -> float:
    found = pc.max(table[f"{what}_high"]).as_py()
    return 1.0 if found is None else float(found)


def _least(table: pa.Table, what: str) -> float:
    found = pc.min(table[f"{what}_low"]).as_py()
    return 0.0 if found is None else float(found)
