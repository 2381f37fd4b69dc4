"""Problems on which everything can be computed: F_k, its gradients, and minima of Σ c_k F_k.

Quadratics come with closed forms, and ridge regression is quadratic. Softmax regression with an
ℓ2 term (logistic regression is its case of two classes) is minimised by Newton's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gifair_ray import objective
from gifair_ray.errors import BadInput
from gifair_ray.federation import Federation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Problem(Protocol):
    """Clients with μ-strongly convex, L-smooth losses F_k of a flat vector θ."""

    @property
    def sizes(self) -> Ints:
        """n_k."""
        ...

    @property
    def groups(self) -> Ints:
        """s_k, from 0."""
        ...

    @property
    def start(self) -> Floats:
        """Some θ of the right length."""
        ...

    @property
    def curvature(self) -> tuple[float, float]:
        """(μ, L), valid for every F_k."""
        ...

    def losses(self, theta: Floats) -> Floats:
        """F_k(θ) of every client."""
        ...

    def gradients(self, theta: Floats) -> Floats:
        """∇F_k(θ), a row for every client."""
        ...

    def hessian(self, c: Floats, theta: Floats) -> Floats:
        """Σ_k c_k ∇²F_k(θ)."""
        ...

    def minimise(self, c: Floats, near: Floats) -> Floats:
        """argmin_θ Σ_k c_k F_k(θ) for weights c ≥ 0; `near` is where to begin."""
        ...


def d_of(problem: Problem) -> int:
    """How many groups a problem has."""
    return int(problem.groups.max()) + 1


def shares(problem: Problem) -> Floats:
    """p_k."""
    return objective.shares(problem.sizes)


@dataclass(frozen=True)
class Quadratics:
    """F_k(θ) = ½(θ − b_k)ᵀA_k(θ − b_k) + f_k, with symmetric A_k; f_k = 0 unless given."""

    A: Floats
    b: Floats
    sizes: Ints
    groups: Ints
    floors: Floats | None = None

    @property
    def start(self) -> Floats:
        return np.zeros(self.b.shape[1])

    @cached_property
    def curvature(self) -> tuple[float, float]:
        spectrum = np.linalg.eigvalsh(self.A)
        return float(spectrum.min()), float(spectrum.max())

    def losses(self, theta: Floats) -> Floats:
        away = theta - self.b
        half = np.einsum("ki,kij,kj->k", away, self.A, away) / 2
        return np.asarray(half if self.floors is None else half + self.floors)

    def gradients(self, theta: Floats) -> Floats:
        return np.asarray(np.einsum("kij,kj->ki", self.A, theta - self.b))

    def hessian(self, c: Floats, theta: Floats) -> Floats:
        return np.asarray(np.einsum("k,kij->ij", c, self.A))

    def minimise(self, c: Floats, near: Floats) -> Floats:
        right = np.einsum("k,kij,kj->i", c, self.A, self.b)
        theta = np.linalg.solve(self.hessian(c, near), right)
        # Once more for what rounding has left of the gradient.
        return np.asarray(theta - np.linalg.solve(self.hessian(c, near), c @ self.gradients(theta)))


def ridge(
    X: Sequence[Floats], y: Sequence[Floats], groups: Ints, l2: float, sizes: Ints | None = None
) -> Quadratics:
    """Ridge regression, F_k(θ) = ‖X_kθ − y_k‖²/(2n_k) + (l2/2)‖θ‖², from each client's data."""
    if l2 <= 0:
        raise BadInput(f"l2 = {l2} must be positive: the optimum would not be unique")
    n = np.array([len(rows) for rows in y], dtype=np.int64)
    eye = np.eye(X[0].shape[1])
    A = np.stack([x.T @ x / len(x) + l2 * eye for x in X])
    b = np.stack([np.linalg.solve(a, x.T @ v / len(v)) for a, x, v in zip(A, X, y, strict=True)])
    rest = [x @ t - v for x, t, v in zip(X, b, y, strict=True)]
    floors = [r @ r / (2 * len(r)) + l2 / 2 * t @ t for r, t in zip(rest, b, strict=True)]
    return Quadratics(A, b, n if sizes is None else sizes, groups, np.array(floors))


