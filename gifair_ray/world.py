"""The world a run plays in (fixed), and the state of its server (all that changes)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray import objective
from gifair_ray.availability import Calendar
from gifair_ray.clock import Clock
from gifair_ray.devices import Fleet
from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.flights import Flights
from gifair_ray.losses import LossTable
from gifair_ray.protocol import Layout
from gifair_ray.replies import Params
from gifair_ray.scenario import Scenario
from gifair_ray.sums import dot
from gifair_ray.tables import OUTCOMES
from gifair_ray.timeline import transfer_s
from gifair_ray.weightings import Memory, Rule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SCALAR_BYTES = 8
RESERVED = -2  # in place of a row: work is about to be sent


@dataclass(frozen=True)
class World:
    """Everything that follows from the scenario and never changes."""

    scenario: Scenario
    population: Population
    p: Floats
    cumulative: Floats
    fleet: Fleet
    calendar: Calendar
    rule: Rule
    layout: Layout
    steps: Ints
    """Local steps of each client's dispatches."""
    passes: Floats
    """Sample passes of a dispatch's training, of all models that a client trains in it."""
    evaluation_passes: Floats
    """What evaluating the reported losses adds, in passes."""

    @staticmethod
    def build(scenario: Scenario, population: Population, layout: Layout) -> World:
        """Check the scenario against the population and draw every client's device."""
        work, reports, solver = scenario.work, scenario.weighting.reports, scenario.solver
        p = objective.shares(population.train)
        rule = scenario.weighting.start(population)
        if rule.reweighing and not scenario.weighting.reweighs:
            raise BadInput(
                f"the rule of weighting.kind = {scenario.weighting.kind!r} has a `weigh` of its "
                "own: its weighting must say so, with a property `reweighs` that is True"
            )
        fleet = scenario.devices.build(scenario.seed, population)
        evaluations = population.train * np.float64(len(reports) * fleet.eval_fraction)
        return World(
            scenario=scenario,
            population=population,
            p=p,
            cumulative=np.cumsum(p),
            fleet=fleet,
            calendar=scenario.availability.build(scenario.seed, population),
            rule=rule,
            layout=layout,
            steps=work.step_counts(population.train),
            passes=work.sample_passes(population.train) * np.float64(solver.tracks),
            evaluation_passes=evaluations,
        )

    @cached_property
    def durations(self) -> Floats:
        """What a dispatch is expected to take each client: no jitter, no failures."""
        fleet, reports = self.fleet, self.scenario.weighting.reports
        down = self.model_bytes + SCALAR_BYTES * self.rule.tilting
        up = self.model_bytes + SCALAR_BYTES * len(reports)
        network = transfer_s(down, fleet.down_mbps) + transfer_s(up, fleet.up_mbps)
        compute = (self.passes + self.evaluation_passes) * fleet.sample_s
        return 2 * fleet.latency_s + network + compute

    @cached_property
    def most_steps(self) -> int:
        """The largest number of local steps that any client does."""
        return int(self.steps.max())

    @cached_property
    def shortest(self) -> float:
        """No news of work can reach the server sooner than this after it was sent."""
        fleet = self.fleet
        if not fleet.mortal and not fleet.jittery:
            return float(self.durations.min())
        return float(fleet.latency_s.min())

    @cached_property
    def evaluation_work(self) -> float:
        """Arithmetic of evaluating everybody's training data, in sample passes."""
        return float(np.sum(self.population.train)) / 3

    @cached_property
    def cohort_work(self) -> float:
        """Arithmetic of training a cohort, in sample passes, if all are online."""
        takes_part = self.scenario.sampling.inclusion(self.p)
        return dot(takes_part, self.passes + self.evaluation_passes)

    def online(self, t: float) -> Ints:
        """Everybody who is online at t."""
        everybody = np.arange(self.K)
        return everybody[self.calendar.online(everybody, t)]

    @property
    def K(self) -> int:
        """How many clients there are."""
        return len(self.p)

    @cached_property
    def model_bytes(self) -> int:
        """Size of a model on the network."""
        return self.layout.nbytes


def frozen(model: Params) -> Params:
    """A copy that nobody can change: it need not be copied again, nor saved twice."""
    model = np.array(model, copy=True)
    model.setflags(write=False)
    return model


