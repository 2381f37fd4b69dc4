"""The point of least norm among convex combinations whose weights stay near given ones.

    min ‖Σ_k λ_k g_k‖² = λᵀMλ  over  Σ λ_k = 1,  lower ≤ λ ≤ upper

Accelerated projected gradients find which weights are at their bounds; then conjugate gradients
give the others. The duality gap, max over feasible λ' of (λ − λ')ᵀMλ, certifies the result.

Directions may be almost the same, and then M is almost constant. As Σ λ = 1, only what differs
between clients makes a slope: M is taken about its means, Mλ = Cλ + c + a constant. No product
goes through a BLAS, where its bits would depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gifair_ray.sums import dot

Floats = npt.NDArray[np.float64]

GAP = 1e-10
TRIES, STEPS = 400, 25  # of polishing, and steps of gradient descent before each


def min_norm_weights(M: Floats, lower: Floats, upper: Floats, gap: float = GAP) -> Floats:
    """λ with a duality gap of at most `gap` times the size of M (its largest diagonal entry).

    `lower` ≤ `upper` are in [0, 1] and leave room for a sum of 1.
    """
    size = float(np.max(np.diag(M)))
    lam = project(lower + (upper - lower) / 2, lower, upper)
    if size <= 0:
        return lam
    problem = _Problem.of(M / size, lower, upper)
    ahead, momentum = lam, 1.0
    best, best_gap = lam, problem.gap(lam)
    for _ in range(TRIES):
        if best_gap <= gap:
            break
        for _ in range(STEPS):
            new = project(ahead - problem.step * problem.slope(ahead), lower, upper)
            if dot(ahead - new, new - lam) > 0:  # the momentum points uphill: start it again
                momentum = 1.0
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * (new - lam)
            lam, momentum = new, following
        for candidate in problem.candidates(lam):
            candidate_gap = problem.gap(candidate)
            if candidate_gap < best_gap:
                best, best_gap = candidate, candidate_gap
            if best_gap <= gap:
                break
    return best


def duality_gap(M: Floats, lam: Floats, lower: Floats, upper: Floats) -> float:
    """max over feasible λ' of (λ − λ')ᵀMλ: how much lower the value could at most be, halved."""
    return _Problem.of(M, lower, upper).gap(lam)


def project(v: Floats, lower: Floats, upper: Floats) -> Floats:
    """The nearest λ with Σ λ = 1 and lower ≤ λ ≤ upper: clip(v − τ)."""
    near = np.clip(v - _shift(v, lower, upper), lower - 1.0, upper + 1.0)
    return np.asarray(np.clip(near - _shift(near, lower, upper), lower, upper))  # less rounding


def _shift(v: Floats, lower: Floats, upper: Floats) -> float:
    """τ with Σ clip(v − τ) = 1, from its kinks."""
    # Σ clip(v − τ) falls from Σ upper to Σ lower; from each v − upper to its v − lower by 1 per τ.
    kinks = np.concatenate([v - upper, v - lower])
    order = np.argsort(kinks, kind="stable")
    kinks = kinks[order]
    falling = np.cumsum(np.where(order < len(v), 1.0, -1.0))
    sums = upper.sum() - np.append(0.0, np.cumsum(falling[:-1] * np.diff(kinks)))
    at = max(int(np.searchsorted(-sums, -1.0)) - 1, 0)  # the last kink where the sum is above 1
    return float(kinks[at] + (sums[at] - 1.0) / max(falling[at], 1.0))


@dataclass(frozen=True)
class _Problem:
    """½ λᵀCλ + cᵀλ within the bounds."""

    C: Floats
    c: Floats
    lower: Floats
    upper: Floats
    step: float
    """One over a bound of C's largest eigenvalue."""

    @staticmethod
    def of(M: Floats, lower: Floats, upper: Floats) -> _Problem:
        C = _level(_level(M).T)
        most = float(np.abs(C).sum(axis=1).max())
        return _Problem(C, _level(M.mean(axis=1)), lower, upper, 1.0 / max(most, 1e-300))

    def slope(self, lam: Floats) -> Floats:
        return np.asarray(np.add.reduce(self.C * lam, axis=1) + self.c)

    def gap(self, lam: Floats) -> float:
        slope, least = self.slope(lam), self.lower.copy()
        room = 1.0 - self.lower.sum()
        for k in np.argsort(slope, kind="stable").tolist():  # fill up where the slope is smallest
            least[k] += min(room, self.upper[k] - self.lower[k])
            room -= least[k] - self.lower[k]
            if room <= 0:
                break
        return max(0.0, dot(slope, lam - least))

    def candidates(self, lam: Floats) -> Iterator[Floats]:
        """λ, and the optimum over the weights between their bounds with the others held, if inside.

        By conjugate gradients: where the optimum is not unique, they go to the nearest.
        """
        yield lam
        free = (lam > self.lower) & (lam < self.upper)
        if not free.any():
            return
        C, x = self.C[np.ix_(free, free)], lam[free]
        way = residual = _level(-self.slope(lam)[free])
        square = dot(residual, residual)
        for _ in range(2 * len(x)):
            slope = np.add.reduce(C * way, axis=1)
            curvature = dot(way, slope)
            if curvature <= 0 or square <= 1e-32:
                break
            x = x + square / curvature * way
            residual = _level(residual - square / curvature * slope)
            before, square = square, dot(residual, residual)
            way = residual + square / before * way
        out = lam.copy()
        out[free] += _level(x - lam[free])
        if (out >= self.lower).all() and (out <= self.upper).all():
            yield out


def _level(v: Floats) -> Floats:
    """v, or each row of it, less its mean: the part that leaves Σ λ as it is."""
    return np.asarray(v - v.mean(axis=-1, keepdims=True))
