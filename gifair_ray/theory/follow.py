"""A run in this process of which every version of the model is kept: what theory speaks of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gifair_ray.backend import LocalBackend
from gifair_ray.data.quadratic import QuadraticFederation
from gifair_ray.errors import BadInput
from gifair_ray.replies import Params
from gifair_ray.scenario import Scenario
from gifair_ray.session import Session
from gifair_ray.theory.problems import Floats, Quadratics

STEP_S = 3600.0


class _Keeping(LocalBackend):
    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.kept: list[Params] = []

    def publish(self, version: int, theta: Params) -> None:
        self.kept.append(np.array(theta, copy=True))
        super().publish(version, theta)


@dataclass(frozen=True)
class Path:
    """A finished run."""

    scenario: Scenario
    models: npt.NDArray[np.floating]
    """θ after 0, 1, … server updates, a row each."""
    tables: dict[str, pa.Table]
    digest: str

    def rates(self) -> Floats:
        """η_1 … η_E of every round of a run in rounds, a row each."""
        work, rounds = self.scenario.work, len(self.models) - 1
        if work.steps is None:
            raise BadInput("learning rates by round need work.steps: epochs differ by client")
        steps = work.steps
        return np.array([work.schedule.rates(float(c), steps) for c in range(rounds)])

    def ranks(self) -> Floats:
        """r of every client in every round, as sent, of a run in which everybody takes part."""
        table, rounds = self.tables["dispatches"], len(self.models) - 1
        order = np.lexsort((table["client"].to_numpy(), table["round"].to_numpy()))
        return np.asarray(table["rank"].to_numpy(zero_copy_only=False)[order].reshape(rounds, -1))


def follow(scenario: Scenario) -> Path:
    """Run a scenario to its end; equal to `gifair_ray.run` in every result."""
    backend = _Keeping(scenario)
    with backend:
        session = Session(scenario, backend, None)
        while not session.advance(STEP_S).finished:
            pass
        outcome = session.finish()
    assert outcome.tables is not None
    return Path(scenario, np.array(backend.kept), outcome.tables, outcome.digest)


def quadratics(scenario: Scenario) -> Quadratics:
    """The quadratic clients of a scenario."""
    federation = scenario.data.build(scenario.seed)
    if not isinstance(federation, QuadraticFederation):
        raise BadInput(f"data.source = {scenario.data.source!r} is not 'quadratic'")
    population = federation.population
    return Quadratics(federation.A, federation.b, population.train, population.groups)
