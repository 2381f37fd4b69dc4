"""Models: what the clients train. A model is a frozen value that makes a learner for it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gifair_ray.federation import Federation
from gifair_ray.parts import Part, import_user_object
from gifair_ray.protocol import Learner, Report
from gifair_ray.solvers import Solver
from gifair_ray.work import Work


class Model(Part):
    """Base of all models."""

    family: ClassVar[str] = "gifair_ray.models"
    called: ClassVar[str] = "model"

    kind: str = Field(description="a built-in model, or package.module:factory for your own")
    dtype: Literal["float32", "float64"] = Field(
        "float32", description="precision of parameters and arithmetic on the clients"
    )

    @classmethod
    def find(cls, kind: str) -> type[Part]:
        """As for any part; a plain factory of modules is wrapped in the model `own`."""
        if ":" in kind:
            found = import_user_object(kind)
            if not (isinstance(found, type) and issubclass(found, Model)):
                kind = "own"
        return super().find(kind)

    def learner(
        self,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> Learner:
        """The learner for this model on this federation; imports torch where it needs it.

        `reports` are the losses that replies carry. The others are not computed.
        """
        raise NotImplementedError
