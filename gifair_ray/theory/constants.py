"""The constants that the paper's theorems are stated in, computed where they can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gifair_ray import objective
from gifair_ray.theory.optimum import Optimum
from gifair_ray.theory.problems import Floats, Problem, Softmax, d_of, shares


@dataclass(frozen=True)
class Constants:
    """For one problem, one λ and one run."""

    p: Floats
    lam: float
    lam_max: float
    mu: float
    """Every F_k is μ-strongly convex, and so is H for λ ≤ λ_max."""
    L: float
    """Every F_k is L-smooth. H is not, where groups tie."""
    G: float
    """G² bounds E‖g_k‖² of every stochastic gradient on the way."""
    sigma2: Floats
    """σ_k², the variance of each client's stochastic gradients."""
    H_star: float
    Gamma_K: float
    """H* − Σ p_k H_k*, in the worst case over ranks, as H_k* = m_k F_k* depends on them."""
    Gamma_max: float
    """Σ p_k |H* − H_k*|, likewise (not more than)."""

    @property
    def K(self) -> int:
        """How many clients there are."""
        return len(self.p)

    @property
    def epsilon(self) -> float:
        """The paper's ε = 1 − λ/λ_max."""
        return 1.0 - self.lam / self.lam_max


def constants(
    problem: Problem, best: Optimum, models: Floats, sigma2: Floats | float = 0.0
) -> Constants:
    """The constants for a run that sent out these models, one a row.

    G is taken over them alone. That is enough for local steps too: gradient descent on a convex
    function with η m_k ≤ 2/L, that is η ≤ 1/L, never lengthens its gradient (with noise it may, by
    terms in η²). `sigma2` is σ_k².
    """
    p, groups, d = shares(problem), problem.groups, d_of(problem)
    mu, L = problem.curvature
    variance = np.broadcast_to(np.asarray(sigma2, dtype=np.float64), p.shape)
    longest = np.max([np.sum(problem.gradients(row) ** 2, axis=1) for row in models], axis=0)
    floors = lowest_losses(problem)
    weakest = objective.group_ranks(-objective.group_losses(floors, groups, d))[groups]
    c = objective.effective_weights(best.lam, weakest, p, groups, d)
    reach = best.lam * (d - 1) / (p * objective.group_sizes(groups, d)[groups])  # of m_k − 1
    apart = np.abs(best.H - np.array([1 - reach, 1 + reach]) * floors)
    return Constants(
        p=p,
        lam=best.lam,
        lam_max=objective.lambda_max(p, groups, d),
        mu=mu,
        L=L,
        G=float(np.sqrt(np.max(longest + variance))),
        sigma2=variance,
        H_star=best.H,
        Gamma_K=float(best.H - c @ floors),
        Gamma_max=float(p @ apart.max(axis=0)),
    )


def lowest_losses(problem: Problem) -> Floats:
    """F_k* of every client, each with a model of its own."""
    alone = np.eye(len(problem.sizes))
    return np.array(
        [problem.losses(problem.minimise(e, problem.start))[k] for k, e in enumerate(alone)]
    )


def batch_variances(problem: Softmax, theta: Floats, batch_size: int) -> Floats:
    """σ_k² at θ of gradients over batches drawn without replacement from a client's samples."""
    out = []
    for k, n in enumerate(problem.sizes.tolist()):
        g = problem.sample_gradients(k, theta)
        spread = float(np.mean(np.sum((g - g.mean(axis=0)) ** 2, axis=1)))
        B = min(batch_size, n)
        out.append(spread / B * (n - B) / max(n - 1, 1))
    return np.array(out)
