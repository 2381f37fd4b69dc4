"""Rounds: draw a cohort, send it work, close when its outcomes are known, update, repeat.

    open    draw the cohort; if the weighting needs losses at the current model, ask for them
    ranked  those losses are in: send the work out
    closed  the server goes on: one server update

Rounds run in lanes, one after the other within a lane. Most policies have a single lane.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gifair_ray import measure
from gifair_ray.asking import Request, answered, ask
from gifair_ray.clock import Event
from gifair_ray.commands import Commands
from gifair_ray.committing import commit, conclude, report
from gifair_ray.dispatching import dispatch, launch
from gifair_ray.errors import RunFailed
from gifair_ray.policies import Bools, Floats, Ints, Policy
from gifair_ray.replies import Results
from gifair_ray.timeline import COMPLETED, TOO_STALE, UNFINISHED
from gifair_ray.weighing import Asynchronous, weights
from gifair_ray.world import State, World

Drawn = tuple[Ints, Ints]  # clients in ascending order, and the slots that each fills


@dataclass(frozen=True)
class Lane:
    """Clients that have rounds of their own."""

    number: int
    clients: Ints
    p: Floats

    @cached_property
    def cumulative(self) -> Floats:
        """Σ p over the lane's clients, for drawing."""
        return np.cumsum(self.p[self.clients])


@dataclass
class LaneState:
    """Rounds that a lane has had, and its work that a later round will take in."""

    rounds: int = 0
    carried: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class Rounds(Policy):
    """Base of the policies with rounds. The hooks are what they differ in."""

    # Hooks

    def lanes(self, world: World) -> list[Lane]:
        """Who has rounds together."""
        return [Lane(0, np.arange(world.K), world.p)]

    def slots(self, m: int) -> int:
        """How many slots are drawn for a round that wants m."""
        return m

    def send(self, world: World, state: State, drawn: Drawn, holding: Ints) -> tuple[Ints, float]:
        """Dispatch a cohort: its rows, and when the round closes."""
        rows = dispatch(world, state, *drawn, state.now, holding=holding)
        return rows, float(state.flights["notice"][rows].max())

    def divisor(self, world: World, asked: int, answered: int) -> int:
        """m in the weights, where so many slots were asked and so many have answered."""
        return asked

    # Rules

    def begin(self, world: World, state: State) -> Commands:
        state.policy = {lane.number: LaneState() for lane in self.lanes(world)}
        if world.scenario.weighting.bootstrap and not state.should_stop(world):
            return self._bootstrap(world, state)
        return self._open_all(world, state)

    def _open_all(self, world: World, state: State) -> Commands:
        return [command for lane in self.lanes(world) for command in self._open(world, state, lane)]

    def _bootstrap(self, world: World, state: State) -> Commands:
        online = world.online(state.now)
        if not len(online):
            return wait_for_somebody(world, state, np.arange(world.K), Event("begin"))
        request, commands = ask(world, state, online)
        state.clock.at(request.closes, Event("bootstrapped", request.needs, request))
        return commands

    def handle(self, world: World, state: State, event: Event, results: Results) -> Commands:
        if event.kind == "begin":
            return self._bootstrap(world, state)
        if event.kind == "bootstrapped":
            commands = answered(world, state, event.payload, results)
            return commands + self._open_all(world, state)
        if event.kind == "ranked":
            lane, request, drawn = event.payload
            commands = answered(world, state, request, results)
            holding = request.holders(state.version)
            return commands + self._send(world, state, lane, drawn, holding)
        if event.kind == "closed":
            lane, rows = event.payload
            commands = self._close(world, state, lane, rows, results)
            return commands + measure.evaluate_if_due(world, state) + self._open(world, state, lane)
        return self._open(world, state, event.payload)  # somebody has come online

    def _open(self, world: World, state: State, lane: Lane) -> Commands:
        """A round begins, unless the run is over."""
        if state.finished or state.should_stop(world):
            state.finished = True
            return []
        asks = world.scenario.weighting.asks
        if asks == "everybody":
            online = world.online(state.now)
            if not len(online):
                nobody_yet = Event("open", (), lane)
                return wait_for_somebody(world, state, np.arange(world.K), nobody_yet)
            return self._ask(world, state, lane, online, None)
        drawn = self._draw(world, state, lane)
        if asks == "participants" and len(drawn[0]):
            return self._ask(world, state, lane, drawn[0], drawn)
        return self._send(world, state, lane, drawn, drawn[0][:0])

    def _ask(
        self, world: World, state: State, lane: Lane, clients: Ints, drawn: Drawn | None
    ) -> Commands:
        request: Request
        request, commands = ask(world, state, clients)
        state.clock.at(request.closes, Event("ranked", request.needs, (lane, request, drawn)))
        return commands

    def _draw(self, world: World, state: State, lane: Lane) -> Drawn:
        sampling = world.scenario.sampling
        index = state.policy[lane.number].rounds + (lane.number << 40)
        m = self.slots(sampling.slots(len(lane.clients)))
        places, slots = sampling.draw(
            world.scenario.seed,
            index,
            lane.cumulative,
            lambda places: idle(world, state, lane.clients[places]),
            m,
        )
        return lane.clients[places], slots

    def _send(
        self, world: World, state: State, lane: Lane, drawn: Drawn | None, holding: Ints
    ) -> Commands:
        drawn = drawn if drawn is not None else self._draw(world, state, lane)
        if not len(drawn[0]):
            return self._send_nobody(world, state, lane)
        commands = measure.audit_if_due(world, state)
        rows, closes = self.send(world, state, drawn, holding)
        commands += launch(world, state, rows)
        self._close_at(state, lane, rows, closes)
        return commands

    def _send_nobody(self, world: World, state: State, lane: Lane) -> Commands:
        """There is nobody to send work to: take in what is back meanwhile, or wait."""
        carried = state.policy[lane.number].carried
        if (state.flights["notice"][carried] <= state.now).any():
            self._close_at(state, lane, carried[:0], state.now)
            return []
        return wait_for_somebody(world, state, lane.clients, Event("open", (), lane))

    def _close_at(self, state: State, lane: Lane, rows: Ints, closes: float) -> None:
        """A round of these rows, and of what is carried, closes at that moment."""
        flights = state.flights
        under_way = np.concatenate([state.policy[lane.number].carried, rows])
        jobs = flights["job"][under_way]
        waits_for = (jobs >= 0) & (flights["notice"][under_way] <= closes)
        needs = tuple(jobs[waits_for].tolist())
        state.clock.at(closes, Event("closed", needs, (lane, under_way)))

    def _close(
        self, world: World, state: State, lane: Lane, rows: Ints, results: Results
    ) -> Commands:
        """One server update from all whose outcome is known; the others are carried on."""
        flights, lane_state = state.flights, state.policy[lane.number]
        known = flights["notice"][rows] <= state.now
        rows, lane_state.carried = rows[known], rows[~known]
        lane_state.rounds += 1
        asked = int(flights["slots"][rows].sum())
        completed = flights["outcome"][rows] == COMPLETED
        if isinstance(self, Asynchronous) and self.max_staleness is not None:
            stale = completed & (state.version - flights["version"][rows] > self.max_staleness)
            flights["outcome"][rows[stale]] = TOO_STALE
            completed &= ~stale
        commands = discard(world, state, rows[~completed], results)
        arrived = rows[completed]
        replies = results.replies(flights["job"][arrived])
        m = self.divisor(world, asked, int(flights["slots"][arrived].sum()))
        omega = weights(world, state, arrived, m)
        commands += report(world, state, arrived, replies)
        return commands + commit(world, state, arrived, replies, omega)

    def wind_up(self, world: World, state: State) -> Commands:
        return abandon(world, state)


