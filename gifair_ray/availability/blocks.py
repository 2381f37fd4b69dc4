"""Time in blocks: in each, a client is offline with some probability, drawn by its name.

The simplest calendar with offline periods that can be asked about any moment at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.availability import Availability, Calendar, Floats, Ints
from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.parts import nearest

LONGEST_SEARCH = 100_000  # blocks without anybody online, before we call it never


class Blocks(Availability):
    """Offline for whole blocks of time, independently from block to block."""

    kind: Literal["blocks"] = "blocks"
    block_s: float = Field(
        3600.0, gt=0, allow_inf_nan=False, description="length of a block, seconds"
    )
    offline: float = Field(0.1, ge=0, le=1, description="probability of a block offline")
    groups: dict[str, float] = Field({}, description="that probability for groups, by name")

    def build(self, seed: int, population: Population) -> Calendar:
        offline = np.full(len(population), self.offline)
        for name, probability in self.groups.items():
            if name not in population.group_names:
                raise BadInput(
                    f"availability.groups has {name!r}, which is no group of the data; "
                    f"{nearest(name, list(population.group_names))}"
                )
            if not 0 <= probability <= 1:
                raise BadInput(f"availability.groups.{name} = {probability} is outside [0, 1]")
            offline[population.groups == population.group_names.index(name)] = probability
        return _Blocks(seed, self.block_s, offline)


@dataclass(frozen=True)
class _Blocks:
    seed: int
    block_s: float
    offline: Floats

    def _block(self, t: Floats | float) -> Ints:
        """The block that t is in: the last to begin by then, if b begins at b · block_s.

        Rounding may put the quotient on the wrong side of a beginning, so look.
        """
        block = np.floor(np.asarray(t) / self.block_s)
        block += (block + 1) * self.block_s <= t
        block -= block * self.block_s > t
        return block.astype(np.int64)

    def _off(self, clients: Ints, block: Ints | int) -> npt.NDArray[np.bool_]:
        u = draws.uniform(self.seed, "availability", clients, block)
        return np.asarray(u < self.offline[clients])

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        return ~self._off(clients, self._block(t))

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        block = self._block(t)
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
        possible = np.flatnonzero(self.offline < 1)
        if clients is not None:
            possible = possible[np.isin(possible, clients)]
        if not len(possible):
            return math.inf
        if self.online(possible, t).any():
            return t
        first = int(self._block(t)) + 1
        for block in range(first, first + LONGEST_SEARCH):
            if not self._off(possible, block).all():
                return block * self.block_s
        return math.inf
