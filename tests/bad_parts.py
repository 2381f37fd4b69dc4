"""Parts with one fault each, for the conformance suite to find; and good ones beside them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, PrivateAttr, field_validator

from gifair_ray import draws
from gifair_ray.aggregators import Aggregator, weighted_sum
from gifair_ray.availability import Availability
from gifair_ray.federation import DataSource, Population, Samples, Shard, Task
from gifair_ray.policies.sync import Sync
from gifair_ray.solvers import Solver
from gifair_ray.weightings import Rule, Weighting

CALLS = count()


class Base(Weighting):
    """Weighs by the loss that comes with each reply."""

    @property
    def reports(self):
        return frozenset({"received"})

    @property
    def basis(self):
        return "received"

    @property
    def reweighs(self):
        return True

    def rule(self):
        raise NotImplementedError

    def start(self, population):
        return self.rule()


def weighting(rule):
    """The weighting of a rule, under the rule's name."""
    name = f"bad_parts:{rule.__name__.removesuffix('Rule')}"
    # As a user would write it: a class with a `kind` of its own.
    return type(
        rule.__name__.removesuffix("Rule"),
        (Base,),
        {
            "__annotations__": {"kind": Literal[name]},
            "kind": name,
            "__module__": __name__,
            "rule": lambda self: rule(),
        },
    )


# Weightings


class RemembersRule(Rule):
    """Good: a running mean of the losses, in the memory."""

    def memory(self):
        return {"mean": np.zeros(1), "seen": np.zeros(1, dtype=np.int64)}

    def weigh(self, update, memory):
        if not len(update.clients):
            return update.weights
        memory["seen"] += 1
        memory["mean"] += (update.losses.mean() - memory["mean"]) / memory["seen"]
        return update.weights * (1 + np.tanh(update.losses - memory["mean"]) / 2)


class HidesRule(Rule):
    """Keeps what it learns in itself."""

    def __init__(self):
        self.updates = 0

    def weigh(self, update, memory):
        self.updates += 1
        return update.weights / self.updates


class AliasesRule(Rule):
    """Has a memory, and works on its own reference to it."""

    def __init__(self):
        self.updates = np.zeros(1)

    def memory(self):
        return {"updates": self.updates}

    def weigh(self, update, memory):
        self.updates += 1
        return update.weights / self.updates


class DrawsRule(Rule):
    """A generator with a fixed seed: the same in every run, but state all the same."""

    def __init__(self):
        self.generator = np.random.default_rng(0)

    def weigh(self, update, memory):
        return update.weights * self.generator.uniform(0.5, 1.0)


class GambleRule(Rule):
    """Draws by chance."""

    def weigh(self, update, memory):
        return update.weights * np.random.default_rng().uniform(0.5, 1.0)


class CountsRule(Rule):
    """A counter of the module, which goes on from run to run."""

    def weigh(self, update, memory):
        return update.weights / (1 + next(CALLS))


class NumberedRule(Rule):
    """Favours clients by their number."""

    def tilts(self, losses, clients):
        return clients / 100, None


class FirstRule(Rule):
    """Gives all the weight to whoever comes first."""

    def weigh(self, update, memory):
        out = np.zeros(len(update.clients))
        out[:1] = update.weights.sum()
        return out


class UndefinedRule(Rule):
    """A mean of losses that are not known yet is not a number."""

    def tilts(self, losses, clients):
        return losses.loss[clients] - losses.loss[clients].mean(), None


class BackwardsRule(Rule):
    """Sends clients uphill."""

    def tilts(self, losses, clients):
        return np.full(len(clients), -1.5), None


class ForgetsRanksRule(Rule):
    """Returns the tilts alone."""

    def tilts(self, losses, clients):
        return np.zeros(len(clients))


class TooFewRule(Rule):
    """One weight for all."""

    def weigh(self, update, memory):
        return np.ones(1)


