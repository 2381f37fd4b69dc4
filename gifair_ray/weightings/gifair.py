"""GIFAIR-FL (the paper's Algorithms 1 and 2): the worse a client's group, the larger its steps.

    m_k = 1 + λ r_k / (p_k |A_{s_k}|)

with ranks r_k of the group losses that the server knows. Which losses those are is the mode:

    estimated           F_k at the client's local model, before aggregation (the paper's algorithm)
    received            F_k at the model the client was sent: the same messages, one round late
    exact-participants  F_k at the current model, asked of the participants first
    exact               F_k at the current model, asked of everybody first (the paper's theory)

The extra round trip of the last two is charged in virtual time and bytes.

Where two groups are about equal their ranks may change places in every round, and with constant
steps the model goes back and forth. Two extensions calm that: `tie_tolerance` lets groups tie
that differ by little, `soft_sign` lets ranks grow with the difference (both in units of loss).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray import objective
from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.losses import Basis, LossTable
from gifair_ray.protocol import Report
from gifair_ray.weightings import Asks, Floats, Ints, Rule, Weighting

if TYPE_CHECKING:
    from gifair_ray.scenario import Scenario


class Gifair(Weighting):
    """λ as a fraction of its bound or as a value, and where the ranks come from."""

    kind: Literal["gifair"] = "gifair"
    lambda_fraction: float | None = Field(
        None, ge=0, lt=1, description="λ / λ_max, in [0, 1); or lambda_value"
    )
    lambda_value: float | None = Field(
        None, ge=0, description="λ itself, in [0, λ_max); or lambda_fraction"
    )
    ranks: Literal["estimated", "received", "exact-participants", "exact"] = Field(
        "estimated", description="which losses the ranks r_k come from"
    )
    initial: Literal["none", "bootstrap"] | dict[str, float] = Field(
        "none",
        description="losses before the first round: none (all ranks 0), bootstrap (asked of "
        "everybody, at a cost), or a loss for each group by name",
    )

    tie_tolerance: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="extension: groups whose losses differ by no more than this tie",
    )
    soft_sign: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="extension: τ; a difference x of losses counts as clip(x/τ, −1, 1), not as its "
        "sign",
    )

    @model_validator(mode="after")
    def _one_lambda(self) -> Gifair:
        if (self.lambda_fraction is None) == (self.lambda_value is None):
            raise ValueError("give either lambda_fraction or lambda_value")
        if self.soft_sign is not None and self.tie_tolerance:
            raise ValueError("give either soft_sign or tie_tolerance: each replaces the sign")
        return self

    @property
    def reports(self) -> frozenset[Report]:
        if self.ranks == "estimated":
            return frozenset({"local"})
        return frozenset({"received"} if self.ranks == "received" else ())

    @property
    def asks(self) -> Asks:
        modes: dict[str, Asks] = {"exact-participants": "participants", "exact": "everybody"}
        return modes.get(self.ranks, "nobody")

    @property
    def basis(self) -> Basis:
        bases: dict[str, Basis] = {"estimated": "local", "received": "received"}
        return bases.get(self.ranks, "global")

    @property
    def bootstrap(self) -> bool:
        # Asking everybody before each round includes the first.
        return self.initial == "bootstrap" and self.ranks != "exact"

    def check(self, scenario: Scenario) -> None:
        if scenario.aggregator.kind == "fedmgda":
            raise ValueError(
                "aggregator.kind = 'fedmgda' scales every client's change to the same length, "
                "and with it goes the multiplier of weighting.kind = 'gifair'; use 'mean'"
            )

    def start(self, population: Population) -> Rule:
        p = objective.shares(population.train)
        lam = objective.resolve_lambda(
            p,
            population.groups,
            population.d,
            fraction=self.lambda_fraction,
            value=self.lambda_value,
        )
        return _GifairRule(population, p, lam, self._initial_losses(population), self._ranks)

    def _ranks(self, L: Floats) -> Ints | Floats:
        """r_i of every group, from their losses."""
        if self.soft_sign is not None:
            return objective.soft_ranks(L, self.soft_sign)
        return objective.group_ranks(L, self.tie_tolerance)

    def _initial_losses(self, population: Population) -> Floats | None:
        if not isinstance(self.initial, dict):
            return None
        if set(self.initial) != set(population.group_names):
            raise BadInput(
                f"weighting.initial names the groups {sorted(self.initial)}; "
                f"the data has {sorted(population.group_names)}"
            )
        by_group = np.array([self.initial[name] for name in population.group_names])
        return by_group


class _GifairRule(Rule):
    def __init__(
        self,
        population: Population,
        p: Floats,
        lam: float,
        initial: Floats | None,
        ranks: Callable[[Floats], Ints | Floats],
    ) -> None:
        self.lam = lam
        self.lam_max = objective.lambda_max(p, population.groups, population.d)
        self._p, self._groups, self._initial, self._ranks = p, population.groups, initial, ranks
        self._members = objective.group_sizes(population.groups, population.d)

    def tilts(self, losses: LossTable, clients: Ints) -> tuple[Floats, Ints | Floats]:
        L = losses.group_losses()
        if self._initial is not None:
            L = np.where(np.isnan(L), self._initial, L)
        groups = self._groups[clients]
        r = self._ranks(L)[groups]
        return objective.tilts(self.lam or 0.0, r, self._p[clients], self._members[groups]), r
