"""Availability: when a client is online."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.federation import Population
from gifair_ray.parts import Part

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Calendar(Protocol):
    """Who is online when: a function of (seed, client, virtual time) and nothing else."""

    def online(self, clients: Ints, t: float) -> npt.NDArray[np.bool_]:
        """Whether each client is online at t."""
        ...

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        """When each client, from t on, is first offline; ∞ if not before its horizon."""
        ...

    def next_online(self, t: float) -> float:
        """The first moment after t at which somebody is online; ∞ if there is none."""
        ...


class Availability(Part):
    """Base of the rules of availability."""

    family: ClassVar[str] = "gifair_ray.availability"
    called: ClassVar[str] = "availability"

    kind: str = Field(description="when clients are online")

    @property
    def reliable(self) -> bool:
        """Whether nobody ever goes offline."""
        return False

    def build(self, seed: int, population: Population) -> Calendar:
        """The calendar of a population."""
        raise NotImplementedError
