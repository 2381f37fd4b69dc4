"""Comparisons as people read them: in a terminal, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from gifair_ray.analysis import columns
from gifair_ray.analysis.columns import PLAIN, Column
from gifair_ray.analysis.participation import CAUSES
from gifair_ray.errors import BadInput


def render(
    table: pa.Table, brief: bool = False, tall: bool = False, everything: bool = False
) -> Table:
    """The result of `compare` for a terminal; unknown figures are "-".

    A row per label needs 120 columns, or 80 when brief: only the figures that matter most. Tall
    is the same turned round, a column per label, for narrow terminals; and for everything.
    """
    about = _about(table)
    shown = [c for c in columns.LABELS if c.name in columns.BRIEF or not brief]
    shown = [c for c in shown if everything or c.heading]
    legend = columns.legend(shown, about.get("target", ""))
    out = Table(
        title=f"Last evaluation, split {about['split']}",
        caption=Text("\n".join([legend, *(f"! {note}" for note in _notes(table))])),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    heads = ["label", "model", "seeds", *(_head(c, everything) for c in shown)]
    rows = [
        [Text(row["label"]), Text(row["model"]), Text(str(row["seeds"]))]
        + [_cell(row, column, tall or everything) for column in shown]
        for row in table.to_pylist()
    ]
    if tall or everything:
        out.add_column(heads[0])
        for row in rows:
            out.add_column(row[0], justify="right", overflow="fold")
        for i, head in enumerate(heads[1:], start=1):
            out.add_row(head.replace("-\n", "").replace("\n", " "), *(row[i] for row in rows))
        return out
    out.add_column(heads[0], overflow="fold", min_width=8)
    for i, head in enumerate(heads[1:], start=1):
        out.add_column(head, justify="left" if i == 1 else "right", no_wrap=True)
    for row in rows:
        out.add_row(*row)
    return out


RESULTS = ("clients", "p", "accuracy", "loss", "weight_share", "effective_share")


def render_groups(table: pa.Table, width: int = 120) -> RenderableType:
    """The result of `compare_by_group` for a terminal: causes that never occur are left out.

    What does not fit the width is in two parts: results and weights, then participation and waste.
    """
    rows = table.to_pylist()
    shown = [
        c
        for c in columns.GROUPS
        if c.heading and (c.name not in CAUSES or any(row[c.name] for row in rows))
    ]
    whole = _groups("Groups: results, participation and waste", rows, shown, caption=True)
    if Console(width=10_000).measure(whole).minimum <= width:
        return whole
    results = [c for c in shown if c.name in RESULTS]
    work = [c for c in shown if c.name not in RESULTS]
    return Group(
        _groups("Groups: results and weights", rows, results, caption=False),
        _groups("Groups: participation and waste", rows, work, caption=True),
    )


def _groups(
    title: str, rows: Sequence[dict[str, Any]], shown: Sequence[Column], caption: bool
) -> Table:
    out = Table(
        title=title,
        caption=Text(columns.GROUP_LEGEND) if caption else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    out.add_column("label", overflow="fold", min_width=8)
    out.add_column("group", overflow="fold", min_width=8)
    for column in shown:
        out.add_column(column.heading, justify="right", no_wrap=True)
    before = None
    for row in rows:
        label = "" if row["label"] == before else row["label"]
        before = row["label"]
        cells = [_cell(row, column, True, deviation=False) for column in shown]
        out.add_row(Text(label), Text(row["group_name"]), *cells)
    return out


def render_rows(table: pa.Table) -> Table:
    """Any table for a terminal, row by row; columns that are 0 or unknown everywhere left out."""
    out = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    kept = [name for name in table.column_names if any(table[name].to_pylist())]
    for name in kept:
        text = pa.types.is_string(table.schema.field(name).type)
        justify: JustifyMethod = "left" if text else "right"
        out.add_column(name.replace("_", " "), justify=justify, overflow="fold")
    for row in table.select(kept).to_pylist():
        out.add_row(*(Text(_plain(value)) for value in row.values()))
    return out


def _head(column: Column, everything: bool) -> str:
    return column.name.replace("_", " ") if everything or not column.heading else column.heading


def _cell(
    row: dict[str, float | None], column: Column, one_line: bool, deviation: bool = True
) -> Text:
    mean, sd = row[column.name], row[f"{column.name}_sd"]
    if mean is None:
        return Text("-")
    text = Text(columns.number(mean, column.kind))
    if sd is None or not deviation or (column.kind == PLAIN and not one_line):
        return text
    shown = columns.number(sd, column.kind)
    return text.append(f"{' ' if one_line else chr(10)}({shown})", style="dim")


def _about(table: pa.Table) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}


def _notes(table: pa.Table) -> list[str]:
    return list(json.loads(_about(table).get("notes", "[]")))


# --- files ----------------------------------------------------------------------------------------

_KINDS = {c.name: c.kind for c in (*columns.GROUPS, *columns.LABELS)}
_UNITS = {columns.PERCENT: "%", columns.PERCENT2: "%²"}


def to_csv(table: pa.Table) -> str:
    """Comma-separated values with a line of names, numbers in full, nothing for what is unknown."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.column_names)
    writer.writerows(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return out.getvalue()


def to_markdown(table: pa.Table) -> str:
    """A Markdown table: a figure per row, mean (std over seeds), a column per label or pair."""
    heads, rows = _turned(table)
    lines = [_markdown_row(heads), _markdown_row(["---"] + ["---:"] * (len(heads) - 1))]
    lines += [_markdown_row(row) for row in rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in _notes(table))]).rstrip() + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def to_latex(table: pa.Table) -> str:
    """A LaTeX table of the package booktabs: a figure per row, a column per label or pair."""
    heads, rows = _turned(table)
    lines = [r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}", r"\toprule"]
    lines += [_latex_row(heads), r"\midrule", *map(_latex_row, rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "λ": r"$\lambda$",
    "δ": r"$\delta$",
    "²": r"$^2$",
}


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in cells) + r" \\"


