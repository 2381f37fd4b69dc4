"""A stream of clients: some number of them is always at work, and each comes back in its own time.

    arrived   a reply is in: into the buffer with it; a full buffer is a server update
    lost      the server notices that a client will not come back
    refill    somebody has come online for a slot that stood empty
    ask       somebody has come online who can be asked for a loss
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
from gifair_ray.asking import Request, answered, ask
from gifair_ray.clock import Event
from gifair_ray.commands import Commands, Results
from gifair_ray.committing import commit, conclude, report
from gifair_ray.dispatching import dispatch, launch
from gifair_ray.errors import RunFailed
from gifair_ray.policies import Bools, Floats, Ints
from gifair_ray.policies._rounds import abandon, never_again, next_chance, wait_for_somebody
from gifair_ray.protocol import Reply
from gifair_ray.timeline import COMPLETED
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
            self._free(world, state, event.payload)
            commands += self._discard(world, state, event.payload, results)
        elif event.kind == "refill":
            stream.refill_at = np.inf
        elif event.kind == "ask":
            commands += self._ask_everybody(world, state)
        elif event.kind == "ranked":
            request, chosen = event.payload
            commands += self._ranked(world, state, request, chosen, results)
        return commands + self._go_on(world, state)

    def _ranked(
        self,
        world: World,
        state: State,
        request: Request,
        chosen: tuple[Ints, Ints] | None,
        results: Results,
    ) -> Commands:
        stream: StreamState = state.policy
        commands = answered(world, state, request, results)
        if chosen is not None:
            stream.questions -= 1
            return commands + self._send(world, state, *chosen, request.holders(state.version))
        stream.asking = False
        if world.scenario.weighting.asks == "everybody":  # a bootstrap is charged apart
            stream.answers = request
        if not state.should_stop(world):  # work goes out before the model changes again
            commands += self._fill(world, state)
        return commands

    def gather(self, world: World, state: State, event: Event) -> list[tuple[float, Event]]:
        """Arrivals that fill the buffer, as long as nothing sent out meanwhile could be back.

        Only where new work depends on nothing that these arrivals bring: no losses, no stopping
        between updates, nobody ever offline.
        """
        stream: StreamState = state.policy
        if event.kind != "arrived" or stream.vacant or not self._may_gather(world):
            return []
        until = _no_news_before(world, state.now if stream.owed is None else stream.owed)
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
            soon = kind == "arrived" and time < _no_news_before(world, state.now)
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
        self._free(world, state, row)
        lag = state.version - int(flights["version"][row])
        if self.max_staleness is not None and lag > self.max_staleness:
            flights["outcome"][row] = "too-stale"
            return self._discard(world, state, row, results)
        reply: Reply = results[int(flights["job"][row])]
        stream.buffer.append((row, reply))
        return report(world, state, np.array([row]), [reply])

    def _discard(self, world: World, state: State, row: int, results: Results) -> Commands:
        client, job = int(state.flights["client"][row]), int(state.flights["job"][row])
        if self.discarded == "kept" and world.scenario.solver.keep and job >= 0:
            state.personal[client] = np.array(results[job].model, copy=True)
        return conclude(world, state, np.array([row]))

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

    def _go_on(self, world: World, state: State) -> Commands:
        """Update the model if that is due, and give free slots new work."""
        commands: Commands = []
        stream: StreamState = state.policy
        held = stream.asking and self.exact == "blocking"
        if not held and self._due(state):
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
        if not held:
            commands += self._fill(world, state)
        return commands

    def _due(self, state: State) -> bool:
        """Whether the buffer is full, or nothing is under way that could still fill it."""
        stream: StreamState = state.policy
        if sum(int(state.flights["slots"][row]) for row, _ in stream.buffer) >= self.size():
            return True
        under_way = len(state.flights) - len(stream.buffer) + stream.questions
        return bool(stream.resting) and not under_way

    def _update(self, world: World, state: State) -> Commands:
        """One server update from the first replies that fill the buffer."""
        stream: StreamState = state.policy
        slots = [int(state.flights["slots"][row]) for row, _ in stream.buffer]
        n = int(np.searchsorted(np.cumsum(slots), self.size())) + 1
        rows = np.array([row for row, _ in stream.buffer[:n]], dtype=np.int64)
        replies = [reply for _, reply in stream.buffer[:n]]
        left = sum(slots[n:])
        omega = self.weigh(world, state, rows, stream.ended - left)
        stream.buffer, stream.ended = stream.buffer[n:], left
        self._end_rest(world, state)
        return commit(world, state, rows, replies, omega)

    def _ask_everybody(self, world: World, state: State) -> Commands:
        state.policy.asking = True
        everybody = np.arange(world.K)
        online = everybody[world.calendar.online(everybody, state.now)]
        if not len(online):
            return wait_for_somebody(world, state, everybody, Event("ask"))
        request, commands = ask(world, state, online)
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
                state.policy.questions += 1
            else:
                commands = self._send(world, state, clients, slots, self._holding(state))
        self._look_again(world, state)
        return commands

    def _holding(self, state: State) -> Ints | None:
        """Clients that have the current model, because they were all asked for its loss."""
        answers: Request | None = state.policy.answers
        return None if answers is None else answers.holders(state.version)

    def _look_again(self, world: World, state: State) -> None:
        """See to it that slots which stand empty get work as soon as somebody is there."""
        stream: StreamState = state.policy
        empty = stream.vacant or stream.away or stream.queue
        if not empty or stream.questions:  # what is asked will be answered, and we look then
            return
        waited_for = range(world.K) if stream.vacant else sorted(stream.away | set(stream.queue))
        them = np.array(waited_for, dtype=np.int64)
        when = next_chance(world, state, them)
        if np.isinf(when) and len(state.flights) == len(stream.buffer):
            raise never_again(state)
        if when < stream.refill_at:
            stream.refill_at = when
            state.clock.at(when, Event("refill"))

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
        queued = np.array(list(stream.queue), dtype=np.int64)
        chosen: list[int] = queued[self._idle(world, state, queued)].tolist()
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
                if self.busy_drawn == "skip" and not (state.row_of == -1).any():
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
            needs = (job,) if job >= 0 else ()
            state.clock.at(notice, Event("arrived" if arrives else "lost", needs, row))
        return commands

    def wind_up(self, world: World, state: State) -> Commands:
        commands: Commands = []
        stream: StreamState = state.policy
        while stream.buffer and self.at_end == "flush":
            commands += self._update(world, state)
        return commands + abandon(world, state)


def _no_news_before(world: World, t: float) -> float:
    """Nothing that is sent at t or later can be back before this; rounding included."""
    return (t + world.shortest) * (1 - 1e-12)
