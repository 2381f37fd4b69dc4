"""A crowd: any number of clients, whose samples come out of pools that many of them share.

A million clients have no room for samples of their own, and to make them anew whenever a client is
drawn takes longer than to train on them. Here every client is of one of a few *types*. A type is a
client of `synthetic` with a large pool of samples; who is of that type holds some of them, drawn
with replacement by the client's number. Training, validation and test samples come out of separate
parts of the pool, so that nobody is tested on what anybody has trained on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.data.synthetic import Synthetic
from gifair_ray.errors import BadInput
from gifair_ray.federation import (
    SPLITS,
    TEST,
    VAL,
    DataSource,
    Groups,
    Ints,
    Population,
    Samples,
    Shard,
    Split,
    Task,
    check_fractions,
    grouped,
    split_sizes,
)

_HALF = np.uint64(32)


class Crowd(DataSource):
    """Clients of a few types, up to millions, who share their types' samples."""

    source: Literal["crowd"] = "crowd"
    clients: int = Field(1000, ge=1, description="how many clients")
    samples: int = Field(64, ge=2, description="samples of every client")
    types: int = Field(20, ge=1, description="how many types of clients there are")
    pool: int = Field(
        1000, ge=2, lt=2**31, description="samples of a type, which its clients share"
    )
    alpha: float = Field(1.0, ge=0, description="α: spread of the types' own models")
    beta: float = Field(1.0, ge=0, description="β: spread of the types' inputs")
    features: int = Field(60, ge=1, description="length of an input")
    classes: int = Field(10, ge=2, description="how many classes")
    groups: Groups | Literal["types"] = Field(
        "types", description="by type, 'each' client its own group, or so many blocks"
    )
    val: float = VAL
    test: float = TEST

    @model_validator(mode="after")
    def _fractions_leave_something(self) -> Crowd:
        check_fractions(self.val, self.test)
        return self

    def build(self, seed: int) -> CrowdFederation:
        """Types and groups now; a client's samples when they are first asked for."""
        if self.types > self.clients:
            raise BadInput(f"data.types = {self.types}, but there are {self.clients} clients")
        sizes = _sizes(self.samples, self)
        parts = _sizes(self.pool, self)
        for split in SPLITS:
            if sizes[split] and not parts[split]:
                raise BadInput(
                    f"data.pool = {self.pool} leaves nothing for {split}; at least "
                    f"{self.samples} will do"
                )
        k = np.arange(self.clients)
        types = (draws.bits(seed, "data/type", k) % np.uint64(self.types)).astype(np.int64)
        types[: self.types] = k[: self.types]  # so that there is somebody of every type
        if self.groups == "types":
            groups, names = types, tuple(str(t) for t in range(self.types))
        else:
            groups, names = grouped(self.clients, self.groups)
        train, val, test = (np.full(len(k), sizes[split]) for split in SPLITS)
        return CrowdFederation(self, seed, types, Population(groups, names, train, val, test))


def _sizes(samples: int, source: Crowd) -> dict[Split, int]:
    found = split_sizes(np.array([samples]), source.val, source.test)
    return {split: int(n[0]) for split, n in zip(SPLITS, found, strict=True)}


@dataclass(frozen=True)
class CrowdFederation:
    """Derives which samples of a pool a client has from its number."""

    source: Crowd
    seed: int
    types: Ints
    population: Population

    @property
    def task(self) -> Task:
        return Task((self.source.features,), self.source.classes)

    @cached_property
    def pool(self) -> Samples:
        """The samples of all types, one after the other; within one as they are split."""
        source = self.source
        one = Synthetic(
            clients=source.types, samples=source.pool, alpha=source.alpha, beta=source.beta,
            features=source.features, classes=source.classes, val=source.val, test=source.test,
        ).build(self.seed)  # fmt: skip
        shards = map(one.shard, range(source.types))
        parts = [getattr(shard, split) for shard in shards for split in SPLITS]
        return Samples(np.concatenate([p.x for p in parts]), np.concatenate([p.y for p in parts]))

    def held(self, clients: Ints, split: Split) -> Ints:
        """Which rows of the pool each of these clients has, (clients, samples)."""
        sizes, parts = (_sizes(n, self.source) for n in (self.source.samples, self.source.pool))
        before = SPLITS[: SPLITS.index(split)]
        first = self.types[clients] * self.source.pool + sum(parts[s] for s in before)
        place = np.arange(sizes[split]) + sum(sizes[s] for s in before)
        drawn = draws.bits(self.seed, "data/held", clients[:, None], place)
        drawn >>= _HALF  # half the bits, as a fraction of the part: quicker than a remainder
        drawn *= np.uint64(parts[split])
        drawn >>= _HALF
        return first[:, None] + drawn.view(np.int64)

    def shard(self, client: int) -> Shard:
        rows = (self.held(np.array([client]), split)[0] for split in SPLITS)
        return Shard(*(Samples(self.pool.x[i], self.pool.y[i]) for i in rows))
