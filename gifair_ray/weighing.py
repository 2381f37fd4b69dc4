"""What an update weighs: by the design of the sampling, or by what really arrives.

    ω = slots · (p_k/ρ_k) / m · s(lag)/s̄_k

ρ_k is the probability that an aggregation slot holds client k. Where the server draws clients
itself and waits for them, it is known by design. Where clients come back at their own pace, the
fast fill more slots: then ρ_k is estimated from the arrivals so far. A staleness discount s(lag)
weighs the slow down; dividing by the client's own mean discount s̄_k takes that bias out again.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.discounts import Discount
from gifair_ray.policies import Policy
from gifair_ray.sampling import aggregation_weights
from gifair_ray.tables import OUTCOMES
from gifair_ray.world import State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Stale(Policy):
    """Options of policies under which updates may be stale."""

    discount: Discount = Field(Discount(), description="staleness discount s(lag)")
    max_staleness: int | None = Field(
        None, ge=0, description="updates that are staler are discarded"
    )

    def discounted(self, lag: Ints) -> Floats:
        return self.discount.s(lag)


class Asynchronous(Stale):
    """Options of policies that average updates, some of them stale."""

    rates: Literal["design", "empirical"] = Field(
        "design",
        description="p_k/ρ_k: from the sampling scheme, or from the arrivals so far (corrects for "
        "clients that come back at different rates)",
    )
    kappa: float = Field(
        10.0, gt=0, allow_inf_nan=False, description="empirical: arrivals that the design is worth"
    )
    own_discount: bool = Field(
        False, description="divide by the client's own mean discount (corrects for the slow)"
    )


def reliability(world: World, state: State, clients: Ints) -> Floats:
    """The probability that each client answers: by its device, or by its record so far.

    By its device is without jitter, timeouts and offline periods; its record knows all of them.
    """
    if world.scenario.policy.reliability == "known":
        fleet = world.fleet
        compute = (world.passes + world.evaluation_passes)[clients] * fleet.sample_s[clients]
        wear = (compute / fleet.lifetime_s[clients]) ** fleet.hazard_growth[clients]
        return np.maximum((1.0 - fleet.dropout[clients]) * np.exp(-wear), 1e-6)
    counts = state.participation.counts
    # The answer that is being weighed is not counted yet; what is still under way says nothing.
    answers = 1 + counts["completed"][clients]
    ended = 1 + sum(counts[outcome][clients] for outcome in OUTCOMES)
    return np.asarray(answers / ended)


def ratios(world: World, state: State, clients: Ints) -> Floats:
    """p_k/ρ_k: how much more than an equal slot a client's reply stands for."""
    policy, p = world.scenario.policy, world.p[clients]
    design = p if world.scenario.sampling.scheme == "p-replace" else np.full(len(p), 1.0 / world.K)
    if isinstance(policy, Asynchronous) and policy.rates == "empirical":
        arrived = state.aggregated[clients] + policy.kappa * design
        return p / (arrived / (state.updates + policy.kappa))
    return p / design


def weights(world: World, state: State, rows: Ints, asked: int) -> Floats:
    """ω of replies that are about to be aggregated, of `asked` slots in all."""
    scenario, flights, policy = world.scenario, state.flights, world.scenario.policy
    clients, slots = flights["client"][rows], flights["slots"][rows]
    p, scheme = world.p[clients], scenario.sampling.scheme
    empirical = isinstance(policy, Asynchronous) and policy.rates == "empirical"
    corrected = policy.failures == "corrected"
    out = aggregation_weights(
        "p-replace" if empirical else scheme, p, slots, asked, world.K,
        policy.failures, reliability(world, state, clients) if corrected else p,
    )  # fmt: skip
    if not isinstance(policy, Asynchronous):
        return out
    if policy.rates == "empirical":
        out = out * ratios(world, state, clients)
    s = policy.discounted(state.version - flights["version"][rows])
    if policy.own_discount:
        # With its own discount as one more observation, a client's first update weighs 1.
        mean = (state.discounts[clients] + s) / (state.aggregated[clients] + 1)
        return np.asarray(out * s / mean)
    return np.asarray(out * s)
