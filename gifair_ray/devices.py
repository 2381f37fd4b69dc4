"""Devices: how fast each client computes and communicates, and how reliable it is.

A population has one profile, and any group may have another, so that a group can be
systematically slow. The simulator knows a device's future; the simulated server does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.config import Frozen
from gifair_ray.distributions import Distribution, constant
from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.parts import nearest

Floats = npt.NDArray[np.float64]


class GroupDevices(Frozen):
    """What a group's devices have of their own; anything not given is as in the population."""

    sample_s: Distribution | None = Field(None, description="see devices")
    up_mbps: Distribution | None = Field(None, description="see devices")
    down_mbps: Distribution | None = Field(None, description="see devices")
    latency_s: Distribution | None = Field(None, description="see devices")
    jitter: Distribution | None = Field(None, description="see devices")
    dropout: Distribution | None = Field(None, description="see devices")
    lifetime_s: Distribution | None = Field(None, description="see devices")
    hazard_growth: Distribution | None = Field(None, description="see devices")


class Devices(Frozen):
    """The population's devices; every property is a number or a distribution over clients."""

    sample_s: Distribution = Field(
        constant(0.001), description="seconds for one sample forward and backward"
    )
    eval_fraction: float = Field(
        1 / 3,
        ge=0,
        allow_inf_nan=False,
        description="cost of evaluating a sample, as a fraction of training on it",
    )
    up_mbps: Distribution = Field(constant(10.0), description="uplink, Mbit/s")
    down_mbps: Distribution = Field(constant(50.0), description="downlink, Mbit/s")
    latency_s: Distribution = Field(constant(0.05), description="one-way latency, seconds")
    jitter: Distribution = Field(
        constant(0.0), description="lognormal spread of compute time from dispatch to dispatch"
    )
    dropout: Distribution = Field(
        constant(0.0), description="probability of dropping out in the middle of a dispatch"
    )
    lifetime_s: Distribution = Field(
        constant(math.inf),
        description="scale of the time a client keeps computing before it drops out, seconds: "
        "the longer the work, the likelier (Weibull)",
    )
    hazard_growth: Distribution = Field(
        constant(1.0), description="Weibull shape of that time: above 1 the hazard grows with it"
    )
    groups: dict[str, GroupDevices] = Field(
        {}, description="profiles of groups, by group name, over the population's"
    )

    def build(self, seed: int, population: Population) -> Fleet:
        """Every client's device, drawn by its number."""
        for name in self.groups:
            if name not in population.group_names:
                raise BadInput(
                    f"devices.groups has {name!r}, which is no group of the data; "
                    f"{nearest(name, list(population.group_names))}"
                )
        return Fleet(
            eval_fraction=self.eval_fraction,
            **{name: self._column(name, seed, population) for name in GroupDevices.model_fields},
        )

    def _column(self, name: str, seed: int, population: Population) -> Floats:
        clients = np.arange(len(population))
        values = getattr(self, name).draw(seed, f"device/{name}", clients)
        for group_name, group in self.groups.items():
            if (own := getattr(group, name)) is not None:
                members = population.groups == population.group_names.index(group_name)
                values[members] = own.draw(seed, f"device/{name}", clients[members])
        limits, inside = _LIMITS[name]
        for k in np.flatnonzero(~inside(values)).tolist():
            raise BadInput(
                f"devices.{name} = {values[k]:.4g} for client {population.name(k)} "
                f"is outside {limits}"
            )
        if (values == values[0]).all():  # no memory for a million times the same
            return np.broadcast_to(values[0], values.shape)
        return np.asarray(values)


_Limits = tuple[str, Callable[[Floats], npt.NDArray[np.bool_]]]
_TIME: _Limits = ("[0, inf)", lambda v: (v >= 0) & (v < np.inf))
_SPEED: _Limits = ("(0, inf]", lambda v: v > 0)
_CHANCE: _Limits = ("[0, 1]", lambda v: (v >= 0) & (v <= 1))
_LIMITS = {
    "sample_s": _TIME,
    "up_mbps": _SPEED,
    "down_mbps": _SPEED,
    "latency_s": _TIME,
    "jitter": _TIME,
    "dropout": _CHANCE,
    "lifetime_s": _SPEED,
    "hazard_growth": ("(0, inf)", lambda v: (v > 0) & (v < np.inf)),
}


@dataclass(frozen=True)
class Fleet:
    """The devices as columns over clients; units as in `Devices`."""

    sample_s: Floats
    eval_fraction: float
    up_mbps: Floats
    down_mbps: Floats
    latency_s: Floats
    jitter: Floats
    dropout: Floats
    lifetime_s: Floats
    hazard_growth: Floats

    @cached_property
    def jittery(self) -> bool:
        """Whether anybody's pace differs from one dispatch to the next."""
        return bool(self.jitter.any())

    @cached_property
    def mortal(self) -> bool:
        """Whether anybody may drop out in the middle of its work."""
        return bool(self.dropout.any() or np.isfinite(self.lifetime_s).any())
