"""FedAvg, GIFAIR-FL-Global and GIFAIR-FL-Per (Yue, Nouiehed, Al Kontar), in plain numpy.

An independent check of the simulation engine: Algorithms 1-3 of the paper in its own symbols, with
full-batch gradients and a given list of cohorts S_c, so that nothing in here is random.

FedAvg is lam = 0. Global and Per share one recursion (ranks = "estimated" is the paper's); Global
returns `models[-1]`, Per returns `personal`. Where the paper is loose this reads it as follows:
the aggregation is theta + sum_k w_k (theta_k - theta), whatever the weights sum to, and L_i is the
mean of the last known losses of group i's members (a group nobody knows ties with every other).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class Problem:
    sizes: np.ndarray  # n_k, training samples
    groups: np.ndarray  # s_k in 0..d-1
    loss: Callable[[int, np.ndarray], float]  # F_k(theta), full training loss
    grad: Callable[[int, np.ndarray], np.ndarray]  # full-batch gradient of F_k


@dataclass(frozen=True)
class Trajectory:
    models: list[np.ndarray]  # theta after 0, 1, ... rounds
    multipliers: list[dict[int, float]]  # m_k of each participant per round
    ranks: list[np.ndarray]  # r_k of all clients used in each round
    personal: dict[int, np.ndarray]  # last local model of every client ever selected


def client_ranks(groups: np.ndarray, known: Mapping[int, float]) -> np.ndarray:
    """r_k = sum over j != s_k of sign(L_{s_k} - L_j), for every client, from the known losses."""
    d = int(groups.max()) + 1
    L: list[float | None] = []
    for i in range(d):
        losses = [known[k] for k in range(len(groups)) if groups[k] == i and k in known]
        L.append(math.fsum(losses) / len(losses) if losses else None)
    r = np.zeros(len(groups), dtype=int)
    for k, s_k in enumerate(groups):
        for j in range(d):
            own, other = L[s_k], L[j]
            if own is not None and other is not None:
                r[k] += (own > other) - (own < other)  # sign(0) = 0, also for j = s_k
    return r


def simulate(
    problem: Problem,
    theta0: np.ndarray,
    cohorts: Sequence[Sequence[int]],  # S_c, with repetitions if drawn with replacement
    rates: Callable[[int, int], float],  # eta of local step i = 0..E-1 in round c
    lam: float,
    sampling: Literal["p-replace", "uniform", "all"],
    ranks: Literal["estimated", "received", "exact-participants", "exact"],
    initial: Literal["bootstrap"] | None = None,
    *,
    steps: int,  # E
) -> Trajectory:
    assert ranks in ("estimated", "received", "exact-participants", "exact"), ranks
    assert initial in (None, "bootstrap"), initial
    K = len(problem.sizes)
    p = problem.sizes / problem.sizes.sum()
    A = np.bincount(problem.groups)[problem.groups]  # |A_{s_k}| of every client k
    theta = np.array(theta0, dtype=np.float64)
    known = {k: problem.loss(k, theta) for k in range(K) if initial == "bootstrap"}
    run = Trajectory([theta], [], [], {})
    for c, cohort in enumerate(cohorts):
        S, m = sorted(Counter(cohort).items()), len(cohort)
        if ranks in ("exact", "exact-participants"):
            asked = range(K) if ranks == "exact" else [k for k, _ in S]
            known |= {k: problem.loss(k, theta) for k in asked}
        r = client_ranks(problem.groups, known)
        m_k = {k: float(1 + lam * r[k] / (p[k] * A[k])) for k, _ in S}

        total = np.zeros_like(theta)
        for k, times in S:
            theta_k = theta
            for i in range(steps):
                theta_k = theta_k - rates(c, i) * m_k[k] * problem.grad(k, theta_k)
            w = {"p-replace": times / m, "uniform": K * p[k] / m, "all": p[k]}[sampling]
            total = total + w * (theta_k - theta)
            run.personal[k] = theta_k
            if ranks in ("estimated", "received"):  # heard now, used from the next round on
                known[k] = problem.loss(k, theta_k if ranks == "estimated" else theta)

        theta = theta + total
        run.models.append(theta)
        run.multipliers.append(m_k)
        run.ranks.append(r)
    return run
