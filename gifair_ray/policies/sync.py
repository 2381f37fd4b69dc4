"""Synchronous rounds: ask a cohort, wait for all of it (or the timeout), update, repeat.

open    draw the cohort; if the weighting needs losses at the current model, ask for them
ranked  those losses are in: send the work out
closed  every outcome is known: one server update
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from gifair_ray import measure, rules
from gifair_ray.clock import Event
from gifair_ray.errors import RunFailed
from gifair_ray.policies import Policy
from gifair_ray.rules import Commands, Results
from gifair_ray.world import State, World


class Sync(Policy):
    """Rounds of one cohort each."""

    kind: Literal["sync"] = "sync"

    def begin(self, world: World, state: State) -> Commands:
        if not world.scenario.weighting.bootstrap or state.should_stop(world):
            return self._open(world, state)
        if not len(online := _online(world, state)):
            return _wait_for_somebody(world, state, "begin")
        request, commands = rules.ask(world, state, online)
        _wait_for(state, "bootstrapped", request, None)
        return commands

    def handle(self, world: World, state: State, event: Event, results: Results) -> Commands:
        if event.kind == "closed":
            cohort, slots = event.payload
            commands = rules.commit(world, state, cohort, slots, results)
            return commands + measure.evaluate_if_due(world, state) + self._open(world, state)
        if event.kind in ("ranked", "bootstrapped"):
            request, drawn = event.payload
            commands = rules.answered(world, state, request, results)
            if event.kind == "bootstrapped":
                return commands + self._open(world, state)
            holding = request.clients[request.reached]
            return commands + self._send(world, state, drawn, holding)
        # Somebody has come online.
        return self.begin(world, state) if event.kind == "begin" else self._open(world, state)

    def _open(self, world: World, state: State) -> Commands:
        """A round begins, unless the run is over."""
        if state.should_stop(world):
            state.finished = True
            return []
        asks = world.scenario.weighting.asks
        if asks == "everybody":
            if not len(online := _online(world, state)):
                return _wait_for_somebody(world, state, "open")
            request, commands = rules.ask(world, state, online)
            _wait_for(state, "ranked", request, None)
            return commands
        drawn = self._draw(world, state)
        if not len(drawn[0]):
            return _wait_for_somebody(world, state, "open")
        if asks == "participants":
            request, commands = rules.ask(world, state, drawn[0])
            _wait_for(state, "ranked", request, drawn)
            return commands
        return self._send(world, state, drawn, drawn[0][:0])

    def _draw(self, world: World, state: State) -> tuple[rules.Ints, rules.Ints]:
        return world.scenario.sampling.draw(
            world.scenario.seed,
            state.version,
            world.cumulative,
            lambda clients: world.calendar.online(clients, state.now),
        )

    def _send(
        self,
        world: World,
        state: State,
        drawn: tuple[rules.Ints, rules.Ints] | None,
        holding: rules.Ints,
    ) -> Commands:
        clients, slots = drawn if drawn is not None else self._draw(world, state)
        if not len(clients):
            return _wait_for_somebody(world, state, "open")
        commands = measure.audit_if_due(world, state)
        cohort, submitted = rules.dispatch(world, state, clients, slots, holding)
        needs = tuple(cohort.jobs.values())
        state.clock.at(cohort.closes, Event("closed", needs, (cohort, int(slots.sum()))))
        return commands + submitted


def _online(world: World, state: State) -> rules.Ints:
    everybody = np.arange(world.K)
    return everybody[world.calendar.online(everybody, state.now)]


def _wait_for_somebody(world: World, state: State, kind: str) -> Commands:
    when = world.calendar.next_online(state.now)
    if math.isinf(when):
        raise RunFailed(f"from {state.now:.6g} s on, no client is ever online again")
    state.clock.at(when, Event(kind))
    return []


def _wait_for(
    state: State,
    kind: str,
    request: rules.Request,
    drawn: tuple[rules.Ints, rules.Ints] | None,
) -> None:
    needs = () if request.job is None else (request.job,)
    state.clock.at(request.closes, Event(kind, needs, (request, drawn)))
