"""The rules that all policies share: send work out, ask for losses, take updates in.

Functions over the server's state: they change it in place and return commands. No I/O, no Ray,
no wall clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.protocol import EvaluateJob, Job, Message, Params, Reply, TrainJob
from gifair_ray.sampling import aggregation_weights
from gifair_ray.timeline import Timeline, timeline
from gifair_ray.world import SCALAR_BYTES, State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Submit:
    """Start these jobs; their results will be needed later."""

    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Publish:
    """A new version of the model, for jobs to refer to."""

    version: int
    theta: Params


@dataclass(frozen=True, slots=True)
class Record:
    """Rows for a table, as columns; `None` in place of a column leaves it null."""

    table: str
    columns: Mapping[str, Any]


Command = Submit | Publish | Record
Commands = list[Command]


Results = Mapping[int, Any]
"""What each job of an event came to: a Reply for training, an Evaluated for an evaluation."""


@dataclass(frozen=True)
class Cohort:
    """Work that went out together, as columns in the order of client numbers."""

    clients: Ints
    slots: Ints
    ordinals: Ints
    ids: Ints
    version: int
    send: float
    tilt: Floats
    rank: Ints | None
    fate: Timeline
    down_bytes: Ints
    up_bytes: Ints
    jobs: dict[int, int]
    """Place in the cohort → job, for those whose work will count."""

    @property
    def closes(self) -> float:
        """When the server knows the outcome of all of them."""
        return float(self.fate.notice.max())


@dataclass(frozen=True)
class Request:
    """Clients that were asked for their loss at the current model."""

    clients: Ints
    version: int
    reached: npt.NDArray[np.bool_]
    job: int | None
    closes: float


def ask(world: World, state: State, clients: Ints) -> tuple[Request, Commands]:
    """Send the model to clients for evaluation: a model down, a scalar up, an evaluation pass.

    The server goes on when all have answered, or when it knows that no more will.
    """
    policy = world.scenario.policy
    n = np.full(len(clients), 1, dtype=np.int64)
    fate = timeline(
        world.fleet, world.calendar, world.scenario.seed, "ask",
        clients, state.asked[clients], state.now,
        n * world.model_bytes, n * SCALAR_BYTES,
        world.population.train[clients] * np.float64(world.fleet.eval_fraction),
        policy.timeout_s, policy.notice,
    )  # fmt: skip
    state.asked[clients] += 1
    state.bytes_down += len(clients) * world.model_bytes
    state.bytes_up += int(fate.uploaded.sum()) * SCALAR_BYTES
    state.participation.bytes[clients] += world.model_bytes + SCALAR_BYTES * fate.uploaded
    reached = fate.completed
    if not reached.any():
        closes = float(fate.notice.max(initial=state.now))
        return Request(clients, state.version, reached, None, closes), []
    job = EvaluateJob(state.job_id(), clients[reached], "train", state.version)
    request = Request(clients, state.version, reached, job.id, float(fate.notice.max()))
    return request, [Submit([job])]


def learn(world: World, state: State, clients: Ints, losses: Floats, version: int) -> Commands:
    """Enter losses that have become known, with the age of what they replace."""
    basis = world.scenario.weighting.basis
    if basis is None or not len(clients):
        return []
    age = state.losses.ages(state.version)[clients]
    state.losses.learn(clients, losses, version)
    columns = {
        "time_s": np.full(len(clients), state.now),
        "client": clients,
        "version": np.full(len(clients), version),
        "basis": [basis] * len(clients),
        "loss": losses,
        "age": nullable(age),
    }
    return [Record("losses", columns)]


def answered(world: World, state: State, request: Request, results: Results) -> Commands:
    """Take in the answers to a request; those that did not answer keep their aged entry."""
    if request.job is None:
        return []
    reached = request.clients[request.reached]
    return learn(world, state, reached, results[request.job].loss, request.version)


def dispatch(
    world: World, state: State, clients: Ints, slots: Ints, holding: Ints
) -> tuple[Cohort, Commands]:
    """Send work to clients, each with its multiplier frozen; `holding` have the model already.

    Only work that will count is computed: the simulator knows who will be lost or late.
    """
    scenario, part = world.scenario, state.participation
    tilt, rank = world.rule.tilts(state.losses, clients)
    scalars = SCALAR_BYTES if rank is not None else 0
    has_model = np.isin(clients, holding)
    down = np.where(has_model, 0, world.model_bytes) + scalars
    up = np.full(len(clients), world.model_bytes + SCALAR_BYTES * len(scenario.weighting.reports))
    ordinals = part.counts["selected"][clients]
    fate = timeline(
        world.fleet, world.calendar, scenario.seed, "train",
        clients, ordinals, state.now, down, up, world.passes[clients],
        scenario.policy.timeout_s, scenario.policy.notice,
    )  # fmt: skip
    part.counts["selected"][clients] += 1
    up = np.where(fate.uploaded, up, 0)
    state.bytes_down += int(down.sum())
    state.bytes_up += int(up.sum())
    ids = np.arange(state.dispatches, state.dispatches + len(clients))
    state.dispatches += len(clients)
    clock = state.schedule_clock(world)
    jobs = [
        TrainJob(
            state.job_id(), int(clients[i]), int(ordinals[i]),
            Message(state.version, clock, float(tilt[i])),
        )
        for i in np.flatnonzero(fate.completed)
    ]  # fmt: skip
    places = dict(zip(np.flatnonzero(fate.completed).tolist(), (j.id for j in jobs), strict=True))
    cohort = Cohort(
        clients, slots, ordinals, ids, state.version, state.now, tilt, rank, fate, down, up, places
    )
    return cohort, [Submit(jobs)] if jobs else []


def commit(
    world: World, state: State, cohort: Cohort, asked_slots: int, results: Results
) -> Commands:
    """One server update from a cohort whose outcomes are all known."""
    scenario = world.scenario
    places = np.array(sorted(cohort.jobs), dtype=np.int64)
    replies: list[Reply] = [results[cohort.jobs[i]] for i in places.tolist()]
    clients = cohort.clients[places]
    weights = aggregation_weights(
        scenario.sampling.scheme, world.p[clients], cohort.slots[places], asked_slots, world.K,
        scenario.policy.failures, _reliability(world, state, clients),
    )  # fmt: skip
    theta = scenario.aggregator(
        state.theta, [reply.model for reply in replies], weights, world.layout.trainable
    )
    step = theta[: world.layout.trainable].astype(np.float64)
    step -= state.theta[: world.layout.trainable]
    if scenario.solver.keep:
        for client, reply in zip(clients.tolist(), replies, strict=True):
            state.personal[client] = np.array(reply.model, copy=True)
    _count(world, state, cohort, clients, weights)
    state.theta, state.version = theta, state.version + 1
    state.updates += int(cohort.slots[places].sum())
    local = np.array([reply.loss_local for reply in replies])
    received = np.array([reply.loss_received for reply in replies])
    reported = {"local": local, "received": received}.get(scenario.weighting.basis or "")
    commands: Commands = [Publish(state.version, theta)]
    if reported is not None:
        commands += learn(world, state, clients, reported, cohort.version)
    commands.append(_dispatch_rows(world, state, cohort, places, local, received, weights))
    commands.append(_round_row(world, state, cohort, weights, float(np.sqrt(np.dot(step, step)))))
    state.audited = None
    return commands


def _reliability(world: World, state: State, clients: Ints) -> Floats:
    """The probability that each client answers: by its device, or by its record so far."""
    if world.scenario.policy.reliability == "known":
        return np.maximum(1.0 - world.fleet.dropout[clients], 1e-6)
    counts = state.participation.counts
    # The answer that is being weighed is not in `completed` yet, but its dispatch is counted.
    return (1.0 + counts["completed"][clients]) / np.maximum(counts["selected"][clients], 1)


def _count(world: World, state: State, cohort: Cohort, clients: Ints, weights: Floats) -> None:
    part, fate = state.participation, cohort.fate
    for outcome in np.unique(fate.outcome).tolist():
        part.counts[outcome][cohort.clients[fate.outcome == outcome]] += 1
    moved, wasted = cohort.down_bytes + cohort.up_bytes, ~fate.completed
    part.busy_s[cohort.clients] += fate.busy
    part.wasted_s[cohort.clients] += np.where(wasted, fate.busy, 0.0)
    part.bytes[cohort.clients] += moved
    part.wasted_bytes[cohort.clients] += np.where(wasted, moved, 0)
    part.weight[clients] += weights


def nullable(values: Floats) -> npt.NDArray[np.object_] | Floats:
    """NaN and ∞ as nulls, in a column of floats or (after a cast) of integers."""
    return np.ma.masked_invalid(values)


def _dispatch_rows(
    world: World, state: State, cohort: Cohort, places: Ints,
    local: Floats, received: Floats, weights: Floats,
) -> Record:  # fmt: skip
    n, fate = len(cohort.clients), cohort.fate

    def of_survivors(values: Floats) -> Any:
        column = np.full(n, np.nan)
        column[places] = values
        return nullable(column)

    return Record(
        "dispatches",
        {
            "dispatch": cohort.ids,
            "round": np.full(n, state.version),
            "client": cohort.clients,
            "ordinal": cohort.ordinals,
            "version": np.full(n, cohort.version),
            "slots": cohort.slots,
            "send_s": np.full(n, cohort.send),
            "start_s": fate.start,
            "end_s": fate.end,
            "arrival_s": nullable(fate.arrival),
            "notice_s": fate.notice,
            "outcome": fate.outcome,
            "staleness": of_survivors(np.full(len(places), state.version - 1 - cohort.version)),
            "steps": world.steps[cohort.clients],
            "tilt": cohort.tilt,
            "rank": cohort.rank,
            "loss_local": of_survivors(local),
            "loss_received": of_survivors(received),
            "bytes_down": cohort.down_bytes,
            "bytes_up": cohort.up_bytes,
            "weight": of_survivors(weights),
        },
    )


def _round_row(
    world: World, state: State, cohort: Cohort, weights: Floats, step_norm: float
) -> Record:
    H, delta = state.audited or (None, None)
    row = {
        "round": state.version,
        "time_s": state.now,
        "selected": len(cohort.clients),
        "completed": len(weights),
        "updates": state.updates,
        "lam": world.rule.lam,
        "lam_max": world.rule.lam_max,
        "bytes_down": state.bytes_down,
        "bytes_up": state.bytes_up,
        "step_norm": step_norm,
        "weight_sum": float(weights.sum()),
        "H": H,
        "delta": delta,
    }
    return Record("rounds", {name: [value] for name, value in row.items()})
