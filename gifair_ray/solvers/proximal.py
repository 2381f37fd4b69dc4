"""FedProx's local objective F_k(y) + (μ/2)‖y − θ‖² (Li et al. 2020)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gifair_ray.solvers import Solver


class Proximal(Solver):
    """y ← y − η (m_k g_k(y) + μ (y − θ)); μ = 0 is SGD."""

    kind: Literal["proximal"] = "proximal"
    mu: float = Field(0.01, ge=0, description="μ, the weight of the pull towards θ")

    @property
    def pull(self) -> float:
        return self.mu
