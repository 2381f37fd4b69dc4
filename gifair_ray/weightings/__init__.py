"""Weightings: which multiplier or weight each client gets, and which losses that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.federation import Population
from gifair_ray.losses import Basis, LossTable
from gifair_ray.parts import Part
from gifair_ray.protocol import Report
from gifair_ray.replies import Params
from gifair_ray.sums import squared_norms

if TYPE_CHECKING:
    from gifair_ray.scenario import Scenario

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Asks = Literal["nobody", "participants", "everybody"]
"""Whose losses at the current model the server asks for before it sends work out."""


Memory = dict[str, npt.NDArray[Any]]
"""What a rule keeps from one server update to the next: arrays by name."""


@dataclass(frozen=True)
class Update:
    """Replies that are about to become a server update, in the order of their clients."""

    clients: Ints
    p: Floats
    """The clients' shares p_k."""
    weights: Floats
    """ω_k by the sampling and the policy: what FedAvg would give them."""
    total: float
    """What such weights sum to on average: 1, less what has failed or is stale."""
    losses: Floats
    """F_k at the model that each was sent; NaN where the weighting does not ask for it."""
    rates: Floats
    """η of each client's first local step."""
    models: Sequence[Params]
    """The trained parameters that came back, and those that each client started from."""
    bases: Sequence[Params]

    @cached_property
    def squared_changes(self) -> Floats:
        """‖Δ_k‖² of every reply."""
        return squared_norms(self.models, self.bases)


class Rule:
    """A weighting at work on one population. The base is FedAvg: every multiplier is 1."""

    lam: float | None = None
    """λ and its bound, for the record."""
    lam_max: float | None = None

    def tilts(self, losses: LossTable, clients: Ints) -> tuple[Floats, Ints | Floats | None]:
        """m_k − 1 for the clients that are about to be sent a model, and their ranks r_k."""
        return np.zeros(len(clients)), None

    def memory(self) -> Memory:
        """What it remembers at the start. All that it learns in a run belongs in here."""
        return {}

    def weigh(self, update: Update, memory: Memory) -> Floats:
        """ω_k of the replies in θ ← θ + Σ ω_k Δ_k; may change the memory."""
        return update.weights

    def remarks(self, memory: Memory) -> list[str]:
        """What a user should know of a run that has ended."""
        return []

    @property
    def tilting(self) -> bool:
        """Whether clients are sent a multiplier: one more scalar beside the model."""
        return type(self).tilts is not Rule.tilts

    @property
    def reweighing(self) -> bool:
        """Whether it changes the weights in the server's sum."""
        return type(self).weigh is not Rule.weigh


class Weighting(Part):
    """Base of all weightings: says what it needs, and makes a rule for a population."""

    family: ClassVar[str] = "gifair_ray.weightings"
    called: ClassVar[str] = "weighting"

    kind: str = Field(description="which multiplier or weight a client gets")

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
    def reweighs(self) -> bool:
        """Whether its rule changes the weights in the server's sum."""
        return False

    @property
    def bootstrap(self) -> bool:
        """Whether everybody's loss at the initial model is asked for at the start."""
        return False

    def check(self, scenario: Scenario) -> None:
        """Refuse, with a ValueError, a scenario in which this weighting makes no sense."""
        if self.reweighs and scenario.aggregator.kind == "mixing":
            raise ValueError(
                f"weighting.kind = {self.kind!r} weighs replies against each other; "
                "aggregator.kind = 'mixing' takes one at a time (try algorithm = 'fedbuff')"
            )
        if self.reweighs and scenario.aggregator.kind == "paper-literal":
            raise ValueError(
                "aggregator.kind = 'paper-literal' sums models; with weighting.kind = "
                f"{self.kind!r} that would rescale the model: use 'mean'"
            )

    def start(self, population: Population) -> Rule:
        """The rule for a population; refuses options that do not fit it."""
        return Rule()
