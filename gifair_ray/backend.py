"""Where jobs are computed: the contract of a backend, and the in-process one.

A backend computes pure functions of (scenario, job): any worker, in any order, any number of
times. Nothing of its timing may reach a result.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.memory import keep_freed
from gifair_ray.protocol import CPU, EvaluateJob, Job, Layout, Learner, Movable, TrainJobs
from gifair_ray.replies import Evaluated, Found, Params, Results, Stack
from gifair_ray.scenario import Scenario

if TYPE_CHECKING:
    from gifair_ray.federation import Federation


@dataclass(frozen=True)
class Description:
    """What the server must know of the clients' side before it starts."""

    population: Population
    layout: Layout
    initial: Params


class Backend(Protocol):
    """Computes jobs. `collect` blocks until the results that are asked for are there."""

    def describe(self) -> Description: ...

    def publish(self, version: int, theta: Params) -> None:
        """Make a version of the model known; jobs refer to it by number."""
        ...

    def retire(self, version: int) -> None:
        """No job will refer to this version again."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Begin, or remember, work whose results will be collected later."""
        ...

    def collect(self, ids: Sequence[int]) -> Results:
        """What these jobs came to."""
        ...

    def close(self) -> None:
        """Stop and release everything. May be called twice."""
        ...


def build_learner(scenario: Scenario, device: str = CPU) -> tuple[Federation, Learner]:
    """The clients' side of a scenario: their data, and what trains on it, on a torch device."""
    keep_freed()
    federation = scenario.data.build(scenario.seed)
    learner = scenario.model.learner(
        federation, scenario.work, scenario.solver, scenario.seed, scenario.weighting.reports
    )
    if device != CPU:
        if not isinstance(learner, Movable):
            raise BadInput(
                f"device = {device!r}: model.kind = {scenario.model.kind!r} is computed on the "
                "CPU; leave --device out"
            )
        learner.move(device)
    return federation, learner


class LocalBackend:
    """Computes in this process, when a result is asked for, what was submitted for its version.

    Uses one torch thread, as every worker does, and gives the caller's number back on closing.
    """

    def __init__(self, scenario: Scenario, device: str = CPU) -> None:
        self._federation, self._learner = build_learner(scenario, device)
        self._models: dict[int, Params] = {}
        self._waiting: dict[int, list[TrainJobs]] = defaultdict(list)
        self._version_of: dict[int, int] = {}
        self._evaluations: dict[int, EvaluateJob] = {}
        self._done: Found = {}
        self._threads = one_torch_thread()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def describe(self) -> Description:
        return Description(
            self._federation.population, self._learner.layout, self._learner.initial()
        )

    def publish(self, version: int, theta: Params) -> None:
        self._models[version] = theta

    def retire(self, version: int) -> None:
        self._models.pop(version, None)

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if isinstance(job, EvaluateJob):
                self._evaluations[job.id] = job
            else:
                self._waiting[job.version].append(job)
                self._version_of.update(dict.fromkeys(job.ids.tolist(), job.version))

    def collect(self, ids: Sequence[int]) -> Results:
        for job_id in self._evaluations.keys() & ids:
            self._done[job_id] = self._evaluate(self._evaluations.pop(job_id))
        for version in dict.fromkeys(map(self._version_of.get, ids)):  # None: it is done
            if version is not None:
                jobs = TrainJobs.joined(self._waiting.pop(version))
                done = Stack(jobs.ids, self._learner.train(self._models[version], jobs))
                numbers = jobs.ids.tolist()
                self._done.update(dict.fromkeys(numbers, done))
                deque(map(self._version_of.pop, numbers), maxlen=0)
        return Results(dict(zip(ids, map(self._done.pop, ids), strict=True)))

    def _evaluate(self, job: EvaluateJob) -> Evaluated:
        models = self._models[job.version] if job.models is None else job.models
        return self._learner.evaluate(models, job.clients, job.split)

    def close(self) -> None:
        if self._threads is not None:
            import torch

            torch.set_num_threads(self._threads)
            self._threads = None


def one_torch_thread() -> int | None:
    """One thread from now on; the number before, or None where torch is not in use."""
    import sys

    if "torch" not in sys.modules:
        return None
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    return before
