"""How a run went: its mean accuracy from evaluation to evaluation, and the quality of its ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.measures import Array, wrong_signs

MOST_PAIRS = 50_000_000  # pairs of groups that are compared in one run; fewer audits, if need be


@dataclass(frozen=True)
class Course:
    """The mean accuracy over clients at every evaluation, and what it had cost by then."""

    rounds: Array
    time_s: Array
    bytes: Array
    accuracy: Array

    def at(self, target: float) -> tuple[float, float, float]:
        """(rounds, hours, megabytes) at the first evaluation at or above a target; nan if none."""
        reached = np.flatnonzero(self.accuracy >= target - 1e-12)
        if not len(reached):
            return math.nan, math.nan, math.nan
        i = reached[0]
        return float(self.rounds[i]), float(self.time_s[i]) / 3600, float(self.bytes[i]) / 1e6

    @property
    def best(self) -> float:
        """The highest accuracy that was reached; nan without any."""
        known = self.accuracy[~np.isnan(self.accuracy)]
        return float(known.max()) if len(known) else math.nan


def course(run: RunTables, split: str, model: str = "global") -> Course:
    """The course of the clients' mean accuracy; personal models of clients that took part only."""
    table = run.table("evaluations")
    wanted = pc.and_(pc.equal(table["split"], split), pc.equal(table["model"], model))
    wanted = pc.and_(wanted, pc.greater(table["samples"], 0))
    if model == "personal":
        wanted = pc.and_(wanted, table["selected_ever"])
    table = table.filter(wanted)
    accuracy = pc.divide(pc.cast(table["correct"], pa.float64()), table["samples"])
    moments = (
        table.select(["evaluation", "version", "time_s"])
        .append_column("accuracy", accuracy)
        .group_by(["evaluation", "version", "time_s"])
        .aggregate([("accuracy", "mean")])
        .sort_by("evaluation")
    )
    version = moments["version"].to_numpy()
    mean = pc.fill_null(moments["accuracy_mean"], math.nan).to_numpy()
    return Course(version, moments["time_s"].to_numpy(), bytes_at(run, version), mean)


def bytes_at(run: RunTables, version: Array) -> Array:
    """Bytes moved since the start of the run until these versions of the model were made."""
    rounds = run.table("rounds")
    moved = np.append(0, pc.add(rounds["bytes_down"], rounds["bytes_up"]).to_numpy())
    return moved[np.searchsorted(rounds["round"].to_numpy(), version, side="right")]


def default_target(courses: Iterable[Course]) -> float:
    """The highest whole percentage that every one of them reaches; nan if there is none."""
    best = [course.best for course in courses]
    if not best or any(map(math.isnan, best)):
        return math.nan
    return math.floor(min(best) * 100 + 1e-9) / 100


RANK_QUALITY = pa.schema(
    [
        pa.field("version", pa.int64()),
        pa.field("time_s", pa.float64(), metadata={"unit": "s"}),
        pa.field("wrong_signs", pa.float64(), metadata={"unit": "1"}),
        pa.field("age_mean", pa.float64(), metadata={"unit": "versions"}),
        pa.field("delta", pa.float64(), metadata={"unit": "loss"}),
    ]
)


def rank_quality(run: RunTables) -> pa.Table:
    """A row per audit of ranks in use: wrong signs, mean age of the known losses, δ.

    δ belongs to the round that was trained from the audited version. With very many groups some
    audits are left out, evenly.
    """
    table = run.table("ranks")
    table = table.filter(pc.is_valid(table["r_used"])).sort_by("version")
    versions, start, size = np.unique(
        table["version"].to_numpy(), return_index=True, return_counts=True
    )
    pairs = np.cumsum(size * (size - 1) / 2)
    if len(pairs) and pairs[-1] > MOST_PAIRS:
        keep = np.arange(0, len(versions), math.ceil(pairs[-1] / MOST_PAIRS))
        versions, start, size = versions[keep], start[keep], size[keep]
    rounds = run.table("rounds").select(["round", "delta"])
    rounds = rounds.filter(pc.is_valid(rounds["delta"]))
    delta = dict(zip(rounds["round"].to_pylist(), rounds["delta"].to_pylist(), strict=True))
    used, exact = (pc.fill_null(table[name], math.nan).to_numpy() for name in ("L_used", "L_exact"))
    time_s, age = table["time_s"].to_numpy(), pc.fill_null(table["age_mean"], math.nan).to_numpy()
    rows = []
    for version, i, d in zip(versions.tolist(), start.tolist(), size.tolist(), strict=True):
        known = age[i : i + d][~np.isnan(age[i : i + d])]
        share = wrong_signs(used[i : i + d], exact[i : i + d])
        rows.append(
            {
                "version": version,
                "time_s": float(time_s[i]),
                "wrong_signs": None if math.isnan(share) else share,
                "age_mean": float(known.mean()) if len(known) else None,
                "delta": delta.get(version + 1),
            }
        )
    return pa.Table.from_pylist(rows, schema=RANK_QUALITY)


def lambda_fraction(run: RunTables) -> float:
    """λ/λ_max of the run; 0 where the weighting has no λ, nan before the first round."""
    rounds = run.table("rounds").slice(0, 1)
    if not len(rounds):
        return math.nan
    lam, most = rounds["lam"][0].as_py(), rounds["lam_max"][0].as_py()
    return 0.0 if lam is None or not most else lam / most
