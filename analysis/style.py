"""How the report's figures look: colours, marks and axes that hold in light and in dark.

The colours are Okabe and Ito's, without black and yellow, which vanish on one of the two grounds;
whatever is told by colour is told by a mark, a dash or a pattern too.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from gifair_ray.tables import OUTCOMES

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C7A2B", "#8A8A8A")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "x", "star", "hexagon",
)  # fmt: skip
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
GREY = "#8A8A8A"
FAINT = "rgba(138,138,138,0.25)"

_OUTCOME_COLOURS = ("#0072B2", "#8A8A8A", "#D55E00", "#E69F00", "#56B4E9", "#CC79A7", "#8C7A2B")
_OUTCOME_PATTERNS = ("", ".", "x", "/", "-", "\\", "+")
OUTCOME = {
    name: (colour, pattern)
    for name, colour, pattern in zip(OUTCOMES, _OUTCOME_COLOURS, _OUTCOME_PATTERNS, strict=True)
}


def colour(i: int) -> str:
    """The i-th colour; they come again after eight."""
    return COLOURS[i % len(COLOURS)]


def faint(code: str, opacity: float) -> str:
    """A colour #RRGGBB with an opacity."""
    r, g, b = (int(code[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({r},{g},{b},{opacity})"


def figure(height: int, x: str, y: str, **layout: Any) -> go.Figure:
    """An empty figure with titled axes, plain and transparent."""
    axis = {"gridcolor": FAINT, "zeroline": False, "linecolor": GREY, "automargin": True}
    settings: dict[str, Any] = {
        "template": {},
        "height": height,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "font": {"family": FONT, "size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "xaxis": axis | {"title": {"text": x, "standoff": 6}},
        "yaxis": axis | {"title": {"text": y, "standoff": 6}, "ticklabelstandoff": 4},
        "legend": {
            "orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0,
            "bgcolor": "rgba(0,0,0,0)",
        },
    }  # fmt: skip
    made = go.Figure(layout=settings)
    made.update_layout(**layout)
    return made


def hours_unit(longest_h: float) -> tuple[str, float]:
    """The unit in which a virtual time is read best, and its factor from hours."""
    for unit, factor in (("days", 1 / 24), ("hours", 1.0), ("minutes", 60.0)):
        if longest_h * factor >= 2:
            return unit, factor
    return "seconds", 3600.0


def plotting_library() -> str:
    """The source of plotly.js, from the package."""
    return str(get_plotlyjs())


def wrapped(text: str, width: int = 28) -> str:
    """A user's text, safe in a figure: no markup, and lines that are not too long."""
    lines = textwrap.wrap(text, width) or [""]
    return "<br>".join(html.escape(line, quote=False) for line in lines[:3])


def told_apart(texts: Sequence[str], width: int) -> list[str]:
    """The texts wrapped; those that are cut to the same words have a number."""
    found: list[str] = []
    for text in texts:
        short = wrapped(text, width)
        found.append(f"{short} ({len(found) + 1})" if short in found else short)
    return found
