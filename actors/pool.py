"""Many clients on few actors: the backend that hands jobs to client actors.

The default is one long-lived actor per core, which plays any client. With `clients_per_actor`
every actor has its own clients, down to one. Either way a job is sent as part of a chunk, in a call
that takes long enough to be worth its price and not so long that others wait for it, as far as can
be told from the calls before. The results do not depend on who computed them. The work of an actor
that was lost goes to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from gifair_ray.actors.client import RunSpec
from gifair_ray.actors.crew import Crew, Task
from gifair_ray.actors.line import Call, Line
from gifair_ray.actors.pad import pad_for
from gifair_ray.actors.wire import pack, unpack_losses, unpack_results
from gifair_ray.backend import Description
from gifair_ray.protocol import EvaluateJob, Job, TrainJobs
from gifair_ray.replies import Evaluated, Found, Params, Results, Stack
from gifair_ray.scenario import parse

INLINE_BYTES = 64 << 10
PART_BYTES = 512 << 10
INLINE_REPLY_BYTES = 8 << 20  # of all results of a call, by Ray's own limit
SHORTEST_S = 0.0025  # work that is not worth sharing out: a call costs about a third of that
SHORTEST_ON_LINES_S = 0.0006
LONGEST_S = 0.1  # work in one call
ASSUMED = 1e9  # parameters × samples that are trained on in a second


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Jobs that were sent together."""

    task: Task
    jobs: TrainJobs


@dataclass(slots=True)
class _Version:
    """A model where workers can have it: on the pad for calls over lines, in Ray's store for those
    through Ray. A small one goes along with those instead.
    """

    theta: Params
    row: int = -1
    on_pad: Params | None = None
    stored: Any = None

    @property
    def small(self) -> bool:
        """Whether it goes along with every call through Ray."""
        return self.theta.nbytes <= INLINE_BYTES

    def for_ray(self) -> Any:
        """What a call through Ray is given; a large model is put where all on a node see it."""
        if self.small:
            return self.theta
        if self.stored is None:
            self.stored = ray.put(self.theta)
        return self.stored