def _turned(table: pa.Table) -> tuple[list[str], list[list[str]]]:
    """Names down the side, a column per row of the table; means with (deviations)."""
    names = table.column_names
    if not any(name.endswith("_sd") for name in names):
        rows = [[_plain(value) for value in row.values()] for row in table.to_pylist()]
        return list(names), rows
    who = [n for n in names if n not in _KINDS and not n.endswith("_sd") and n != "seeds"]
    lines = table.to_pylist()
    heads = ["", *(", ".join(str(line[n]) for n in who if n != "group") for line in lines)]
    rows = [["seeds", *(str(line["seeds"]) for line in lines)]]
    for name in (n for n in names if f"{n}_sd" in names):
        column = Column(name, "", "", _KINDS[name])
        cells = [_cell(line, column, True).plain for line in lines]
        unit = _UNITS.get(column.kind) or table.schema.field(name).metadata[b"unit"].decode()
        told = name.replace("_", " ") + (f" ({unit})" if unit != "1" else "")
        rows.append([told, *cells])
    return heads, rows


def _plain(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


WRITERS: dict[str, Callable[[pa.Table], str]] = {
    "csv": to_csv,
    "markdown": to_markdown,
    "latex": to_latex,
}
ENDINGS = {".csv": "csv", ".md": "markdown", ".tex": "latex", ".arrow": "arrow"}


def write(table: pa.Table, file: str | Path) -> None:
    """Write a comparison to a file; its ending says how: .csv, .md, .tex or .arrow."""
    path = Path(file)
    kind = ENDINGS.get(path.suffix)
    if kind is None:
        raise BadInput(f"cannot write to {str(file)!r}: give it one of {', '.join(ENDINGS)}")
    if kind == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return
    path.write_text(WRITERS[kind](table), encoding="utf-8")
