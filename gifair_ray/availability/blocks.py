"""Time in blocks: in each, a client is offline with some probability, drawn by its name.

The simplest calendar with offline periods that can be asked about any moment at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.availability import Availability, Calendar, Floats, Ints, per_client, stretch
from gifair_ray.federation import Population

LONGEST_SEARCH = 100_000  # blocks without anybody online, before we call it never
Chance = Callable[[Ints, Ints], Floats]
"""(clients, blocks) → the probability that each client is offline in its block."""


class Blocks(Availability):
    """Offline for whole blocks of time, independently from block to block."""

    kind: Literal["blocks"] = "blocks"
    block_s: float = Field(
        3600.0, gt=0, allow_inf_nan=False, description="length of a block, seconds"
    )
    offline: float = Field(0.1, ge=0, le=1, description="probability of a block offline")
    groups: dict[str, float] = Field({}, description="that probability for groups, by name")

    def build(self, seed: int, population: Population) -> Calendar:
        offline = per_client("availability.groups", self.offline, self.groups, population)
        possible = np.flatnonzero(offline < 1)
        return BlockCalendar(seed, self.block_s, lambda clients, _: offline[clients], possible)


@dataclass(frozen=True)
class BlockCalendar:
    """Block b begins at b · block_s. `possible` are the clients that are ever online.

    Clients with the same entry in `names` share their draws; without it, each has its own.
    """

    seed: int
    block_s: float
    chance: Chance
    possible: Ints
    names: Ints | None = None
    purpose: str = "availability"

    def block(self, t: Floats | float) -> Ints:
        """The block that t is in: the last to begin by then."""
        return stretch(t, self.block_s)

    def _off(self, clients: Ints, block: Ints) -> npt.NDArray[np.bool_]:
        names = clients if self.names is None else self.names[clients]
        u = draws.uniform(self.seed, self.purpose, names, block)
        return np.asarray(u < self.chance(clients, block))

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        return ~self._off(clients, self.block(t))

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        block = self.block(t)
        found = np.full(len(clients), math.inf)
        left = np.arange(len(clients))
        while len(left):
            off = self._off(clients[left], block[left])
            at = np.maximum(block[left] * self.block_s, t[left])
            found[left[off]] = at[off]
            block[left] += 1
            left = left[~off & (block[left] * self.block_s < horizon[left])]
        return found

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        possible = self.possible if clients is None else np.intersect1d(self.possible, clients)
        if not len(possible):
            return math.inf
        if self.online(possible, t).any():
            return t
        first = int(self.block(t)) + 1
        for block in range(first, first + LONGEST_SEARCH):
            if not self._off(possible, np.array(block)).all():
                return block * self.block_s
        return math.inf
