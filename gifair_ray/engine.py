"""The event loop: pop the next event in virtual time, get what it needs, let the rules act.

The loop blocks only on the results that the next event needs; everything else that was submitted
is computed meanwhile. It advances in short steps, so that whoever drives it can show progress,
save a checkpoint or stop between any two events.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from gifair_ray import measure
from gifair_ray.backend import Backend
from gifair_ray.clock import Event
from gifair_ray.commands import Command, Publish, Record, Submit
from gifair_ray.memory import rare_collections
from gifair_ray.protocol import EvaluateJob, Job, TrainJob, TrainJobs
from gifair_ray.recorder import Recorder
from gifair_ray.replies import Params, Results
from gifair_ray.scenario import Scenario
from gifair_ray.sums import dot
from gifair_ray.world import State, World

STEP_S = 0.005  # steps that are shorter do more at once
AT_ONCE = 16  # server updates, at most


@dataclass(frozen=True)
class Progress:
    """Where a run is. `fraction` is done of the limit that is nearest."""

    rounds: int
    virtual_s: float
    fraction: float
    loss: float
    spread: float
    finished: bool


@dataclass(frozen=True)
class Saved:
    """All that a run needs to go on from between two events."""

    state: State
    jobs: list[TrainJob | EvaluateJob]
    """Submitted, and not collected yet."""
    models: dict[int, Params]
    """The versions that jobs may refer to."""
    closing: bool
    loss: float
    spread: float


class Engine:
    """One run, on any backend."""

    def __init__(self, scenario: Scenario, backend: Backend, recorder: Recorder) -> None:
        described = backend.describe()
        self.world = World.build(scenario, described.population, described.layout)
        self.state = State.fresh(self.world, described.initial)
        self._backend, self._recorder = backend, recorder
        self._needed: Counter[int] = Counter()  # versions, by jobs that still refer to them
        self._models: dict[int, Params] = {}  # those that have been published and not retired
        self._jobs: dict[int, Job] = {}  # those that have been submitted and not collected
        self._started = time.perf_counter()
        self._closing = self._in_step = False
        self._at_once = 1  # server updates in one step, where nothing comes between
        self._loss = self._spread = float("nan")

    def begin(self) -> None:
        """The first commands: who there is, where the model starts, the first work."""
        state = self.state
        for record in measure.clients_table(self.world):
            self._carry_out([record])
        self._carry_out([Publish(0, state.theta)])
        self._carry_out(measure.evaluate(self.world, state))
        state.next_evaluation = self.world.scenario.evaluation.every
        self._carry_out(self.world.scenario.policy.begin(self.world, state))

    def saved(self) -> Saved | None:
        """The run as it is now; None where it cannot be saved: try again a little later.

        That is in the middle of an event that failed, and while personal models are evaluated.
        """
        asked = (job for job in self._jobs.values() if isinstance(job, EvaluateJob))
        if self._in_step or any(job.models is not None for job in asked):
            return None
        jobs = [j if isinstance(j, EvaluateJob) else j.job(n) for n, j in self._jobs.items()]
        return Saved(self.state, jobs, self._models, self._closing, self._loss, self._spread)

    def resume(self, saved: Saved) -> None:
        """Instead of `begin`: go on from there. Work that was under way is done again."""
        self.state, self._closing = saved.state, saved.closing
        self._loss, self._spread = saved.loss, saved.spread
        for version, theta in saved.models.items():
            self._models[version] = theta
            self._backend.publish(version, theta)
        training: dict[int, list[TrainJob]] = {}
        for job in saved.jobs:
            if isinstance(job, TrainJob):
                training.setdefault(job.message.version, []).append(job)
        asked = [job for job in saved.jobs if isinstance(job, EvaluateJob)]
        self._submit([*map(TrainJobs.of, training.values()), *asked])

    @rare_collections
    @np.errstate(over="ignore", invalid="ignore")  # what diverges is named by the learner
    def advance(self, budget_s: float, rounds: float = math.inf) -> Progress:
        """Go on for about so long in wall-clock time, to that round, or to the end."""
        until = time.perf_counter() + budget_s
        began = time.perf_counter()
        while not self._done():
            self._in_step = True
            self._step(int(min(self._at_once, max(1.0, rounds - self.state.version))))
            self._in_step = False
            ended = time.perf_counter()
            if ended >= until or self.state.version >= rounds:
                break
            # Results do not depend on it: see `Policy.gather`.
            quick = ended - began < STEP_S
            self._at_once = min(AT_ONCE, 2 * self._at_once) if quick else self._at_once // 2 or 1
            began = ended
        return self.progress()

    def _done(self) -> bool:
        if self.state.finished and not self._closing:
            self._closing = True
            self._carry_out(self.world.scenario.policy.wind_up(self.world, self.state))
            self._carry_out(measure.finish(self.world, self.state))
        return self.state.finished and not len(self.state.clock)

    def _step(self, updates: int) -> None:
        world, state = self.world, self.state
        event, moment = state.clock.pop(), state.clock.now
        together = world.scenario.policy.gather(world, state, event, updates)
        if together:
            events = [(moment, event), *together]
            needs = [job for _, one in events for job in one.needs]
            found = self._collect(needs)
            commands = world.scenario.policy.handle_together(world, state, events, found)
            del found
            self._carry_out(commands)
            return
        results = self._collect(event.needs)
        if event.kind == "evaluated":
            commands = measure.evaluated(world, state, event, results)
            self._note(event, results)
        elif event.kind == "audited":
            commands = measure.audited(world, state, event, results)
        else:
            commands = world.scenario.policy.handle(world, state, event, results)
        del results  # before the next ones need room
        self._carry_out(commands)

    def _collect(self, needs: Sequence[int]) -> Results:
        if not needs:
            return Results({})
        began = time.perf_counter()
        results = self._backend.collect(needs)
        ended = time.perf_counter()
        self._recorder.timing(began - self._started, self.state.now, "collect", ended - began)
        versions = Counter(map(attrgetter("version"), map(self._jobs.pop, needs)))
        for version, n in versions.items():
            self._needed[version] -= n
            self._retire(version)
        return results

    def _retire(self, version: int) -> None:
        if 0 <= version < self.state.version and self._needed[version] <= 0:
            del self._needed[version]
            self._models.pop(version, None)
            self._backend.retire(version)

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Record):
                self._recorder.add(command.table, command.columns)
            elif isinstance(command, Publish):
                self._models[command.version] = command.theta
                self._backend.publish(command.version, command.theta)
                self._retire(command.version - 1)
            elif isinstance(command, Submit):
                self._submit(command.jobs)

    def _submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if isinstance(job, EvaluateJob):
                self._needed[job.version] += 1
                self._jobs[job.id] = job
            else:
                self._needed[job.version] += len(job)
                self._jobs.update(dict.fromkeys(job.ids.tolist(), job))
        self._backend.submit(jobs)

    def _note(self, event: Event, results: Results) -> None:
        """Keep what the progress line shows: mean loss, and the spread between groups."""
        loss = results[event.needs[0]].loss
        if event.payload[3] == "train" and not np.isnan(loss).all():
            groups, d = self.world.population.groups, self.world.population.d
            by_group = np.bincount(groups, loss, d) / np.bincount(groups, minlength=d)
            self._loss, self._spread = dot(self.world.p, loss), float(np.ptp(by_group))

    def progress(self) -> Progress:
        """Where the run is now."""
        state, stop = self.state, self.world.scenario.stop
        shares = [
            state.count(unit) / limit if limit else 1.0
            for unit, limit in stop.__dict__.items()
            if limit is not None
        ]
        finished = state.finished and self._closing and not len(state.clock)
        fraction = 1.0 if finished else min(1.0, max(shares))
        return Progress(state.version, state.now, fraction, self._loss, self._spread, finished)

    def remarks(self) -> list[str]:
        """What a user should know of how it went."""
        return self.world.rule.remarks(self.state.memory)

    def models(self) -> tuple[Params, dict[int, Params]]:
        """The global model, and the personal ones by client."""
        return self.state.theta, self.state.personal
