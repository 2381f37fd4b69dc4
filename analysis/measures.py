"""What "fair" is measured by: every figure of the reports is defined here, and only here.

Notation: K clients with accuracies a_k, each measured on n_k samples; d groups, a group's accuracy
(loss) being the unweighted mean over its members. Accuracies are fractions. All sums are exactly
rounded, so that no figure depends on the order of the clients.

Degenerate input has a defined answer. No clients: nan, everywhere. One client: it is the mean, the
worst and the best, and its variance is 0. One group: variance, discrepancy and spread are 0. A nan
among the values, as for a task without accuracies: nan.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.errors import BadInput

Array = npt.NDArray[Any]


def _mean(values: Array) -> float:
    return math.fsum(values.tolist()) / len(values) if len(values) else math.nan


def mean_accuracy(accuracy: Array) -> float:
    """ā = (1/K) Σ a_k: every client counts the same, as in the paper."""
    return _mean(accuracy)


def weighted_accuracy(accuracy: Array, samples: Array) -> float:
    """Σ n_k a_k / Σ n_k: every sample counts the same."""
    _check_samples(accuracy, samples)
    total = math.fsum(samples.tolist())
    return math.fsum((accuracy * samples).tolist()) / total if total else math.nan


def mean_loss(loss: Array) -> float:
    """(1/K) Σ F_k: every client counts the same."""
    return _mean(loss)


def variance(accuracy: Array) -> float:
    """Var(a) = (1/K) Σ (a_k − ā)²: the paper's individual-level variance, test-set noise included.

    With one client per group (d = K) it equals `group_variance`.
    """
    if not len(accuracy):
        return math.nan
    return _mean((accuracy - _mean(accuracy)) ** 2)


def deviation(accuracy: Array) -> float:
    """√Var(a), the figure that the paper's tables show."""
    return math.sqrt(variance(accuracy))


def weighted_variance(accuracy: Array, samples: Array) -> float:
    """Σ w_k (a_k − Σ w_j a_j)² with w_k = n_k/Σ n: every sample counts the same."""
    _check_samples(accuracy, samples)
    if not len(accuracy):
        return math.nan
    mean, n = weighted_accuracy(accuracy, samples), samples.astype(np.float64)
    return math.fsum((n * (accuracy - mean) ** 2).tolist()) / math.fsum(n.tolist())


def noise_floor(accuracy: Array, samples: Array, weighted: bool = False) -> float:
    """The part of `variance` that finite test sets explain: Σ w_k (1 − w_k) s_k², w_k = 1/K.

    Let π_k be the client's true accuracy, and a_k = c_k/n_k with c_k ~ Binomial(n_k, π_k),
    independent over clients. Then

        Var a_k = π_k(1 − π_k)/n_k,  estimated without bias by  s_k² = a_k(1 − a_k)/(n_k − 1),
        E Σ w_k (a_k − Σ w_j a_j)² = Σ w_k (π_k − Σ w_j π_j)² + Σ w_k (1 − w_k) Var a_k

    (the factor 1 − w_k since the mean moves with the noise), which makes this an unbiased estimate
    of the second term. Weighted, w_k = n_k/Σ n, as in `weighted_variance`.

    One sample says nothing about its own noise: for a client with n_k = 1, s_k² is the mean over
    the clients with n_k ≥ 2 of their estimates n s² of π(1 − π), unbiased if such clients are like
    the others on average. If there are none, the floor is unknown: nan. A client with n_k = 0 has
    no accuracy and is refused. One client: 0.
    """
    _check_samples(accuracy, samples)
    K = len(accuracy)
    if not _defined(accuracy):
        return math.nan
    if K == 1:
        return 0.0
    several = samples >= 2
    if not several.any():
        return math.nan
    n = samples.astype(np.float64)
    one_sample = np.empty(K)  # estimates of π_k(1 − π_k), the noise of a single sample
    a, m = accuracy[several], n[several]
    one_sample[several] = a * (1 - a) * m / (m - 1)
    one_sample[~several] = _mean(one_sample[several])
    if not weighted:
        return (K - 1) / K * _mean(one_sample / n)
    w = n / math.fsum(n.tolist())
    return math.fsum((w * (1 - w) * one_sample / n).tolist())


def corrected_variance(accuracy: Array, samples: Array, weighted: bool = False) -> float:
    """Var(π), the variance over clients of their true accuracies: `variance` − `noise_floor`.

    Unbiased before it is cut off at 0 (derivation: `noise_floor`). With S² the sample variance
    K/(K−1) · Var(a), the same as (K−1)/K · (S² − (1/K) Σ s_k²). Never above `variance`; nan where
    the floor is unknown. Weighted, the same of `weighted_variance`.
    """
    raw = weighted_variance(accuracy, samples) if weighted else variance(accuracy)
    corrected = raw - noise_floor(accuracy, samples, weighted)
    return corrected if math.isnan(corrected) else max(0.0, corrected)