class RayBackend:
    """See `gifair_ray.backend.Backend`."""

    def __init__(self, spec: RunSpec, crew: Crew, clients_per_actor: int | None) -> None:
        self._crew, self._per_actor = crew, clients_per_actor
        self._run = spec.run
        self._models: dict[int, _Version] = {}
        self._chunks: dict[int, _Chunk] = {}  # by job
        self._load = np.zeros(len(crew.actors))  # cost of the chunks that each actor has
        self._parts: dict[int, list[tuple[Task, list[int]]]] = {}  # evaluation → calls, rows
        self._done: Found = {}
        self.moved = 0  # bytes of models and results, each object once
        hello = crew.assemble(lambda actor: actor.hello.remote(spec))
        self.population, self.layout, self.width = hello.population, hello.layout, hello.width
        # Cost of a dispatch, for balancing: samples seen, and a little for each step's overhead.
        scenario = parse(spec.scenario)
        work, sizes = scenario.work, self.population.train
        self._cost = work.sample_passes(sizes) + 4.0 * work.step_counts(sizes)
        # Seconds that a unit of cost takes: of late, or a guess.
        self._pace = self.layout.size / ASSUMED
        one_model = scenario.solver.tracks == 1  # which is all that a pad has room for
        self._pad = pad_for(self.layout) if one_model else None

    def describe(self) -> Description:
        # In parts that Ray sends with its reply: memory of its store would stay taken.
        nbytes = self.layout.nbytes
        parts = -(-nbytes // PART_BYTES) if nbytes <= INLINE_REPLY_BYTES else 1
        found = self._crew.ask(
            lambda actor: actor.initial.options(num_returns=parts).remote(self._run, parts),
            "the initial model",
        )
        initial = found if parts == 1 else np.concatenate(found)
        return Description(self.population, self.layout, initial)

    def publish(self, version: int, theta: Params) -> None:
        self._models[version] = made = _Version(theta)
        pad = self._pad if self._crew.has_any_line else None
        if pad is not None and (row := pad.take(1)) is not None:
            made.row, made.on_pad = row, pad.lent(row, 1)
            made.on_pad[0] = theta
        self.moved += theta.nbytes

    def retire(self, version: int) -> None:
        self._models.pop(version, None)

    def submit(self, jobs: Sequence[Job]) -> None:
        for some in (job for job in jobs if isinstance(job, TrainJobs)):
            lines = self._pad is not None and self._crew.has_lines
            shortest = SHORTEST_ON_LINES_S if lines else SHORTEST_S
            for actor, places in self._share_out(some.clients.tolist(), self._load, shortest):
                self._train(actor, some.take(np.array(places)))
        for evaluation in (job for job in jobs if isinstance(job, EvaluateJob)):
            idle = np.zeros(len(self._load))
            self._parts[evaluation.id] = [
                (self._evaluate(actor, evaluation, places), places)
                for actor, places in self._share_out(evaluation.clients.tolist(), idle, SHORTEST_S)
            ]

    def _train(self, actor: int, jobs: TrainJobs) -> None:
        """Send jobs to an actor: in one call, or in several if they are long.

        Then the first of them can be collected while the others are under way.
        """
        costs = np.cumsum(self._cost[jobs.clients])
        longest = LONGEST_S / self._pace
        at = 0
        while at < len(jobs):
            before = float(costs[at - 1]) if at else 0.0
            end = min(len(jobs), 1 + int(np.searchsorted(costs, before + longest)))
            chunk, cost = jobs[at:end], float(costs[end - 1]) - before
            sent = _Chunk(self._training(chunk, cost), chunk)
            self._send(sent.task, actor)
            self._chunks.update(dict.fromkeys(chunk.ids.tolist(), sent))
            at = end

    def _training(self, jobs: TrainJobs, cost: float) -> Task:
        model = self._models[jobs.version]

        def through_ray(actor: Any) -> Any:
            if model.small and not jobs.own:
                return actor.train.remote(self._run, pack(jobs, model.theta))
            return actor.train.remote(self._run, pack(jobs), model.for_ray(), dict(jobs.own))

        def on_line(line: Line) -> Call | None:
            if (pad := self._pad) is None or not line.takes(len(jobs)):
                return None
            # If no reply comes they are never given back: who knows who writes there.
            if (first := pad.take(len(jobs))) is None:
                return None
            line.share(pad)
            return line.call(self._run, pack(jobs), (model.row, first))

        return Task(
            through_ray,
            lambda: (
                f"training of clients {_some(jobs.clients.tolist())} from version "
                f"{jobs.version} of the model"
            ),
            cost,
            None if model.on_pad is None else on_line,
        )

    def _evaluate(self, actor: int, job: EvaluateJob, places: list[int]) -> Task:
        part = replace(job, clients=job.clients[places], models=None)
        model = self._models[job.version].for_ray() if job.models is None else job.models[places]
        task = Task(
            lambda actor: actor.evaluate.remote(self._run, model, part),
            lambda: (
                f"evaluation of clients {_some(part.clients.tolist())} at version {job.version}"
            ),
        )
        self._crew.send(task, actor)
        return task

    def _send(self, task: Task, actor: int) -> None:
        self._crew.send(task, actor)
        self._load[actor] += task.cost

    def _another(self, task: Task) -> int:
        """Who does the work of an actor that was lost: the idlest."""
        self._load[task.place] -= task.cost
        live = self._crew.live(task.about())
        place = live[int(np.argmin(self._load[live]))]
        self._load[place] += task.cost
        return place

    def _share_out(
        self, clients: Sequence[int], load: npt.NDArray[np.float64], shortest_s: float
    ) -> list[tuple[int, list[int]]]:
        """Which actor plays which of them.

        Its own, if actors have clients. Else the costliest first: a client has a home, where its
        data have been made already, and goes there as long as that has no more than its share of
        the work; the others go to the idlest.
        """
        live, costs = self._crew.live(), self._cost[list(clients)]
        if self._per_actor is None:
            enough = max(1, int(costs.sum() * self._pace / shortest_s))
            live = sorted(live, key=load.__getitem__)[:enough]  # a tie: the first
            if len(live) == 1:
                return [(live[0], list(range(len(clients))))]
        shares: dict[int, list[int]] = {actor: [] for actor in live}
        busy = {actor: float(load[actor]) for actor in live}
        fair = (sum(busy.values()) + float(costs.sum())) / len(live) * (1 + 1e-9)
        own, actors = self._per_actor, len(load)
        for place in np.argsort(-costs, kind="stable").tolist():
            client, cost = clients[place], float(costs[place])
            actor = client % actors if own is None else client // own
            if actor not in busy or (own is None and busy[actor] + cost > fair):
                actor = min(busy, key=busy.__getitem__)  # a tie: the first
            shares[actor].append(place)
            busy[actor] += cost
        return [(actor, sorted(places)) for actor, places in shares.items() if places]

    def collect(self, ids: Sequence[int]) -> Results:
        self._fetch_training([i for i in ids if i in self._chunks])
        for job_id in ids:
            if job_id in self._parts:
                self._done[job_id] = self._joined(self._parts.pop(job_id))
        return Results(dict(zip(ids, map(self._done.pop, ids), strict=True)))

    def _fetch_training(self, ids: Sequence[int]) -> None:
        wanted = list({id(chunk): chunk for chunk in map(self._chunks.__getitem__, ids)}.values())
        results = self._crew.results([chunk.task for chunk in wanted], self._another)
        layout = self.layout
        for result, chunk in zip(results, wanted, strict=True):
            call = chunk.task.call
            if isinstance(call, Call):
                trained, seconds = unpack_losses(result, self._lent(call))
            else:
                trained, seconds = unpack_results(result, layout.size, layout.dtype)
            self._learn_pace(seconds / chunk.task.cost)
            numbers = chunk.jobs.ids.tolist()
            self._done.update(dict.fromkeys(numbers, Stack(chunk.jobs.ids, trained)))
            self.moved += trained.models.nbytes
            self._load[chunk.task.place] -= chunk.task.cost
            for number in numbers:
                del self._chunks[number]

    def _lent(self, call: Call) -> Params:
        assert self._pad is not None
        return self._pad.lent(call.places[1], call.jobs)

    def _learn_pace(self, pace: float) -> None:
        # The quickest of late: a call may have waited for data to be made, or for the processor.
        self._pace = min(pace, 1.02 * self._pace)

    def _joined(self, parts: list[tuple[Task, list[int]]]) -> Evaluated:
        """The answers of several actors, each put in its places."""
        n = sum(len(places) for _, places in parts)
        loss, correct = np.empty(n), np.empty(n, dtype=np.int64)
        answers = self._crew.results([task for task, _ in parts], self._another)
        for answer, (_, places) in zip(answers, parts, strict=True):
            loss[places], correct[places] = answer.loss, answer.correct
        return Evaluated(loss, correct)

    def close(self) -> None:
        # Work that nobody will ask for; what has begun runs to its end.
        self._crew.give_up({id(c): c.task for c in self._chunks.values()}.values())
        self._chunks.clear()
        self._parts.clear()
        self._models.clear()
        self._done.clear()
        if self._pad is not None:
            self._pad.close()
            self._pad = None


def _some(clients: Sequence[int]) -> str:
    """The first few of them, in words."""
    told = ", ".join(map(str, clients[:5]))
    return told if len(clients) <= 5 else f"{told} and {len(clients) - 5} more"
