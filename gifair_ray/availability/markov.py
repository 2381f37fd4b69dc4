"""On and off in turns, each for an exponential time.

So that any moment can be asked about at once, time is cut into eras of 64 mean cycles; at the
start of each a client's state is drawn anew from the stationary distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.availability import Availability, Calendar, Floats, Ints, per_client, stretch
from gifair_ray.federation import Population

CYCLES = 64  # mean cycles in an era
LONGEST_SEARCH = 10_000  # changes that are looked through for somebody online


class Markov(Availability):
    """A two-state Markov chain in continuous time, per client."""

    kind: Literal["markov"] = "markov"
    on_s: float = Field(3600.0, gt=0, allow_inf_nan=False, description="mean time online, seconds")
    off_s: float = Field(600.0, gt=0, allow_inf_nan=False, description="mean time offline, seconds")
    groups_on_s: dict[str, float] = Field({}, description="mean time online of groups, by name")
    groups_off_s: dict[str, float] = Field({}, description="mean time offline of groups, by name")

    def build(self, seed: int, population: Population) -> Calendar:
        key, limits = "availability.groups_on_s", (1e-9, 1e18)
        on = per_client(key, self.on_s, self.groups_on_s, population, limits)
        key = "availability.groups_off_s"
        return _Markov(seed, on, per_client(key, self.off_s, self.groups_off_s, population, limits))


@dataclass(frozen=True)
class _Markov:
    seed: int
    on_s: Floats
    off_s: Floats

    def _interval(
        self, clients: Ints, t: Floats
    ) -> tuple[npt.NDArray[np.bool_], Floats, Ints, Floats]:
        """(online at t, end of that state's interval, its number in the era, end of the era)."""
        on_s, off_s = self.on_s[clients], self.off_s[clients]
        span = CYCLES * (on_s + off_s)
        era = stretch(t, span)
        ends = (era + 1) * span
        start = draws.uniform(self.seed, "availability/start", clients, era)
        on = start * (on_s + off_s) < on_s
        end, number = era * span, np.zeros(len(clients), dtype=np.int64)
        first = np.ones(len(clients), dtype=np.bool_)
        left = np.arange(len(clients))
        while len(left):
            number[left] += ~first[left]
            on[left] ^= ~first[left]
            first[left] = False
            u = draws.uniform(self.seed, "availability", clients[left], era[left], number[left])
            mean = np.where(on[left], on_s[left], off_s[left])
            end[left] = np.minimum(end[left] - mean * np.log1p(-u), ends[left])
            left = left[(end[left] <= t[left]) & (end[left] < ends[left])]
        return on, end, number, ends

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        moments = np.broadcast_to(np.asarray(t, dtype=np.float64), len(clients))
        return self._interval(clients, moments)[0]

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        found = np.full(len(clients), math.inf)
        at = np.array(t, dtype=np.float64)
        left = np.arange(len(clients))
        while len(left):
            on, end, _, _ = self._interval(clients[left], at[left])
            found[left[~on]] = at[left[~on]]
            at[left] = end
            left = left[on & (end < horizon[left])]
        return found

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        everybody = np.arange(len(self.on_s)) if clients is None else clients
        at = np.full(len(everybody), t)
        for _ in range(LONGEST_SEARCH):
            on, end, _, _ = self._interval(everybody, at)
            if on.any() and (first := float(at[on].min())) <= float(end[~on].min(initial=math.inf)):
                return first
            at = np.where(on, at, end)
        return math.inf
