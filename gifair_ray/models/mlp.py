"""A multi-layer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from gifair_ray.federation import Federation, Task
from gifair_ray.models._module import ModuleModel
from gifair_ray.protocol import Learner, Report
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

if TYPE_CHECKING:
    from torch import nn


class Mlp(ModuleModel):
    """Dense layers with rectifiers between them; inputs of any shape are read as vectors."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        [64], description="width of each hidden layer; none is softmax regression"
    )

    def learner(
        self,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> Learner:
        from gifair_ray.learners.dense import DenseLearner
        from gifair_ray.learners.module import initial_tensors

        task = federation.task
        tensors = initial_tensors(lambda: self.module(task), seed, self.dtype)
        return DenseLearner(
            (math.prod(task.input_shape), *self.hidden, task.classes),
            tuple(tensors),
            np.concatenate([tensor.reshape(-1) for tensor in tensors.values()]),
            federation,
            work,
            solver,
            seed,
            reports,
            transposed=True,
        )

    def module(self, task: Task) -> nn.Module:
        from torch import nn

        self.refuse_tokens(task)
        layers: list[nn.Module] = [nn.Flatten()]
        width = math.prod(task.input_shape)
        for wider in self.hidden:
            layers += [nn.Linear(width, wider), nn.ReLU()]
            width = wider
        return nn.Sequential(*layers, nn.Linear(width, task.classes))
