"""One problem looked at from all sides: what `gifair theory` shows.

Everybody takes part in every round, η_t = β/(t+γ) with β = 2/μ and γ = max(8Lβ, E), and the engine
runs once with exact ranks and once with estimated ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gifair_ray import objective
from gifair_ray.scenario import Scenario, merge, parse
from gifair_ray.theory import bounds, clarke, recursion
from gifair_ray.theory.constants import Constants, constants
from gifair_ray.theory.follow import Path, follow, quadratics
from gifair_ray.theory.optimum import Optimum, optimum
from gifair_ray.theory.problems import Floats, Quadratics, d_of, shares
from gifair_ray.theory.rates import slope

Named = Literal["q1", "q3", "random"]
MODES = ("exact", "estimated")
START = {"q1": 1.5, "q3": 0.0, "random": 0.0}
FRACTIONS = {"q1": 0.6, "q3": 0.5, "random": 0.5}
"""λ/λ_max where none is given: at those of Q1 and Q3 two groups tie at the optimum."""


@dataclass(frozen=True)
class Mode:
    """A run with one kind of ranks; arrays are over versions 0, 1, … of the model."""

    path: Path
    gaps: Floats
    """H(θ) − H*."""
    distances: Floats
    """Δ = ‖θ − θ*‖²."""
    deltas: Floats
    """δ of the ranks of each round."""
    recursion: Floats
    """The bound on H(θ) − H* that the recursion gives, unrolled from the start."""
    worst: float
    """The largest of Δ⁺ over its bound from one round to the next: never above 1."""
    slope: float
    gradient: float
    """‖∇H‖ at the last model."""
    stationarity: float
    """Clarke's measure there: groups count as tied that a round's step could make change places."""


@dataclass(frozen=True)
class Study:
    """The problem, its optimum and constants, both runs, and the paper's bounds."""

    problem: Quadratics
    scenario: Scenario
    best: Optimum
    k: Constants
    modes: Mapping[str, Mode]
    T: Floats
    """Local steps E, 2E, … at which the paper's bounds are taken."""
    printed: Floats
    corrected: Floats
    window: tuple[int, int]
    """Rounds over which slopes are fitted."""


def study(
    name: Named, fraction: float | None = None, steps: int = 1, rounds: int = 3000, seed: int = 0
) -> Study:
    """Run the engine on a problem and set it beside what theory says."""
    table = _table(name, FRACTIONS[name] if fraction is None else fraction, steps, rounds, seed)
    problem = quadratics(parse(table))
    mu, L = problem.curvature
    gamma = max(16 * L / mu, float(steps))
    schedule = {"kind": "inverse", "beta": 2 / mu, "gamma": gamma}
    table = merge(table, {"work": {"schedule": schedule}})
    scenario = parse(table)
    lam = scenario.weighting.start(scenario.data.build(seed).population).lam or 0.0
    best = optimum(problem, lam)
    paths = {m: follow(parse(merge(table, {"weighting": {"ranks": m}}))) for m in MODES}
    k = constants(problem, best, np.concatenate([path.models for path in paths.values()]))
    window = (max(1, rounds // 30), rounds)
    modes = {mode: _mode(problem, best, k, path, window) for mode, path in paths.items()}
    start = float(modes["exact"].distances[0])
    T = steps * np.arange(1.0, rounds + 1)
    own_gamma = max(8 * L * bounds.printed_beta(k), steps)
    return Study(
        problem=problem,
        scenario=scenario,
        best=best,
        k=k,
        modes=modes,
        T=T,
        printed=bounds.printed(k, T, steps, own_gamma, start),
        corrected=bounds.corrected(problem, best, k, T, steps, gamma, start),
        window=window,
    )


def _table(name: Named, fraction: float, steps: int, rounds: int, seed: int) -> dict[str, Any]:
    return {
        "name": f"theory-{name}",
        "algorithm": "gifair-global",
        "seed": seed,
        "data": {"source": "quadratic", "problem": name},
        "model": {"kind": "quadratic", "init": START[name]},
        "work": {"steps": steps},
        "sampling": {"scheme": "all"},
        "weighting": {"lambda_fraction": fraction, "ranks": "exact", "initial": "bootstrap"},
        "stop": {"rounds": rounds},
        "evaluation": {"every": 0, "splits": ["train"]},
        "audit": {"every": 1},
    }


def _mode(
    problem: Quadratics, best: Optimum, k: Constants, path: Path, window: tuple[int, int]
) -> Mode:
    p, groups, d = shares(problem), problem.groups, d_of(problem)
    models = path.models.astype(np.float64)
    values = [
        objective.penalised_objective(problem.losses(theta), p, groups, d, best.lam)
        for theta in models
    ]
    gaps = np.maximum(np.array(values) - best.H, 0.0)
    distance = np.sum((models - best.theta) ** 2, axis=1)
    deltas, rates = path.tables["rounds"]["delta"].to_numpy(), path.rates()
    step = recursion.next_distance(distance[:-1], rates, deltas, k)
    whole = recursion.distances(float(distance[0]), rates, deltas, k)
    F, gradients = problem.losses(models[-1]), problem.gradients(models[-1])
    moved = 2 * float(rates[-1].sum() * np.max(np.sum(gradients**2, axis=1)))  # of L_i − L_j
    return Mode(
        path=path,
        gaps=gaps,
        distances=distance,
        deltas=deltas,
        recursion=recursion.gap(problem, best, whole),
        worst=float(np.max(distance[1:] / step)),
        slope=slope(gaps, *window),
        gradient=clarke.stationarity(F, gradients, p, groups, best.lam, 0.0),
        stationarity=clarke.stationarity(F, gradients, p, groups, best.lam, 2 * best.lam * moved),
    )
