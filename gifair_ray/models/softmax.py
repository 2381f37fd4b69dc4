"""Softmax (multinomial logistic) regression, trained in closed form for many clients at once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gifair_ray.federation import Federation
from gifair_ray.models import Model
from gifair_ray.protocol import Learner, Report
from gifair_ray.solvers import Solver
from gifair_ray.work import Work


class Softmax(Model):
    """One linear layer with a bias, cross-entropy loss."""

    kind: Literal["softmax"] = "softmax"
    init: Literal["zeros", "random"] = Field("zeros", description="the loss is convex: either does")

    def learner(
        self,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> Learner:
        from gifair_ray.learners.softmax import SoftmaxLearner

        return SoftmaxLearner(self, federation, work, solver, seed, reports)
