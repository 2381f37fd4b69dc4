"""Ditto (Li et al. 2021): beside the global model, every client trains one of its own.

    v_k ← v_k − η (∇F_k(v_k) + λ (v_k − θ))

from the v_k it had, on the minibatches that it trains θ on, towards the θ that it received. Only
the change of θ is sent: the global model is what it would be without the personal ones.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gifair_ray.solvers import Solver


class Ditto(Solver):
    """λ = 0 is local training from the initial model; λ → ∞ holds v_k at θ."""

    kind: Literal["ditto"] = "ditto"
    keep: Literal[True] = Field(True, description="the personal models are what Ditto is for")
    lambda_value: float = Field(
        1.0, ge=0, allow_inf_nan=False, description="λ; steps are stable while η (L + λ) < 2"
    )

    @property
    def personal_pull(self) -> float:
        return self.lambda_value
