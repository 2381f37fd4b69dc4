"""Everybody is always online."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from gifair_ray.availability import Availability, Calendar, Floats, Ints
from gifair_ray.federation import Population


class Always(Availability):
    """Nobody ever goes offline."""

    kind: Literal["always"] = "always"

    @property
    def reliable(self) -> bool:
        return True

    def build(self, seed: int, population: Population) -> Calendar:
        return _Always()


class _Always:
    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        return np.ones(len(clients), dtype=np.bool_)

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        return np.full(len(clients), math.inf)

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        return t
