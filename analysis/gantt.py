"""The timeline of a stretch of rounds as a Gantt chart: a row per client, a bar per dispatch."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from gifair_ray.analysis.style import GREY, OUTCOME, colour, faint, figure, wrapped
from gifair_ray.analysis.timeline import Stretch

UNITS = (("h", 3600.0, 4 * 3600.0), ("min", 60.0, 600.0), ("s", 1.0, 0.0))


def gantt(stretch: Stretch, by: str = "outcome") -> go.Figure:
    """Every dispatch from sending to its end, the computing in full colour; by outcome or group.

    Rows are clients, sorted by group; dotted lines are the server's updates.
    """
    rows = stretch.dispatches.to_pylist()
    last = max(row["until_s"] for row in rows)
    unit, seconds = next((u, s) for u, s, least in UNITS if last >= least)
    places = _places(rows)
    made = figure(
        120 + 15 * len(places), f"virtual time ({unit})", "client", barmode="overlay", bargap=0.15
    )
    groups = list(dict.fromkeys(row["group_name"] for row in rows))
    shades = {name: (colour(i), "") for i, name in enumerate(groups)}
    if by == "outcome":
        shades = OUTCOME
    key = "outcome" if by == "outcome" else "group_name"
    for name, (shade, pattern) in shades.items():
        mine = [row for row in rows if row[key] == name]
        if mine:
            _add(made, mine, places, seconds, wrapped(name), shade, pattern)
    made.update_yaxes(
        tickvals=list(range(len(places))),
        ticktext=[wrapped(told, 22).split("<br>")[0] for told in places.values()],
        range=[len(places) - 0.4, -0.6], tickfont={"size": 9}, showgrid=False, autorange=False,
    )  # fmt: skip
    made.update_layout(shapes=_lines(stretch, rows, places, seconds), dragmode="zoom")
    return made


def _places(rows: list[dict[str, Any]]) -> dict[int, str]:
    """The clients in the order of their rows, with how they are called."""
    return {row["client"]: f"{row['name']} · {row['group_name']}" for row in rows}


def _add(
    made: go.Figure, rows: list[dict[str, Any]], places: dict[int, str], seconds: float,
    name: str, shade: str, pattern: str,
) -> None:  # fmt: skip
    at = {client: i for i, client in enumerate(places)}
    y = [at[row["client"]] for row in rows]
    told = [
        f"{places[row['client']]}<br>round {row['round']}: {row['outcome']}<br>"
        f"sent {row['send_s']:.4g} s, computing {row['start_s']:.4g} to {row['end_s']:.4g} s, "
        f"over {row['until_s']:.4g} s"
        for row in rows
    ]
    layers = (("send_s", "until_s", 0.3, 0.9, False), ("start_s", "end_s", 1.0, 0.62, True))
    for first, last, opacity, width, shown in layers:
        made.add_bar(
            base=[row[first] / seconds for row in rows], y=y, orientation="h", width=width,
            x=[max(row[last] - row[first], 0.0) / seconds for row in rows],
            name=name, legendgroup=name, showlegend=shown, hovertext=told, hoverinfo="text",
            marker={"color": faint(shade, opacity), "line": {"width": 0},
                    "pattern": {"shape": pattern if shown else "", "fillmode": "overlay",
                                "fgcolor": "white", "size": 5}},
        )  # fmt: skip


def _lines(
    stretch: Stretch, rows: list[dict[str, Any]], places: dict[int, str], seconds: float
) -> list[dict[str, Any]]:
    dotted = {"color": GREY, "width": 1, "dash": "dot"}
    lines = [
        {"type": "line", "x0": t / seconds, "x1": t / seconds, "yref": "paper", "y0": 0, "y1": 1,
         "line": dotted, "layer": "below"}
        for t in stretch.updates_s
    ]  # fmt: skip
    group_of = {row["client"]: row["group_name"] for row in rows}
    order = list(places)
    for i in range(1, len(order)):
        if group_of[order[i]] != group_of[order[i - 1]]:
            edge = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": i - 0.5, "y1": i - 0.5}
            lines.append(edge | {"line": {"color": GREY, "width": 1}})
    return lines