class OverwritesRule(Rule):
    """Works on the array it was given."""

    def weigh(self, update, memory):
        weights = update.weights
        weights *= 0.5
        return weights


class ObjectsRule(Rule):
    """Remembers an array of Python objects."""

    def memory(self):
        return {"seen": np.array([None, None], dtype=object)}

    def weigh(self, update, memory):
        memory["seen"][0] = update.total
        return update.weights


class ListsRule(Rule):
    """Remembers a list."""

    def memory(self):
        return {"seen": []}

    def weigh(self, update, memory):
        memory["seen"].append(update.total)
        return update.weights


class NeedsAnswersRule(Rule):
    """Does not think of a round in which everybody failed."""

    def weigh(self, update, memory):
        return update.weights * (update.losses / update.losses.max())


Remembers, Hides, Aliases = map(weighting, (RemembersRule, HidesRule, AliasesRule))
Draws, Gamble, Counts = map(weighting, (DrawsRule, GambleRule, CountsRule))
Numbered, First, Undefined = map(weighting, (NumberedRule, FirstRule, UndefinedRule))
Backwards, ForgetsRanks = map(weighting, (BackwardsRule, ForgetsRanksRule))
TooFew, Overwrites = map(weighting, (TooFewRule, OverwritesRule))
Objects, Lists, NeedsAnswers = map(weighting, (ObjectsRule, ListsRule, NeedsAnswersRule))


class Doubles(Weighting):
    """Reads an option another way each time."""

    kind: Literal["bad_parts:Doubles"] = "bad_parts:Doubles"
    strength: float = 1.0

    @field_validator("strength")
    @classmethod
    def _double(cls, value):
        return 2 * value


class Careless(Weighting):
    """Takes any option, and so any misspelt one."""

    model_config = ConfigDict(extra="allow")
    kind: Literal["bad_parts:Careless"] = "bad_parts:Careless"


class Unwritable(Weighting):
    """An option that no file can hold."""

    kind: Literal["bad_parts:Unwritable"] = "bad_parts:Unwritable"
    how: Any = object()


class Breaks(Weighting):
    """Cannot even start."""

    kind: Literal["bad_parts:Breaks"] = "bad_parts:Breaks"

    def start(self, population):
        return {}["nothing"]


# Solvers, aggregators, policies


class Pushes(Solver):
    """Away from the received model."""

    kind: Literal["bad_parts:Pushes"] = "bad_parts:Pushes"

    @property
    def pull(self):
        return -0.1


class InPlace(Aggregator):
    """Changes the old version of the model into the new one."""

    kind: Literal["bad_parts:InPlace"] = "bad_parts:InPlace"

    def combine(self, theta, models, bases, weights, decay):
        theta += weighted_sum(weights, models, bases)
        return theta


class Momentum(Aggregator):
    """Server momentum, kept in the part."""

    kind: Literal["bad_parts:Momentum"] = "bad_parts:Momentum"
    _velocity: list = PrivateAttr(default_factory=list)

    def combine(self, theta, models, bases, weights, decay):
        step = weighted_sum(weights, models, bases)
        if self._velocity:
            step += 0.5 * self._velocity.pop()
        self._velocity.append(step)
        return theta + step


class Newest(Aggregator):
    """The last client's model, whoever that is."""

    kind: Literal["bad_parts:Newest"] = "bad_parts:Newest"

    def combine(self, theta, models, bases, weights, decay):
        return models[-1].astype(np.float64)


class Infinite(Aggregator):
    """Divides by 0."""

    kind: Literal["bad_parts:Infinite"] = "bad_parts:Infinite"

    def combine(self, theta, models, bases, weights, decay):
        return theta + np.inf


class Impatient(Sync):
    """Waits less and less; how long is kept in the part."""

    kind: Literal["bad_parts:Impatient"] = "bad_parts:Impatient"
    _rounds: list = PrivateAttr(default_factory=list)

    def send(self, world, state, drawn, holding):
        rows, closes = super().send(world, state, drawn, holding)
        self._rounds.append(closes)
        return rows, closes + len(self._rounds)


