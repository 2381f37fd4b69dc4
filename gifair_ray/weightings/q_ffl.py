"""q-FFL by q-FedAvg (Li et al. 2020): minimises Σ p_k F_k^{q+1}/(q+1).

With L = 1/η for the local learning rate η and Δw_k = L (θ − θ_k):

    D_k = F_k^q Δw_k,   h_k = q F_k^{q−1} ‖Δw_k‖² + L F_k^q,   θ ← θ − Σ D_k / Σ h_k

with F_k at the model that the client received. In the form θ ← θ + Σ ω'_k Δ_k, that is
ω'_k = ω_k L F_k^q / Σ ω h for replies that weigh ω_k = 1/m.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.federation import Population
from gifair_ray.weightings import Floats, Memory, Rule, Update
from gifair_ray.weightings._reweighing import Reweighing

FLOOR = 1e-10  # smaller losses count as this: h has F^{q−1} in it


class QFfl(Reweighing):
    """The larger q, the more the clients with large losses count."""

    kind: Literal["q-ffl"] = "q-ffl"
    q: float = Field(1.0, ge=0, allow_inf_nan=False, description="0 is FedAvg")

    def start(self, population: Population) -> Rule:
        return Rule() if self.q == 0 else _QFflRule(self.q)


class _QFflRule(Rule):
    def __init__(self, q: float) -> None:
        self._q = q

    def memory(self) -> Memory:
        return {"floored": np.zeros(1, dtype=np.int64)}

    def weigh(self, update: Update, memory: Memory) -> Floats:
        if not len(update.clients):
            return update.weights
        F, squares = np.maximum(update.losses, FLOOR), update.squared_changes
        memory["floored"] += np.count_nonzero((update.losses <= FLOOR) & (squares > 0))
        # L F^q, but for a factor that D and h have in common: the largest is 1, and Σ h > 0.
        rates = np.maximum(update.rates, np.finfo(np.float64).tiny)
        power = (F / F.max()) ** self._q * (rates.min() / rates)
        power /= power.max()
        h = power * (1 + self._q / F * (squares / rates))  # L ‖Δ_k‖² = ‖Δw_k‖²/L
        return np.asarray(update.total * update.weights * power / np.sum(update.weights * h))

    def remarks(self, memory: Memory) -> list[str]:
        if not (n := int(memory["floored"][0])):
            return []
        return [
            f"q-ffl: {n} replies came from clients whose loss was 0 and which moved all the same; "
            f"their curvature h_k, with the loss at its floor of {FLOOR:g}, slows every client "
            "down: consider a larger q"
        ]
