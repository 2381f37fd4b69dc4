"""The server actor: one run, advanced in short steps by the driver."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gifair_ray.actors.client import RunSpec
from gifair_ray.actors.crew import Crew
from gifair_ray.actors.faults import die, serving, strikes
from gifair_ray.actors.pool import RayBackend
from gifair_ray.engine import Progress
from gifair_ray.preflight import Needs
from gifair_ray.protocol import Job
from gifair_ray.replies import Params, Results
from gifair_ray.scenario import parse
from gifair_ray.session import Outcome, Saving, Session


class ServerActor:
    """Owns all state of a run. Every call returns soon, so that the driver can always step in."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._backend: RayBackend | None = None
        self._crew: Crew | None = None

    def meet(self, actors: Sequence[Any], options: Mapping[str, Any]) -> None:
        """The client actors for all runs to come, and how others are made if some are lost."""
        self._crew = Crew(list(actors), options)

    def prepare(self, spec: RunSpec, clients_per_actor: int | None) -> Needs:
        """Let the client actors see the run; what it will need."""
        if self._crew is None:
            raise RuntimeError("there are no client actors")
        self._release()  # of a run that was prepared and refused
        if spec.faults is None:
            self._backend = RayBackend(spec, self._crew, clients_per_actor)
        else:
            self._backend = _StruckBackend(spec, self._crew, clients_per_actor)
        scenario, people = parse(spec.scenario), self._backend.population
        samples = int((people.train + people.val + people.test).sum())
        return Needs.of(scenario, self._backend.layout, samples, self._backend.width, len(people))

    def begin(self, spec: RunSpec, folder: Path | None, saving: Saving) -> None:
        """Take up the run that was prepared."""
        if self._backend is None:
            raise RuntimeError("no run has been prepared")
        try:
            self._session = Session(parse(spec.scenario), self._backend, folder, saving)
        except BaseException:
            self._release()
            raise
        gc.freeze()  # what is there now stays: looking through it again and again takes long

    def advance(self, budget_s: float) -> Progress:
        """Go on for about so long."""
        if isinstance(self._backend, _StruckBackend):
            self._backend.strike("advance")
        return self._current().advance(budget_s)

    def finish(self) -> Outcome:
        """Write the results of a finished run."""
        outcome = self._current().finish()
        self._release()
        return outcome

    def abort(self) -> None:
        """Give the run up; what was recorded stays."""
        if self._session is not None:
            self._session.abort()
        self._release()

    def bytes_moved(self) -> int:
        """Models and results that have gone to and from client actors so far."""
        return self._backend.moved if self._backend is not None else 0

    def _current(self) -> Session:
        if self._session is None:
            raise RuntimeError("no run has begun")
        return self._session

    def _release(self) -> None:
        if self._backend is not None:
            self._backend.close()
        self._session = self._backend = None


class _StruckBackend(RayBackend):
    """Of a server that may die in the middle of an event, by the plan of the run's faults."""

    def __init__(self, spec: RunSpec, crew: Crew, clients_per_actor: int | None) -> None:
        self._plan, self._calls = spec.faults or "", Counter[str]()
        super().__init__(spec, crew, clients_per_actor)

    def strike(self, call: str) -> None:
        """Die, if this is the call to die at."""
        self._calls[call] += 1
        if strikes(self._plan, serving(call, self._calls[call])):
            die()

    def publish(self, version: int, theta: Params) -> None:
        self.strike("publish")
        super().publish(version, theta)

    def submit(self, jobs: Sequence[Job]) -> None:
        self.strike("submit")
        super().submit(jobs)

    def collect(self, ids: Sequence[int]) -> Results:
        self.strike("collect")
        return super().collect(ids)
