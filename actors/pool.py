"""Many clients on few actors: the backend that hands jobs to client actors.

The default is one long-lived actor per core, which plays any client. With `clients_per_actor`
every actor has its own clients, down to one. Either way a job is sent as part of a chunk, one
call per actor and version, and the results do not depend on who computed them. The work of an
actor that was lost goes to the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from gifair_ray.actors.client import RunSpec, pack
from gifair_ray.actors.crew import Crew, Task
from gifair_ray.backend import Description, split_replies
from gifair_ray.protocol import Evaluated, EvaluateJob, Job, Params, TrainJob
from gifair_ray.scenario import parse

INLINE_BYTES = 64 << 10
CHUNK_WORK = 1e8  # parameters × samples in one call, about a tenth of a second


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Jobs that were sent together."""

    task: Task
    jobs: list[TrainJob]


class RayBackend:
    """See `gifair_ray.backend.Backend`."""

    def __init__(self, spec: RunSpec, crew: Crew, clients_per_actor: int | None) -> None:
        self._crew, self._per_actor = crew, clients_per_actor
        self._spec = spec.packed()
        self._models: dict[int, Any] = {}
        self._chunks: dict[int, _Chunk] = {}  # by job
        self._load = np.zeros(len(crew.actors))  # cost of the chunks that each actor has
        self._parts: dict[int, list[tuple[Task, list[int]]]] = {}  # evaluation → calls, rows
        self._done: dict[int, Any] = {}
        self.moved = 0  # bytes of models and results, each object once
        hello = crew.assemble(lambda actor: actor.hello.remote(self._spec))
        self._described: Description = hello.described
        self.width = hello.width
        # Cost of a dispatch, for balancing: samples seen, and a little for each step's overhead.
        work, sizes = parse(spec.scenario).work, self._described.population.train
        self._cost = work.sample_passes(sizes) + 4.0 * work.step_counts(sizes)
        self._chunk_cost = CHUNK_WORK / self._described.layout.size

    def describe(self) -> Description:
        return self._described

    def publish(self, version: int, theta: Params) -> None:
        # A small model goes along with every call; a large one is put where all on a node see it.
        self._models[version] = theta if theta.nbytes <= INLINE_BYTES else ray.put(theta)
        self.moved += theta.nbytes

    def retire(self, version: int) -> None:
        self._models.pop(version, None)

    def submit(self, jobs: Sequence[Job]) -> None:
        training: dict[int, list[TrainJob]] = {}  # by version: a call has one model
        for job in jobs:
            if isinstance(job, TrainJob):
                training.setdefault(job.message.version, []).append(job)
        for some in training.values():
            for actor, places in self._share_out([job.client for job in some], self._load):
                self._train(actor, [some[i] for i in places])
        for evaluation in (job for job in jobs if isinstance(job, EvaluateJob)):
            idle = np.zeros(len(self._load))
            self._parts[evaluation.id] = [
                (self._evaluate(actor, evaluation, places), places)
                for actor, places in self._share_out(evaluation.clients.tolist(), idle)
            ]

    def _train(self, actor: int, jobs: list[TrainJob]) -> None:
        """Send jobs to an actor: in one call, or in several if they are long.

        Then the first of them can be collected while the others are under way.
        """
        costs = np.cumsum(self._cost[[job.client for job in jobs]])
        at = 0
        while at < len(jobs):
            before = float(costs[at - 1]) if at else 0.0
            end = min(len(jobs), 1 + int(np.searchsorted(costs, before + self._chunk_cost)))
            chunk, cost = jobs[at:end], float(costs[end - 1]) - before
            sent = _Chunk(self._training(chunk, cost), chunk)
            self._send(sent.task, actor)
            self._chunks.update(dict.fromkeys((job.id for job in chunk), sent))
            at = end

    def _training(self, jobs: list[TrainJob], cost: float) -> Task:
        version = jobs[0].message.version
        theta = self._models[version]
        sent = pack(jobs)
        return Task(
            lambda actor: actor.train.remote(self._spec, theta, sent),
            lambda: (
                f"training of clients {_some([job.client for job in jobs])} from version "
                f"{version} of the model"
            ),
            cost,
        )

    def _evaluate(self, actor: int, job: EvaluateJob, places: list[int]) -> Task:
        part = replace(job, clients=job.clients[places], models=None)
        model = self._models[job.version] if job.models is None else job.models[places]
        task = Task(
            lambda actor: actor.evaluate.remote(self._spec, model, part),
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
        self, clients: Sequence[int], load: npt.NDArray[np.float64]
    ) -> list[tuple[int, list[int]]]:
        """Which actor plays which of them: its own, or the costliest first to the idlest."""
        live = self._crew.live()
        shares: dict[int, list[int]] = {actor: [] for actor in live}
        costs, own = self._cost[list(clients)], self._per_actor
        taken = [(float(load[actor]), actor) for actor in live]
        heapq.heapify(taken)
        for place in np.argsort(-costs, kind="stable").tolist():
            if own is not None and clients[place] // own in shares:
                shares[clients[place] // own].append(place)
                continue
            busy, idlest = taken[0]
            shares[idlest].append(place)
            heapq.heapreplace(taken, (busy + float(costs[place]), idlest))
        return [(actor, sorted(places)) for actor, places in shares.items() if places]

    def collect(self, ids: Sequence[int]) -> list[Any]:
        self._fetch_training([i for i in ids if i in self._chunks])
        for job_id in ids:
            if job_id in self._parts:
                self._done[job_id] = self._joined(self._parts.pop(job_id))
        return [self._done.pop(job_id) for job_id in ids]

    def _fetch_training(self, ids: Sequence[int]) -> None:
        wanted = list({id(chunk): chunk for chunk in map(self._chunks.__getitem__, ids)}.values())
        results = self._crew.results([chunk.task for chunk in wanted], self._another)
        for trained, chunk in zip(results, wanted, strict=True):
            self._done |= split_replies(chunk.jobs, trained)
            self.moved += trained.models.nbytes
            self._load[chunk.task.place] -= chunk.task.cost
            for job in chunk.jobs:
                del self._chunks[job.id]

    def _joined(self, parts: list[tuple[Task, list[int]]]) -> Evaluated:
        """The answers of several actors, each put in its places."""
        n = sum(len(places) for _, places in parts)
        loss, correct = np.empty(n), np.empty(n, dtype=np.int64)
        answers = self._crew.results([task for task, _ in parts], self._another)
        for answer, (_, places) in zip(answers, parts, strict=True):
            loss[places], correct[places] = answer.loss, answer.correct
        return Evaluated(loss, correct)

    def close(self) -> None:
        for call in {chunk.task.call for chunk in self._chunks.values()}:
            ray.cancel(call)  # work that nobody will ask for; what has begun runs to its end
        self._chunks.clear()
        self._parts.clear()
        self._models.clear()
        self._done.clear()


def _some(clients: Sequence[int]) -> str:
    """The first few of them, in words."""
    told = ", ".join(map(str, clients[:5]))
    return told if len(clients) <= 5 else f"{told} and {len(clients) - 5} more"
