"""Softmax (multinomial logistic) regression, trained in closed form for many clients at once."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray import draws
from gifair_ray.errors import BadInput
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
        from gifair_ray.learners.dense import DenseLearner

        task = federation.task
        if task.tokens or task.classes < 2:
            raise BadInput("model.kind = 'softmax' needs real features and at least two classes")
        features = math.prod(task.input_shape)
        initial = np.zeros((features + 1) * task.classes, dtype=self.dtype)
        if self.init == "random":
            z = draws.normal(seed, "model", np.arange(features * task.classes))
            initial[: len(z)] = z / np.sqrt(features)
        return DenseLearner(
            (features, task.classes),
            ("weight", "bias"),
            initial,
            federation,
            work,
            solver,
            seed,
            reports,
            transposed=False,
        )