def idle(world: World, state: State, clients: Ints) -> Bools:
    """Who of the clients is online and has nothing to do."""
    return world.calendar.online(clients, state.now) & ~state.is_busy(clients)


def discard(world: World, state: State, rows: Ints, results: Results) -> Commands:
    """Conclude work that does not count; its clients may keep for themselves what they trained."""
    if world.scenario.policy.discarded == "kept" and world.scenario.solver.keep:
        for row in rows[state.flights["job"][rows] >= 0].tolist():
            client, ordinal, job = (
                state.flights[name][row] for name in ("client", "ordinal", "job")
            )
            state.keep(int(client), int(ordinal), results[int(job)].kept)
    return conclude(world, state, rows)


def wait_for_somebody(world: World, state: State, clients: Ints, event: Event) -> Commands:
    """Let an event happen as soon as one of the clients is online and has nothing to do."""
    when = next_chance(world, state, clients)
    if math.isinf(when):
        raise never_again(state)
    state.clock.at(when, event)
    return []


def never_again(state: State) -> RunFailed:
    """What there is to say when nobody will ever do any work any more."""
    return RunFailed(f"from {state.now:.6g} s on, no client is ever online again")


def next_chance(world: World, state: State, clients: Ints) -> float:
    """The next moment, after now, to look for one of the clients who can be sent work; or ∞."""
    at_rest = clients[~state.is_busy(clients)]
    when = world.calendar.next_online(state.now, at_rest) if len(at_rest) else math.inf
    if when == state.now:
        when = math.nextafter(state.now, math.inf)
    occupied = state.flights.in_use()
    notices = state.flights["notice"][occupied]
    return min(when, float(notices[notices > state.now].min(initial=math.inf)))


def abandon(world: World, state: State) -> Commands:
    """The run is over: what is still under way stays unfinished.

    What has been sent back by then counts as bytes, whether or not it has arrived.
    """
    rows, flights = state.flights.in_use(), state.flights
    state.clock.keep_only(measure.KINDS)
    flights["outcome"][rows] = UNFINISHED
    flights["bytes_up"][rows[flights["end"][rows] > state.now]] = 0
    flights["arrival"][rows[flights["arrival"][rows] > state.now]] = math.inf
    for name in ("start", "end", "notice"):
        flights[name][rows] = np.minimum(flights[name][rows], state.now)
    order = np.argsort(flights["dispatch"][rows])
    return conclude(world, state, rows[order])