def corrected_deviation(accuracy: Array, samples: Array) -> float:
    """The root of `corrected_variance`."""
    return math.sqrt(corrected_variance(accuracy, samples))


def jain(values: Array) -> float:
    """Jain's index (Σ a)² / (K Σ a²): 1 if all are alike, 1/K if one has everything.

    Values are 0 or more; if all are 0 they are alike.
    """
    if not _defined(values):
        return math.nan
    squares = math.fsum((values.astype(np.float64) ** 2).tolist())
    total = math.fsum(values.tolist())
    return total * total / (len(values) * squares) if squares else 1.0


def gini(values: Array) -> float:
    """Gini's coefficient Σ_k Σ_j |a_k − a_j| / (2 K Σ a): 0 if all are alike, below 1.

    Values are 0 or more; if all are 0 they are alike.
    """
    if not _defined(values):
        return math.nan
    K, a = len(values), np.sort(values.astype(np.float64))
    total = math.fsum(a.tolist())
    above = (2 * np.arange(1, K + 1) - K - 1) * a  # how many are below minus how many are above
    return max(0.0, math.fsum(above.tolist()) / (K * total)) if total else 0.0


def quantiles(values: Array, at: Sequence[float]) -> npt.NDArray[np.float64]:
    """Values that these shares of the clients do not exceed, interpolated between clients."""
    if not _defined(values):
        return np.full(len(at), np.nan)
    return np.quantile(np.sort(values.astype(np.float64)), at)


def deciles(values: Array) -> npt.NDArray[np.float64]:
    """The nine values that part the clients, sorted, into tenths; the fifth is the median."""
    return quantiles(values, [tenth / 10 for tenth in range(1, 10)])


def worst_tenth(accuracy: Array) -> float:
    """Mean accuracy of the ⌈K/10⌉ clients with the lowest."""
    return _mean(np.sort(accuracy)[: _tenth(accuracy)]) if _defined(accuracy) else math.nan


def best_tenth(accuracy: Array) -> float:
    """Mean accuracy of the ⌈K/10⌉ clients with the highest."""
    return _mean(np.sort(accuracy)[-_tenth(accuracy) :]) if _defined(accuracy) else math.nan


def group_means(values: Array, groups: Array) -> npt.NDArray[np.float64]:
    """Mean over the members of each group, in order of the group's number (`np.unique(groups)`)."""
    _check_lengths(values, groups)
    if not len(values):
        return np.empty(0)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order])) + 1
    if len(starts) + 1 == len(values):  # d = K, of which there may be a million
        return values[order].astype(np.float64)
    return np.array([_mean(members) for members in np.split(values[order], starts)])


def group_variance(accuracy: Array, groups: Array) -> float:
    """The paper's Definition 1: (1/d) Σ (a^i − mean a^i)² over the groups' accuracies a^i."""
    return variance(group_means(accuracy, groups))


def worst_group(accuracy: Array, groups: Array) -> float:
    """The lowest of the groups' accuracies."""
    means = group_means(accuracy, groups)
    return float(means.min()) if len(means) else math.nan


def discrepancy(accuracy: Array, groups: Array) -> float:
    """Largest minus smallest of the groups' accuracies."""
    return _range(group_means(accuracy, groups))


def loss_spread(loss: Array, groups: Array) -> float:
    """max L_i − min L_i over the groups' losses; nan if a loss is, inf if one is infinite."""
    return _range(group_means(loss, groups))


def wrong_signs(used: Array, exact: Array) -> float:
    """Share of the pairs of groups that losses `used` put into another order than the `exact` ones.

    A pair in the opposite order counts 1. A pair that is tied on one side only counts ½, and so
    does one with a loss that is not known (nan), if the exact ones differ. One group: nan.
    """
    d = len(exact)
    _check_lengths(used, exact)
    if d < 2:
        return math.nan
    wrong = 0.0
    for i in range(d - 1):
        sign = np.nan_to_num(np.sign(used[i] - used[i + 1 :]))
        wrong += float(np.abs(sign - np.sign(exact[i] - exact[i + 1 :])).sum()) / 2
    return wrong / (d * (d - 1) / 2)


def _defined(values: Array) -> bool:
    return len(values) > 0 and not np.isnan(values).any()


def _tenth(values: Array) -> int:
    return -(-len(values) // 10)


def _range(values: Array) -> float:
    if not _defined(values):
        return math.nan
    low, high = float(values.min()), float(values.max())
    return high - low if math.isfinite(high) else high


def _check_lengths(values: Array, others: Array) -> None:
    if len(values) != len(others):
        raise BadInput(f"{len(values)} values but {len(others)} of another: give one per client")


def _check_samples(accuracy: Array, samples: Array) -> None:
    _check_lengths(accuracy, samples)
    if (samples < 1).any():
        raise BadInput("a client with no samples has no accuracy: leave it out")
