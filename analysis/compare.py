"""Several runs side by side: a row per label and model, each figure as mean and std over seeds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis import columns
from gifair_ray.analysis.course import (
    Course,
    bytes_at,
    course,
    default_target,
    lambda_fraction,
    rank_quality,
)
from gifair_ray.analysis.load import RunTables, distinct
from gifair_ray.analysis.participation import COUNTS, by_group, totals
from gifair_ray.analysis.summary import MODELS, Group, Row, Summary, summarise
from gifair_ray.errors import BadInput

__all__ = ["Group", "Row", "Summary", "all_figures", "compare", "compare_by_group", "summarise"]

_HEADS = [
    pa.field("label", pa.string()),
    pa.field("model", pa.string()),
    pa.field("seeds", pa.int64()),
]
_GROUP_HEADS = [
    pa.field("label", pa.string()),
    pa.field("group", pa.int64()),
    pa.field("group_name", pa.string()),
    pa.field("seeds", pa.int64()),
]
_SCHEMA = columns.schema(_HEADS, columns.LABELS)
_GROUP_SCHEMA = columns.schema(_GROUP_HEADS, columns.GROUPS)


def compare(
    runs: Iterable[RunTables], split: str = "test", target: float | None = None
) -> pa.Table:
    """A row per label and model, in order of appearance; runs of a label differ in their seed.

    A figure `x` is the mean over the label's runs, and `x_sd` their sample standard deviation
    (null for one run). Null where a figure does not apply. The target accuracy is the highest
    whole percentage that all runs reach, unless given; what it took to reach it is null for a
    label of which a run did not. `notes` in the schema's metadata lists what a reader has to know:
    unfinished runs, clients left out, seeds that do not match.
    """
    runs = distinct(runs)
    summaries = [summarise(run, split) for run in runs]
    if not any(summary.rows for summary in summaries):
        raise BadInput(
            f"none of the {len(summaries)} runs has evaluated the split {split!r}: "
            "choose another, or wait for the first evaluation"
        )
    if target is not None and not 0 < target <= 1:
        raise BadInput(f"target = {target} is not an accuracy: give a number above 0, up to 1")
    found = [
        (summary.label, row, figures, course(run, split, row.model))
        for run, summary in zip(runs, summaries, strict=True)
        for row, figures in zip(summary.rows, all_figures(run, summary), strict=True)
    ]
    if target is None:
        target = default_target(course for *_, course in found)
    lines = []
    for label in dict.fromkeys(summary.label for summary in summaries):
        for model in MODELS:
            mine = [f for f in found if f[0] == label and f[1].model == model]
            if mine:
                told = [of_run | _to_target(course, target) for _, _, of_run, course in mine]
                head = {"label": label, "model": model, "seeds": len(mine)}
                lines.append(head | over_seeds(told, columns.LABELS))
    about = {
        "split": split,
        "target": "" if math.isnan(target) else repr(target),
        "notes": json.dumps(_notes(summaries, found, target), ensure_ascii=False),
    }
    return pa.Table.from_pylist(lines, schema=_SCHEMA.with_metadata(about))


def all_figures(run: RunTables, summary: Summary) -> list[dict[str, float]]:
    """All figures of a run, row by row, by the names of `columns.LABELS`; nan if undefined.

    Those that it takes to a target are not among them.
    """
    work, ranks = totals(run), rank_quality(run)
    busy = work["busy_s"]
    shared = {
        **{name: work[name] for name in COUNTS},
        "lambda_fraction": lambda_fraction(run),
        "busy_hours": busy / 3600,
        "wasted_hours": work["wasted_s"] / 3600,
        "wasted_share": work["wasted_s"] / busy if busy else math.nan,
        "wasted_megabytes": work["wasted_bytes"] / 1e6,
        "wrong_signs": _mean(ranks["wrong_signs"]),
        "loss_age": _mean(ranks["age_mean"]),
        "delta": _mean(ranks["delta"]),
    }
    return [
        shared
        | {name: float(getattr(row, name)) for name in _OF_ROW}
        | {f"decile_{i}": value for i, value in enumerate(row.deciles, start=1)}
        | {"megabytes": float(bytes_at(run, np.array([row.rounds]))[0]) / 1e6}
        for row in summary.rows
    ]


_OF_ROW = [c.name for c in columns.LABELS if c.name in Row.__dataclass_fields__]


def _mean(column: pa.ChunkedArray) -> float:
    mean = pc.mean(column).as_py()
    return math.nan if mean is None else float(mean)


def _to_target(course: Course, target: float) -> dict[str, float]:
    names = ("rounds_to_target", "hours_to_target", "megabytes_to_target")
    return dict(zip(names, course.at(target), strict=True))


def over_seeds(
    rows: Sequence[Mapping[str, float]], wanted: Sequence[columns.Column]
) -> dict[str, float | None]:
    """Mean and sample standard deviation over the seeds; null where undefined."""
    line: dict[str, float | None] = {}
    for column in wanted:
        values = [float(row[column.name]) for row in rows]
        mean = math.fsum(values) / len(values)
        line[column.name] = None if math.isnan(mean) else mean
        line[f"{column.name}_sd"] = None
        if len(values) > 1 and math.isfinite(mean):
            squares = math.fsum((value - mean) ** 2 for value in values)
            alike = min(values) == max(values)  # whose mean may be rounded
            line[f"{column.name}_sd"] = 0.0 if alike else math.sqrt(squares / (len(values) - 1))
    return line


def compare_by_group(runs: Iterable[RunTables], split: str = "test") -> pa.Table:
    """A row per label and group: results of the global model, participation and waste."""
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    for run in distinct(runs):
        summary = summarise(run, split)
        measured = {g.number: g for row in summary.rows[:1] for g in row.groups}
        for line in by_group(run).to_pylist():
            result = measured.get(line["group"])
            line["accuracy"] = result.accuracy if result else None
            line["loss"] = result.loss if result else None
            key = (summary.label, line["group"], line["group_name"])
            known = {c.name: _known(line[c.name]) for c in columns.GROUPS}
            found.setdefault(key, []).append(known)
    lines = [
        {"label": label, "group": group, "group_name": name, "seeds": len(rows)}
        | over_seeds(rows, columns.GROUPS)
        for (label, group, name), rows in found.items()
    ]
    about = {"split": split, "notes": "[]"}
    return pa.Table.from_pylist(lines, schema=_GROUP_SCHEMA.with_metadata(about))


def _known(value: Any) -> float:
    return math.nan if value is None else float(value)


def _notes(
    summaries: Sequence[Summary],
    found: Sequence[tuple[str, Row, Mapping[str, float], Course]],
    target: float,
) -> list[str]:
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
    short = Counter(
        label for label, _, _, way in found if not math.isnan(way.best) and way.best < target
    )
    for label, count in short.items():
        lines.append(f"{label}: {count} run(s) did not reach an accuracy of {100 * target:g} %")
    for label, counts in seeds.items():
        twice = [seed for seed, count in counts.items() if count > 1]
        if twice:
            lines.append(f"{label}: several runs of seed {_listed(twice)}")
    if len({frozenset(counts) for counts in seeds.values()}) > 1:
        lines.append("the labels were run with different seeds: their differences are not paired")
    return lines


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
