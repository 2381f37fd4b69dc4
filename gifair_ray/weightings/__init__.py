"""Weightings: which multiplier each client gets, and which losses that takes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.federation import Population
from gifair_ray.losses import Basis, LossTable
from gifair_ray.parts import Part
from gifair_ray.protocol import Report

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Asks = Literal["nobody", "participants", "everybody"]
"""Whose losses at the current model the server asks for before it sends work out."""


class Rule:
    """A weighting at work on one population. The base is FedAvg: every multiplier is 1."""

    lam: float | None = None
    """λ and its bound, for the record."""
    lam_max: float | None = None

    def tilts(self, losses: LossTable, clients: Ints) -> tuple[Floats, Ints | Floats | None]:
        """m_k − 1 for the clients that are about to be sent a model, and their ranks r_k."""
        return np.zeros(len(clients)), None


class Weighting(Part):
    """Base of all weightings: says what it needs, and makes a rule for a population."""

    family: ClassVar[str] = "gifair_ray.weightings"
    called: ClassVar[str] = "weighting"

    kind: str = Field(description="which multiplier a client's gradients get")

    @property
    def reports(self) -> frozenset[Report]:
        """Losses that clients send back with their updates."""
        return frozenset()

    @property
    def asks(self) -> Asks:
        """Whose losses at the current model it needs before a dispatch."""
        return "nobody"

    @property
    def basis(self) -> Basis | None:
        """At which model the losses in the server's table are taken; None: it keeps no table."""
        return None

    @property
    def bootstrap(self) -> bool:
        """Whether everybody's loss at the initial model is asked for at the start."""
        return False

    def start(self, population: Population) -> Rule:
        """The rule for a population; refuses options that do not fit it."""
        return Rule()
