"""The bound that holds: GIFAIR as a δ-subgradient method, from round to round.

With Δ = ‖θ − θ*‖², the learning rates η_1 … η_E of a round and a = Σ η_i ≤ 1/μ,

    Δ⁺ ≤ (1 − aμ) Δ + 2aδ + s a²G² + a D²/μ,     D = (2LG/a) Σ_i η_i Σ_{j<i} η_j.

D bounds how far local steps lead the gradient astray; for equal steps it is L(E−1)ηG. δ is the
error of the ranks (`objective.rank_error`): 0 for exact ones. G bounds the gradients on the way.
With everybody in every round and exact gradients s = 1 and the bound holds for certain; with
noise (G² then bounds second moments) or sampling it holds for the expected Δ⁺, and s is
`second_moment`. No smoothness of H is used, so it holds where groups tie.

Why: the step is −a times a mean of gradients, of length ≤ G, that differs by at most D from
g = Σ c_k ∇F_k(θ); H(θ*) ≥ H(θ) + ⟨g, θ* − θ⟩ − δ + (μ/2)Δ and H(θ) − H(θ*) ≥ (μ/2)Δ.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gifair_ray import objective
from gifair_ray.errors import BadInput
from gifair_ray.theory.constants import Constants
from gifair_ray.theory.optimum import Optimum
from gifair_ray.theory.problems import Floats, Problem, d_of, shares


def second_moment(scheme: Literal["all", "p-replace", "uniform"], m: int, largest: Floats) -> float:
    """s: how much longer, in the mean square, sampling m clients makes the step.

    Everybody: 1. By p_k with replacement, the m draws vary by Σ p_k m_k² ≤ 2 at most. Distinct and
    uniform, with weights K p_k/m: by K Σ c_k², of which the share (K−m)/(K−1) is left. `largest`
    are the c_k of `largest_weights`.
    """
    K = len(largest)
    if scheme == "all" or K == 1:
        return 1.0
    if scheme == "p-replace":
        return min(2.0, 1.0 + 2.0 / m)
    m = min(m, K)
    return float(1.0 + (K - m) / (m * (K - 1)) * K * np.sum(largest**2))


def largest_weights(problem: Problem, lam: float) -> Floats:
    """The largest c_k = p_k + λ r_k/|A| that any ranks can give."""
    d, groups = d_of(problem), problem.groups
    top = np.full(len(groups), d - 1)
    return objective.effective_weights(lam, top, shares(problem), groups, d)


def next_distance(
    distance: Floats | float, rates: Floats, delta: Floats | float, k: Constants, s: float = 1.0
) -> Floats:
    """The bound on Δ⁺ from Δ; `rates` are η_1 … η_E along the last axis."""
    a = rates.sum(axis=-1)
    if np.any(a * k.mu > 1 + 1e-12):
        raise BadInput(f"Σ η = {np.max(a):.6g} exceeds 1/μ = {1 / k.mu:.6g}: the bound needs less")
    before = np.cumsum(rates, axis=-1) - rates
    D = 2 * k.L * k.G / a * np.sum(rates * before, axis=-1)
    return np.asarray(
        (1 - a * k.mu) * distance + 2 * a * delta + s * (a * k.G) ** 2 + a * D**2 / k.mu
    )


def distances(
    start: float, rates: Floats, deltas: Floats | float, k: Constants, s: float = 1.0
) -> Floats:
    """The bound on Δ after 0, 1, … rounds, from Δ at the start; `rates` has a row per round."""
    delta = np.broadcast_to(np.asarray(deltas, dtype=np.float64), len(rates))
    out = [start]
    for row, error in zip(rates, delta, strict=True):
        out.append(float(next_distance(out[-1], row, float(error), k, s)))
    return np.array(out)


def mean_gap(start: float, rates: Floats, deltas: Floats | float, k: Constants) -> float:
    """A bound on the mean of H(θ_c) − H*, weighted by a_c, over the rounds: each before its step.

    From Δ⁺ ≤ Δ − 2a(H(θ) − H*) + 2aδ + a²G² + aD²/μ, summed. With constant steps it tends to
    δ + ηEG²/2 + D²/2μ: a neighbourhood of order ηE, however long the run.
    """
    a = rates.sum(axis=1)
    before = np.cumsum(rates, axis=1) - rates
    D = 2 * k.L * k.G / a * np.sum(rates * before, axis=1)
    terms = 2 * a * deltas + (a * k.G) ** 2 + a * D**2 / k.mu
    return float((start + np.sum(terms)) / (2 * np.sum(a)))


def gap(problem: Problem, best: Optimum, distance: Floats | float) -> Floats:
    """A bound on H(θ) − H* from Δ = ‖θ − θ*‖², at smooth optima and at ties.

    A piece Σ c_k F_k of H rises by at most M√Δ + (L/2)Δ, where M bounds the gradients at θ*. At a
    smooth optimum the piece at θ* has no gradient there, and the others lie lower by a margin: as
    long as they cannot catch up, (L/2)Δ remains. At a tie the first term stays, and is attained.
    """
    L = problem.curvature[1]
    M = float(np.sqrt(np.max(np.sum(problem.gradients(best.theta) ** 2, axis=1))))
    distance = np.asarray(distance, dtype=np.float64)
    smooth, kinked = L / 2 * distance, M * np.sqrt(distance) + L / 2 * distance
    if best.ties:
        return kinked
    if not best.lam:
        return smooth
    losses, d = problem.losses(best.theta), d_of(problem)
    means = [losses[problem.groups == i].mean() for i in range(d)]
    margin = 2 * best.lam * float(np.min(np.diff(np.sort(means)), initial=np.inf))
    return np.where(kinked <= margin, smooth, kinked)
