"""A model of the user's own, from a function that makes a torch module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from gifair_ray.errors import BadInput
from gifair_ray.federation import Task
from gifair_ray.models._module import ModuleModel
from gifair_ray.parts import import_user_object

if TYPE_CHECKING:
    from torch import nn


class Own(ModuleModel):
    """`kind = "package.module:factory"`, where factory(task, **options) returns an nn.Module.

    The module maps a batch of the task's inputs to a score per class. Which of its state travels
    is said in `gifair_ray.learners._flat`.
    """

    fresh: ClassVar[bool] = False  # a factory may return what it has made before

    kind: str = Field(description="package.module:factory")
    options: dict[str, Any] = Field({}, description="keyword arguments for the factory")

    @field_validator("kind")
    @classmethod
    def _names_a_factory(cls, kind: str) -> str:
        module, _, factory = kind.partition(":")
        if not module or not factory:
            raise ValueError(f"say where your factory is: 'package.module:factory', not {kind!r}")
        return kind

    def module(self, task: Task) -> nn.Module:
        from torch import nn

        factory, called = import_user_object(self.kind), f"model.kind = {self.kind!r}"
        if not callable(factory):
            raise BadInput(f"{called} is a {type(factory).__name__}, not a function")
        try:
            made = factory(task, **self.options)
        except Exception as error:
            raise BadInput(f"{called} raised {type(error).__name__}: {error}") from error
        if not isinstance(made, nn.Module):
            raise BadInput(f"{called} returned a {type(made).__name__}, not a torch.nn.Module")
        return made
