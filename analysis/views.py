"""What the report's figures show, as Arrow tables. All summing up happens here.

Every table is small whatever the size of the runs: moments are thinned out evenly, of many groups
only the worst, the median and the best are kept, clients are summed up by quantiles, and a
timeline is a stretch of rounds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.course import rank_quality
from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.measures import Array, quantiles
from gifair_ray.analysis.summary import client_results, group_names

MOMENTS = 200  # of a curve
GROUPS = 8  # that are shown one by one
SHARES = tuple(i / 20 for i in range(21))


def by_label(runs: Iterable[RunTables]) -> dict[str, list[RunTables]]:
    """The runs of each label, in order of appearance."""
    found: dict[str, list[RunTables]] = {}
    for run in runs:
        found.setdefault(run.manifest["label"], []).append(run)
    return found


def thinned(n: int, most: int = MOMENTS) -> Array:
    """At most so many of 0 … n−1, evenly, the last among them."""
    if n <= most:
        return np.arange(n)
    return np.unique(np.linspace(0, n - 1, most).round().astype(np.int64))


# --- groups from evaluation to evaluation ---------------------------------------------------------


def over_time(runs: Iterable[RunTables], split: str = "test", model: str = "global") -> pa.Table:
    """The groups' accuracy and loss at every evaluation: mean, lowest and highest over seeds.

    Of more than eight groups: the worst, the median and the best at each moment.
    """
    rows: list[dict[str, Any]] = []
    for label, of_label in by_label(runs).items():
        courses = [c for run in of_label if (c := _groups(run, split, model)) is not None]
        if not courses:
            continue
        longest = max(courses, key=lambda course: len(course["rounds"]))
        for i in thinned(len(longest["rounds"])).tolist():
            here = [course for course in courses if i < len(course["rounds"])]
            for j, name in enumerate(longest["names"]):
                line = {
                    "label": label,
                    "group": name,
                    "rounds": int(longest["rounds"][i]),
                    "hours": float(np.mean([course["hours"][i] for course in here])),
                    "seeds": len(here),
                }
                for what in ("accuracy", "loss"):
                    values = [float(c[what][i, j]) for c in here if j < c[what].shape[1]]
                    values = [value for value in values if math.isfinite(value)]
                    line[what] = float(np.mean(values)) if values else None
                    line[f"{what}_low"] = min(values, default=None)
                    line[f"{what}_high"] = max(values, default=None)
                rows.append(line)
    names = ["label", "group", "rounds", "hours", "seeds"]
    names += [f"{what}{end}" for what in ("accuracy", "loss") for end in ("", "_low", "_high")]
    return table_of(rows, names)


def _groups(run: RunTables, split: str, model: str) -> dict[str, Any] | None:
    """A run's moments and, by moment and group, accuracies and losses; None without any."""
    table = run.table("groups")
    wanted = pc.and_(pc.equal(table["split"], split), pc.equal(table["model"], model))
    table = table.filter(wanted)
    if not len(table):
        return None
    moments, first, row = np.unique(
        table["evaluation"].to_numpy(), return_index=True, return_inverse=True
    )
    numbers, place = np.unique(table["group"].to_numpy(), return_inverse=True)
    names = group_names(run)
    found: dict[str, Any] = {
        "rounds": table["version"].to_numpy()[first],
        "hours": table["time_s"].to_numpy()[first] / 3600,
        "names": [names.get(int(number), f"group {number}") for number in numbers],
    }
    for what in ("accuracy", "loss"):
        values = np.full((len(moments), len(numbers)), np.nan)
        values[row, place] = pc.fill_null(table[what], math.nan).to_numpy()
        found[what] = values
    if len(numbers) > GROUPS:
        found["names"] = ["worst group", "median group", "best group"]
        with warnings.catch_warnings():  # a moment at which nothing is known is unknown
            warnings.simplefilter("ignore", RuntimeWarning)
            found["accuracy"] = np.nanquantile(found["accuracy"], (0, 0.5, 1), axis=1).T
            found["loss"] = np.nanquantile(found["loss"], (1, 0.5, 0), axis=1).T
    return found


# --- clients --------------------------------------------------------------------------------------


def over_clients(runs: Iterable[RunTables], split: str = "test") -> pa.Table:
    """Quantiles over the clients of all seeds of a label, at the last evaluation.

    Of accuracies; of losses where the task has none.
    """
    rows = []
    for label, of_label in by_label(runs).items():
        for model in ("global", "personal"):
            found = [client_results(run, split, model) for run in of_label]
            correct = np.concatenate([accuracy for accuracy, _ in found])
            losses = np.concatenate([loss for _, loss in found])
            if not len(losses):
                continue
            graded = not np.isnan(correct).all()
            values = correct if graded else losses
            values = values[np.isfinite(values)]
            rows.append(
                {
                    "label": label if model == "global" else f"{label}, personal",
                    "measure": "accuracy" if graded else "loss",
                    "clients": len(values),
                    "mean": float(values.mean()) if len(values) else None,
                }
                | {
                    f"q{round(100 * share)}": None if math.isnan(q) else q
                    for share, q in zip(SHARES, quantiles(values, SHARES).tolist(), strict=True)
                }
            )
    names = ["label", "measure", "clients", "mean", *(f"q{round(100 * s)}" for s in SHARES)]
    return table_of(rows, names)


# --- ranks ----------------------------------------------------------------------------------------


def ranks(runs: Iterable[RunTables]) -> pa.Table:
    """The quality of the ranks from audit to audit, as means over the seeds of a label."""
    rows = []
    names = ("wrong_signs", "age_mean", "delta")
    for label, of_label in by_label(runs).items():
        audits = [rank_quality(run).to_pylist() for run in of_label]
        longest = max(audits, key=len)
        for i in thinned(len(longest)).tolist():
            here = [audit[i] for audit in audits if i < len(audit)]
            line: dict[str, Any] = {
                "label": label,
                "rounds": longest[i]["version"],
                "hours": float(np.mean([row["time_s"] for row in here])) / 3600,
            }
            for name in names:
                known = [row[name] for row in here if row[name] is not None]
                line[name] = float(np.mean(known)) if known else None
            rows.append(line)
    return table_of(rows, ["label", "rounds", "hours", *names])


def table_of(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> pa.Table:
    """Rows of these columns; text, whole numbers or floats as they come."""
    texts, wholes = {"label", "group", "measure", "series"}, {"rounds", "seeds", "clients"}
    kinds = [
        pa.string() if name in texts else pa.int64() if name in wholes else pa.float64()
        for name in names
    ]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(zip(names, kinds, strict=True))))
