"""Rounds with a deadline: fixed, or set by how long the cohort is expected to take.

Late work is discarded, or carried into the round in which it arrives, with its staleness. A
client may also return, at the deadline, the steps that it has done by then.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray.dispatching import dispatch
from gifair_ray.policies import Ints
from gifair_ray.policies._rounds import Drawn, Rounds
from gifair_ray.weighing import Asynchronous
from gifair_ray.world import State, World

AND_A_BIT = 1 + 1e-9  # rounding must not make late the client whose duration is the deadline


class Deadline(Asynchronous, Rounds):
    """Rounds that close when all outcomes are known, and at the deadline at the latest."""

    kind: Literal["deadline"] = "deadline"
    deadline_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="seconds after the start of a round"
    )
    quantile: float | None = Field(
        None, gt=0, le=1, description="of the cohort's expected durations, as the deadline"
    )
    late: Literal["discard", "carry"] = Field(
        "discard", description="what becomes of late work: nothing, or part of a later round"
    )
    partial: bool = Field(
        False, description="a client that would be late returns the steps it has done by then"
    )

    @model_validator(mode="after")
    def _one_deadline(self) -> Deadline:
        if (self.deadline_s is None) == (self.quantile is None):
            raise ValueError("give either deadline_s or quantile")
        if self.partial and self.late == "carry":
            raise ValueError("partial work is never late: leave late = 'discard'")
        return self

    def send(self, world: World, state: State, drawn: Drawn, holding: Ints) -> tuple[Ints, float]:
        flights = state.flights
        expected = world.durations[drawn[0]]
        limit = self.deadline_s or float(np.quantile(expected, self.quantile or 1.0)) * AND_A_BIT
        patience = min(limit, self.timeout_s) if self.late == "discard" else self.timeout_s
        rows = dispatch(
            world, state, *drawn, state.now,
            holding=holding, timeout_s=patience, partial=self.partial,
        )  # fmt: skip
        known = float(flights["notice"][rows].max())
        return rows, min(known, state.now + limit) if math.isfinite(limit) else known
