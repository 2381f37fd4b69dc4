"""Asking clients for their loss at the current model, and keeping what they answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gifair_ray.commands import Commands, Nullable, Record, Submit
from gifair_ray.protocol import EvaluateJob
from gifair_ray.replies import Results
from gifair_ray.timeline import timeline, transfer_s
from gifair_ray.world import SCALAR_BYTES, State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Request:
    """Clients that were asked for their loss at the current model."""

    clients: Ints
    version: int
    reached: npt.NDArray[np.bool_]
    job: int | None
    closes: float

    @property
    def needs(self) -> tuple[int, ...]:
        """The job whose result holds the answers."""
        return () if self.job is None else (self.job,)

    def holders(self, version: int) -> Ints:
        """Clients that have this version of the model, because it is the one they evaluated."""
        return self.clients[self.reached & (version == self.version)]


def ask(world: World, state: State, clients: Ints) -> tuple[Request, Commands]:
    """Send the model to clients for evaluation: a model down, a scalar up, an evaluation pass.

    The server goes on when all have answered, or when it knows that no more will. A client that
    is training answers as `policy.busy_asked` says: at once (training goes on beside it), when it
    is done, or not at all.
    """
    policy, fleet = world.scenario.policy, world.fleet
    busy = state.row_of[clients] >= 0  # not those that are only about to be sent work
    if policy.busy_asked == "skip":
        clients, busy = clients[~busy], busy[~busy]
    wait = np.zeros(len(clients))
    if policy.busy_asked == "wait" and busy.any():
        them = clients[busy]
        download = fleet.latency_s[them] + transfer_s(world.model_bytes, fleet.down_mbps[them])
        wait[busy] = np.maximum(state.busy_until[them] - (state.now + download), 0.0)
    fate = timeline(
        fleet, world.calendar, world.scenario.seed, "ask",
        clients, state.asked[clients], state.now,
        np.full(len(clients), world.model_bytes), np.full(len(clients), SCALAR_BYTES),
        world.population.train[clients] * np.float64(fleet.eval_fraction),
        policy.timeout_s, policy.notice, wait=wait,
    )  # fmt: skip
    state.asked[clients] += 1
    state.bytes_down += len(clients) * world.model_bytes
    state.bytes_up += int(fate.uploaded.sum()) * SCALAR_BYTES
    state.participation.bytes[clients] += world.model_bytes + SCALAR_BYTES * fate.uploaded
    reached = fate.completed
    closes = float(fate.notice.max(initial=state.now))
    if not reached.any():
        return Request(clients, state.version, reached, None, closes), []
    job = EvaluateJob(state.job_id(), clients[reached], "train", state.version)
    return Request(clients, state.version, reached, job.id, closes), [Submit([job])]


def answered(world: World, state: State, request: Request, results: Results) -> Commands:
    """Take in the answers to a request; those that did not answer keep their aged entry."""
    if request.job is None:
        return []
    reached = request.clients[request.reached]
    versions = np.full(len(reached), request.version)
    return learn(world, state, reached, results[request.job].loss, versions)


def learn(world: World, state: State, clients: Ints, losses: Floats, versions: Ints) -> Commands:
    """Enter losses that have become known, with the age of what they replace.

    An answer that is older than what is known already changes nothing.
    """
    basis = world.scenario.weighting.basis
    news = versions >= state.losses.version[clients]
    clients, losses, versions = clients[news], losses[news], versions[news]
    if basis is None or not len(clients):
        return []
    age = state.losses.ages(state.version)[clients]
    state.losses.learn(clients, losses, versions)
    columns = {
        "time_s": np.full(len(clients), state.now),
        "client": clients,
        "version": versions,
        "basis": [basis] * len(clients),
        "loss": losses,
        "age": Nullable(age),
    }
    return [Record("losses", columns)]
