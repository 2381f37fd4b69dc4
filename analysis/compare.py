"""Several runs side by side: a row per label and model, each figure as mean and std over seeds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa
from rich import box
from rich.table import Table
from rich.text import Text

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.summary import MODELS, Group, Row, Summary, summarise
from gifair_ray.errors import BadInput

__all__ = ["Group", "Row", "Summary", "compare", "render", "summarise"]

_ACCURACY, _SQUARED, _LOSS, _PLAIN = "accuracy", "accuracy²", "loss", "plain"

# column of the table, its unit, its heading in the terminal ("": not shown) and how it is written
_FIGURES = (
    ("rounds", "server updates", "rounds", _PLAIN),
    ("virtual_hours", "h", "virtual\nhours", _PLAIN),
    ("clients", "clients", "", _PLAIN),
    ("never_selected", "clients", "", _PLAIN),
    ("without_samples", "clients", "", _PLAIN),
    ("mean_accuracy", "1", "mean\nacc.", _ACCURACY),
    ("weighted_accuracy", "1", "", _ACCURACY),
    ("std_clients", "1", "std\nraw", _ACCURACY),
    ("std_clients_corrected", "1", "std\ncorr.", _ACCURACY),
    ("std_noise", "1", "", _ACCURACY),
    ("variance_groups", "1", "group\nvar.", _SQUARED),
    ("worst_tenth", "1", "worst\n10 %", _ACCURACY),
    ("best_tenth", "1", "best\n10 %", _ACCURACY),
    ("worst_group", "1", "worst\ngroup", _ACCURACY),
    ("discrepancy", "1", "discr.", _ACCURACY),
    ("mean_loss", "loss", "mean\nloss", _LOSS),
    ("loss_spread", "loss", "loss\nspread", _LOSS),
)

_LEGEND = (
    "Mean (std over seeds); accuracies and their std in %, variance in %². std: over clients, raw "
    "and corrected for test-set noise. discr.: best minus worst group."
)

_SCHEMA = pa.schema(
    [
        pa.field("label", pa.string()),
        pa.field("model", pa.string()),
        pa.field("seeds", pa.int64()),
        *(
            pa.field(name, pa.float64(), metadata={"unit": unit})
            for column, unit, _, _ in _FIGURES
            for name in (column, f"{column}_sd")
        ),
    ]
)


def compare(runs: Iterable[RunTables], split: str = "test") -> pa.Table:
    """A row per label and model, in order of appearance; runs of a label differ in their seed.

    A figure `x` is the mean over the label's runs, and `x_sd` their sample standard deviation
    (null for one run). Null where a figure does not apply. `notes` in the schema's metadata lists
    what a reader has to know: unfinished runs, clients left out, seeds that do not match.
    """
    summaries = [summarise(run, split) for run in runs]
    if not any(summary.rows for summary in summaries):
        raise BadInput(
            f"none of the {len(summaries)} runs has evaluated the split {split!r}: "
            "choose another, or wait for the first evaluation"
        )
    labels = dict.fromkeys(summary.label for summary in summaries)
    lines = []
    for label in labels:
        for model in MODELS:
            rows = [
                row
                for summary in summaries
                if summary.label == label
                for row in summary.rows
                if row.model == model
            ]
            if rows:
                lines.append({"label": label, "model": model, "seeds": len(rows)} | _over(rows))
    about = {"split": split, "notes": json.dumps(_notes(summaries), ensure_ascii=False)}
    return pa.Table.from_pylist(lines, schema=_SCHEMA.with_metadata(about))


def _over(rows: Sequence[Row]) -> dict[str, float | None]:
    """Mean and sample standard deviation over the seeds; null where undefined."""
    line: dict[str, float | None] = {}
    for column, *_ in _FIGURES:
        values = [float(getattr(row, column)) for row in rows]
        mean = math.fsum(values) / len(values)
        line[column] = None if math.isnan(mean) else mean
        line[f"{column}_sd"] = None
        if len(values) > 1 and math.isfinite(mean):
            squares = math.fsum((value - mean) ** 2 for value in values)
            line[f"{column}_sd"] = math.sqrt(squares / (len(values) - 1))
    return line


def _notes(summaries: Sequence[Summary]) -> list[str]:
    told: dict[tuple[str, str], list[int]] = {}  # (label, what to know) -> seeds
    seeds: dict[str, Counter[int]] = {}
    for summary in summaries:
        seeds.setdefault(summary.label, Counter())[summary.seed] += 1
        notes = []
        if summary.status != "done":
            notes.append(f"{summary.status}; the last evaluation so far is shown")
        if not summary.rows:
            notes.append(f"left out, has no evaluation of split {summary.split}")
        for row in summary.rows:
            everyone = row.clients + row.never_selected + row.without_samples
            for count, why in (
                (row.never_selected, "which never took part"),
                (row.without_samples, f"which have no {summary.split} samples"),
            ):
                if count:
                    notes.append(f"{row.model}: without {count} of {everyone} clients, {why}")
        for note in notes:
            told.setdefault((summary.label, note), []).append(summary.seed)
    lines = [f"{label} (seed {_listed(of)}): {note}" for (label, note), of in told.items()]
    for label, counts in seeds.items():
        twice = [seed for seed, count in counts.items() if count > 1]
        if twice:
            lines.append(f"{label}: several runs of seed {_listed(twice)}")
    if len({frozenset(counts) for counts in seeds.values()}) > 1:
        lines.append("the labels were run with different seeds: their differences are not paired")
    return lines


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


BRIEF = ("mean_accuracy", "std_clients_corrected", "worst_group", "discrepancy", "loss_spread")


def render(table: pa.Table, brief: bool = False, tall: bool = False) -> Table:
    """The result of `compare` for a terminal; unknown figures are "-".

    A row per label needs 120 columns, or 80 when brief: only the figures that matter most. Tall
    is the same turned round, a column per label, for narrow terminals.
    """
    about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    out = Table(
        title=f"Last evaluation, split {about['split']}",
        caption=Text("\n".join([_LEGEND, *(f"! {note}" for note in json.loads(about["notes"]))])),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    shown = [f for f in _FIGURES if (f[0] in BRIEF if brief else f[2])]
    heads = ["label", "model", "seeds", *(heading for _, _, heading, _ in shown)]
    rows = [
        [Text(row["label"]), Text(row["model"]), Text(str(row["seeds"]))]
        + [
            _cell(row[column], None if kind == _PLAIN else row[f"{column}_sd"], kind, tall)
            for column, _, _, kind in shown
        ]
        for row in table.to_pylist()
    ]
    if tall:
        out.add_column(heads[0])
        for row in rows:
            out.add_column(row[0], justify="right", overflow="fold")
        for i, head in enumerate(heads[1:], start=1):
            out.add_row(head.replace("\n", " "), *(row[i] for row in rows))
        return out
    out.add_column(heads[0], overflow="fold", min_width=8)
    for i, head in enumerate(heads[1:], start=1):
        out.add_column(head, justify="left" if i == 1 else "right", no_wrap=True)
    for row in rows:
        out.add_row(*row)
    return out


def _cell(mean: float | None, sd: float | None, kind: str, one_line: bool) -> Text:
    if mean is None:
        return Text("-")
    text = Text(_number(mean, kind))
    if sd is None:
        return text
    return text.append(f"{' ' if one_line else chr(10)}({_number(sd, kind)})", style="dim")


def _number(value: float, kind: str) -> str:
    if kind == _PLAIN:
        return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    value *= {_ACCURACY: 100.0, _SQUARED: 10_000.0, _LOSS: 1.0}[kind]
    shown = f"{value:.3f}" if kind == _LOSS else f"{value:.1f}"
    return shown if len(shown) <= 6 else f"{value:.3g}"
