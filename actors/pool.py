"""Many clients on few actors: the backend that hands jobs to client actors.

The default is one long-lived actor per core, which plays any client. With `clients_per_actor`
every actor has its own clients, down to one. Either way a job is sent as part of a chunk, one
call per actor and version, and the results do not depend on who computed them.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from gifair_ray.actors.calls import wait
from gifair_ray.actors.client import RunSpec, pack
from gifair_ray.backend import Description, split_replies
from gifair_ray.protocol import Evaluated, EvaluateJob, Job, Params, TrainJob
from gifair_ray.scenario import parse

INLINE_BYTES = 64 << 10
CHUNK_WORK = 1e8  # parameters × samples in one call, about a tenth of a second


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Jobs that were sent together, to whom, and what they are expected to cost."""

    call: Any
    jobs: list[TrainJob]
    actor: int
    cost: float


class RayBackend:
    """See `gifair_ray.backend.Backend`."""

    def __init__(self, spec: RunSpec, actors: Sequence[Any], clients_per_actor: int | None) -> None:
        self._actors, self._per_actor = list(actors), clients_per_actor
        self._spec = spec.packed()
        self._models: dict[int, Any] = {}
        self._chunks: dict[int, _Chunk] = {}  # by job
        self._load = np.zeros(len(self._actors))  # cost of the chunks that each actor has
        self._parts: dict[int, list[tuple[Any, list[int]]]] = {}  # evaluation → calls, places
        self._done: dict[int, Any] = {}
        self.moved = 0  # bytes of models and results, each object once
        self._described: Description = wait([self._actors[0].describe.remote(self._spec)])[0]
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
        training = [job for job in jobs if isinstance(job, TrainJob)]
        for actor, places in self._share_out([job.client for job in training], self._load):
            self._train(actor, [training[i] for i in places])
        for evaluation in (job for job in jobs if isinstance(job, EvaluateJob)):
            idle = np.zeros(len(self._actors))
            self._parts[evaluation.id] = [
                (self._evaluate(self._actors[actor], evaluation, places), places)
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
            theta = self._models[chunk[0].message.version]
            call = self._actors[actor].train.remote(self._spec, theta, pack(chunk))
            sent = _Chunk(call, chunk, actor, cost)
            self._chunks.update(dict.fromkeys((job.id for job in chunk), sent))
            self._load[actor] += cost
            at = end

    def _evaluate(self, actor: Any, job: EvaluateJob, places: list[int]) -> Any:
        part = replace(job, clients=job.clients[places], models=None)
        model = self._models[job.version] if job.models is None else job.models[places]
        return actor.evaluate.remote(self._spec, model, part)

    def _share_out(
        self, clients: Sequence[int], load: npt.NDArray[np.float64]
    ) -> list[tuple[int, list[int]]]:
        """Which actor plays which of them: its own, or the costliest first to the idlest."""
        shares: list[list[int]] = [[] for _ in self._actors]
        if self._per_actor is not None:
            for place, client in enumerate(clients):
                shares[client // self._per_actor].append(place)
        else:
            costs = self._cost[list(clients)]
            taken = [(busy, actor) for actor, busy in enumerate(load.tolist())]
            heapq.heapify(taken)
            for place in np.argsort(-costs, kind="stable").tolist():
                busy, idlest = taken[0]
                shares[idlest].append(place)
                heapq.heapreplace(taken, (busy + float(costs[place]), idlest))
        return [(actor, sorted(places)) for actor, places in enumerate(shares) if places]

    def collect(self, ids: Sequence[int]) -> list[Any]:
        self._fetch_training([i for i in ids if i in self._chunks])
        for job_id in ids:
            if job_id in self._parts:
                self._done[job_id] = _joined(self._parts.pop(job_id))
        return [self._done.pop(job_id) for job_id in ids]

    def _fetch_training(self, ids: Sequence[int]) -> None:
        wanted = list({id(chunk): chunk for chunk in map(self._chunks.__getitem__, ids)}.values())
        for trained, chunk in zip(wait([chunk.call for chunk in wanted]), wanted, strict=True):
            self._done |= split_replies(chunk.jobs, trained)
            self.moved += trained.models.nbytes
            self._load[chunk.actor] -= chunk.cost
            for job in chunk.jobs:
                del self._chunks[job.id]

    def close(self) -> None:
        for call in {chunk.call for chunk in self._chunks.values()}:
            ray.cancel(call)  # work that nobody will ask for; what has begun runs to its end
        self._chunks.clear()
        self._parts.clear()
        self._models.clear()
        self._done.clear()


def _joined(parts: list[tuple[Any, list[int]]]) -> Evaluated:
    """The answers of several actors, each put in its places."""
    n = sum(len(places) for _, places in parts)
    loss, correct = np.empty(n), np.empty(n, dtype=np.int64)
    for part, (_, places) in zip(wait([call for call, _ in parts]), parts, strict=True):
        loss[places], correct[places] = part.loss, part.correct
    return Evaluated(loss, correct)
