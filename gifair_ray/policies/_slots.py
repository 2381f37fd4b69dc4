"""Slots of a stream: who gets the next piece of work."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.asking import Request
from gifair_ray.errors import RunFailed
from gifair_ray.policies import Ints
from gifair_ray.policies._rounds import idle
from gifair_ray.replies import Reply
from gifair_ray.weighing import Stale
from gifair_ray.world import RESERVED, State, World

LONGEST_DROUGHT = 100_000  # slots that fail in a row, before we call it hopeless
LOOK_AHEAD = 64  # candidates that are drawn at a time
PATIENCE = 2048  # candidates that cannot be sent work, before we look at everybody


@dataclass
class StreamState:
    """What a stream keeps between events."""

    buffer: list[tuple[int, Reply]] = field(default_factory=list)
    ended: int = 0
    """Slots whose work has ended, one way or the other, since the last server update."""
    drawn: int = 0
    """Candidates drawn so far; the next few follow, last first."""
    candidates: list[int] = field(default_factory=list)
    vacant: int = 0
    """Slots that are to be given work as soon as somebody is there for it."""
    away: set[int] = field(default_factory=set)
    """The same where everybody takes part: clients that go on as soon as they are online."""
    resting: list[tuple[int, int]] = field(default_factory=list)
    """(client, slots) whose work has ended and which go on at the next server update."""
    queue: Counter[int] = field(default_factory=Counter)
    """Work that waits for a client that is busy."""
    refill_at: float = np.inf
    """When the next refill is on the clock."""
    asking: bool = False
    """Whether everybody's losses have been asked for and are not all in."""
    answers: Request | None = None
    """The last of those requests that is answered."""
    questions: int = 0
    """Requests to participants that are not answered."""
    owed: float | None = None
    """When a slot became free whose work will be sent out together with the next ones."""


class Slots(Stale):
    """Some number of slots is always at work; a slot that is free gets another client."""

    concurrency: int = Field(
        10, ge=1, description="slots at work at once (everybody, where sampling.scheme = 'all')"
    )
    busy_drawn: Literal["skip", "queue"] = Field(
        "skip",
        description="a client that is drawn while it is at work: the next candidate takes its "
        "place, or the work waits for it",
    )
    refill: Literal["arrival", "update"] = Field(
        "arrival", description="a free slot gets new work at once, or at the next server update"
    )

    def _free(self, world: World, state: State, row: int) -> None:
        """The client of this row has nothing to do any more, and its slot is free."""
        stream, client = state.policy, int(state.flights["client"][row])
        slots = int(state.flights["slots"][row])
        state.row_of[client] = -1
        stream.ended += slots
        if stream.ended > LONGEST_DROUGHT and not stream.buffer:
            raise RunFailed(
                f"{stream.ended} dispatches in a row have failed: the buffer will never fill; look "
                "at devices.dropout, devices.lifetime_s and policy.timeout_s"
            )
        stream.resting.append((client, slots))
        if self.refill == "arrival":
            self._end_rest(world, state)

    def _end_rest(self, world: World, state: State) -> None:
        """Slots that are free may be given new work."""
        stream: StreamState = state.policy
        if world.scenario.sampling.scheme == "all":
            stream.away.update(client for client, _ in stream.resting)
        else:
            stream.vacant += sum(slots for _, slots in stream.resting)
        stream.resting = []

    def _choose(self, world: World, state: State) -> tuple[Ints, Ints]:
        """Clients for the free slots, in ascending order, and how many slots each fills."""
        stream: StreamState = state.policy
        if world.scenario.sampling.scheme == "all":
            there = np.array(sorted(stream.away), dtype=np.int64)
            there = there[world.calendar.online(there, state.now)] if len(there) else there
            stream.away -= set(there.tolist())
            state.row_of[there] = RESERVED
            return there, np.ones_like(there)
        if self.refill == "update":
            clients, slots = world.scenario.sampling.draw(
                world.scenario.seed,
                state.version,
                world.cumulative,
                lambda those: idle(world, state, those),
                stream.vacant,
            )
            stream.vacant -= int(slots.sum())
            state.row_of[clients] = RESERVED
            return clients, slots
        chosen = self._next_candidates(world, state)
        stream.vacant -= len(chosen)
        clients = np.array(sorted(chosen), dtype=np.int64)
        return clients, np.ones_like(clients)

    def _next_candidates(self, world: World, state: State) -> list[int]:
        """Clients for the free slots, as many as somebody is there for; they count as busy."""
        stream: StreamState = state.policy
        queued = np.array(list(stream.queue), dtype=np.int64)
        chosen: list[int] = queued[idle(world, state, queued)].tolist()
        for k in chosen:  # work that waited for a client that is free now; its slot was kept
            stream.queue[k] -= 1
            stream.vacant += 1
            state.row_of[k] = RESERVED
        stream.queue = +stream.queue
        while len(chosen) < stream.vacant:
            if (client := self._next(world, state, state.now)) is None:
                break
            if state.row_of[client] == -1:
                chosen.append(client)
                state.row_of[client] = RESERVED
            else:
                stream.queue[client] += 1
                stream.vacant -= 1
        return chosen

    def _next_few(self, state: State, n: int) -> Ints | None:
        """The next n candidates, if they have been drawn, differ, and have nothing to do.

        Then each is sent work in its turn, whoever else becomes free meanwhile. Only where
        everybody is always online.
        """
        stream: StreamState = state.policy
        few = stream.candidates[: -n - 1 : -1]
        if len(set(few)) < n:
            return None
        clients = np.array(few, dtype=np.int64)
        if (state.row_of[clients] != -1).any():
            return None
        del stream.candidates[-n:]
        stream.drawn += n
        return clients

    def _next(self, world: World, state: State, t: float) -> int | None:
        """The next candidate of the sequence that can be sent work at t, or queued for it.

        If many in a row cannot, one that can is drawn among everybody; None if there is none.
        """
        stream, scenario = state.policy, world.scenario
        for _ in range(PATIENCE):
            if not stream.candidates:
                if self.busy_drawn == "skip" and not _somebody_idle(state):
                    return None
                block = scenario.sampling.sequence(
                    scenario.seed, stream.drawn, LOOK_AHEAD, world.cumulative
                )
                stream.candidates = block.tolist()[::-1]
            stream.drawn += 1
            client = stream.candidates.pop()
            if state.row_of[client] != -1:
                if self.busy_drawn == "queue":
                    return int(client)
            elif scenario.availability.reliable or world.calendar.online(np.array([client]), t)[0]:
                return int(client)
        stream.drawn += 1  # one more, which names the draw among everybody
        stream.candidates = []
        at_rest = np.flatnonzero(state.row_of == -1)
        there = at_rest[world.calendar.online(at_rest, t)]
        drawn = scenario.sampling.among(scenario.seed, stream.drawn, there, world.p, 1)
        return drawn[0] if drawn else None


def _somebody_idle(state: State) -> bool:
    """Whether anybody has nothing to do; a look at a few is mostly enough."""
    few = 4096
    return any((state.row_of[at : at + few] == -1).any() for at in range(0, len(state.row_of), few))
