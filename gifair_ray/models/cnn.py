"""A small convolutional network for images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from gifair_ray.errors import BadInput
from gifair_ray.federation import Task
from gifair_ray.models._module import ModuleModel

if TYPE_CHECKING:
    from torch import Tensor, nn

Positive = Annotated[int, Field(ge=1)]
Side = Annotated[int, Field(ge=4)]  # two poolings halve it twice


class Cnn(ModuleModel):
    """Twice (convolution 5 × 5, rectifier, pooling 2 × 2), then two dense layers."""

    kind: Literal["cnn"] = "cnn"
    conv: tuple[Positive, Positive] = Field(
        (32, 64), description="channels that the two convolutions give"
    )
    hidden: int = Field(512, ge=1, description="width of the hidden dense layer")
    image: tuple[Positive, Side, Side] = Field(
        (1, 28, 28),
        description="channels, height and width; an input that is a vector has them in this order",
    )

    def module(self, task: Task) -> nn.Module:
        import torch
        from torch import nn
        from torch.nn.functional import max_pool2d, relu

        self.refuse_tokens(task)
        channels, height, width = self.image
        # Any other shape of the same size, such as channels last, would be scrambled by a reshape.
        fits = {self.image, (math.prod(self.image),)}
        if channels == 1:
            fits |= {(height, width), (height, width, 1)}
        if task.input_shape not in fits:
            raise BadInput(
                f"model.image = {self.image} does not fit the data's inputs of shape "
                f"{task.input_shape}"
            )
        first, second = self.conv

        class Network(nn.Module):
            def __init__(self, hidden: int) -> None:
                super().__init__()
                self.conv1 = nn.Conv2d(channels, first, 5, padding=2)
                self.conv2 = nn.Conv2d(first, second, 5, padding=2)
                self.dense = nn.Linear(second * (height // 4) * (width // 4), hidden)
                self.output = nn.Linear(hidden, task.classes)

            def forward(self, x: Tensor) -> Tensor:
                # Activations in channels-last order: a training step with 32 images of 28 × 28
                # in one thread takes 21 ms instead of 28 ms (torch 2.13, CPU). The strides are
                # spelled out because with one channel `.contiguous(channels_last)` does nothing.
                n = len(x)
                x = x.reshape(n, channels, height, width).permute(0, 2, 3, 1)
                x = x.reshape(n, height * width * channels).view(n, height, width, channels)
                x = x.permute(0, 3, 1, 2)
                # A rectifier and a maximum commute; after the pooling it has a quarter to do.
                x = relu(max_pool2d(self.conv1(x), 2))
                x = relu(max_pool2d(self.conv2(x), 2))
                scores: Tensor = self.output(relu(self.dense(torch.flatten(x, 1))))
                return scores

        return Network(self.hidden)
