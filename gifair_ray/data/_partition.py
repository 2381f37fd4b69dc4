"""Who gets which classes, and how many samples: the rules by which labelled data are dealt out.

- *k classes per client*: each client has k of the classes, drawn by its number, in equal shares;
- *Dirichlet*: its shares of the classes are drawn from Dirichlet(α, …, α);
- *sizes* follow any distribution (`{dist = "lognormal", median = 200, sigma = 0.4}`);
- *groups*: each client its own, blocks of neighbours, or named groups with rules of their own.

(By writer is no rule: a table's `client` column says who wrote what.)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.config import Frozen
from gifair_ray.distributions import Distribution, Spread
from gifair_ray.errors import BadInput
from gifair_ray.federation import (
    TEST,
    VAL,
    DataSource,
    Ints,
    check_fractions,
    check_named_groups,
    grouped,
)

Floats = npt.NDArray[np.float64]
Classes = list[Annotated[str, Field(min_length=1)]]
LARGEST = 10_000_000  # samples of a client


class GroupRule(Frozen):
    """A group of clients that differs from the others in what it has."""

    clients: int = Field(ge=1, description="how many clients")
    classes: Classes | None = Field(None, description="their classes, if not data.classes")
    samples: Distribution | None = Field(None, description="of each, if not data.samples")


class Partition(DataSource):
    """What sources that deal out labelled samples have in common."""

    clients: int | None = Field(None, ge=1, description="how many clients, if no groups are named")
    classes: Classes | None = Field(
        None, description='which classes, by name or as a range such as "a-j"; without it all'
    )
    classes_per_client: int | None = Field(
        None, ge=1, description="each client has so many of them; without it all"
    )
    alpha: float | None = Field(
        None,
        gt=0,
        description="shares of a client's classes: Dirichlet(α); without it equal, or as in the "
        "pool if a client has all classes",
    )
    samples: Distribution | None = Field(None, description="samples of each client")
    groups: Literal["each"] | Annotated[int, Field(ge=1)] | dict[str, GroupRule] = Field(
        "each",
        description="'each' client its own group, so many blocks, or a table of named groups",
    )
    val: float = VAL
    test: float = TEST

    @model_validator(mode="after")
    def _says_how_many(self) -> Partition:
        check_fractions(self.val, self.test)
        check_named_groups(self.groups, self.clients)
        return self

    def deal(
        self,
        seed: int,
        known: tuple[str, ...],
        default: Spread,
        clients: int,
        frequency: Ints | None = None,
    ) -> Deal:
        """Groups, sizes and classes of everybody.

        `known` are the classes that there are, with their frequency in the pool if there is one.
        """
        used = _numbers(self.classes, known, "data.classes")
        if isinstance(self.groups, dict):
            rules = list(self.groups.items())
            counts = [rule.clients for _, rule in rules]
            groups = np.repeat(np.arange(len(rules)), counts)
            names = tuple(name for name, _ in rules)
            samples = [rule.samples or self.samples or default for _, rule in rules]
            classes = [
                used if rule.classes is None else _numbers(rule.classes, known, f"group {name!r}")
                for name, rule in rules
            ]
            rule_of = groups
        else:
            n = self.clients or clients
            groups, names = grouped(n, self.groups)
            samples, classes, counts = [self.samples or default], [used], [n]
            rule_of = np.zeros(n, dtype=np.int64)
        sizes, first = [], 0
        for spread, count in zip(samples, counts, strict=True):
            sizes.append(drawn_sizes(seed, spread, np.arange(first, first + count)))
            first += count
        k = self.classes_per_client
        if k is not None and k > (fewest := min(map(len, classes))):
            raise BadInput(f"data.classes_per_client = {k}, but there are only {fewest} classes")
        if frequency is None or k is not None:
            frequency = np.ones(len(known), dtype=np.int64)
        return Deal(
            seed, groups, names, np.concatenate(sizes), rule_of, classes, k, self.alpha, frequency
        )


@dataclass(frozen=True)
class Deal:
    """The population's columns, and the rule for a client's classes."""

    seed: int
    groups: Ints
    group_names: tuple[str, ...]
    sizes: Ints
    rule_of: Ints
    classes: list[Ints]
    """For each rule, numbers of classes."""
    k: int | None
    alpha: float | None
    frequency: Ints
    """Shares are in proportion to it where no Dirichlet distribution gives them."""

    @property
    def used(self) -> Ints:
        """All classes that anybody may have."""
        return np.unique(np.concatenate(self.classes))

    def shares(self, client: int) -> tuple[Ints, Floats]:
        """The client's classes, and the share of each in its samples."""
        classes = self.classes[self.rule_of[client]]
        if self.k is not None:
            order = draws.permutations(self.seed, "data/classes", len(classes), client)[0]
            classes = np.sort(classes[order[: self.k]])
        if self.alpha is None:
            frequency = self.frequency[classes]
            return classes, frequency / frequency.sum()
        g = draws.generator(self.seed, "data/dirichlet", client)
        gamma = g.standard_gamma(self.alpha, len(classes))
        if not (total := gamma.sum()) > 0:  # a tiny α: all of it in one class
            return classes, np.eye(len(classes))[int(g.integers(len(classes)))]
        return classes, gamma / total

    def counts(self, client: int) -> tuple[Ints, Ints]:
        """The client's classes, and how many samples of each: shares rounded at random."""
        classes, shares = self.shares(client)
        n = int(self.sizes[client])
        u = draws.uniform(self.seed, "data/counts", client)[0]
        ends = np.floor(np.cumsum(shares) * n + u).astype(np.int64)
        ends[-1] = n
        return classes, np.diff(np.minimum(ends, n), prepend=0)


def _numbers(wanted: Classes | None, known: tuple[str, ...], where: str) -> Ints:
    if wanted is None:
        return np.arange(len(known))
    place = {name: i for i, name in enumerate(known)}
    found = []
    for item in wanted:
        ends = re.fullmatch(r"(.)-(.)", item, re.DOTALL)
        names = [chr(c) for c in range(ord(ends[1]), ord(ends[2]) + 1)] if ends else [item]
        if not names:
            raise BadInput(f"{where}: {item!r} is no range, its ends are the wrong way round")
        for name in names:
            if name not in place:
                there = ", ".join(known[:12]) + (" …" if len(known) > 12 else "")
                raise BadInput(f"{where}: there is no class {name!r}; there are {there}")
            found.append(place[name])
    if len(set(found)) < max(2, len(found)):
        raise BadInput(f"{where} = {wanted}: two or more classes are needed, none of them twice")
    return np.array(sorted(found), dtype=np.int64)


def drawn_sizes(seed: int, spread: Spread, clients: Ints) -> Ints:
    """Samples of each client, by its number."""
    drawn = spread.draw(seed, "data/size", clients)
    if not np.isfinite(drawn).all() or (drawn < 2).any() or (drawn > LARGEST).any():
        bad = drawn[~((drawn >= 2) & (drawn <= LARGEST))][0]
        raise BadInput(
            f"data.samples: a client would have {bad:.6g} samples, which is outside "
            f"[2, {LARGEST}]; change the distribution"
        )
    return np.rint(drawn).astype(np.int64)
