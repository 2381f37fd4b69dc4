"""What the models made of torch layers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gifair_ray.errors import BadInput
from gifair_ray.federation import Federation, Task
from gifair_ray.models import Model
from gifair_ray.protocol import Learner, Report
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

if TYPE_CHECKING:
    from torch import nn


class ModuleModel(Model):
    """A model that says which torch module it is; `gifair_ray.learners.module` does the rest."""

    fresh: ClassVar[bool] = True
    """Whether every module is a new one, with nothing of the others."""

    def module(self, task: Task) -> nn.Module:
        """A fresh module for the task, with initial parameters drawn from torch's generator."""
        raise NotImplementedError

    def learner(
        self,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> Learner:
        from gifair_ray.learners.module import ModuleLearner

        return ModuleLearner(
            lambda: self.module(federation.task),
            federation,
            work,
            solver,
            seed,
            self.dtype,
            reports,
            called=f"model.kind = {self.kind!r}",
            fresh=self.fresh,
        )

    def refuse_tokens(self, task: Task) -> None:
        """For models of real inputs."""
        if task.tokens:
            raise BadInput(
                f"model.kind = {self.kind!r} needs real inputs, the data are sequences of "
                f"{task.tokens} tokens; use model.kind = 'lstm'"
            )
