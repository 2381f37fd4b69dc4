"""The report's figures of results, for the browser and for notebooks: each from its table.

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
            x=x, y=times(rows[what], factor), mode="lines+markers", name=wrapped(group), line=line,
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


TICKS = 8  # values of λ that are on the axis one by one


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
    values = sorted(set(table["lambda_fraction"].to_pylist()))
    for title, y, measures in shown:
        one = figure(height, "λ / λ_max", y)
        if len(values) <= TICKS:
            one.update_xaxes(tickvals=values, ticktext=[f"{value:.3g}" for value in values])
        for i, name in enumerate(series):
            rows = table.filter(pc.equal(table["series"], name)).to_pydict()
            for column, called, dash in measures:
                factor = 1.0 if column == "loss_spread" else 100.0
                told = f"{name}: {called}" if name and len(measures) > 1 else name or called
                one.add_scatter(
                    x=rows["lambda_fraction"], y=times(rows[column], factor), name=wrapped(told),
                    mode="lines+markers", line={"color": colour(i), "dash": dash, "width": 2},
                    marker={"symbol": SYMBOLS[i % len(SYMBOLS)], "size": 8},
                    error_y={"array": times(rows[f"{column}_sd"], factor), "thickness": 1},
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
            x=[value * x_factor for value in rows[over]], y=times(rows[what], factor),
            mode="lines+markers", name=wrapped(label),
            line={"color": colour(i), "dash": DASHES[(i // 8 + i) % len(DASHES)], "width": 2},
            marker={"symbol": SYMBOLS[(i + i // 8) % len(SYMBOLS)], "size": 5},
        )  # fmt: skip
    return made


def called(row: Mapping[str, Any]) -> str:
    """A row of `compare` by its name."""
    label = str(row["label"])
    return label if row["model"] == "global" else f"{label}, {row['model']}"


def times(values: Sequence[float | None], factor: float) -> list[float | None]:
    """The values in another unit; what is unknown stays so."""
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
