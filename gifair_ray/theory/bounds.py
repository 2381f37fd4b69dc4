"""The paper's Theorems 1 and 2 as printed, and with the constants that their proof supports.

    E H(θ̄_T) − H* ≤ (L/2)/(γ+T) · { 4ξ/(ε²μ²) + (γ+1)‖θ0 − θ*‖² },   η_t = β/(t+γ)
    ξ = 8(E−1)²G² + 4LΓ_K + 2Γ_max/η_T + 4Σ p_k²σ_k²   (+ τ' = 4E²G²/m, partial participation)

Printed, β = 2K/(εμ). The term 2Γ_max/η_T grows with T: the right-hand side tends to the constant
2LΓ_max/(Kεμ), not to 0. Corrected, after the proof: the contraction is μ (the 1/K and ε are not
needed, H is μ-strongly convex), so β = 2/μ and 4ξ/μ²; multipliers of up to 2 make the drift
32(E−1)²G² and, as rates may halve within a round, τ' = 16E²G²/m; and from ‖θ − θ*‖² to H one may
not pass by smoothness where groups tie. Γ_max/η stays, and with it a floor: O(1/T) is what the
recursion (`gifair_ray.theory.recursion`) shows, not these.
"""

from __future__ import annotations

import numpy as np

from gifair_ray import objective
from gifair_ray.theory.constants import Constants
from gifair_ray.theory.optimum import Optimum
from gifair_ray.theory.problems import Floats, Problem, d_of, shares
from gifair_ray.theory.recursion import gap


def printed_beta(k: Constants) -> float:
    """β of Theorems 1 and 2 as their proof chooses it."""
    return 2 * k.K / (k.epsilon * k.mu)


def printed(
    k: Constants, T: Floats, E: int, gamma: float, start: float, m: int | None = None
) -> Floats:
    """Theorem 1 as printed, after T local steps; Theorem 2 if a cohort of m is given.

    `start` is ‖θ0 − θ*‖².
    """
    T = np.asarray(T, dtype=np.float64)
    eta = printed_beta(k) / (T + gamma)
    xi = 8 * (E - 1) ** 2 * k.G**2 + 4 * k.L * k.Gamma_K + 2 * k.Gamma_max / eta
    xi = xi + 4 * float(np.sum(k.p**2 * k.sigma2))
    if m is not None:
        xi = xi + 4 * E**2 * k.G**2 / m
    braces = 4 * xi / (k.epsilon * k.mu) ** 2 + (gamma + 1) * start
    return np.asarray(k.L / 2 / (gamma + T) * braces)


def printed_floor(k: Constants) -> float:
    """What the printed bounds tend to: 2LΓ_max/(Kεμ)."""
    return 2 * k.L * k.Gamma_max / (k.K * k.epsilon * k.mu)


def corrected_beta(k: Constants) -> float:
    """β of the theorems with corrected constants."""
    return 2 / k.mu


def corrected(
    problem: Problem,
    best: Optimum,
    k: Constants,
    T: Floats,
    E: int,
    gamma: float,
    start: float,
    m: int | None = None,
) -> Floats:
    """Theorem 1 with corrected constants, after T local steps; Theorem 2 if m is given."""
    T = np.asarray(T, dtype=np.float64)
    eta = corrected_beta(k) / (T + gamma)
    xi = 32 * (E - 1) ** 2 * k.G**2 + 4 * k.L * k.Gamma_K + 2 * k.Gamma_max / eta
    xi = xi + 4 * float(np.sum(k.p**2 * k.sigma2))
    if m is not None:
        xi = xi + 16 * E**2 * k.G**2 / m
    distance = (4 * xi / k.mu**2 + (gamma + 1) * start) / (gamma + T)
    return gap(problem, best, distance)


def averaged(mu: float, G: float, T: int, sampled: bool = False) -> float:
    """For E = 1, exact ranks and η_t = 2/(μ(t+1)): H(θ̂) − H* ≤ 2G²/(μ(T+1)).

    θ̂ = 2Σ tθ_t/(T(T+1)) is `average`, and G bounds the subgradients on the way, such as
    `longest_subgradient`. If clients are sampled by p_k it is four times that, in the mean.
    """
    return (4 if sampled else 1) * 2 * G**2 / (mu * (T + 1))


def longest_subgradient(problem: Problem, lam: float, models: Floats) -> float:
    """The longest Σ c_k∇F_k(θ), with exact ranks, over these models."""
    p, groups, d = shares(problem), problem.groups, d_of(problem)
    lengths = []
    for theta in models:
        L = objective.group_losses(problem.losses(theta), groups, d)
        r = objective.group_ranks(L)[groups]
        c = objective.effective_weights(lam, r, p, groups, d)
        lengths.append(float(np.linalg.norm(c @ problem.gradients(theta))))
    return max(lengths)


def average(models: Floats) -> Floats:
    """θ̂ = 2Σ_{t=1}^T t θ_t/(T(T+1)) of models θ_1 … θ_T, one a row."""
    t = np.arange(1, len(models) + 1, dtype=np.float64)
    return np.asarray(t @ models / t.sum())
