"""Choosing settings on validation data, as the paper does, with the noise of the choice.

The rule: of an algorithm's candidates whose mean accuracy over clients is no worse than FedAvg's,
the one with the smallest variance of accuracy over groups (Definition 1; over clients, where each
is a group of its own). If there is none, FedAvg's own setting, flagged. Means are over seeds.

Validation sets are small. Beside each candidate stand the standard error of its accuracy and of
its variance that they explain, and the variance that they would show if all groups were alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gifair_ray.analysis import measures
from gifair_ray.analysis.accuracies import accuracies
from gifair_ray.analysis.load import RunTables
from gifair_ray.errors import RunFailed


@dataclass(frozen=True)
class Estimate:
    """One run on its validation split. Noise is what finite validation sets explain."""

    accuracy: float
    variance: float  # over groups
    accuracy_noise: float  # standard error of the accuracy
    variance_noise: float  # standard error of the variance
    variance_floor: float  # expected variance if all groups were alike


SCHEMA = pa.schema(
    [
        ("algorithm", pa.string()),
        ("setting", pa.string()),
        ("seeds", pa.int64()),
        ("accuracy", pa.float64()),
        ("accuracy_std", pa.float64()),
        ("accuracy_noise", pa.float64()),
        ("variance", pa.float64()),
        ("variance_std", pa.float64()),
        ("variance_noise", pa.float64()),
        ("variance_floor", pa.float64()),
        ("qualifies", pa.bool_()),
        ("chosen", pa.bool_()),
        ("flagged", pa.bool_()),
        ("error", pa.string()),
    ]
)
"""One row per candidate; `std` is over seeds, `noise` is of the mean over seeds."""


def estimate(run: RunTables) -> Estimate:
    """The last evaluation on the validation split; personal models where clients have them."""
    found = accuracies(run, "val")
    return _estimate(found.accuracy, found.samples, found.group)


def _estimate(a: measures.Array, n: measures.Array, groups: measures.Array) -> Estimate:
    """Noise by the binomial law: s_k² = a(1 − a)/(n − 1) of each accuracy, and what follows."""
    s2 = a * (1 - a) / np.maximum(n - 1, 1)
    by_group = measures.group_means(a, groups)
    sizes = np.unique(groups, return_counts=True)[1]
    s2_group = measures.group_means(s2, groups) / sizes
    d = len(by_group)
    away = by_group - by_group.mean()
    # For normal errors, V = (1/d) Σ (a_i − ā)² has Var(V) = (4/d²) Σ δ_i² s_i² + (2/d²) T with the
    # true distances δ_i; the observed ones are larger, Σ E[away_i²] s_i² = Σ δ_i² s_i² + T.
    T = (1 - 2 / d) * np.sum(s2_group**2) + np.sum(s2_group) ** 2 / d**2
    noise = max(4 * np.sum(away**2 * s2_group) - 2 * T, 2 * T) / d**2
    return Estimate(
        accuracy=measures.mean_accuracy(a),
        variance=measures.group_variance(a, groups),
        accuracy_noise=math.sqrt(float(np.sum(s2))) / len(a),
        variance_noise=math.sqrt(float(noise)),
        variance_floor=(d - 1) / d * float(s2_group.mean()),
    )


def choose(
    candidates: Sequence[tuple[str, str]],
    runs: Mapping[tuple[str, str], Sequence[Estimate]],
    errors: Mapping[tuple[str, str], str],
    baseline: str,
) -> pa.Table:
    """All candidates (algorithm, setting) with their figures, and which of them is chosen."""
    rows = [_figures(*candidate, runs, errors) for candidate in candidates]
    ours = [row for row in rows if row["algorithm"] == baseline and row["error"] is None]
    if not ours:
        why = errors.get((baseline, ""), "it was not run")
        raise RunFailed(f"tuning compares with {baseline}, which failed: {why}")
    for row in rows:
        row["qualifies"] = row["error"] is None and row["accuracy"] >= ours[0]["accuracy"]
    for algorithm in dict.fromkeys(algorithm for algorithm, _ in candidates):
        able = [row for row in rows if row["algorithm"] == algorithm and row["qualifies"]]
        if able:
            min(able, key=lambda row: row["variance"])["chosen"] = True
        else:
            rows.append(ours[0] | {"algorithm": algorithm, "setting": f"as {baseline}"})
            rows[-1] |= {"chosen": True, "flagged": True}
    order = {algorithm: i for i, algorithm in enumerate(dict.fromkeys(a for a, _ in candidates))}
    rows.sort(key=lambda row: order[row["algorithm"]])
    return pa.Table.from_pylist(rows, SCHEMA)


def _figures(
    algorithm: str,
    setting: str,
    runs: Mapping[tuple[str, str], Sequence[Estimate]],
    errors: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
    row: dict[str, Any] = {"algorithm": algorithm, "setting": setting, "error": None}
    row |= {"qualifies": False, "chosen": False, "flagged": False}
    over_seeds = runs.get((algorithm, setting), ())
    row["seeds"] = len(over_seeds)
    if (algorithm, setting) in errors or not over_seeds:
        return row | {"error": errors.get((algorithm, setting), "it was not run")}
    root = math.sqrt(len(over_seeds))
    for name in ("accuracy", "variance"):
        values = np.array([getattr(one, name) for one in over_seeds])
        noise = np.array([getattr(one, f"{name}_noise") for one in over_seeds])
        row[name] = float(values.mean())
        row[f"{name}_std"] = float(values.std(ddof=1)) if len(values) > 1 else None
        row[f"{name}_noise"] = float(np.sqrt(np.mean(noise**2))) / root
    row["variance_floor"] = float(np.mean([one.variance_floor for one in over_seeds]))
    return row