class Clinging(Sync):
    """Goes by which objects hold the state, not by what they hold."""

    kind: Literal["bad_parts:Clinging"] = "bad_parts:Clinging"

    def begin(self, world, state):
        commands = super().begin(world, state)
        state.policy["first"] = id(state.losses)
        return commands

    def send(self, world, state, drawn, holding):
        rows, closes = super().send(world, state, drawn, holding)
        return rows, closes + (state.policy.get("first", id(state.losses)) != id(state.losses))


# Models: factories of torch modules


def net(task, width=4):
    """Good."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(), nn.Linear(task.input_shape[0], width), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(width, task.classes),
    )  # fmt: skip


def tired_net(task):
    """Counts its forward passes in an attribute, outside the flat vector."""
    from torch import nn

    class Tired(nn.Linear):
        passes = 0

        def forward(self, x):
            self.passes += 1
            return super().forward(x) / (1 + 0.01 * self.passes)

    return Tired(task.input_shape[0], task.classes)


def shared_net(task):
    """Every module that is made is another."""
    from torch import nn

    module = nn.Linear(task.input_shape[0], task.classes)
    module.weight.data += 0.01 * next(CALLS)
    return module


# Data and availability


TASK = Task((2,), 2)


@dataclass(frozen=True)
class Federation:
    population: Population
    samples: Any
    task: Task = TASK

    def shard(self, client):
        n = [int(self.population.sizes(split)[client]) for split in ("train", "val", "test")]
        x = self.samples(client, sum(n))
        y = (x[:, 0] > 0).astype(np.int64)
        cut = np.cumsum(n)[:-1]
        return Shard(
            *(Samples(*two) for two in zip(np.split(x, cut), np.split(y, cut), strict=True))
        )


def population():
    sizes = np.array([6, 8, 10])
    return Population(np.array([0, 0, 1]), ("a", "b"), sizes, sizes // 2, sizes // 2)


class Good(DataSource):
    """Good: a client's data follow from its number and the seed."""

    source: Literal["bad_parts:Good"] = "bad_parts:Good"

    def build(self, seed):
        def samples(client, n):
            return draws.generator(seed, "mine", client).standard_normal((n, 2))

        return Federation(population(), samples)


class InTurn(DataSource):
    """One generator for all: who gets what depends on who asks first."""

    source: Literal["bad_parts:InTurn"] = "bad_parts:InTurn"

    def build(self, seed):
        g = np.random.default_rng(seed)
        return Federation(population(), lambda client, n: g.standard_normal((n, 2)))


class Boasts(DataSource):
    """Says that there are inputs of two numbers, and has three."""

    source: Literal["bad_parts:Boasts"] = "bad_parts:Boasts"

    def build(self, seed):
        return Federation(population(), lambda client, n: np.ones((n, 3)))


class Calendar:
    def __init__(self):
        self.g = np.random.default_rng(0)

    def online(self, clients, t):
        return self.g.uniform(size=len(clients)) < 0.9

    def until(self, clients, t, horizon):
        return np.full(len(clients), np.inf)

    def next_online(self, t, clients=None):
        return t


class Fickle(Availability):
    """Answers differently each time it is asked."""

    kind: Literal["bad_parts:Fickle"] = "bad_parts:Fickle"

    def build(self, seed, population):
        return Calendar()


class Sleepless(Calendar):
    def online(self, clients, t):
        return np.broadcast_to(np.asarray(t) % 10 < 5, len(clients))

    def until(self, clients, t, horizon):
        return t + 10


class Denies(Availability):
    """Everybody is offline half of the time, and `until` says when they are back."""

    kind: Literal["bad_parts:Denies"] = "bad_parts:Denies"

    def build(self, seed, population):
        return Sleepless()


NOT_A_PART = 3


class NeitherPart:
    """A class of nothing that is known."""
