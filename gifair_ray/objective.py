"""GIFAIR-FL's objective and its parts (paper, section 3; equation numbers are the paper's).

    K clients, p_k = n_k/Σn, s_k the group of client k, A_i the clients of group i, d groups
    L_i = (1/|A_i|) Σ_{k∈A_i} F_k                        average loss of a group
    r_k = Σ_{j≠s_k} sign(L_{s_k} − L_j)                  rank; sign(0) = 0
    H   = Σ_k p_k F_k + λ Σ_{i<j} |L_i − L_j|            (1)
        = Σ_k p_k m_k F_k,  m_k = 1 + λ r_k/(p_k |A_{s_k}|)   (2), Lemma 1
    0 ≤ λ < λ_max = min_k p_k |A_{s_k}| / (d − 1)        keeps every m_k in (0, 2)

Individual fairness is d = K, every client a group; its weights are p_k + λ r_k (the paper's
formula for that case lacks the p_k).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from gifair_ray.errors import BadInput
from gifair_ray.sums import dot

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def shares(sizes: Ints) -> Floats:
    """p_k = n_k / Σ n."""
    return np.asarray(sizes / np.sum(sizes), dtype=np.float64)


def group_sizes(groups: Ints, d: int) -> Ints:
    """|A_i|."""
    return np.bincount(groups, minlength=d).astype(np.int64)


def group_losses(losses: Floats, groups: Ints, d: int) -> Floats:
    """L_i over the members whose loss is known (not NaN); NaN for a group with none.

    Summed exactly (fsum), so that groups with equal losses tie whatever the order of members; and
    n equal losses have exactly that mean, which the rounded sum over n has not.
    """
    known = ~np.isnan(losses)
    order = np.argsort(groups[known], kind="stable")
    sorted_losses = losses[known][order]
    counts = np.bincount(groups[known], minlength=d)
    ends = np.cumsum(counts)
    if counts.max(initial=0) <= 1:  # individual fairness: a group's loss is its member's
        L = np.full(d, np.nan)
        L[groups[known]] = losses[known]
        return L
    L = np.full(d, np.nan)
    some = np.flatnonzero(counts)
    starts = (ends - counts)[some]
    lowest = np.minimum.reduceat(sorted_losses, starts).tolist()
    highest = np.maximum.reduceat(sorted_losses, starts).tolist()
    members = zip(starts.tolist(), ends[some].tolist(), lowest, highest, strict=True)
    L[some] = [
        low if low == high else math.fsum(sorted_losses[at:end]) / (end - at)
        for at, end, low, high in members
    ]
    return L


def group_ranks(L: Floats, tolerance: float = 0.0) -> Ints:
    """r_i = Σ_{j≠i} sign(L_i − L_j) = #{L_j < L_i} − #{L_j > L_i}, by sorting: O(d log d).

    A group of unknown loss (NaN) has rank 0 and adds 0 to every other group's. Losses that differ
    by no more than `tolerance` (an extension) tie.
    """
    known = ~np.isnan(L)
    below, not_above = _compared(L[known], tolerance)
    r = np.zeros(len(L), dtype=np.int64)
    r[known] = below + not_above - len(below)
    return r


def soft_ranks(L: Floats, tau: float) -> Floats:
    """r_i = Σ_{j≠i} clip((L_i − L_j)/τ, −1, 1): real numbers, which change continuously.

    An extension: the penalty |x| becomes Huber's, x²/2τ for |x| ≤ τ and |x| − τ/2 beyond, and H a
    smooth function. The ranks sum to 0 as the others do, up to rounding.
    """
    known = ~np.isnan(L)
    values = L[known] - (np.mean(L[known]) if known.any() else 0.0)  # small sums round little
    below, not_above = _compared(values, tau)
    sums = np.concatenate([[0.0], np.cumsum(np.sort(values))])
    near = (not_above - below) * values - (sums[not_above] - sums[below])
    r = np.zeros(len(L))
    r[known] = below + not_above - len(below) + near / tau
    return r


def _compared(values: Floats, margin: float) -> tuple[Ints, Ints]:
    """For each: how many are below it by more than the margin, and how many are not above it so.

    That i is above j means L_j < L_i − margin, as rounded, wherever the pair is looked at from.
    """
    ordered = np.sort(values)
    below = np.searchsorted(ordered, values - margin, side="left")
    not_above = np.searchsorted(ordered - margin, values, side="right")
    return below.astype(np.int64), not_above.astype(np.int64)


def lambda_max(p: Floats, groups: Ints, d: int) -> float:
    """min_k p_k |A_{s_k}| / (d − 1); infinite for d = 1, where λ has nothing to act on."""
    if d == 1:
        return math.inf
    return float(np.min(p * group_sizes(groups, d)[groups])) / (d - 1)


def resolve_lambda(
    p: Floats, groups: Ints, d: int, *, fraction: float | None, value: float | None
) -> float:
    """λ from a fraction of λ_max or an absolute value, checked against its bound."""
    bound = lambda_max(p, groups, d)
    if d == 1:
        if fraction or value:
            raise BadInput("one group only: λ must be 0, for there is no other group to compare")
        return 0.0
    lam = value if value is not None else (fraction or 0.0) * bound
    if not 0.0 <= lam < bound:
        raise BadInput(
            f"λ = {lam:.6g} is outside [0, λ_max = {bound:.6g}): a client's weight would not stay "
            "positive. Give weighting.lambda_fraction in [0, 1) instead"
        )
    return lam


def tilts(lam: float, r: Ints | Floats, p: Floats, members: Ints) -> Floats:
    """λ r_k/(p_k |A_{s_k}|) for some clients: the one scalar that each is sent."""
    return np.asarray(lam * r / (p * members), dtype=np.float64)


def multipliers(lam: float, r: Ints | Floats, p: Floats, groups: Ints, d: int) -> Floats:
    """m_k = 1 + λ r_k/(p_k |A_{s_k}|), for all clients."""
    return 1.0 + tilts(lam, r, p, group_sizes(groups, d)[groups])


def effective_weights(lam: float, r: Ints | Floats, p: Floats, groups: Ints, d: int) -> Floats:
    """c_k = p_k m_k = p_k + λ r_k/|A_{s_k}|. They sum to 1, because Σ_i r_i = 0."""
    return p + lam * r / group_sizes(groups, d)[groups]


def penalised_objective(losses: Floats, p: Floats, groups: Ints, d: int, lam: float) -> float:
    """H in the form (1): Σ p_k F_k + λ Σ_{i<j} |L_i − L_j|, the pairs summed by sorting."""
    L = np.sort(group_losses(losses, groups, d))
    pairs = dot(2.0 * np.arange(d) - (d - 1), L)  # Σ_{i<j} |L_i − L_j|
    return dot(p, losses) + lam * pairs


def weighted_objective(losses: Floats, p: Floats, groups: Ints, d: int, lam: float) -> float:
    """H in the form (2), Lemma 1: Σ p_k m_k F_k."""
    r = group_ranks(group_losses(losses, groups, d))[groups]
    return dot(effective_weights(lam, r, p, groups, d), losses)


def rank_error(losses: Floats, used: Ints | Floats, groups: Ints, d: int, lam: float) -> float:
    """δ = H(θ) − Σ c_k(r̂) F_k(θ) ≥ 0, for ranks r̂ that were used and the exact losses at θ.

    As c_k = p_k + λ r_k/|A_{s_k}|, that is λ Σ_i (r_i − r̂_i) L_i over groups: zero with exact
    ranks, otherwise 2λ Σ |L_i − L_j| over the pairs that r̂ has the wrong way round. GIFAIR with
    ranks r̂ is a δ-subgradient method on H. `used` is r̂ by group.
    """
    L = group_losses(losses, groups, d)
    return max(0.0, lam * dot(group_ranks(L) - used, L))
