"""A stream of clients: some number of them is always at work, and each comes back in its own time.

    arrived   a reply is in: into the buffer with it; a full buffer is a server update
    lost      the server notices that a client will not come back
    refill    somebody has come online for a slot that stood empty
    ranked    losses that were asked for are in

A multiplier is frozen when its work is sent out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray import measure
from gifair_ray.asking import answered, ask
from gifair_ray.clock import Event
from gifair_ray.commands import Commands, Results
from gifair_ray.committing import commit, conclude, report
from gifair_ray.dispatching import dispatch, launch
from gifair_ray.policies import Floats, Ints
from gifair_ray.policies._rounds import abandon, wait_for_somebody
from gifair_ray.protocol import Reply
from gifair_ray.timeline import COMPLETED
from gifair_ray.weighing import Stale
from gifair_ray.world import RESERVED, State, World

LOOK_AHEAD = 64  # candidates that are drawn at a time
PATIENCE = 32  # times that, before we look at everybody


@dataclass
class StreamState:
    """What a stream keeps between events."""

    buffer: list[tuple[int, Reply]] = field(default_factory=list)
    ended: int = 0
    """Slots whose work has ended, one way or the other, since the last server update."""
    drawn: int = 0
    """Candidates drawn so far."""
    vacant: int = 0
    """Slots that nobody was there for."""
    away: set[int] = field(default_factory=set)
    """Clients that go on when they are online again, where everybody takes part."""
    queue: Counter[int] = field(default_factory=Counter)
    """Work that waits for a client that is busy."""
    waiting: bool = False
    """Whether a refill is on the clock."""
    asking: bool = False
    """Whether losses have been asked for and are not all in."""


class Stream(Stale):
    """Base of the policies without rounds."""

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
    exact: Literal["blocking", "pipelined"] = Field(
        "blocking",
        description="ranks from losses of everybody at the current model: hold all updates and "
        "dispatches until they are in, or go on with what is known",
    )
    at_end: Literal["discard", "flush"] = Field(
        "discard", description="what becomes of a buffer that is not full when the run ends"
    )

    # Hooks

    def size(self) -> int:
        """Slots in a full buffer."""
        raise NotImplementedError

    def weigh(self, world: World, state: State, rows: Ints, asked: int) -> Floats:
        """ω of the replies in the buffer."""
        raise NotImplementedError

    # Rules

    def begin(self, world: World, state: State) -> Commands:
        state.policy = StreamState()
        if world.scenario.sampling.scheme == "all":
            state.policy.away = set(range(world.K))
        else:
            state.policy.vacant = self.concurrency
        asks = world.scenario.weighting.asks == "everybody" or world.scenario.weighting.bootstrap
        if asks and not state.should_stop(world):
            return self._ask_everybody(world, state)
        return self._go_on(world, state)

    def handle(self, world: World, state: State, event: Event, results: Results) -> Commands:
        stream: StreamState = state.policy
        commands: Commands = []
        if event.kind == "arrived":
            commands += self._arrived(world, state, event.payload, results)
        elif event.kind == "lost":
            row = event.payload
            self._free(world, state, row)
            commands += conclude(world, state, np.array([row]))
        elif event.kind == "refill":
            stream.waiting = False
        elif event.kind == "ranked":
            request, chosen = event.payload
            commands += answered(world, state, request, results)
            if chosen is not None:
                holding = request.clients[request.reached]
                commands += self._send(world, state, *chosen, holding)
            else:
                stream.asking = False
        return commands + self._go_on(world, state)

    def _arrived(self, world: World, state: State, row: int, results: Results) -> Commands:
        stream, flights = state.policy, state.flights
        reply: Reply = results[int(flights["job"][row])]
        rows = np.array([row])
        self._free(world, state, row)
        lag = state.version - int(flights["version"][row])
        if self.max_staleness is not None and lag > self.max_staleness:
            flights["outcome"][row] = "too-stale"
            if self.discarded == "kept" and world.scenario.solver.keep:
                state.personal[int(flights["client"][row])] = np.array(reply.model, copy=True)
            return conclude(world, state, rows)
        stream.buffer.append((row, reply))
        return report(world, state, rows, [reply])

    def _free(self, world: World, state: State, row: int) -> None:
        """The client of this row has nothing to do any more, and its slot is free."""
        stream, client = state.policy, int(state.flights["client"][row])
        slots = int(state.flights["slots"][row])
        state.row_of[client] = -1
        stream.ended += slots
        if world.scenario.sampling.scheme == "all":
            stream.away.add(client)
        else:
            stream.vacant += slots

    def _go_on(self, world: World, state: State) -> Commands:
        """Update the model if the buffer is full, and give free slots new work."""
        commands: Commands = []
        stream: StreamState = state.policy
        held = stream.asking and self.exact == "blocking"
        full = sum(int(state.flights["slots"][row]) for row, _ in stream.buffer) >= self.size()
        if full and not held:
            commands += self._update(world, state)
            commands += measure.evaluate_if_due(world, state)
            if state.should_stop(world):
                state.finished = True
                return commands
            if world.scenario.weighting.asks == "everybody" and not stream.asking:
                commands += self._ask_everybody(world, state)
                held = self.exact == "blocking"
        if state.finished or state.should_stop(world):
            state.finished = True
            return commands
        if not held and (full or state.version == 0 or self.refill == "arrival"):
            commands += self._fill(world, state)
        return commands

    def _update(self, world: World, state: State) -> Commands:
        stream: StreamState = state.policy
        rows = np.array([row for row, _ in stream.buffer], dtype=np.int64)
        replies = [reply for _, reply in stream.buffer]
        omega = self.weigh(world, state, rows, stream.ended)
        stream.buffer, stream.ended = [], 0
        return commit(world, state, rows, replies, omega)

    def _ask_everybody(self, world: World, state: State) -> Commands:
        everybody = np.arange(world.K)
        online = everybody[world.calendar.online(everybody, state.now)]
        request, commands = ask(world, state, online)
        state.policy.asking = True
        state.clock.at(request.closes, Event("ranked", request.needs, (request, None)))
        return commands

    # Who is next

    def _fill(self, world: World, state: State) -> Commands:
        clients, slots = self._choose(world, state)
        commands: Commands = []
        if len(clients):
            if world.scenario.weighting.asks == "participants":
                state.row_of[clients] = RESERVED
                request, commands = ask(world, state, clients)
                payload = (request, (clients, slots))
                state.clock.at(request.closes, Event("ranked", request.needs, payload))
            else:
                commands = self._send(world, state, clients, slots, None)
        stream: StreamState = state.policy
        if (stream.vacant or stream.away) and not stream.waiting:
            # With others at work, an arrival will come; but one may be online before that.
            them = np.array(sorted(stream.away)) if stream.away else np.arange(world.K)
            stream.waiting = True
            commands += wait_for_somebody(world, state, them, Event("refill"))
        return commands

    def _choose(self, world: World, state: State) -> tuple[Ints, Ints]:
        """Clients for the free slots, in ascending order, and how many slots each fills."""
        stream: StreamState = state.policy
        if world.scenario.sampling.scheme == "all":
            there = np.array(sorted(stream.away), dtype=np.int64)
            there = there[world.calendar.online(there, state.now)] if len(there) else there
            stream.away -= set(there.tolist())
            return there, np.ones_like(there)
        if self.refill == "update":
            clients, slots = world.scenario.sampling.draw(
                world.scenario.seed,
                state.version,
                world.cumulative,
                lambda those: self._idle(world, state, those),
                stream.vacant,
            )
            stream.vacant -= int(slots.sum())
            return clients, slots
        chosen = self._next_candidates(world, state)
        stream.vacant -= len(chosen)
        clients = np.array(sorted(chosen), dtype=np.int64)
        return clients, np.ones_like(clients)

    def _idle(self, world: World, state: State, clients: Ints) -> np.ndarray:
        return world.calendar.online(clients, state.now) & ~state.is_busy(clients)

    def _next_candidates(self, world: World, state: State) -> list[int]:
        """Take candidates from the sequence, one for each free slot that somebody is there for."""
        stream: StreamState = state.policy
        chosen: list[int] = [k for k in stream.queue if not state.is_busy(np.array([k]))[0]]
        for k in chosen:  # work that waited for a client that is free now; its slot was kept
            stream.queue[k] -= 1
            stream.vacant += 1
        stream.queue = +stream.queue
        sampling, seed = world.scenario.sampling, world.scenario.seed
        taken = set(chosen)
        for _ in range(PATIENCE):
            if len(chosen) >= stream.vacant:
                return chosen
            block = sampling.sequence(seed, stream.drawn, LOOK_AHEAD, world.cumulative)
            idle = self._idle(world, state, block)
            for k, free in zip(block.tolist(), idle.tolist(), strict=True):
                if len(chosen) >= stream.vacant:
                    break
                stream.drawn += 1
                if free and k not in taken:
                    chosen.append(k)
                    taken.add(k)
                elif self.busy_drawn == "queue" and (k in taken or state.is_busy(np.array([k]))[0]):
                    stream.queue[k] += 1
                    stream.vacant -= 1
        everybody = np.arange(world.K)
        rest = everybody[self._idle(world, state, everybody) & ~np.isin(everybody, chosen)]
        missing = stream.vacant - len(chosen)
        return chosen + sampling.among(seed, stream.drawn, rest, world.p, missing)

    def _send(
        self, world: World, state: State, clients: Ints, slots: Ints, holding: Ints | None
    ) -> Commands:
        commands = measure.audit_if_due(world, state)
        rows = dispatch(world, state, clients, slots, state.now, holding=holding)
        commands += launch(world, state, rows)
        flights = state.flights
        for row in rows.tolist():
            if flights["outcome"][row] == COMPLETED:
                event = Event("arrived", (int(flights["job"][row]),), row)
            else:
                event = Event("lost", (), row)
            state.clock.at(float(flights["notice"][row]), event)
        return commands

    def wind_up(self, world: World, state: State) -> Commands:
        commands: Commands = []
        stream: StreamState = state.policy
        if stream.buffer and self.at_end == "flush":
            commands += self._update(world, state)
        return commands + abandon(world, state)
