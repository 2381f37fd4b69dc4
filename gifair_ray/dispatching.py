"""Sending work out: who gets which message, and what will become of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gifair_ray.commands import Commands, Submit
from gifair_ray.protocol import ALL_STEPS, TrainJobs
from gifair_ray.timeline import COMPLETED, timeline
from gifair_ray.world import SCALAR_BYTES, State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NO_RANK = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Messages:
    """What clients are sent, in columns: numbered, and counted as sent."""

    clients: Ints
    ids: Ints
    nbytes: Ints
    version: Ints | int
    clock: Floats | float

    @staticmethod
    def joined(parts: Sequence[Messages]) -> Messages:
        """All of them."""
        n = [len(part.clients) for part in parts]
        return Messages(
            np.concatenate([part.clients for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.nbytes for part in parts]),
            np.repeat(np.array([part.version for part in parts]), n),
            np.repeat(np.array([part.clock for part in parts]), n),
        )


def address(world: World, state: State, clients: Ints, holding: Ints | None = None) -> Messages:
    """The current model, to these clients. `holding` have it already."""
    nbytes = np.full(len(clients), world.model_bytes, dtype=np.int64)
    if holding is not None and len(holding):
        nbytes[np.isin(clients, holding)] = 0
    if world.rule.tilting:
        nbytes += SCALAR_BYTES
    ids = np.arange(state.dispatches, state.dispatches + len(clients))
    state.dispatches += len(clients)
    state.bytes_down += int(nbytes.sum())
    return Messages(clients, ids, nbytes, state.version, state.schedule_clock(world))


def dispatch(
    world: World,
    state: State,
    clients: Ints,
    slots: Ints,
    send: Floats | float,
    *,
    holding: Ints | None = None,
    timeout_s: float | None = None,
    partial: bool = False,
) -> Ints:
    """Rows of `state.flights` for the current model, sent to clients: see `address`, `deliver`."""
    messages = address(world, state, clients, holding)
    return deliver(world, state, messages, slots, send, timeout_s=timeout_s, partial=partial)


def deliver(
    world: World,
    state: State,
    messages: Messages,
    slots: Ints,
    send: Floats | float,
    *,
    timeout_s: float | None = None,
    partial: bool = False,
) -> Ints:
    """Rows of `state.flights` for work sent to clients, each with its multiplier frozen.

    With `partial`, a client that would be late returns the steps that it has done in time.
    Nothing is computed until `launch`.
    """
    scenario, counts = world.scenario, state.participation.counts
    clients, down = messages.clients, messages.nbytes
    tilt, rank = world.rule.tilts(state.losses, clients)
    up = np.full(len(clients), world.model_bytes + SCALAR_BYTES * len(scenario.weighting.reports))
    ordinals = counts["selected"][clients]
    steps = world.steps[clients]
    limit = scenario.policy.timeout_s if timeout_s is None else timeout_s
    fate = timeline(
        world.fleet, world.calendar, scenario.seed, "train",
        clients, ordinals, send, down, up, world.passes[clients], limit, scenario.policy.notice,
        after=world.evaluation_passes[clients], steps=steps if partial else None,
    )  # fmt: skip
    counts["selected"][clients] += 1
    state.busy_until[clients] = fate.end
    rows = state.flights.add(
        len(clients),
        dispatch=messages.ids,
        round=messages.version + 1,
        client=clients,
        ordinal=ordinals,
        version=messages.version,
        slots=slots,
        send=send,
        start=fate.start,
        end=fate.end,
        arrival=fate.arrival,
        notice=fate.notice,
        outcome=fate.code,
        steps=steps if fate.steps is None else fate.steps,
        tilt=tilt,
        rank=NO_RANK if rank is None else rank,
        bytes_down=down,
        bytes_up=np.where(fate.uploaded, up, 0),
        job=-1,
        clock=messages.clock,
    )
    state.row_of[clients] = rows
    return rows


def launch(world: World, state: State, rows: Ints) -> Commands:
    """Start the training of those rows, all of one version, whose work will count.

    That is also the case where a client keeps for itself what the server will discard.
    """
    flights = state.flights
    counts = flights["outcome"][rows] == COMPLETED
    if world.scenario.policy.discarded == "kept" and world.scenario.solver.keep:
        counts |= flights["bytes_up"][rows] > 0  # it had finished: its reply was on the way
    rows = rows[counts]
    if not len(rows):
        return []
    clients, steps = flights["client"][rows], flights["steps"][rows]
    ids = np.arange(state.jobs, state.jobs + len(rows))
    own = {}
    if world.scenario.solver.tracks > 1:
        models = enumerate(map(state.own_model, clients.tolist()))
        own = {place: model for place, model in models if model is not None}
    version = int(flights["version"][rows[0]])
    jobs = TrainJobs(
        version,
        ids,
        clients,
        flights["ordinal"][rows],
        flights["clock"][rows],
        flights["tilt"][rows],
        np.where(steps == world.steps[clients], ALL_STEPS, steps),
        own,
    )
    state.jobs += len(rows)
    flights["job"][rows] = ids
    state.held[version] += len(rows)
    return [Submit([jobs])]
