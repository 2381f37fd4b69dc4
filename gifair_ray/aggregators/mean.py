"""The mean of changes: θ ← θ + Σ_k ω_k Δ_k, where Δ_k is how far client k moved its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gifair_ray.aggregators import Aggregator, Floats, weighted_sum
from gifair_ray.replies import Models, Params


class Mean(Aggregator):
    """FedAvg's mean, in the form that is right under every sampling scheme.

    With ω_k = (slots of k)·p_k/(m ρ_k) it is unbiased; when the weights sum to 1 it is the
    weighted mean of the local models.
    """

    kind: Literal["mean"] = "mean"

    def combine(
        self,
        theta: Params,
        models: Models,
        bases: Sequence[Params],
        weights: Floats,
        decay: float,
    ) -> Params:
        return weighted_sum(weights, models, bases, onto=theta)
