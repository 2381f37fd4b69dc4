"""Outages that strike a whole group at once, on top of any other availability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializeAsAny

from gifair_ray.availability import Availability, Calendar, Floats, Ints, per_client
from gifair_ray.availability.always import Always
from gifair_ray.availability.blocks import LONGEST_SEARCH, BlockCalendar
from gifair_ray.federation import Population


class Outages(Availability):
    """In every block of time, each group is cut off as a whole with some probability."""

    kind: Literal["outages"] = "outages"
    block_s: float = Field(
        3600.0, gt=0, allow_inf_nan=False, description="length of an outage, seconds"
    )
    probability: float = Field(0.1, ge=0, le=1, description="of an outage in a block")
    groups: dict[str, float] = Field({}, description="that probability for groups, by name")
    base: SerializeAsAny[Availability] = Field(
        Always(), description="when clients are online apart from outages"
    )

    def build(self, seed: int, population: Population) -> Calendar:
        chance = per_client("availability.groups", self.probability, self.groups, population)
        outages = BlockCalendar(
            seed,
            self.block_s,
            lambda clients, _: chance[clients],
            np.flatnonzero(chance < 1),
            names=population.groups,
            purpose="availability/outage",
        )
        return _Both(self.base.build(seed, population), outages)


@dataclass(frozen=True)
class _Both:
    """Online where both calendars say so."""

    base: Calendar
    outages: BlockCalendar

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        return self.base.online(clients, t) & self.outages.online(clients, t)

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        return np.minimum(
            self.base.until(clients, t, horizon), self.outages.until(clients, t, horizon)
        )

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        possible = self.outages.possible
        if clients is not None:
            possible = np.intersect1d(possible, clients)
        block_s, following = self.outages.block_s, t
        for _ in range(LONGEST_SEARCH if len(possible) else 0):
            block = int(self.outages.block(following))
            begin, end = max(t, block * block_s), (block + 1) * block_s
            spared = possible[self.outages.online(possible, begin)]
            when = self.base.next_online(begin, spared) if len(spared) else math.inf
            if when < end:
                return when
            following = self.base.next_online(end, possible)
            if math.isinf(following):
                break
        return math.inf
