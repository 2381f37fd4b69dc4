"""FedMGDA+ (Hu et al. 2022): step against the shortest combination of the clients' directions.

    ĝ_k = (θ − θ_k)/‖θ − θ_k‖
    λ* = argmin ‖Σ λ_k ĝ_k‖²  over the simplex with |λ_k − λ⁰_k| ≤ ε
    θ ← θ − η_g Σ λ*_k ĝ_k

Where it is not 0, that direction lowers every client's loss to first order if ε = 1; ε = 0 is a
mean of normalised changes. No step is longer than η_g, whatever the local learning rate, so η_g
falls as the learning rate does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from gifair_ray.aggregators import Aggregator, Floats, weighted_sum
from gifair_ray.min_norm import GAP, min_norm_weights
from gifair_ray.replies import Models, Params
from gifair_ray.sums import dot, gram

if TYPE_CHECKING:
    from gifair_ray.scenario import Scenario

STILL = 1e-12  # a client that moved less than this has no direction


class Fedmgda(Aggregator):
    """A direction that no client is against."""

    kind: Literal["fedmgda"] = "fedmgda"
    epsilon: float = Field(0.1, ge=0, le=1, description="ε, how far λ may be from λ⁰")
    server_lr: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="η_g at the start; falls with the schedule"
    )
    prior: Literal["equal", "weights"] = Field(
        "equal",
        description="λ⁰: 1/m for each, or in proportion to the aggregation weights (n_k/Σ n under "
        "uniform sampling)",
    )

    def check(self, scenario: Scenario) -> None:
        if getattr(scenario.policy, "server_lr", 1.0) != 1.0:
            raise ValueError(
                "policy.server_lr scales weights, of which aggregator.kind = 'fedmgda' takes only "
                "the proportions: set aggregator.server_lr instead"
            )
        if self.prior == "equal" and scenario.weighting.reweighs:
            raise ValueError(
                "aggregator.kind = 'fedmgda' with prior = 'equal' leaves out the weights of "
                f"weighting.kind = {scenario.weighting.kind!r}: use prior = 'weights', or "
                "weighting.kind = 'plain'"
            )

    def combine(
        self,
        theta: Params,
        models: Models,
        bases: Sequence[Params],
        weights: Floats,
        decay: float,
    ) -> Params:
        M = gram(bases, models)  # of g_k = θ − θ_k
        norms = np.sqrt(np.diag(M))
        moved = norms > STILL
        prior = np.where(moved, 1.0 if self.prior == "equal" else weights, 0.0)
        if not prior.any():  # nobody moved, or nobody who weighs anything
            return theta.astype(np.float64)
        prior, norms = prior[moved] / prior.sum(), norms[moved]
        M = M[np.ix_(moved, moved)] / np.outer(norms, norms)
        lam = min_norm_weights(
            M, np.maximum(prior - self.epsilon, 0.0), np.minimum(prior + self.epsilon, 1.0)
        )
        if dot(lam, (M * lam).sum(axis=1)) <= GAP:  # d = 0, as far as can be told: a tie
            return theta.astype(np.float64)
        scale = np.zeros(len(models))
        scale[moved] = self.server_lr * decay * lam / norms
        return weighted_sum(scale, models, bases, onto=theta)
