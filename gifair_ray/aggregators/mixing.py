"""FedAsync's mixing of models (Xie et al. 2019): θ ← (1 − α)θ + α θ_k, one arrival at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gifair_ray.aggregators import Aggregator, Floats, weighted_sum
from gifair_ray.replies import Models, Params


class Mixing(Aggregator):
    """θ ← θ + Σ_k α_k (θ_k − θ): towards the local models, wherever they started from."""

    kind: Literal["mixing"] = "mixing"

    def combine(
        self,
        theta: Params,
        models: Models,
        bases: Sequence[Params],
        weights: Floats,
        decay: float,
    ) -> Params:
        return weighted_sum(weights, models, [theta] * len(models), onto=theta)

    def buffer_weights(self, weights: Floats) -> Floats:
        return weights
