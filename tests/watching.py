"""A run in this process of which every version of the model and every job is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gifair_ray.backend import LocalBackend
from gifair_ray.protocol import Job, TrainJob, TrainJobs
from gifair_ray.replies import Params, Reply, Results
from gifair_ray.scenario import Scenario
from gifair_ray.scenarios.load import load
from gifair_ray.session import Outcome, Session


class Watching(LocalBackend):
    """Computes as the in-process backend does, and remembers what went in and out."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.models: list[Params] = []
        self.jobs: list[TrainJob] = []
        self.replies: dict[int, Reply] = {}

    def publish(self, version: int, theta: Params) -> None:
        assert version == len(self.models)
        self.models.append(np.array(theta))
        super().publish(version, theta)

    def submit(self, jobs: Sequence[Job]) -> None:
        self.jobs += [job for some in jobs if isinstance(some, TrainJobs) for job in some]
        super().submit(jobs)

    def collect(self, ids: Sequence[int]) -> Results:
        results = super().collect(ids)
        self.replies |= {
            job: result for job, result in results.items() if isinstance(result, Reply)
        }
        return results


@dataclass(frozen=True)
class Watched:
    """A finished run."""

    scenario: Scenario
    outcome: Outcome
    models: np.ndarray  # θ after 0, 1, … rounds
    jobs: list[TrainJob]
    replies: dict[int, Reply]  # by job

    def table(self, name: str) -> pa.Table:
        assert self.outcome.tables is not None
        return self.outcome.tables[name]


def watch(scenario: Mapping[str, Any]) -> Watched:
    """Run a scenario to its end."""
    ((_, checked),) = load(scenario).runs
    with Watching(checked) as backend:
        session = Session(checked, backend, None)
        while not session.advance(3600.0).finished:
            pass
        outcome = session.finish()
    return Watched(checked, outcome, np.array(backend.models), backend.jobs, backend.replies)
