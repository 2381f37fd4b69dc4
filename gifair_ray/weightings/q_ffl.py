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
        F, L = np.maximum(update.losses, FLOOR), 1.0 / update.rates
        squares = L**2 * update.squared_changes  # ‖Δw_k‖²
        memory["floored"] += np.count_nonzero((update.losses <= FLOOR) & (squares > 0))
        power = (F / F.max()) ** self._q  # F^q, but for a factor that D and h have in common
        h = self._q * power / F * squares + L * power
        whole = np.sum(update.weights * h)
        if whole == 0:
            return np.zeros(len(F))
        return np.asarray(update.total * update.weights * L * power / whole)

    def remarks(self, memory: Memory) -> list[str]:
        if not (n := int(memory["floored"][0])):
            return []
        return [
            f"q-ffl: {n} replies came from clients whose loss was 0 and which moved all the same; "
            f"their curvature h_k, with the loss at its floor of {FLOOR:g}, slows every client "
            "down: consider a larger q"
        ]
