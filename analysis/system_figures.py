"""The report's figures of the system: what became of the work, who counted, what it cost.

Every function returns a `plotly.graph_objects.Figure` that can be changed, shown and saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.figures import PERCENT, called, times
from gifair_ray.analysis.style import (
    GREY,
    OUTCOME,
    SYMBOLS,
    colour,
    faint,
    figure,
    hours_unit,
    wrapped,
)


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
    for i, name in enumerate(names):
        rows = table.filter(pc.equal(table["group_name"], name)).to_pydict()
        made.add_scatter(
            x=rows[weight],
            y=times(rows[what], factor),
            mode="markers",
            name="groups" if many else wrapped(name),
            showlegend=not many or i == 0,
            customdata=[f"{wrapped(label)}<br>{wrapped(name)}" for label in rows["label"]],
            hovertemplate="%{customdata}: %{y:.4g} at %{x:.3g}<extra></extra>",
            marker={
                "color": faint(colour(0 if many else i), 0.85),
                "size": 10,
                "symbol": SYMBOLS[0 if many else i],
            },
        )
    if len(labels) <= NUMBERED and not many:
        _add_numbers(
            made,
            [
                (row[weight], row[what] * factor, labels.index(row["label"]) + 1)
                for row in table.to_pylist()
                if row[weight] is not None and row[what] is not None
            ],
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
    marks = []
    for i, row in enumerate(rows, start=1):
        if row[column] is None:
            continue
        on_front = row[f"front_{cost}"]
        x, y = row[cost] * scale, row[column] * factor
        marks.append((x, y, i))
        made.add_scatter(
            x=[x], y=[y], mode="markers", name=f"{i} {wrapped(called(row))}",
            marker={"color": colour(i - 1) if on_front else GREY, "size": 12,
                    "symbol": "circle" if on_front else "square"},
            error_x=_bar(row[f"{cost}_sd"], scale), error_y=_bar(row[f"{column}_sd"], factor),
            hovertemplate="%{fullData.name}<br>%{y:.3g} at %{x:.3g}<extra></extra>",
        )  # fmt: skip
    deviation = max((row[f"{column}_sd"] or 0.0 for row in rows), default=0.0)
    _add_numbers(made, marks, 2 * deviation * factor)
    return made


def _bar(sd: float | None, factor: float) -> dict[str, Any]:
    return {"visible": bool(sd), "array": [(sd or 0.0) * factor], "color": GREY, "thickness": 1}


Mark = tuple[float, float, int]
"""Where a mark is, and its number."""


def _add_numbers(made: go.Figure, marks: Sequence[Mark], taller: float = 0.0) -> None:
    """The numbers of marks beside them; marks that lie on each other have one text together.

    `taller` is by how much the y axis reaches further than the marks do.
    """
    if not marks:
        return
    xs, ys = [x for x, _, _ in marks], [y for _, y, _ in marks]
    wide, high = max(xs) - min(xs) or 1.0, max(ys) - min(ys) + taller or 1.0
    texts = [[mark] for mark in sorted(marks, key=lambda mark: (-mark[1], mark[0]))]

    def meet(one: list[Mark], other: list[Mark]) -> bool:
        apart = abs(one[0][0] - other[0][0]) / wide, abs(_height(one) - _height(other)) / high
        return apart[0] < 0.15 and apart[1] < 0.08  # the size of a text in a small figure

    while pair := next((p for p in combinations(texts, 2) if meet(*p)), None):
        texts = [text for text in texts if text not in pair] + [pair[0] + pair[1]]
    middle = (max(xs) + min(xs)) / 2
    made.add_scatter(
        x=[text[0][0] for text in texts],
        y=[_height(text) for text in texts],
        text=[_listed(sorted(number for _, _, number in text)) for text in texts],
        textposition=["top left" if t[0][0] > middle else "top right" for t in texts],
        mode="text", textfont={"size": 11}, hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip


def _height(text: Sequence[Mark]) -> float:
    """Where a text of marks stands."""
    heights = [y for _, y, _ in text]
    return (min(heights) + max(heights)) / 2


def _listed(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 as "1–3, 7"; with room to the mark on either side."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    told = [f"{p[0]}–{p[-1]}" if len(p) > 2 else ", ".join(map(str, p)) for p in parts]
    return f"\u2002\u2002{', '.join(told)}\u2002\u2002"
