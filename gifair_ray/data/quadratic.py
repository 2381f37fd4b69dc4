"""Quadratic clients F_k(θ) = ½(θ − b_k)ᵀA_k(θ − b_k): problems whose answers are known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.errors import BadInput
from gifair_ray.federation import DataSource, Population, Shard, Task

Floats = npt.NDArray[np.float64]


def _symmetric(upper: list[float]) -> Floats:
    a = np.zeros((3, 3))
    a[np.triu_indices(3)] = upper
    return np.asarray(a + np.triu(a, 1).T)


def _q1() -> tuple[Floats, Floats, list[int], list[int]]:
    """Two clients on a line, F_1 = 2θ² and F_2 = ½(θ−1)²; ties at θ = 1/3."""
    return np.array([[[4.0]], [[1.0]]]), np.array([[0.0], [1.0]]), [1, 1], [0, 1]


def _q3() -> tuple[Floats, Floats, list[int], list[int]]:
    """Six clients in three groups, in three dimensions; two groups tie at the optimum."""
    A = [
        [3.117, 0.419, 0.293, 1.393, -0.484, 2.447],
        [3.060, -0.578, -0.153, 3.401, 0.117, 3.221],
        [3.055, -0.061, 0.298, 2.932, -0.221, 3.274],
        [3.563, -0.129, 0.177, 2.772, 1.093, 2.059],
        [3.545, 0.018, -0.397, 1.498, 0.212, 2.540],
        [1.258, -0.068, -0.361, 1.696, 0.605, 3.204],
    ]
    b = [
        [-0.74, -0.16, -0.48],
        [-0.42, 0.21, 0.22],
        [-0.07, -0.94, -0.10],
        [-0.02, -1.25, -0.31],
        [-0.81, 0.75, 0.25],
        [0.0, 0.45, 0.47],
    ]
    sizes, groups = [20, 20, 15, 15, 15, 15], [0, 0, 1, 1, 2, 2]
    return np.array([_symmetric(row) for row in A]), np.array(b), sizes, groups


@dataclass(frozen=True)
class QuadraticFederation:
    """A (clients, dim, dim), b (clients, dim), and the spread of the noise on gradients."""

    A: Floats
    b: Floats
    noise: float
    seed: int
    population: Population

    @property
    def task(self) -> Task:
        return Task(input_shape=(self.b.shape[1],), classes=0)

    def shard(self, client: int) -> Shard:
        raise BadInput("quadratic clients hold no samples; use model.kind = 'quadratic'")


class Quadratic(DataSource):
    """Quadratic losses, for theory: a named problem, your own matrices, or random ones."""

    source: Literal["quadratic"] = "quadratic"
    problem: Literal["q1", "q3", "own", "random"] = Field(
        "q1", description="a reference problem, your own (A, b, sizes, groups), or a random one"
    )
    A: list[list[list[float]]] | None = Field(None, description="own: a matrix per client")
    b: list[list[float]] | None = Field(None, description="own: a centre per client")
    sizes: list[int] | None = Field(None, description="own: n_k, which give p_k")
    groups: list[int] | None = Field(None, description="own: group of each client, from 0")
    noise: float = Field(0.0, ge=0, description="standard deviation of gradient noise, per entry")
    clients: int = Field(8, ge=1, description="random: clients")
    dim: int = Field(3, ge=1, description="random: dimension of θ")
    random_groups: int = Field(2, ge=1, description="random: groups")
    mu: float = Field(0.5, gt=0, description="random: smallest curvature")
    L: float = Field(4.0, gt=0, description="random: largest curvature")

    @model_validator(mode="after")
    def _own_is_complete(self) -> Quadratic:
        if self.problem == "own" and None in (self.A, self.b, self.sizes, self.groups):
            raise ValueError("problem = 'own' needs A, b, sizes and groups")
        return self

    @cached_property
    def _own(self) -> tuple[Floats, Floats, list[int], list[int]]:
        try:
            A, b = np.array(self.A, dtype=np.float64), np.array(self.b, dtype=np.float64)
        except ValueError as error:
            raise BadInput("data.A or data.b has rows of different lengths") from error
        sizes, groups = self.sizes or [], self.groups or []
        if A.ndim != 3 or b.ndim != 2 or A.shape != (*b.shape, b.shape[1]):
            raise BadInput(
                f"data.A of shape {A.shape} does not fit data.b of shape {b.shape}: "
                "(clients, dim, dim) and (clients, dim) are needed"
            )
        if len(sizes) != len(b) or len(groups) != len(b):
            raise BadInput(
                f"data.sizes ({len(sizes)}) and data.groups ({len(groups)}) need one entry for "
                f"each of the {len(b)} clients"
            )
        if min(groups) < 0:
            raise BadInput(f"data.groups has {min(groups)}; groups count from 0")
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise BadInput("data.A or data.b has a value that is NaN or infinite")
        return A, b, sizes, groups

    def _random(self, seed: int) -> tuple[Floats, Floats, list[int], list[int]]:
        g = draws.generator(seed, "data/quadratic")
        K, dim = self.clients, self.dim
        Q = np.linalg.qr(g.standard_normal((K, dim, dim)))[0]
        spectrum = g.uniform(self.mu, max(self.mu, self.L), (K, dim, 1))
        A = np.swapaxes(Q, 1, 2) @ (spectrum * Q)
        A = (A + np.swapaxes(A, 1, 2)) / 2
        if self.random_groups > K:
            raise BadInput(f"data.random_groups = {self.random_groups} exceeds {K} clients")
        groups = [k * self.random_groups // K for k in range(K)]
        return A, g.standard_normal((K, dim)), g.integers(10, 100, K).tolist(), groups

    def build(self, seed: int) -> QuadraticFederation:
        """The clients; each counts as many samples as `sizes` says, all for training."""
        if self.problem == "random":
            A, b, sizes, groups = self._random(seed)
        else:
            A, b, sizes, groups = {"q1": _q1, "q3": _q3}.get(self.problem, lambda: self._own)()
        n = np.array(sizes, dtype=np.int64)
        names = tuple(str(i) for i in range(max(groups) + 1))
        population = Population(np.array(groups, dtype=np.int64), names, n, 0 * n, 0 * n)
        return QuadraticFederation(A, b, self.noise, seed, population)
