"""A stream of clients: some number of them is always at work, and each comes back in its own time.

    arrived   a reply is in: into the buffer with it; a full buffer is a server update
    lost      the server notices that a client will not come back
    refill    somebody has come online for a slot that stood empty
    ranked    losses that were asked for are in

A multiplier is frozen when its work is sent out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
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
from gifair_ray.policies import Bools, Floats, Ints
from gifair_ray.policies._rounds import abandon, wait_for_somebody
from gifair_ray.protocol import Reply
from gifair_ray.timeline import COMPLETED
from gifair_ray.weighing import Stale
from gifair_ray.world import RESERVED, State, World

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
    """Slots that nobody was there for."""
    away: set[int] = field(default_factory=set)
    """Clients that go on when they are online again, where everybody takes part."""
    queue: Counter[int] = field(default_factory=Counter)
    """Work that waits for a client that is busy."""
    waiting: bool = False
    """Whether a refill is on the clock."""
    asking: bool = False
    """Whether losses have been asked for and are not all in."""
    owed: float | None = None
    """When a slot became free whose work will be sent out together with the next ones."""


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
        if stream.owed is not None:
            commands += self._send_one_by_one(world, state, [(None, stream.owed)])
            stream.owed = None
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
                clients, slots = chosen
                commands += self._send(world, state, clients, slots, holding)
            else:
                stream.asking = False
        return commands + self._go_on(world, state)

    def gather(self, world: World, state: State, event: Event) -> list[tuple[float, Event]]:
        """Arrivals that fill the buffer, as long as nothing sent out meanwhile could be back.

        Only where new work depends on nothing that these arrivals bring: no losses, no stopping
        between updates, nobody ever offline.
        """
        stream: StreamState = state.policy
        if event.kind != "arrived" or not self._may_gather(world):
            return []
        until = (state.now if stream.owed is None else stream.owed) + world.shortest
        room = self.size() - len(stream.buffer) - 1
        found: list[tuple[float, Event]] = []
        while len(found) < room and (following := state.clock.peek()) is not None:
            time, following_event = following
            if following_event.kind != "arrived" or time >= until:
                break
            state.clock.pop()
            found.append((time, following_event))
        return found

    def _may_gather(self, world: World) -> bool:
        scenario = world.scenario
        simple = scenario.weighting.basis is None and scenario.weighting.asks == "nobody"
        steady = scenario.stop.virtual_s is None and scenario.stop.bytes is None
        drawn = scenario.sampling.scheme != "all" and self.busy_drawn == "skip"
        at_once = self.refill == "arrival" and self.max_staleness is None
        return simple and steady and drawn and at_once and scenario.availability.reliable

    def handle_together(
        self, world: World, state: State, events: list[tuple[float, Event]], results: Results
    ) -> Commands:
        stream, flights = state.policy, state.flights
        rows = np.array([event.payload for _, event in events], dtype=np.int64)
        stream.buffer += [
            (row, results[job])
            for row, job in zip(rows.tolist(), flights["job"][rows].tolist(), strict=True)
        ]
        full = len(stream.buffer) >= self.size()
        last = len(rows) - 1 if full else len(rows)  # the last gets new work after the update
        freed = zip(flights["client"][rows[:last]].tolist(), events[:last], strict=True)
        frees = [] if stream.owed is None else [(None, stream.owed)]
        frees += [(client, time) for client, (time, _) in freed]
        commands = self._send_one_by_one(world, state, frees)
        stream.ended += int(flights["slots"][rows[:last]].sum())
        stream.owed = None
        if full:
            row = int(rows[-1])
            following = state.clock.peek()
            self._free(world, state, row)
            commands += self._update(world, state) + measure.evaluate_if_due(world, state)
            time, kind = (np.inf, "") if following is None else (following[0], following[1].kind)
            soon = kind == "arrived" and time < state.now + world.shortest
            if soon and not state.should_stop(world):
                stream.vacant -= 1
                stream.owed = state.now
            else:
                commands += self._go_on(world, state)
        return commands

    def _send_one_by_one(
        self, world: World, state: State, frees: Sequence[tuple[int | None, float]]
    ) -> Commands:
        """New work for slots as they become free: (the client that becomes free, when)."""
        chosen: list[int] = []
        for freed, time in frees:
            if freed is not None:
                state.row_of[freed] = -1
            client = self._next(world, state, time)
            assert client is not None  # there is always the one that has just come back
            chosen.append(client)
            state.row_of[client] = RESERVED
        if not chosen:
            return []
        moments = np.array([time for _, time in frees])
        ones = np.ones(len(chosen), dtype=np.int64)
        return self._send(world, state, np.array(chosen), ones, None, moments)

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
            state.row_of[there] = RESERVED
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
            state.row_of[clients] = RESERVED
            return clients, slots
        chosen = self._next_candidates(world, state)
        stream.vacant -= len(chosen)
        clients = np.array(sorted(chosen), dtype=np.int64)
        return clients, np.ones_like(clients)

    def _idle(self, world: World, state: State, clients: Ints) -> Bools:
        return world.calendar.online(clients, state.now) & ~state.is_busy(clients)

    def _next_candidates(self, world: World, state: State) -> list[int]:
        """Clients for the free slots, as many as somebody is there for; they count as busy."""
        stream: StreamState = state.policy
        chosen: list[int] = [k for k in stream.queue if state.row_of[k] == -1]
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

    def _next(self, world: World, state: State, t: float) -> int | None:
        """The next candidate of the sequence that can be sent work at t, or queued for it.

        If many in a row cannot, one that can is drawn among everybody; None if there is none.
        """
        stream, scenario = state.policy, world.scenario
        for _ in range(PATIENCE):
            if not stream.candidates:
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
        idle = np.flatnonzero(state.row_of == -1)
        there = idle[world.calendar.online(idle, t)]
        drawn = scenario.sampling.among(scenario.seed, stream.drawn, there, world.p, 1)
        return drawn[0] if drawn else None

    def _send(
        self,
        world: World,
        state: State,
        clients: Ints,
        slots: Ints,
        holding: Ints | None,
        send: Floats | None = None,
    ) -> Commands:
        commands = measure.audit_if_due(world, state)
        moments = np.full(len(clients), state.now) if send is None else send
        rows = dispatch(world, state, clients, slots, moments, holding=holding)
        commands += launch(world, state, rows)
        columns = (state.flights[name][rows].tolist() for name in ("outcome", "job", "notice"))
        for row, outcome, job, notice in zip(rows.tolist(), *columns, strict=True):
            arrives = outcome == COMPLETED
            event = Event("arrived", (job,), row) if arrives else Event("lost", (), row)
            state.clock.at(notice, event)
        return commands

    def wind_up(self, world: World, state: State) -> Commands:
        commands: Commands = []
        stream: StreamState = state.policy
        if stream.buffer and self.at_end == "flush":
            commands += self._update(world, state)
        return commands + abandon(world, state)