@dataclass
class Participation:
    """Counters per client since the start."""

    counts: dict[str, Ints]
    busy_s: Floats
    wasted_s: Floats
    bytes: Ints
    wasted_bytes: Ints
    weight: Floats

    @staticmethod
    def none(K: int) -> Participation:
        """Nothing has happened yet."""
        counts = {outcome: np.zeros(K, dtype=np.int64) for outcome in ("selected", *OUTCOMES)}
        return Participation(
            counts,
            np.zeros(K),
            np.zeros(K),
            np.zeros(K, dtype=np.int64),
            np.zeros(K, dtype=np.int64),
            np.zeros(K),
        )


@dataclass
class State:
    """The server's state. Whoever has this and the world can go on with the run."""

    theta: Params
    losses: LossTable
    participation: Participation
    asked: Ints
    """How often each client was asked for a loss."""
    row_of: Ints
    """The row in `flights` that keeps each client busy; −1: none. And until when it computes."""
    busy_until: Floats
    aggregated: Ints
    """n_k: how many slots each client has filled, and the sum of its staleness discounts there."""
    discounts: Floats
    kept: Ints
    """The dispatch, by its ordinal, that each client's personal model is from; −1: none."""
    models: dict[int, Params]
    """The versions of the model that work under way started from, and how much work that is."""
    held: Counter[int] = field(default_factory=Counter)
    flights: Flights = field(default_factory=Flights)
    clock: Clock = field(default_factory=Clock)
    version: int = 0
    updates: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    dispatches: int = 0
    recorded_dispatches: int = 0
    """Dispatches, and how many of them there were at the last server update."""
    jobs: int = 0
    evaluations: int = 0
    next_evaluation: float = 0.0
    personal: dict[int, Params] = field(default_factory=dict)
    """The clients' own models; and those in replies that still wait, with their dispatch."""
    waiting: dict[int, tuple[int, Params]] = field(default_factory=dict)
    memory: Memory = field(default_factory=dict)
    """What the weighting keeps between server updates."""
    audited: tuple[float, float] | None = None
    """(H, δ) at the model that the current round started from; and the last version audited."""
    audited_version: int = -1
    trained: float = 0.0
    """Sample passes that have gone into server updates, where audits go by them; and the next."""
    next_audit: float = 0.0
    finished: bool = False
    policy: Any = None
    """What the participation policy keeps between events."""

    @staticmethod
    def fresh(world: World, theta: Params) -> State:
        """At the start: an initial model, and nothing known of anybody."""
        theta = frozen(theta)
        return State(
            theta=theta,
            losses=LossTable.empty(world.population.groups, world.population.d),
            participation=Participation.none(world.K),
            asked=np.zeros(world.K, dtype=np.int64),
            row_of=np.full(world.K, -1, dtype=np.int64),
            busy_until=np.zeros(world.K),
            aggregated=np.zeros(world.K, dtype=np.int64),
            discounts=np.zeros(world.K),
            kept=np.full(world.K, -1, dtype=np.int64),
            models={0: theta},
            memory=world.rule.memory(),
        )

    def own_model(self, client: int) -> Params | None:
        """The model that a client has trained for itself, if it has."""
        if client in self.waiting:
            return self.waiting[client][1]
        return self.personal.get(client)

    def keep(self, client: int, ordinal: int, own: Params) -> None:
        """A client's personal model is what it trained in a dispatch, unless it has a later one."""
        if ordinal < self.kept[client]:
            return
        self.kept[client] = ordinal
        self.personal[client] = frozen(own)
        if client in self.waiting and self.waiting[client][0] <= ordinal:
            del self.waiting[client]

    @property
    def now(self) -> float:
        """Virtual time."""
        return self.clock.now

    def is_busy(self, clients: Ints) -> npt.NDArray[np.bool_]:
        """Who has work to do."""
        return np.asarray(self.row_of[clients] != -1)

    def job_id(self) -> int:
        """A number for a new job."""
        self.jobs += 1
        return self.jobs - 1

    def count(self, unit: str) -> float:
        """Progress in one of the units of stopping and evaluating."""
        return {
            "rounds": self.version,
            "updates": self.updates,
            "virtual_s": self.now,
            "bytes": self.bytes_down + self.bytes_up,
        }[unit]

    def schedule_clock(self, world: World) -> float:
        """c of the learning-rate schedule."""
        if world.scenario.work.schedule.clock == "rounds":
            return float(self.version)
        return self.updates / world.scenario.sampling.slots(world.K)

    def should_stop(self, world: World) -> bool:
        """Whether a limit of the scenario has been reached."""
        stop = world.scenario.stop
        return any(
            limit is not None and self.count(unit) >= limit for unit, limit in stop.__dict__.items()
        )
