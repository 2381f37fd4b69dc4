"""A coin at every look: whenever a client is considered, it is online with some probability.

A client that was sent work stays for it. The moment itself names the draw, so that asking twice
gives the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.availability import Availability, Calendar, Floats, Ints, per_client
from gifair_ray.federation import Population

LONGEST_SEARCH = 100_000  # looks without anybody online, before we call it never


class Bernoulli(Availability):
    """Online or not at each look, independently."""

    kind: Literal["bernoulli"] = "bernoulli"
    offline: float = Field(0.1, ge=0, le=1, description="probability of being offline at a look")
    groups: dict[str, float] = Field({}, description="that probability for groups, by name")
    retry_s: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="when nobody is online, look again after this"
    )

    def build(self, seed: int, population: Population) -> Calendar:
        offline = per_client("availability.groups", self.offline, self.groups, population)
        return _Bernoulli(seed, offline, self.retry_s)


@dataclass(frozen=True)
class _Bernoulli:
    seed: int
    offline: Floats
    retry_s: float

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        moment = np.atleast_1d(np.asarray(t, dtype=np.float64) + 0.0).view(np.int64)
        u = draws.uniform(self.seed, "availability", clients, moment)
        return np.asarray(u >= self.offline[clients])

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        return np.full(len(clients), math.inf)

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        possible = np.flatnonzero(self.offline < 1)
        if clients is not None:
            possible = possible[np.isin(possible, clients)]
        if not len(possible):
            return math.inf
        for look in range(LONGEST_SEARCH):
            if self.online(possible, t + look * self.retry_s).any():
                return t + look * self.retry_s
        return math.inf
