"""Arrivals of a stream that are handled together, as columns: the same results, sooner."""

from __future__ import annotations

import numpy as np

from gifair_ray import measure
from gifair_ray.clock import Event
from gifair_ray.commands import Commands
from gifair_ray.policies._slots import StreamState
from gifair_ray.policies._stream import Stream
from gifair_ray.replies import Results
from gifair_ray.world import State, World


class Together(Stream):
    """A stream whose arrivals between two updates need not be looked at one by one."""

    def gather(self, world: World, state: State, event: Event) -> list[tuple[float, Event]]:
        """Arrivals that fill the buffer, as long as nothing sent out meanwhile could be back.

        Only where new work depends on nothing that these arrivals bring: no losses, no models of
        the clients' own, no stopping between updates, nobody ever offline.
        """
        stream: StreamState = state.policy
        if event.kind != "arrived" or stream.vacant or not self._may_gather(world):
            return []
        until = _no_news_before(world, state.now if stream.owed is None else stream.owed)
        room = self.size() - len(stream.buffer) - 1
        return state.clock.take(room, "arrived", until)

    def _may_gather(self, world: World) -> bool:
        scenario = world.scenario
        simple = scenario.weighting.basis is None and scenario.weighting.asks == "nobody"
        simple = simple and scenario.solver.tracks == 1
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
        freed = flights["client"][rows[:last]]
        times = [] if stream.owed is None else [stream.owed]
        times += [time for time, _ in events[:last]]
        commands = self._send_one_by_one(world, state, freed, times)
        stream.ended += last  # a slot each
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


def _no_news_before(world: World, t: float) -> float:
    """Nothing that is sent at t or later can be back before this; rounding included."""
    return (t + world.shortest) * (1 - 1e-12)
