"""A stream of clients: some number of them is always at work, and each comes back in its own time.

    arrived   a reply is in: into the buffer with it; a full buffer is a server update
    lost      the server notices that a client will not come back
    refill    somebody has come online for a slot that stood empty
    ask       somebody has come online who can be asked for a loss
    ranked    losses that were asked for are in

A multiplier is frozen when its work is sent out.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gifair_ray import measure
from gifair_ray.asking import Request, answered, ask
from gifair_ray.clock import Event
from gifair_ray.commands import Commands
from gifair_ray.committing import commit, report
from gifair_ray.dispatching import dispatch, launch
from gifair_ray.policies import Floats, Ints
from gifair_ray.policies._rounds import (
    abandon,
    discard,
    never_again,
    next_chance,
    wait_for_somebody,
)
from gifair_ray.policies._slots import Slots, StreamState
from gifair_ray.replies import Replies, Reply, Results
from gifair_ray.timeline import COMPLETED, TOO_STALE
from gifair_ray.world import State, World


class Stream(Slots):
    """Base of the policies without rounds."""

    cohorts: ClassVar[bool] = False

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
        commands = self._pay(world, state)
        if event.kind == "arrived":
            commands += self._arrived(world, state, event.payload, results)
        elif event.kind == "lost":
            self._free(world, state, event.payload)
            commands += discard(world, state, np.array([event.payload]), results)
        elif event.kind == "refill":
            stream.refill_at = np.inf
        elif event.kind == "ask":
            commands += self._ask_everybody(world, state)
        elif event.kind == "ranked":
            request, chosen = event.payload
            commands += self._ranked(world, state, request, chosen, results)
        return commands + self._go_on(world, state)

    def _pay(self, world: World, state: State) -> Commands:
        """Send out the work that is owed."""
        return []

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

    def _arrived(self, world: World, state: State, row: int, results: Results) -> Commands:
        stream, flights = state.policy, state.flights
        self._free(world, state, row)
        lag = state.version - int(flights["version"][row])
        if self.max_staleness is not None and lag > self.max_staleness:
            flights["outcome"][row] = TOO_STALE
            return discard(world, state, np.array([row]), results)
        reply: Reply = results[int(flights["job"][row])]
        stream.buffer.append((row, reply))
        if reply.personal is not None:  # its client may train on from it before the next update
            ordinal = int(flights["ordinal"][row])
            state.waiting[int(flights["client"][row])] = ordinal, reply.personal
        return report(world, state, np.array([row]), Replies.of([reply]))

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
        return commit(world, state, *self._taken(world, state))

    def _taken(self, world: World, state: State) -> tuple[Ints, Replies, Floats]:
        """The first replies that fill the buffer, with their rows and weights, out of it."""
        stream: StreamState = state.policy
        rows = np.array([row for row, _ in stream.buffer], dtype=np.int64)
        slots = state.flights["slots"][rows].tolist()
        n, room = 0, self.size()
        while n < len(slots) and room > 0:
            room -= slots[n]
            n += 1
        rows, replies = rows[:n], Replies.of([reply for _, reply in stream.buffer[:n]])
        left = sum(slots[n:])
        omega = self.weigh(world, state, rows, stream.ended - left)
        stream.buffer, stream.ended = stream.buffer[n:], left
        self._end_rest(world, state)
        return rows, replies, omega

    def _ask_everybody(self, world: World, state: State) -> Commands:
        state.policy.asking = True
        online = world.online(state.now)
        if not len(online):
            return wait_for_somebody(world, state, np.arange(world.K), Event("ask"))
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

    def _send(
        self, world: World, state: State, clients: Ints, slots: Ints, holding: Ints | None
    ) -> Commands:
        commands = measure.audit_if_due(world, state)
        moments = np.full(len(clients), state.now)
        rows = dispatch(world, state, clients, slots, moments, holding=holding)
        commands += launch(world, state, rows)
        self._expect(state, rows)
        return commands

    def _expect(self, state: State, rows: Ints) -> None:
        """Work that was sent will be back, or known to be lost."""
        columns = (state.flights[name][rows].tolist() for name in ("outcome", "job", "notice"))
        for row, outcome, job, notice in zip(rows.tolist(), *columns, strict=True):
            arrives = outcome == COMPLETED
            needs = (job,) if job >= 0 else ()
            state.clock.at(notice, Event("arrived" if arrives else "lost", needs, row))

    def wind_up(self, world: World, state: State) -> Commands:
        commands: Commands = []
        stream: StreamState = state.policy
        while stream.buffer and self.at_end == "flush":
            commands += self._update(world, state)
        if self.discarded == "kept" and world.scenario.solver.keep:
            for row, reply in stream.buffer:
                client, ordinal = (int(state.flights[name][row]) for name in ("client", "ordinal"))
                state.keep(client, ordinal, reply.kept)
        return commands + abandon(world, state)
