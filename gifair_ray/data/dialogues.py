"""Speaking roles without a download: each client a role of a made-up play.

A sample is 80 characters of a role's speech and the one that follows, at every place of the text,
as LEAF makes them of Shakespeare. The texts for training, validation and testing are separate
speeches of the same voice, so that no window of one shares a character with another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.config import Frozen
from gifair_ray.data._partition import drawn_sizes
from gifair_ray.data._speech import Voice
from gifair_ray.data._text import LETTERS, WINDOW, encode, windows
from gifair_ray.distributions import Distribution, constant
from gifair_ray.federation import (
    TEST,
    VAL,
    DataSource,
    Population,
    Samples,
    Shard,
    Task,
    check_fractions,
    check_named_groups,
    grouped,
    split_sizes,
)

Share = Annotated[float, Field(ge=0, le=1)]


class Speakers(Frozen):
    """A group of roles."""

    clients: int = Field(ge=1, description="how many roles")
    samples: Distribution | None = Field(None, description="of each, if not data.samples")
    dialect: Share = Field(0.0, description="share of their words that only this group uses")


class Dialogues(DataSource):
    """Text that each role of a made-up play speaks, to be guessed character by character."""

    source: Literal["dialogues"] = "dialogues"
    clients: int | None = Field(None, ge=1, description="how many roles, if no groups are named")
    samples: Distribution = Field(constant(1000), description="samples of each role")
    own: Share = Field(0.15, description="share of a role's words that nobody else uses")
    groups: Literal["each"] | Annotated[int, Field(ge=1)] | dict[str, Speakers] = Field(
        "each", description="'each' role its own group, so many blocks, or a table of named groups"
    )
    val: float = VAL
    test: float = TEST

    @model_validator(mode="after")
    def _says_how_many(self) -> Dialogues:
        check_fractions(self.val, self.test)
        check_named_groups(self.groups, self.clients)
        return self

    def build(self, seed: int) -> DialoguesFederation:
        """Sizes and groups now; a role's text when it is first asked for."""
        if isinstance(self.groups, dict):
            rules = list(self.groups.values())
            groups = np.repeat(np.arange(len(rules)), [rule.clients for rule in rules])
            names = tuple(self.groups)
        else:
            rules, (groups, names) = [], grouped(self.clients or 30, self.groups)
        clients = np.arange(len(groups))
        samples = drawn_sizes(seed, self.samples, clients)
        for i, rule in enumerate(rules):
            if rule.samples is not None:
                members = clients[groups == i]
                samples[members] = drawn_sizes(seed, rule.samples, members)
        sizes = split_sizes(samples, self.val, self.test)
        dialects = tuple(rule.dialect for rule in rules)
        return DialoguesFederation(self, seed, Population(groups, names, *sizes), dialects)


@dataclass(frozen=True)
class DialoguesFederation:
    """Lets a role speak, by its number."""

    source: Dialogues
    seed: int
    population: Population
    dialects: tuple[float, ...]

    @property
    def task(self) -> Task:
        return Task((WINDOW,), len(LETTERS), len(LETTERS))

    def text(self, client: int) -> tuple[str, str, str]:
        """What a role says: to train on, to validate with, to test on."""
        group = int(self.population.groups[client]) if self.dialects else None
        dialect = self.dialects[group] if group is not None else 0.0
        voice = Voice.of(self.seed, client, group, dialect, self.source.own)
        g = draws.generator(self.seed, "data/dialogues", client)
        population = self.population
        train, val, test = (
            voice.speak(g, int(n[client]) + WINDOW) if n[client] else ""
            for n in (population.train, population.val, population.test)
        )
        return train, val, test

    def shard(self, client: int) -> Shard:
        parts = []
        for text in self.text(client):
            x, y = windows(encode(text), 0, len(text))
            parts.append(Samples(x.astype(np.int64), y.astype(np.int64)))
        return Shard(*parts)
