"""TERM (Li et al. 2021), tilted over clients: minimises (1/t) log Σ p_k exp(t F_k).

    w_k = ω_k exp(t F_k) / Σ_S ω exp(t F)

with the losses at the model that the clients received. Under sampling by p_k that is
softmax_S(t F), under uniform sampling it is in proportion to p_k exp(t F_k). A softmax over a
sample is a ratio, so a biased estimate of the weights over everybody.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.federation import Population
from gifair_ray.sums import dot
from gifair_ray.weightings import Floats, Memory, Rule, Update
from gifair_ray.weightings._reweighing import Reweighing

FLAT = 1e-12  # |t| below this is FedAvg


def tilted_objective(losses: Floats, p: Floats, t: float) -> float:
    """(1/t) log Σ p_k exp(t F_k); Σ p_k F_k for t = 0. Nothing overflows."""
    if abs(t) < FLAT:
        return dot(p, losses)
    tilted = t * losses
    most = float(tilted.max())
    return (most + math.log(dot(p, np.exp(tilted - most)))) / t


class Term(Reweighing):
    """t > 0 favours the clients with large losses, t < 0 those with small ones."""

    kind: Literal["term"] = "term"
    t: float = Field(1.0, allow_inf_nan=False, description="the tilt; 0 is FedAvg")

    def start(self, population: Population) -> Rule:
        return Rule() if abs(self.t) < FLAT else _TermRule(self.t)


class _TermRule(Rule):
    def __init__(self, t: float) -> None:
        self._t = t

    def weigh(self, update: Update, memory: Memory) -> Floats:
        if not len(update.clients):
            return update.weights
        F = update.losses
        most = F.max() if self._t > 0 else F.min()
        w = update.weights * np.exp(self._t * (F - most))  # ≤ 1: nothing overflows
        return np.asarray(update.total * w / w.sum())
