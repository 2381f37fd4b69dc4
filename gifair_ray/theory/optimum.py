"""The optimum of H with a proof of it: (θ*, H*) by the concave dual.

For 0 ≤ λ ≤ λ_max the objective is a maximum of convex combinations of the losses,

    H(θ) = max_{r ∈ R} Σ_k c_k(r) F_k(θ),   c_k(r) = p_k + λ r_{s_k}/|A_{s_k}| ≥ 0,  Σ_k c_k = 1

over the convex hull R of the ranks of all orders of the groups. So, whatever θ and r ∈ R,

    g(r) = min_θ Σ_k c_k(r) F_k(θ)  ≤  H*  ≤  H(θ),

and H(θ) − g(r) certifies both. g is concave, and given θ the best corner of R is simply the order
of the groups by loss. That makes a method of few corners (simplicial decomposition): maximise g
over the hull of the corners found so far, by Newton's method, then add the corner of the order at
hand; when it has nothing to add, the certificate has closed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gifair_ray import objective
from gifair_ray.errors import BadInput
from gifair_ray.theory.problems import Floats, Problem, d_of, shares

ROUNDING = 1e-15


@dataclass(frozen=True)
class Optimum:
    """θ*, H(θ*) and a lower bound on H*: `certificate` is the distance between the two."""

    theta: Floats
    H: float
    lower: float
    lam: float
    r: Floats
    """The multipliers r_i of the groups, a mean of ranks: whole numbers where nothing ties."""
    sigma: Floats
    """σ_ij ∈ [−1, 1] with r_i = Σ_j σ_ij; ±1 where group i is above or below group j."""
    c: Floats
    """Weights c_k(r): θ* minimises Σ c_k F_k."""

    @property
    def certificate(self) -> float:
        """H(θ*) − g(r) ≥ H(θ*) − H* ≥ 0, but for rounding."""
        return max(0.0, self.H - self.lower)

    @property
    def ties(self) -> list[tuple[int, int]]:
        """Pairs of groups that tie at θ*, where H has a kink that holds the minimum."""
        i, j = np.nonzero(np.triu(np.abs(self.sigma) < 1 - 1e-9, 1))
        return list(zip(i.tolist(), j.tolist(), strict=True))


def optimum(problem: Problem, lam: float, tolerance: float = 1e-13) -> Optimum:
    """The certified optimum; it gives up when rounding stops all progress, whatever is left."""
    p, groups, d = shares(problem), problem.groups, d_of(problem)
    bound = objective.lambda_max(p, groups, d)
    if not 0 <= lam <= bound:
        raise BadInput(
            f"λ = {lam:.6g} is outside [0, λ_max = {bound:.6g}]: H need not be convex there, and "
            "has no certificate"
        )
    dual = _Dual(problem, p, lam)
    corners = [_order(dual.L(dual.theta))]
    w, found = np.ones(1), list[Optimum]()
    for _ in range(50 * d + 50):
        w, corners = _maximise(dual, w, corners)
        found.append(_result(dual, w, corners))
        corner = _order(dual.L(dual.theta))
        stuck = len(found) > 1 and found[-1].lower <= found[-2].lower
        known = any((corner == old).all() for old in corners)
        if found[-1].certificate <= tolerance or stuck or known:
            break
        corners, w = [*corners, corner], np.append(w, 0.0)
    return min(found, key=lambda one: one.certificate)


class _Dual:
    """g at weights over corners: remembers θ(r), from which the next one begins."""

    def __init__(self, problem: Problem, p: Floats, lam: float) -> None:
        self.problem, self.p, self.lam = problem, p, lam
        self.groups, self.d = problem.groups, d_of(problem)
        self.mu = problem.curvature[0]
        self.theta = problem.minimise(p, problem.start)

    def c(self, r: npt.NDArray[np.generic]) -> Floats:
        r = np.asarray(r, dtype=np.float64)[self.groups]
        return objective.effective_weights(self.lam, r, self.p, self.groups, self.d)

    def L(self, theta: Floats) -> Floats:
        return objective.group_losses(self.problem.losses(theta), self.groups, self.d)

    def at(self, r: Floats) -> float:
        """g(r), from below: what is left of the gradient is charged, ‖∇‖²/2μ."""
        c = self.c(r)
        self.theta = self.problem.minimise(c, self.theta)
        left = c @ self.problem.gradients(self.theta)
        return float(c @ self.problem.losses(self.theta) - left @ left / (2 * self.mu))


def _order(L: Floats) -> Floats:
    """Ranks of the groups in a strict order by loss: d − 1 for the worst, 1 − d for the best."""
    r = np.empty(len(L))
    r[np.argsort(L, kind="stable")] = 2.0 * np.arange(len(L)) - (len(L) - 1)
    return r


def _maximise(dual: _Dual, w: Floats, corners: list[Floats]) -> tuple[Floats, list[Floats]]:
    """The best mean of corners: Newton on the simplex, corners of weight 0 dropped on the way."""
    value = dual.at(w @ np.array(corners))
    for _ in range(200):
        R = np.array(corners)
        F, grads = dual.problem.losses(dual.theta), dual.problem.gradients(dual.theta)
        C = np.array([dual.c(r) for r in R])
        pieces, J = C @ F, C @ grads  # values and gradients of the corners' functions
        level = ROUNDING * float(np.abs(pieces).max())
        if len(w) == 1 or (np.ptp(pieces) <= level and (w > 0).all()):
            return w, corners
        step = _newton(pieces, J, dual.problem.hessian(w @ C, dual.theta))
        falling = step < 0
        reach = float(np.min(w[falling] / -step[falling], initial=np.inf))
        t, here = min(1.0, reach), dual.theta
        while (there := dual.at((w + t * step) @ R)) < value - ROUNDING * abs(value):
            t /= 2
            if t < 1e-9:
                dual.theta = here
                return w, corners
        blocked = t == reach
        w = np.maximum(w + t * step, 0.0)
        if blocked:
            w[falling & (w <= 1e-15)] = 0.0
            w[np.argmin(np.where(falling, w, np.inf))] = 0.0
        elif there <= value and t * np.abs(step).max() < 1e-14:
            return w / w.sum(), corners
        w = w / w.sum()
        value, keep = there, np.flatnonzero(w > 0)
        w, corners = w[keep], [corners[i] for i in keep.tolist()]
    return w, corners


def _newton(pieces: Floats, J: Floats, M: Floats) -> Floats:
    """argmax of the model pieces·s − ½ sᵀ J M⁻¹ Jᵀ s over Σs = 0.

    A little is added to the curvature: where it is none the step is long, and ends at a face.
    """
    n = len(pieces)
    Q = J @ np.linalg.solve(M, J.T)
    Q += 1e-12 * (np.trace(Q) / n + 1e-30) * np.eye(n)
    basis = np.vstack([np.eye(n - 1), -np.ones(n - 1)])  # of Σs = 0
    reduced = basis.T @ Q @ basis
    return np.asarray(basis @ np.linalg.lstsq(reduced, basis.T @ pieces, rcond=None)[0])


def _result(dual: _Dual, w: Floats, corners: list[Floats]) -> Optimum:
    R = np.array(corners)
    r = w @ R
    lower = dual.at(r)
    losses = dual.problem.losses(dual.theta)
    H = objective.penalised_objective(losses, dual.p, dual.groups, dual.d, dual.lam)
    signs = np.sign(R[:, :, None] - R[:, None, :])
    sigma = np.einsum("a,aij->ij", w, signs)
    return Optimum(dual.theta, H, lower, dual.lam, r, sigma, dual.c(r))
