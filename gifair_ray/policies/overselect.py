"""Over-selection: ask more clients than needed, and go on with the first that come back."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.dispatching import dispatch
from gifair_ray.policies import Ints
from gifair_ray.policies._rounds import Drawn, Rounds
from gifair_ray.timeline import COMPLETED, SURPLUS
from gifair_ray.world import State, World


class Overselect(Rounds):
    """Rounds that close at the m-th arrival; whoever is still at work then is told to stop."""

    kind: Literal["overselect"] = "overselect"
    factor: float = Field(
        1.3, ge=1, allow_inf_nan=False, description="how many are asked, as a factor on m"
    )

    def slots(self, m: int) -> int:
        return math.ceil(m * self.factor - 1e-9)

    def divisor(self, world: World, asked: int, answered: int) -> int:
        # The surplus was never meant to count. It does count as a failure where each client's
        # probability of being among the first is what corrects the weights.
        wanted = world.scenario.sampling.slots(world.K)
        return asked if self.failures == "corrected" else min(asked, max(wanted, answered))

    def send(self, world: World, state: State, drawn: Drawn, holding: Ints) -> tuple[Ints, float]:
        flights = state.flights
        rows = dispatch(world, state, *drawn, state.now, holding=holding)
        arrivals = rows[flights["outcome"][rows] == COMPLETED]
        arrivals = arrivals[np.lexsort((flights["client"][arrivals], flights["arrival"][arrivals]))]
        wanted = world.scenario.sampling.slots(world.K)
        enough = int(np.searchsorted(np.cumsum(flights["slots"][arrivals]), wanted))
        if enough >= len(arrivals):  # too few come back: the round ends when that is known
            return rows, float(flights["notice"][rows].max())
        closes = float(flights["arrival"][arrivals[enough]])
        stopped = rows[flights["end"][rows] > closes]  # before anything else happened to them
        flights["bytes_up"][stopped] = 0
        surplus = np.concatenate([arrivals[enough + 1 :], stopped])
        flights["outcome"][surplus] = SURPLUS
        flights["arrival"][surplus] = math.inf
        for name in ("start", "end", "notice"):  # everybody stops when the round closes
            flights[name][rows] = np.minimum(flights[name][rows], closes)
        return rows, closes
