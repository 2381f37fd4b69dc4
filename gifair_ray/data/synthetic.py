"""Synthetic(α, β): the family of the FedProx and q-FFL papers.

    u_k ~ N(0, α), W_k and c_k entrywise ~ N(u_k, 1)      α: how much the clients' models differ
    B_k ~ N(0, β), v_k entrywise ~ N(B_k, 1)              β: how much their inputs differ
    x ~ N(v_k, Σ), Σ_jj = j^−1.2;  y = argmax(W_kᵀx + c_k)
    n_k ~ lognormal(4, 2) + 50

A disadvantaged minority can be set apart: a share of the clients with an α and β of its own and
less data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.config import Frozen
from gifair_ray.errors import BadInput
from gifair_ray.federation import (
    TEST,
    VAL,
    DataSource,
    Groups,
    Ints,
    Population,
    Shard,
    Task,
    check_fractions,
    grouped,
    split_samples,
    split_sizes,
)


class Minority(Frozen):
    """A group of clients that differ from the rest, and have less to say."""

    share: float = Field(0.2, gt=0, lt=1, description="share of the clients")
    alpha: float = Field(1.0, ge=0, description="their α")
    beta: float = Field(1.0, ge=0, description="their β")
    size_factor: float = Field(0.5, gt=0, description="their samples, as a factor on the rest's")


class Synthetic(DataSource):
    """Logistic-like clients whose models differ by α and inputs by β."""

    source: Literal["synthetic"] = "synthetic"
    clients: int = Field(100, ge=1, description="how many clients")
    alpha: float = Field(1.0, ge=0, description="α: spread of the clients' own models")
    beta: float = Field(1.0, ge=0, description="β: spread of the clients' inputs")
    features: int = Field(60, ge=1, description="length of an input")
    classes: int = Field(10, ge=2, description="how many classes")
    samples: int | None = Field(
        None, ge=2, description="samples of every client; without it lognormal(4, 2) + 50"
    )
    groups: Groups = Field("each", description="'each' client its own group, or so many blocks")
    minority: Minority | None = Field(
        None, description="two groups instead: the majority, and a minority at a disadvantage"
    )
    val: float = VAL
    test: float = TEST

    @model_validator(mode="after")
    def _fractions_leave_something(self) -> Synthetic:
        check_fractions(self.val, self.test)
        return self

    def build(self, seed: int) -> SyntheticFederation:
        """Sizes and groups now; a client's samples when they are first asked for."""
        k = np.arange(self.clients)
        if self.samples is None:
            z = draws.normal(seed, "data/size", k)
            samples = np.minimum(np.exp(4.0 + 2.0 * z), 1e6).astype(np.int64) + 50
        else:
            samples = np.full(self.clients, self.samples, dtype=np.int64)
        groups, names = grouped(self.clients, self.groups)
        if self.minority is not None:
            few = max(1, round(self.clients * self.minority.share))
            if few >= self.clients:
                raise BadInput(f"data.minority.share = {self.minority.share} leaves no majority")
            groups, names = (k >= self.clients - few).astype(np.int64), ("majority", "minority")
            smaller = np.maximum((samples * self.minority.size_factor).astype(np.int64), 2)
            samples = np.where(groups == 1, smaller, samples)
        sizes = split_sizes(samples, self.val, self.test)
        return SyntheticFederation(self, seed, samples, Population(groups, names, *sizes))


@dataclass(frozen=True)
class SyntheticFederation:
    """Derives a client's samples from its number."""

    source: Synthetic
    seed: int
    samples: Ints
    population: Population

    @property
    def task(self) -> Task:
        return Task((self.source.features,), self.source.classes)

    def shard(self, client: int) -> Shard:
        source = self.source
        few = source.minority if source.minority and self.population.groups[client] else None
        alpha, beta = (few.alpha, few.beta) if few else (source.alpha, source.beta)
        g = draws.generator(self.seed, "data/synthetic", client)
        u, B = g.normal(0, np.sqrt(alpha)), g.normal(0, np.sqrt(beta))
        W = g.normal(u, 1, (source.features, source.classes))
        c = g.normal(u, 1, source.classes)
        v = g.normal(B, 1, source.features)
        sigma = np.arange(1, source.features + 1) ** -0.6  # standard deviations: √(j^−1.2)
        x = v + sigma * g.standard_normal((int(self.samples[client]), source.features))
        y = np.argmax(x @ W + c, axis=1).astype(np.int64)
        return split_samples(self.seed, client, x, y, source.val, source.test)
