"""The point of least norm among convex combinations whose weights stay near given ones.

    min ‖Σ_k λ_k g_k‖² = λᵀMλ  over  Σ λ_k = 1,  lower ≤ λ ≤ upper

Accelerated projected gradients find which weights are at their bounds; then one linear system
gives the others. The duality gap, max over feasible λ' of (λ − λ')ᵀMλ, certifies the result.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

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
    M = M / size
    step = 1.0 / max(float(np.linalg.eigvalsh(M)[-1]), 1e-300)
    ahead, momentum = lam, 1.0
    best, best_gap = lam, duality_gap(M, lam, lower, upper)
    for _ in range(TRIES):
        if best_gap <= gap:
            break
        for _ in range(STEPS):
            new = project(ahead - step * (M @ ahead), lower, upper)
            if (ahead - new) @ (new - lam) > 0:  # the momentum points uphill: start it again
                momentum = 1.0
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * (new - lam)
            lam, momentum = new, following
        for candidate in _candidates(M, lam, lower, upper):
            candidate_gap = duality_gap(M, candidate, lower, upper)
            if candidate_gap < best_gap:
                best, best_gap = candidate, candidate_gap
            if best_gap <= gap:
                break
    return best


def duality_gap(M: Floats, lam: Floats, lower: Floats, upper: Floats) -> float:
    """max over feasible λ' of (λ − λ')ᵀMλ: how much lower the value could at most be, halved."""
    slope = M @ lam
    least = lower.copy()
    room = 1.0 - lower.sum()
    for k in np.argsort(slope, kind="stable").tolist():  # fill up where the slope is smallest
        least[k] += min(room, upper[k] - lower[k])
        room -= least[k] - lower[k]
        if room <= 0:
            break
    return max(0.0, float(slope @ (lam - least)))


def project(v: Floats, lower: Floats, upper: Floats) -> Floats:
    """The nearest λ with Σ λ = 1 and lower ≤ λ ≤ upper: clip(v − τ), with τ from its kinks."""
    # Σ clip(v − τ) falls from Σ upper to Σ lower; from each v − upper to its v − lower by 1 per τ.
    kinks = np.concatenate([v - upper, v - lower])
    order = np.argsort(kinks)
    kinks = kinks[order]
    falling = np.cumsum(np.where(order < len(v), 1.0, -1.0))
    sums = upper.sum() - np.append(0.0, np.cumsum(falling[:-1] * np.diff(kinks)))
    at = max(int(np.searchsorted(-sums, -1.0)) - 1, 0)  # the last kink where the sum is above 1
    tau = kinks[at] + (sums[at] - 1.0) / max(falling[at], 1.0)
    return np.asarray(np.clip(v - tau, lower, upper))


def _candidates(M: Floats, lam: Floats, lower: Floats, upper: Floats) -> Iterator[Floats]:
    """λ, and the optimum over the weights between their bounds with the others held, if inside.

    M_ff λ_f + M_fb λ_b = ν 1,   Σ λ_f = 1 − Σ λ_b
    """
    yield lam
    free = (lam > lower) & (lam < upper)
    n = int(free.sum())
    kkt = np.zeros((n + 1, n + 1))
    kkt[:n, :n] = M[np.ix_(free, free)]
    kkt[:n, n], kkt[n, :n] = -1.0, 1.0
    held = np.where(free, 0.0, lam)
    right = np.append(-(M @ held)[free], 1.0 - held.sum())
    # From λ on: where the optimum is not unique, the nearest one is most likely inside.
    now = np.append(lam[free], 0.0)
    for solve in (np.linalg.solve, _least_squares) if n else ():
        try:
            solution = now + solve(kkt, right - kkt @ now)
        except np.linalg.LinAlgError:
            continue
        out = held.copy()
        out[free] = solution[:n]
        if (out >= lower).all() and (out <= upper).all():
            yield out


def _least_squares(A: Floats, b: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(A, b, rcond=1e-13)[0])
