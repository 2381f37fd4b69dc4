"""Tiers: clients of like speed have synchronous rounds together, beside the other tiers'.

Semi-asynchronous, after TiFL and FedAT: no tier waits for a slower one. Every tier's round is a
server update of its own, stale by the updates that other tiers made meanwhile.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gifair_ray.errors import BadInput
from gifair_ray.policies._rounds import Lane, Rounds
from gifair_ray.weighing import Asynchronous
from gifair_ray.world import World


class Tiers(Asynchronous, Rounds):
    """Lanes of clients ordered by the duration that is expected of a dispatch."""

    cohorts: ClassVar[bool] = False

    kind: Literal["tiers"] = "tiers"
    tiers: int = Field(3, ge=1, description="how many, of equal numbers of clients")

    def lanes(self, world: World) -> list[Lane]:
        if self.tiers > world.K:
            raise BadInput(f"policy.tiers = {self.tiers} exceeds the {world.K} clients")
        order = np.argsort(world.durations, kind="stable")
        parts = np.array_split(order, self.tiers)
        return [Lane(i, np.sort(part), world.p) for i, part in enumerate(parts)]
