"""AFL (Mohri et al. 2019): minimises the largest loss, min_θ max_{λ ∈ simplex} Σ λ_k F_k.

Everybody takes part, with FedAvg's local training:

    θ ← θ + Σ λ_k Δ_k,   λ ← Proj(λ + γ F(θ))

with the losses at the received model. If only some take part, their terms in both sums are
divided by the probability that they do (an extension of ours; λ_k of the others only moves with
the projection). The convergence guarantee is for the average of the iterates; the last one is
what a run returns.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.errors import Diverged
from gifair_ray.federation import Population
from gifair_ray.weightings import Floats, Memory, Rule, Update
from gifair_ray.weightings._reweighing import Reweighing


class Afl(Reweighing):
    """γ is the step of the adversary λ, which starts at 1/K."""

    kind: Literal["afl"] = "afl"
    gamma: float = Field(0.1, ge=0, allow_inf_nan=False, description="γ, the step of λ")

    def start(self, population: Population) -> Rule:
        return _AflRule(len(population), self.gamma)


def onto_simplex(v: Floats) -> Floats:
    """The nearest point of the simplex: max(v − τ, 0) with the τ that makes it sum to 1."""
    v = v - v.max()  # all may move alike; a 1 would be lost beside large numbers
    u = np.sort(v)[::-1]
    excess = np.cumsum(u) - 1.0
    j = np.flatnonzero(u * np.arange(1, len(u) + 1) > excess)[-1]
    return np.asarray(np.maximum(v - excess[j] / (j + 1), 0.0))


class _AflRule(Rule):
    def __init__(self, K: int, gamma: float) -> None:
        self._K, self._gamma = K, gamma

    def memory(self) -> Memory:
        return {"lambda": np.full(self._K, 1.0 / self._K)}

    def weigh(self, update: Update, memory: Memory) -> Floats:
        lam, per_share = memory["lambda"], update.weights / update.p  # 1/(m ρ_k) for each slot
        weights = per_share * lam[update.clients]
        raised = lam.copy()
        # A client may be in an asynchronous buffer twice.
        np.add.at(raised, update.clients, self._gamma * per_share * update.losses)
        if not np.isfinite(raised).all():
            raise Diverged(f"weighting.gamma = {self._gamma:g} makes λ infinite: lower it")
        memory["lambda"] = onto_simplex(raised)
        return np.asarray(weights)
