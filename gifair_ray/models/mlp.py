"""A multi-layer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gifair_ray.federation import Task
from gifair_ray.models._module import ModuleModel

if TYPE_CHECKING:
    from torch import nn


class Mlp(ModuleModel):
    """Dense layers with rectifiers between them; inputs of any shape are read as vectors."""

    kind: Literal["mlp"] = "mlp"
    hidden: list[Annotated[int, Field(ge=1)]] = Field(
        [64], description="width of each hidden layer; none is softmax regression"
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
