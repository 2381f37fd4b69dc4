"""Taking work in: what it weighs, the next version of the model, and the record of each outcome."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.asking import learn
from gifair_ray.commands import Coded, Commands, Nullable, Publish, Record
from gifair_ray.dispatching import NO_RANK
from gifair_ray.replies import Params, Replies
from gifair_ray.sums import squared_norms
from gifair_ray.tables import OUTCOMES
from gifair_ray.timeline import COMPLETED
from gifair_ray.weighing import ratios
from gifair_ray.weightings import Update
from gifair_ray.world import State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def report(world: World, state: State, rows: Ints, replies: Replies) -> Commands:
    """Learn the losses that replies carry."""
    basis = world.scenario.weighting.basis
    if basis not in ("local", "received"):
        return []
    losses = replies.loss_local if basis == "local" else replies.loss_received
    flights = state.flights
    return learn(world, state, flights["client"][rows], losses, flights["version"][rows])


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Work that a server update was made of, in columns: to be concluded."""

    rows: Ints
    lag: Ints
    loss_local: Floats
    loss_received: Floats
    weights: Floats

    @staticmethod
    def joined(parts: Sequence[Aggregated]) -> Aggregated:
        """All of it."""
        if len(parts) == 1:
            return parts[0]
        names = Aggregated.__slots__
        return Aggregated(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def commit(world: World, state: State, rows: Ints, replies: Replies, weights: Floats) -> Commands:
    """One server update, from replies and their weights ω, in any order; concludes the rows."""
    commands, aggregated = update(world, state, rows, replies, weights)
    return commands + conclude(world, state, aggregated.rows, aggregated)


def update(
    world: World, state: State, rows: Ints, replies: Replies, weights: Floats
) -> tuple[Commands, Aggregated]:
    """The same, with the rows still to be concluded."""
    scenario, flights = world.scenario, state.flights
    clients = flights["client"][rows]
    if not (clients[1:] > clients[:-1]).all():
        order = np.lexsort((flights["dispatch"][rows], clients))
        rows, weights, replies = rows[order], weights[order], replies.take(order)
        clients = clients[order]
    bases = list(map(state.models.__getitem__, flights["version"][rows].tolist()))
    if world.rule.reweighing:
        weights = _reweighed(world, state, rows, replies, bases, weights)
    trainable = world.layout.trainable
    decay = scenario.work.schedule.decay_by(state.schedule_clock(world), world.most_steps)
    theta = scenario.aggregator(state.theta, replies.models, bases, weights, trainable, decay)
    theta.setflags(write=False)
    norm = math.sqrt(squared_norms([theta[:trainable]], [state.theta[:trainable]])[0])
    if scenario.solver.keep:
        ordinals = flights["ordinal"][rows].tolist()
        for client, ordinal, own in zip(clients.tolist(), ordinals, replies.kept, strict=True):
            state.keep(client, ordinal, own)
    lag = state.version - flights["version"][rows]
    slots = flights["slots"][rows]
    state.theta, state.version = theta, state.version + 1
    state.models[state.version] = theta
    state.updates += int(slots.sum())
    np.add.at(state.aggregated, clients, slots)
    np.add.at(state.discounts, clients, slots * scenario.policy.discounted(lag))
    if world.rule.lam is not None:
        work = world.passes[clients] + world.evaluation_passes[clients]
        state.trained += float(work.sum())
    state.bytes_up += int(flights["bytes_up"][rows].sum())
    commands: Commands = [Publish(state.version, theta)]
    commands.append(_round_row(world, state, len(rows), norm, weights))
    state.audited = None
    return commands, Aggregated(rows, lag, replies.loss_local, replies.loss_received, weights)


def _reweighed(
    world: World,
    state: State,
    rows: Ints,
    replies: Replies,
    bases: Sequence[Params],
    weights: Floats,
) -> Floats:
    """The weights that the weighting makes of those by sampling and policy."""
    flights, trainable = state.flights, world.layout.trainable
    schedule = world.scenario.work.schedule
    clients, clocks = flights["client"][rows], flights["clock"][rows].tolist()
    steps = world.steps[clients].tolist()
    update = Update(
        clients=clients,
        p=world.p[clients],
        weights=weights,
        total=float(np.sum(weights / ratios(world, state, clients))),
        losses=replies.loss_received,
        rates=np.array([schedule.rates(c, e)[0] for c, e in zip(clocks, steps, strict=True)]),
        models=[model[:trainable] for model in replies.models],
        bases=[base[:trainable] for base in bases],
    )
    return world.rule.weigh(update, state.memory)


def conclude(
    world: World, state: State, rows: Ints, aggregated: Aggregated | None = None
) -> Commands:
    """Record how work ended and let go of it: it was `aggregated`, or else discarded."""
    if not len(rows):
        return []
    flights = state.flights
    columns = {name: column[rows] for name, column in flights.columns.items()}
    _count(state, columns, None if aggregated is None else aggregated.weights)
    taken: dict[str, Any]
    if aggregated is None:
        state.bytes_up += int(columns["bytes_up"].sum())
        nothing = Nullable(np.full(len(rows), np.nan))
        taken = dict.fromkeys(("staleness", "loss_local", "loss_received", "weight"), nothing)
    else:
        taken = {
            "staleness": aggregated.lag,
            "loss_local": Nullable(aggregated.loss_local),
            "loss_received": Nullable(aggregated.loss_received),
            "weight": aggregated.weights,
        }
    record = Record(
        "dispatches",
        {
            **{name: columns[name] for name in ("dispatch", "round", "client", "ordinal")},
            **{name: columns[name] for name in ("version", "slots", "steps", "tilt")},
            **{name: columns[name] for name in ("bytes_down", "bytes_up")},
            **{f"{name}_s": columns[name] for name in ("send", "start", "end", "notice")},
            "outcome": Coded(columns["outcome"], OUTCOMES),
            "arrival_s": Nullable(columns["arrival"]),
            "rank": None if columns["rank"].max() == NO_RANK else columns["rank"],
            **taken,
        },
    )
    for version, n in Counter(columns["version"][columns["job"] >= 0].tolist()).items():
        state.held[version] -= n
        let_go(state, version)
    let_go(state, state.version - 1)
    clients = columns["client"]
    state.row_of[clients[state.row_of[clients] == rows]] = -1
    flights.release(rows)
    return [record]


def let_go(state: State, version: int) -> None:
    """Forget a version of the model that no work under way started from."""
    if version != state.version and state.held[version] <= 0:
        state.models.pop(version, None)
        del state.held[version]


def _count(state: State, flights: Mapping[str, Any], weights: Floats | None) -> None:
    part, clients = state.participation, flights["client"]
    busy = np.maximum(flights["end"] - flights["start"], 0.0)
    moved = flights["bytes_down"] + flights["bytes_up"]
    np.add.at(part.busy_s, clients, busy)
    np.add.at(part.bytes, clients, moved)
    if weights is not None:
        np.add.at(part.counts[OUTCOMES[COMPLETED]], clients, 1)
        np.add.at(part.weight, clients, weights)
        return
    outcome = flights["outcome"]
    for code in np.unique(outcome).tolist():
        np.add.at(part.counts[OUTCOMES[code]], clients[outcome == code], 1)
    np.add.at(part.wasted_s, clients, busy)
    np.add.at(part.wasted_bytes, clients, moved)


def _round_row(
    world: World, state: State, completed: int, step_norm: float, weights: Floats
) -> Record:
    H, delta = state.audited or (None, None)
    row = {
        "round": [state.version],
        "time_s": [state.now],
        "selected": [state.dispatches - state.recorded_dispatches],
        "completed": [completed],
        "updates": [state.updates],
        "lam": [world.rule.lam],
        "lam_max": [world.rule.lam_max],
        "bytes_down": [state.bytes_down],
        "bytes_up": [state.bytes_up],
        "step_norm": [step_norm],
        "weight_sum": [float(weights.sum())],
        "H": [H],
        "delta": [delta],
    }
    state.recorded_dispatches = state.dispatches
    return Record("rounds", row)
