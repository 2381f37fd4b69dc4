"""θ itself is the model: for the quadratic clients of `data.source = "quadratic"`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gifair_ray.data.quadratic import QuadraticFederation
from gifair_ray.errors import BadInput
from gifair_ray.federation import Federation
from gifair_ray.models import Model
from gifair_ray.protocol import Learner, Report
from gifair_ray.solvers import Solver
from gifair_ray.work import Work


class Quadratic(Model):
    """F_k(θ) = ½(θ − b_k)ᵀA_k(θ − b_k), with or without noise on its gradients."""

    kind: Literal["quadratic"] = "quadratic"
    dtype: Literal["float32", "float64"] = Field("float64", description="precision")
    init: float | list[float] = Field(0.0, description="θ at the start, one value or all entries")

    def learner(
        self,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> Learner:
        from gifair_ray.learners.quadratic import QuadraticLearner

        if not isinstance(federation, QuadraticFederation):
            raise BadInput("model.kind = 'quadratic' needs data.source = 'quadratic'")
        return QuadraticLearner(self, federation, work, solver, seed, reports)