@dataclass(frozen=True)
class Softmax:
    """F_k(W) = mean cross-entropy of softmax(xᵀW) + (l2/2)‖W‖², W flat (features × classes).

    A bias is the weight of a constant feature, and is shrunk like any other.
    """

    X: tuple[Floats, ...]
    y: tuple[Ints, ...]
    groups: Ints
    classes: int
    l2: float

    def __post_init__(self) -> None:
        if self.l2 <= 0:
            raise BadInput(f"l2 = {self.l2} must be positive: the optimum would not be unique")

    @staticmethod
    def of(federation: Federation, l2: float) -> Softmax:
        """The training data of a federation, with a constant feature for the bias at the end."""
        clients = range(len(federation.population))
        samples = [federation.shard(k).train for k in clients]
        flat = [np.asarray(s.x, dtype=np.float64).reshape(len(s), -1) for s in samples]
        X = tuple(np.hstack([x, np.ones((len(x), 1))]) for x in flat)
        labels = tuple(np.asarray(s.y, dtype=np.int64) for s in samples)
        return Softmax(X, labels, federation.population.groups, federation.task.classes, l2)

    @property
    def sizes(self) -> Ints:
        return np.array([len(y) for y in self.y], dtype=np.int64)

    @property
    def start(self) -> Floats:
        return np.zeros(self.X[0].shape[1] * self.classes)

    @cached_property
    def curvature(self) -> tuple[float, float]:
        # ∇² = mean of (diag p − ppᵀ) ⊗ xxᵀ, and diag p − ppᵀ has no eigenvalue above ½.
        largest = max(float(np.linalg.eigvalsh(x.T @ x / len(x))[-1]) for x in self.X)
        return self.l2, self.l2 + largest / 2

    def _probabilities(self, x: Floats, theta: Floats) -> tuple[Floats, Floats]:
        Z = x @ theta.reshape(-1, self.classes)
        Z -= Z.max(axis=1, keepdims=True)
        log_sums = np.log(np.exp(Z).sum(axis=1, keepdims=True))
        return np.exp(Z - log_sums), Z - log_sums

    def losses(self, theta: Floats) -> Floats:
        fits = [
            -np.mean(self._probabilities(x, theta)[1][np.arange(len(y)), y])
            for x, y in zip(self.X, self.y, strict=True)
        ]
        return np.array(fits) + self.l2 / 2 * (theta @ theta)

    def sample_gradients(self, client: int, theta: Floats) -> Floats:
        """The gradient of each of a client's samples, without the ℓ2 term: a row each."""
        x, y = self.X[client], self.y[client]
        P = self._probabilities(x, theta)[0]
        P[np.arange(len(y)), y] -= 1.0
        return np.asarray(x[:, :, None] * P[:, None, :]).reshape(len(y), -1)

    def gradients(self, theta: Floats) -> Floats:
        means = [self.sample_gradients(k, theta).mean(axis=0) for k in range(len(self.y))]
        return np.array(means) + self.l2 * theta

    def hessian(self, c: Floats, theta: Floats) -> Floats:
        n = len(theta)
        total = c.sum() * self.l2 * np.eye(n)
        for weight, x in zip(c, self.X, strict=True):
            P = self._probabilities(x, theta)[0]
            S = np.einsum("ni,ij->nij", P, np.eye(self.classes)) - P[:, :, None] * P[:, None, :]
            blocks = np.einsum("na,nb,nij->aibj", x, x, S * (weight / len(x)), optimize=True)
            total += blocks.reshape(n, n)
        return np.asarray(total)

    def minimise(self, c: Floats, near: Floats) -> Floats:
        theta, value = near, float(c @ self.losses(near))
        for _ in range(100):
            slope = c @ self.gradients(theta)
            step = np.linalg.solve(self.hessian(c, theta), slope)
            decrease, t = float(slope @ step), 1.0
            if decrease <= 1e-30:
                return theta
            new = theta - step
            while (there := float(c @ self.losses(new))) > value - 1e-4 * t * decrease:
                t /= 2
                if t < 1e-6:  # rounding decides: the gradient alone says how good it is
                    better = np.linalg.norm(c @ self.gradients(theta - step))
                    return theta - step if better < np.linalg.norm(slope) else theta
                new = theta - t * step
            theta, value = new, there
        return theta
