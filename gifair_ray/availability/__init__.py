"""Availability: when a client is online."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.parts import Part, nearest

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Calendar(Protocol):
    """Who is online when: a function of (seed, client, virtual time) and nothing else."""

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        """Whether each client is online at t, or at its own moment of t."""
        ...

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        """When each client, from t on, is first offline; ∞ if not before its horizon."""
        ...

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        """The first moment from t on at which one of the clients is online; ∞ if there is none.

        Without `clients`: anybody.
        """
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


def stretch(t: Floats | float, length: Floats | float) -> Ints:
    """The stretch of time that t is in, where stretch i begins at i · length.

    Rounding may put the quotient on the wrong side of a beginning, so look.
    """
    number = np.floor(np.asarray(t) / length)
    number += (number + 1) * length <= t
    number -= number * length > t
    return number.astype(np.int64)


def per_client(
    key: str,
    everybody: float,
    groups: Mapping[str, float],
    population: Population,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Floats:
    """One value per client: everybody's, or its group's own where `groups` has one."""
    values = np.full(len(population), float(everybody))
    for name, value in groups.items():
        if name not in population.group_names:
            raise BadInput(
                f"{key} has {name!r}, which is no group of the data; "
                f"{nearest(name, list(population.group_names))}"
            )
        if not limits[0] <= value <= limits[1]:
            raise BadInput(f"{key}.{name} = {value:g} is outside [{limits[0]:g}, {limits[1]:g}]")
        values[population.groups == population.group_names.index(name)] = value
    return values
