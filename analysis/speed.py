"""What `gifair bench` found: medians and spread, ratios to the limits, and the goals.

Ratios are taken within a turn, whose arms ran one after the other, so that a machine that is slow
for a while slows both sides. A repetition's figure is the median over its turns; shown are the
median of those over the repetitions, and their range.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import pyarrow as pa

Row = Mapping[str, Any]
MEASURES: Mapping[str, Callable[[Row], float]] = {
    "rate": lambda row: row["updates"] / row["wall_s"] if row["wall_s"] else math.nan,
    "cpu": lambda row: row["cpu_s"] / row["updates"] if row["updates"] else math.nan,
    "round": lambda row: row["wall_s"] / row["rounds"] if row["rounds"] else math.nan,
    "moved": lambda row: row["moved_bytes"] / row["updates"] if row["updates"] else math.nan,
    "memory": lambda row: math.nan if row["peak_pss_bytes"] is None else row["peak_pss_bytes"],
    "ready": lambda row: row["ready_s"],
}
LIMITS: Mapping[tuple[str, str], str] = {
    ("W1", "local"): "batched",
    ("W1", "ray ×2"): "batched",
    ("W1", "ray ×2, all per round"): "batched, all per round",
    ("W2", "ray ×1"): "loop ×1",
    ("W2", "ray ×2"): "loop ×2",
    ("W2", "fedbuff ray ×2"): "ray ×2",
    ("W3", "ray ×1"): "loop ×1",
    ("W3", "ray ×2"): "loop ×2",
}
"""The arm that each arm of the engine is set beside."""

Place = tuple[str, str]  # workload, arm


@dataclass(frozen=True)
class Spread:
    """A median over repetitions, and how far they lie apart."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        """Of the values that are known; NaN if none is."""
        known = [value for value in values if not math.isnan(value)] or [math.nan]
        return Spread(median(known), min(known), max(known))


@dataclass(frozen=True)
class Goal:
    """A figure with a bound: a product of measures over a product, or the first less the second."""

    text: str
    measure: str
    over: tuple[Place, ...]
    under: tuple[Place, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    how: Literal["ratio", "difference"] = "ratio"

    def value(self, row_of: Mapping[Place, Row]) -> float:
        """Of one turn."""
        take = MEASURES[self.measure]
        over, under = ([take(row_of[place]) for place in side] for side in (self.over, self.under))
        if self.how == "difference":
            return sum(over) - sum(under)
        return math.prod(over) / math.prod(under)

    def is_met(self, value: float) -> bool:
        """Whether a value is within the bound."""
        if self.at_least is not None and not value >= self.at_least:
            return False
        return self.at_most is None or value <= self.at_most


def _trained(w: str) -> list[Goal]:
    two, one, limit, limit1 = (w, "ray ×2"), (w, "ray ×1"), (w, "loop ×2"), (w, "loop ×1")
    return [
        Goal(f"{w}: CPU per update, ray ×2 / loop ×2", "cpu", (two,), (limit,), at_most=1.05),
        Goal(f"{w}: rate, ray ×2 / loop ×2", "rate", (two,), (limit,), at_least=0.9),
        Goal(
            f"{w}: scaling 1 → 2, of ray / of loop",
            "rate", (two, limit1), (one, limit), at_least=0.95,
        ),
        Goal(f"{w}: memory, ray ×2 / bare pool", "memory", (two,), (POOL,), at_most=1.25),
    ]  # fmt: skip


POOL: Place = ("pool", "bare pool")
_W1_2, _W1_ALL = ("W1", "ray ×2"), ("W1", "ray ×2, all per round")
_THOUSAND, _MILLION = ("W5", "10³ clients"), ("W5", "10⁶ clients")
_NEW = tuple((workload, f"{arm}, own data") for workload, arm in (_THOUSAND, _MILLION))
GOALS: tuple[Goal, ...] = (
    Goal("S: gifair --help, s", "ready", (("S", "gifair --help"),), at_most=0.3),
    Goal("S: gifair list, s", "ready", (("S", "gifair list"),), at_most=0.5),
    Goal("S: first round in process, s", "ready", (("S", "local"),), at_most=3.0),
    Goal(
        "S: first round on Ray after a bare pool is up, s",
        "ready", (("S", "ray ×2"),), (POOL,), at_most=2.0, how="difference",
    ),
    Goal("W1: rate, ray ×2 / loop ×2", "rate", (_W1_2,), (("W1", "loop ×2"),), at_least=10.0),
    Goal("W1: rate, ray ×2 / batched", "rate", (_W1_2,), (("W1", "batched"),), at_least=0.35),
    Goal(
        "W1, all per round: rate, ray ×2 / batched",
        "rate", (_W1_ALL,), (("W1", "batched, all per round"),), at_least=0.6,
    ),
    Goal(
        "W1: rate, local / batched",
        "rate", (("W1", "local"),), (("W1", "batched"),), at_least=0.6,
    ),
    Goal(
        "W1: rate, ray ×2 / batched without alignment",
        "rate", (_W1_2,), (("W1", "batched, unaligned"),), at_least=0.35,
    ),
    Goal(
        "W1: rate, local / batched without alignment",
        "rate", (("W1", "local"),), (("W1", "batched, unaligned"),), at_least=0.6,
    ),
    Goal("W1: memory, ray ×2 / bare pool", "memory", (_W1_2,), (POOL,), at_most=1.25),
    *_trained("W2"),
    Goal(
        "W2: rate, fedbuff with 32 under way / sync",
        "rate", (("W2", "fedbuff ray ×2"),), (("W2", "ray ×2"),), at_least=0.9,
    ),
    *_trained("W3"),
    Goal("W4: arrivals committed per second", "rate", (("W4", "no-op learner"),), at_least=2e4),
    Goal(
        "W5: time per round, 10⁶ / 10³ clients with own data, all new",
        "round", (_NEW[1],), (_NEW[0],), at_most=1.3,
    ),
    Goal(
        "W5: time per round, 10⁶ / 10³ clients",
        "round", (_MILLION,), (_THOUSAND,), at_most=1.3,
    ),
    Goal(
        "W5: memory, 10⁶ less 10³ clients, bytes",
        "memory", (_MILLION,), (_THOUSAND,), at_most=500e6, how="difference",
    ),
)  # fmt: skip


Turn = Mapping[Place, Row]
Repetition = Mapping[Place, list[Row]]
"""The rows of every arm, turn by turn."""


def _repetitions(table: pa.Table) -> list[Repetition]:
    found: dict[int, dict[Place, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(table.to_pylist(), key=lambda row: (row["repetition"], row["turn"])):
        found[row["repetition"]][row["workload"], row["arm"]].append(row)
    return list(found.values())


def _over(
    repetitions: list[Repetition], places: Sequence[Place], take: Callable[[Turn], float]
) -> Spread | None:
    """Of the medians over turns, where all of these were measured; None if that is nowhere."""
    figures = []
    for rows in repetitions:
        if all(place in rows for place in places):
            values = [take(turn) for turn in _turns(rows, places)]
            known = [value for value in values if not math.isnan(value)]
            figures.append(median(known) if known else math.nan)
    return Spread.of(figures) if figures else None


def _turns(rows: Repetition, places: Sequence[Place]) -> list[Turn]:
    """The turns that these had together; what had but one counts in all of them."""
    several = [len(rows[place]) for place in places if len(rows[place]) > 1]
    return [
        {place: rows[place][min(turn, len(rows[place]) - 1)] for place in places}
        for turn in range(min(several, default=1))
    ]


def judged(table: pa.Table) -> list[tuple[Goal, Spread]]:
    """Every goal whose arms were measured, and what came of it."""
    repetitions = _repetitions(table)
    found = ((goal, _over(repetitions, goal.over + goal.under, goal.value)) for goal in GOALS)
    return [(goal, spread) for goal, spread in found if spread is not None]


def summary(table: pa.Table) -> dict[Place, dict[str, Spread]]:
    """Every measure of every arm; `rate/limit` and `cpu/limit` where it has one."""
    repetitions = _repetitions(table)
    out = {}
    for place in dict.fromkeys(place for rows in repetitions for place in rows):
        asked = {name: Goal("", name, (place,)) for name in MEASURES}
        if (limit := LIMITS.get(place)) is not None:
            for name in ("rate", "cpu"):
                asked[f"{name}/limit"] = Goal("", name, (place,), ((place[0], limit),))
        spreads = {
            name: _over(repetitions, goal.over + goal.under, goal.value)
            for name, goal in asked.items()
        }
        out[place] = {name: spread for name, spread in spreads.items() if spread is not None}
    return out
