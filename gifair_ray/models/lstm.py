"""A recurrent network that reads a sequence of characters and guesses what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from gifair_ray.errors import BadInput
from gifair_ray.federation import Task
from gifair_ray.models._module import ModuleModel

if TYPE_CHECKING:
    from torch import Tensor, nn


class Lstm(ModuleModel):
    """An embedding, LSTM layers, and a dense layer on the last time step."""

    kind: Literal["lstm"] = "lstm"
    embedding: int = Field(8, ge=1, description="length of a token's vector")
    hidden: int = Field(100, ge=1, description="width of an LSTM layer")
    layers: int = Field(2, ge=1, description="LSTM layers, one on top of the other")

    def module(self, task: Task) -> nn.Module:
        from torch import nn

        if not task.tokens or len(task.input_shape) != 1:
            raise BadInput(
                "model.kind = 'lstm' needs sequences of tokens, the data are "
                f"{'tokens' if task.tokens else 'real numbers'} of shape {task.input_shape}"
            )

        class Network(nn.Module):
            def __init__(self, size: int, hidden: int, layers: int) -> None:
                super().__init__()
                self.embedding = nn.Embedding(task.tokens, size)
                self.lstm = nn.LSTM(size, hidden, layers, batch_first=True)
                self.output = nn.Linear(hidden, task.classes)

            def forward(self, x: Tensor) -> Tensor:
                steps, _ = self.lstm(self.embedding(x))
                scores: Tensor = self.output(steps[:, -1])
                return scores

        return Network(self.embedding, self.hidden, self.layers)
