"""Classes as noisy prototypes; a minority sees the same classes from another angle.

    majority  x = scale·μ_y + N(0, I)
    minority  x = scale·(cos φ·μ_{y+1} + sin φ·ν_y) + N(0, I)

with random unit vectors μ_c, ν_c. At φ = 60° half of a minority input looks like the majority's
next class, so a model that listens to the majority alone is wrong about the minority: the inputs
are shifted, while one model that serves both exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.federation import DataSource, Population, Samples, Shard, Task

Floats = npt.NDArray[np.float64]


class Prototypes(DataSource):
    """A majority and a minority that share classes but not what they look like."""

    source: Literal["prototypes"] = "prototypes"
    majority: int = Field(20, ge=1, description="clients of the majority")
    minority: int = Field(5, ge=1, description="clients of the minority")
    classes: int = Field(10, ge=2, description="how many classes")
    features: int = Field(50, ge=2, description="length of an input")
    scale: float = Field(6.0, gt=0, description="length of a prototype; noise has variance 1")
    angle: float = Field(60.0, ge=0, le=90, description="φ, degrees; 90 is no conflict at all")
    train: int = Field(50, ge=1, description="training samples of each client")
    val: int = Field(25, ge=0, description="validation samples of each client")
    test: int = Field(100, ge=0, description="test samples of each client")

    def build(self, seed: int) -> PrototypesFederation:
        """Sizes and groups now; a client's samples when they are first asked for."""
        groups = np.repeat([0, 1], [self.majority, self.minority]).astype(np.int64)
        train, val, test = (
            np.full(len(groups), n, dtype=np.int64) for n in (self.train, self.val, self.test)
        )
        population = Population(groups, ("majority", "minority"), train, val, test)
        return PrototypesFederation(self, seed, population)


@dataclass(frozen=True)
class PrototypesFederation:
    """Derives a client's samples from its number and its group."""

    source: Prototypes
    seed: int
    population: Population

    @property
    def task(self) -> Task:
        return Task((self.source.features,), self.source.classes)

    @cached_property
    def _directions(self) -> tuple[Floats, Floats]:
        g = draws.generator(self.seed, "data/prototypes")
        vectors = g.standard_normal((2, self.source.classes, self.source.features))
        mu, nu = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
        return mu, nu

    def shard(self, client: int) -> Shard:
        source, (mu, nu) = self.source, self._directions
        g = draws.generator(self.seed, "data/prototypes/client", client)
        y = g.integers(0, source.classes, source.train + source.val + source.test)
        if self.population.groups[client]:
            phi = np.radians(source.angle)
            centre = np.cos(phi) * mu[(y + 1) % source.classes] + np.sin(phi) * nu[y]
        else:
            centre = mu[y]
        x = source.scale * centre + g.standard_normal((len(y), source.features))
        cuts = np.cumsum([source.train, source.val])
        parts = zip(np.split(x, cuts), np.split(y, cuts), strict=True)
        return Shard(*(Samples(a, b) for a, b in parts))
