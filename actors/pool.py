"""Many clients on few actors: the backend that hands jobs to client actors.

The default is one long-lived actor per core, which plays any client. With `clients_per_actor`
every actor has its own clients, down to one. Either way a job is sent as part of a chunk, one
call per actor and version, and the results do not depend on who computed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import ray

from gifair_ray.actors.calls import wait
from gifair_ray.actors.client import RunSpec
from gifair_ray.backend import Description, split_replies
from gifair_ray.protocol import EvaluateJob, Evaluated, Job, Params, TrainJob
from gifair_ray.scenario import parse


class RayBackend:
    """See `gifair_ray.backend.Backend`."""

    def __init__(
        self, spec: RunSpec, actors: Sequence[Any], clients_per_actor: int | None
    ) -> None:
        self._actors, self._per_actor = list(actors), clients_per_actor
        self._spec = ray.put(spec)
        self._models: dict[int, Any] = {}
        self._chunks: dict[int, tuple[Any, list[TrainJob]]] = {}  # job → its chunk's call
        self._parts: dict[int, list[Any]] = {}  # evaluation → its calls
        self._done: dict[int, Any] = {}
        self._described: Description = wait([self._actors[0].describe.remote(self._spec)])[0]
        # Cost of a dispatch, for balancing: samples seen, and a little for each step's overhead.
        work, sizes = parse(spec.scenario).work, self._described.population.train
        self._cost = work.sample_passes(sizes) + 4.0 * work.step_counts(sizes)

    def describe(self) -> Description:
        return self._described

    def publish(self, version: int, theta: Params) -> None:
        self._models[version] = ray.put(theta)

    def retire(self, version: int) -> None:
        self._models.pop(version, None)

    def submit(self, jobs: Sequence[Job]) -> None:
        training = [job for job in jobs if isinstance(job, TrainJob)]
        costs = [float(self._cost[job.client]) for job in training]
        clients = [job.client for job in training]
        for actor, places in self._share_out(clients, costs):
            chunk = [training[i] for i in places]
            theta = self._models[chunk[0].message.version]
            call = actor.train.remote(self._spec, theta, chunk)
            for job in chunk:
                self._chunks[job.id] = (call, chunk)
        for job in jobs:
            if isinstance(job, EvaluateJob):
                self._parts[job.id] = self._submit_evaluation(job)

    def _submit_evaluation(self, job: EvaluateJob) -> list[Any]:
        """Calls on neighbouring clients, so that the answers only need to be joined."""
        pieces = np.array_split(np.arange(len(job.clients)), len(self._actors))
        calls = []
        for actor, piece in zip(self._actors, pieces, strict=True):
            if len(piece):
                part = replace(job, clients=job.clients[piece], models=None)
                model = self._models[job.version] if job.models is None else job.models[piece]
                calls.append(actor.evaluate.remote(self._spec, model, part))
        return calls

    def _share_out(
        self, clients: Sequence[int], costs: Sequence[float]
    ) -> list[tuple[Any, list[int]]]:
        """Which actor gets which jobs: its own clients', or the costliest first to the idlest."""
        shares: list[list[int]] = [[] for _ in self._actors]
        if self._per_actor is not None:
            for place, client in enumerate(clients):
                shares[client // self._per_actor].append(place)
        else:
            load = np.zeros(len(self._actors))
            for place in sorted(range(len(costs)), key=lambda i: -costs[i]):
                idlest = int(np.argmin(load))
                shares[idlest].append(place)
                load[idlest] += costs[place]
        return [
            (actor, places) for actor, places in zip(self._actors, shares, strict=True) if places
        ]

    def collect(self, ids: Sequence[int]) -> list[Any]:
        self._fetch_training([i for i in ids if i in self._chunks])
        for job_id in ids:
            if job_id in self._parts:
                parts: list[Evaluated] = wait(self._parts.pop(job_id))
                self._done[job_id] = Evaluated(
                    np.concatenate([part.loss for part in parts]),
                    np.concatenate([part.correct for part in parts]),
                )
        return [self._done.pop(job_id) for job_id in ids]

    def _fetch_training(self, ids: Sequence[int]) -> None:
        wanted = {self._chunks[i][0]: self._chunks[i][1] for i in ids}
        for trained, jobs in zip(wait(list(wanted)), wanted.values(), strict=True):
            self._done |= split_replies(jobs, trained)
            for job in jobs:
                del self._chunks[job.id]

    def close(self) -> None:
        self._chunks.clear()
        self._parts.clear()
        self._models.clear()
        self._done.clear()
