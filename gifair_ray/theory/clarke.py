"""How stationary a point is, for a function with kinks: Clarke's measure.

At a tie H has no gradient, and near one the gradient of whichever piece is on top stays long
however close the minimum is. What tends to 0 is the shortest vector in the hull of the gradients
of all pieces that are nearly on top,

    min { ‖ Σ_k p_k∇F_k + λ Σ_{i<j} σ_ij (∇L_i − ∇L_j) ‖ :  σ_ij ∈ [−1, 1] if 2λ|L_i − L_j| ≤ slack,
                                                            σ_ij = sign(L_i − L_j) otherwise },

for which no convexity is needed. It is a least-squares problem with bounds.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear

from gifair_ray import objective
from gifair_ray.backend import build_learner
from gifair_ray.protocol import Message, TrainJob
from gifair_ray.scenario import Scenario, parse
from gifair_ray.theory.problems import Floats, Ints


def stationarity(
    losses: Floats, gradients: Floats, p: Floats, groups: Ints, lam: float, slack: float
) -> float:
    """Clarke's measure from F_k(θ) and ∇F_k(θ) (a row per client); `slack` is in units of loss.

    With slack = 0 it is ‖∇H(θ)‖ wherever no two groups tie exactly.
    """
    d = int(groups.max()) + 1
    L = objective.group_losses(losses, groups, d)
    means = np.array([gradients[groups == i].mean(axis=0) for i in range(d)])
    i, j = np.triu_indices(d, 1)
    apart = L[i] - L[j]
    free = 2 * lam * np.abs(apart) <= slack
    signs = np.where(free, 0.0, np.sign(apart))
    fixed = p @ gradients + lam * signs @ (means[i] - means[j])
    if not free.any() or not lam:
        return float(np.linalg.norm(fixed))
    V = lam * (means[i[free]] - means[j[free]]).T
    # Only directions in the span of the differences can be shortened.
    Q, R = np.linalg.qr(V)
    within = Q.T @ fixed
    sigma = lsq_linear(R, -within, bounds=(-1.0, 1.0), method="bvls").x
    return float(np.linalg.norm(fixed + V @ sigma))


def client_gradients(scenario: Scenario, theta: Floats) -> tuple[Floats, Floats]:
    """(F_k(θ), ∇F_k(θ)) of every client of a scenario, whatever its model: one step of η = 1 each.

    Full batches. A model that draws while it trains (dropout) has no gradient to speak of.
    """
    plain = {"steps": 1, "schedule": {"kind": "constant", "lr": 1.0}}
    table = {**scenario.table(), "work": plain, "solver": {"kind": "sgd"}}
    one_step = parse(table)
    federation, learner = build_learner(one_step)
    clients = np.arange(len(federation.population))
    flat = np.asarray(theta, dtype=learner.initial().dtype)
    jobs = [TrainJob(k, k, 0, Message(0, 0.0, 0.0), None) for k in clients.tolist()]
    models = learner.train(flat, jobs).models
    losses = learner.evaluate(flat, clients, "train").loss
    return losses, flat.astype(np.float64) - models.astype(np.float64)
