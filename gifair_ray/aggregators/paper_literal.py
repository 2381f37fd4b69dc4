"""The paper's aggregation to the letter: θ ← Σ_k ω_k θ_k, a sum of models instead of changes.

Under uniform sampling that is (K/|S|) Σ p_k θ_k (the remark in section 3.1). Its weights do not
sum to 1, so it rescales the model at random in every round and drives it towards 0: kept for
comparison only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from gifair_ray.aggregators import Aggregator, Floats, weighted_sum
from gifair_ray.replies import Models, Params


class PaperLiteral(Aggregator):
    """Σ_k ω_k θ_k. Unsound unless the weights sum to 1 in every round."""

    kind: Literal["paper-literal"] = "paper-literal"

    @property
    def caution(self) -> str:
        return (
            "aggregator 'paper-literal' rescales the model at random in every round and drives "
            "it towards 0 under uniform sampling; use 'mean' unless that is what you study"
        )

    def combine(
        self,
        theta: Params,
        models: Models,
        bases: Sequence[Params],
        weights: Floats,
        decay: float,
    ) -> Params:
        return weighted_sum(weights, models, [np.zeros_like(theta)] * len(models))
