"""Arrivals of a stream that are handled together, as columns: the same results, sooner."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gifair_ray import measure
from gifair_ray.clock import Event
from gifair_ray.commands import Commands
from gifair_ray.committing import Aggregated, conclude, let_go, update
from gifair_ray.dispatching import Messages, address, deliver, launch
from gifair_ray.policies import Ints
from gifair_ray.policies._slots import StreamState
from gifair_ray.policies._stream import Stream
from gifair_ray.replies import Results
from gifair_ray.world import RESERVED, State, World

NOBODY: Ints = np.zeros(0, dtype=np.int64)


class Promise(NamedTuple):
    """Messages to be sent at these times; and where the commands go that come of it."""

    version: int
    messages: Messages
    times: list[float]
    commands: Commands


class Together(Stream):
    """A stream whose arrivals need not be looked at one by one."""

    def gather(
        self, world: World, state: State, event: Event, updates: int
    ) -> list[tuple[float, Event]]:
        """Arrivals that fill the buffer so often, as long as nothing sent out meanwhile could be
        back, and no evaluation nor the end of the run comes between.

        Only where new work depends on nothing that these arrivals bring: no losses, no models of
        the clients' own, no stopping between updates, nobody ever offline.
        """
        stream: StreamState = state.policy
        if event.kind != "arrived" or stream.vacant or not self._may_gather(world):
            return []
        until = _no_news_before(world, state.now if stream.owed is None else stream.owed)
        updates = min(updates, self._undisturbed(world, state))
        room = updates * self.size() - len(stream.buffer) - 1
        return state.clock.take(room, "arrived", until)

    def _may_gather(self, world: World) -> bool:
        scenario = world.scenario
        simple = scenario.weighting.basis is None and scenario.weighting.asks == "nobody"
        simple = simple and scenario.solver.tracks == 1 and world.rule.lam is None
        steady = scenario.stop.virtual_s is None and scenario.stop.bytes is None
        drawn = scenario.sampling.scheme != "all" and self.busy_drawn == "skip"
        at_once = self.refill == "arrival" and self.max_staleness is None
        return simple and steady and drawn and at_once and scenario.availability.reliable

    def _undisturbed(self, world: World, state: State) -> int:
        """Server updates until something else happens at one."""
        if self.failures == "corrected":  # by everybody's record, which is written at the end
            return 1
        stop, evaluation = world.scenario.stop, world.scenario.evaluation
        ends: list[tuple[str, float | None]] = [("rounds", stop.rounds), ("updates", stop.updates)]
        if evaluation.every:
            ends.append((evaluation.unit, state.next_evaluation))
        each = {"rounds": 1, "updates": self.size()}  # how much of it is in an update
        left = [
            math.ceil((end - state.count(unit)) / each[unit]) if unit in each else 1
            for unit, end in ends
            if end is not None
        ]
        return max(1, min(left, default=1))

    def handle_together(
        self, world: World, state: State, events: list[tuple[float, Event]], results: Results
    ) -> Commands:
        stream, flights = state.policy, state.flights
        times = [time for time, _ in events]
        rows = np.array([event.payload for _, event in events], dtype=np.int64)
        jobs, clients = flights["job"][rows].tolist(), flights["client"][rows]
        arrived = [(row, results[job]) for row, job in zip(rows.tolist(), jobs, strict=True)]
        promised: list[Promise] = []
        aggregated: list[Aggregated] = []
        commands: list[Commands] = []
        at = 0
        while at < len(events):
            end = min(len(events), at + self.size() - len(stream.buffer))
            state.clock.now = times[end - 1]
            stream.buffer += arrived[at:end]
            full = len(stream.buffer) >= self.size()
            last = end - 1 if full else end  # the last gets new work after the update
            promised.append(self._promise(world, state, clients[at:last], times[at:last]))
            commands.append(promised[-1].commands)
            stream.ended += last - at  # a slot each
            if full:
                self._free(world, state, int(rows[end - 1]))
                updated, taken = update(world, state, *self._taken(world, state))
                aggregated.append(taken)
                commands.append(updated + measure.evaluate_if_due(world, state))
                stream.vacant -= 1
                stream.owed = state.now
            at = end
        if aggregated:
            done = Aggregated.joined(aggregated)
            commands.append(conclude(world, state, done.rows, done))
        self._keep(world, state, promised)
        return [command for some in commands for command in some] + self._settle(world, state)

    def _settle(self, world: World, state: State) -> Commands:
        """Work that is owed can wait if another arrival comes soon."""
        stream, following = state.policy, state.clock.peek()
        if stream.owed is None:
            return []
        time, kind = (np.inf, "") if following is None else (following[0], following[1].kind)
        soon = kind == "arrived" and time < _no_news_before(world, state.now)
        if soon and not state.should_stop(world):
            return []
        stream.vacant += 1
        stream.owed = None
        return self._go_on(world, state)

    def _pay(self, world: World, state: State) -> Commands:
        if state.policy.owed is None:
            return []
        promise = self._promise(world, state, NOBODY, [])
        self._keep(world, state, [promise])
        return promise.commands

    def _promise(self, world: World, state: State, freed: Ints, times: list[float]) -> Promise:
        """The current model, to whoever is next for the slots of these clients, which become free
        at these times, and for the slot that is owed.
        """
        stream: StreamState = state.policy
        if stream.owed is not None:
            times = [stream.owed, *times]
            stream.owed = None
        messages = address(world, state, self._next_ones(world, state, freed, times))
        state.held[state.version] += len(times)  # it is not forgotten
        return Promise(state.version, messages, times, [])

    def _next_ones(self, world: World, state: State, freed: Ints, times: list[float]) -> Ints:
        """Who is next for slots that become free at these times, the last ones by these clients."""
        clients = self._next_few(state, len(times))
        if clients is not None:
            state.row_of[freed] = -1
            state.row_of[clients] = RESERVED
            return clients
        chosen: list[int] = []
        for i, time in enumerate(times, len(freed) - len(times)):
            if i >= 0:
                state.row_of[freed[i]] = -1
            client = self._next(world, state, time)
            assert client is not None  # there is always the one that has just come back
            chosen.append(client)
            state.row_of[client] = RESERVED
        return np.array(chosen, dtype=np.int64)

    def _keep(self, world: World, state: State, promises: list[Promise]) -> None:
        """Send all of it out at once."""
        messages = Messages.joined([promise.messages for promise in promises])
        moments = np.array([time for promise in promises for time in promise.times])
        if not len(moments):
            return
        rows = deliver(world, state, messages, np.ones(len(moments), dtype=np.int64), moments)
        at = 0
        for version, _, times, commands in promises:
            commands += launch(world, state, rows[at : at + len(times)])
            at += len(times)
            state.held[version] -= len(times)
            let_go(state, version)
        self._expect(state, rows)


def _no_news_before(world: World, t: float) -> float:
    """Nothing that is sent at t or later can be back before this; rounding included."""
    return (t + world.shortest) * (1 - 1e-12)
