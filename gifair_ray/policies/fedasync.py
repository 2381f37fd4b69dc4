"""FedAsync (Xie et al. 2019): every arrival is mixed into the model at once.

    θ ← (1 − α_t) θ + α_t θ_k,  α_t = α s(lag)

The paper's local solver is proximal with ρ = 0.005; see the algorithm `fedasync`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.policies import Floats, Ints
from gifair_ray.policies._stream import Stream
from gifair_ray.weighing import reliability
from gifair_ray.world import State, World


class Fedasync(Stream):
    """A server update per arrival."""

    kind: Literal["fedasync"] = "fedasync"
    alpha: float = Field(0.6, gt=0, le=1, description="α, how far the model goes towards θ_k")

    def size(self) -> int:
        return 1

    def weigh(self, world: World, state: State, rows: Ints, asked: int) -> Floats:
        flights = state.flights
        alpha = self.alpha * self.discounted(state.version - flights["version"][rows])
        if self.failures == "corrected":  # never beyond the local model
            alpha = alpha / reliability(world, state, flights["client"][rows])
            return np.minimum(alpha, 1.0)
        return alpha
