"""What the figures show, as arrays: groups over virtual time, and groups by label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.measures import Array
from gifair_ray.analysis.summary import Row, group_names, summarise
from gifair_ray.errors import BadInput


@dataclass(frozen=True)
class Series:
    """A quantity by moment (rows) and group (columns); nan where unknown or not finite."""

    time_s: Array
    groups: Array  # numbers, ascending
    names: tuple[str, ...]  # of the groups
    values: Array


@dataclass(frozen=True)
class Results:
    """The groups' accuracies, or losses where the task has none, at the last evaluation."""

    accuracies: bool
    names: tuple[str, ...]  # of the groups of all runs, in order of their numbers
    rows: Mapping[str, Mapping[str, list[float]]]  # label (and model) -> group -> one per seed


def loss_series(run: RunTables, split: str) -> Series:
    """The groups' losses L_i of the global model, at every evaluation of the split."""
    table = run.table("groups")
    wanted = pc.and_(pc.equal(table["split"], split), pc.equal(table["model"], "global"))
    table = table.filter(wanted)
    if not len(table):
        raise BadInput(
            f"run {run.manifest['name']!r} has no evaluation of split {split!r}: choose another"
        )
    return _series(table, "evaluation", "loss", group_names(run))


def rank_series(run: RunTables) -> tuple[Series, Series] | None:
    """The ranks that the server used and the exact ones, at every audit; None without any."""
    table = run.table("ranks")
    table = table.filter(pc.is_valid(table["r_used"]))
    if not len(table):
        return None
    names = group_names(run)
    return (
        _series(table, "version", "r_used", names),
        _series(table, "version", "r_exact", names),
    )


def _series(table: pa.Table, moment: str, column: str, names: Mapping[int, str]) -> Series:
    moments, row = np.unique(table[moment].to_numpy(), return_inverse=True)
    groups, place = np.unique(table["group"].to_numpy(), return_inverse=True)
    time_s, values = np.empty(len(moments)), np.full((len(moments), len(groups)), np.nan)
    time_s[row] = table["time_s"].to_numpy()
    values[row, place] = pc.cast(table[column], pa.float64()).to_numpy()
    values[np.isinf(values)] = np.nan
    called = tuple(names.get(int(group), f"group {group}") for group in groups)
    return Series(time_s, groups, called, values)


def group_results(runs: Iterable[RunTables], split: str) -> Results:
    """The groups of all runs at their last evaluation; personal models in rows of their own."""
    found: dict[str, list[Row]] = {}
    for run in runs:
        summary = summarise(run, split)
        for row in summary.rows:
            who = summary.label if row.model == "global" else f"{summary.label}, {row.model}"
            found.setdefault(who, []).append(row)
    groups = [group for rows in found.values() for row in rows for group in row.groups]
    if not groups:
        raise BadInput(f"no run has evaluated split {split!r}: choose another, or wait for it")
    accuracies = not all(np.isnan(group.accuracy) for group in groups)
    numbers = {group.name: group.number for group in groups}
    lines: dict[str, dict[str, list[float]]] = {}
    for who, rows in found.items():
        for row in rows:
            for group in row.groups:
                value = group.accuracy if accuracies else group.loss
                if np.isfinite(value):
                    lines.setdefault(who, {}).setdefault(group.name, []).append(value)
    return Results(accuracies, tuple(sorted(numbers, key=lambda name: numbers[name])), lines)
