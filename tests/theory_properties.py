"""What theory says of every federation, as functions that raise AssertionError where it does not.

Tests call them on federations that Hypothesis draws; the test of the tests calls the same
functions with a bug put in, and wants them to fail. Everything is measured on runs of the engine,
and compared with formulas that are written out here or in `gifair_ray.theory`.

Statements about chance are tests at a stated level: each can fail on a right engine with
probability FALSE_ALARM at most, by Freedman's inequality, not by a normal approximation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from gifair_ray import objective
from gifair_ray.scenario import merge, parse
from gifair_ray.theory import Quadratics, constants, follow, optimum, quadratics
from gifair_ray.theory.bounds import average, averaged, longest_subgradient
from gifair_ray.theory.recursion import distances, mean_gap, next_distance

FALSE_ALARM = 1e-6
INF = float("inf")
SCHEMES = ("p-replace", "uniform")
MODES = ("exact", "received", "estimated")


@dataclass(frozen=True)
class Case:
    """A federation of quadratic clients, and how to train on it."""

    clients: int
    dim: int
    groups: tuple[int, ...]
    sizes: tuple[int, ...]
    condition: float  # L/μ, at most
    fraction: float = 0.5  # λ/λ_max
    steps: int = 1  # E
    cohort: int = 2  # m
    ranks: str = "exact"
    noise: float = 0.0
    twins: bool = False  # group 1 is a copy of group 0: they tie everywhere
    seed: int = 0
    more: dict = field(default_factory=dict)

    @cached_property
    def data(self) -> dict:
        g = np.random.default_rng(self.seed)
        K, n = self.clients, self.dim
        Q = np.linalg.qr(g.standard_normal((K, n, n)))[0]
        A = np.swapaxes(Q, 1, 2) @ (g.uniform(1.0, self.condition, (K, n, 1)) * Q)
        b = g.uniform(-2.0, 2.0, (K, n))
        if self.twins:
            ones, zeros = (np.flatnonzero(np.array(self.groups) == i) for i in (1, 0))
            A[ones], b[ones] = A[zeros[0]], b[zeros[0]]
            A[zeros], b[zeros] = A[zeros[0]], b[zeros[0]]
        return {
            "source": "quadratic", "problem": "own", "noise": self.noise,
            "A": ((A + np.swapaxes(A, 1, 2)) / 2).tolist(), "b": b.tolist(),
            "sizes": list(self.sizes), "groups": list(self.groups),
        }  # fmt: skip

    @property
    def d(self) -> int:
        return max(self.groups) + 1

    @cached_property
    def p(self) -> np.ndarray:
        return np.array(self.sizes) / sum(self.sizes)

    @cached_property
    def members(self) -> np.ndarray:
        """|A_{s_k}| of every client."""
        return np.array([self.groups.count(s) for s in self.groups])

    @cached_property
    def lam(self) -> float:
        """λ, by the definition of λ_max."""
        return self.fraction * float(np.min(self.p * self.members)) / (self.d - 1)

    @cached_property
    def problem(self) -> Quadratics:
        return quadratics(self.scenario(1, {"lr": 0.1}))

    @cached_property
    def best(self):
        """The certified optimum."""
        found = optimum(self.problem, self.lam)
        assert found.certificate <= 1e-12 * max(1.0, found.H)
        return found

    def scenario(self, rounds: int, schedule: dict, scheme: str = "all", **tables):
        table = {
            "algorithm": "gifair-global",
            "seed": self.seed,
            "data": self.data,
            "model": {"kind": "quadratic", "init": 1.0},
            "work": {"steps": self.steps, "schedule": schedule},
            "sampling": {"scheme": scheme, "cohort": self.cohort},
            "weighting": {"ranks": self.ranks, "lambda_fraction": self.fraction},
            "stop": {"rounds": rounds},
            "evaluation": {"every": 0, "splits": ["train"]},
            "audit": {"every": 0},
        }
        return parse(merge(merge(table, self.more), tables))

    def decaying(self, mu: float, L: float) -> dict:
        """η_t = β/(t + γ) with β = 2/μ and γ = max(8Lβ, E), as the paper has it."""
        return {"kind": "inverse", "beta": 2 / mu, "gamma": max(16 * L / mu, self.steps)}


@st.composite
def cases(draw, modes=MODES, steps=(1, 2, 5), noise=(0.0,), twins=True):
    """Federations of two to seven clients in two to four groups, balanced and not."""
    K = draw(st.integers(2, 7))
    d = draw(st.integers(2, min(K, 4)))
    others = draw(st.lists(st.integers(0, d - 1), min_size=K - d, max_size=K - d))
    return Case(
        clients=K,
        dim=draw(st.integers(1, 3)),
        groups=tuple(draw(st.permutations([*range(d), *others]))),
        sizes=tuple(draw(st.lists(st.integers(5, 40), min_size=K, max_size=K))),
        condition=draw(st.sampled_from([1.0, 2.0, 6.0])),
        fraction=draw(st.sampled_from([0.1, 0.5, 0.9, 0.99])),
        steps=draw(st.sampled_from(steps)),
        cohort=draw(st.integers(1, 3)),
        ranks=draw(st.sampled_from(modes)),
        noise=draw(st.sampled_from(noise)),
        twins=twins and draw(st.integers(0, 4)) == 0,
        seed=draw(st.integers(0, 2**32)),
    )


# By definition, and without the engine's own functions


def H(case: Case, theta: np.ndarray, lam: float | None = None) -> float:
    F = case.problem.losses(theta)
    L = [F[np.array(case.groups) == i].mean() for i in range(case.d)]
    spread = sum(abs(L[i] - L[j]) for i in range(case.d) for j in range(i))
    return float(case.p @ F + (case.lam if lam is None else lam) * spread)


def exact_mean(values: list[float]) -> float | Fraction:
    """Without rounding: five equal losses have their own value as mean, and tie with one such."""
    if any(map(math.isnan, values)):
        return math.nan
    return sum(map(Fraction, values)) / len(values)


def ranks_of(case: Case, losses: np.ndarray) -> np.ndarray:
    """r_k of every client; losses that are NaN are not known, and tie."""
    groups = np.array(case.groups)
    L = [exact_mean(losses[groups == i].tolist()) for i in range(case.d)]
    signs = [[float(a > b) - float(a < b) for b in L] for a in L]
    return np.array([sum(signs[s]) for s in case.groups])


def local_models(case: Case, theta: np.ndarray, m: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """θ_k after the local steps of a round, without noise: a row per client."""
    y = np.tile(theta, (case.clients, 1))
    for eta in rates:
        y = y - eta * m[:, None] * np.einsum("kij,kj->ki", case.problem.A, y - case.problem.b)
    return y


# T1


def h_is_strongly_convex(case: Case, pairs: int = 20) -> None:
    """T1: the midpoint inequality, with λ and H as the engine has them."""
    population = case.scenario(1, {"lr": 0.1}).data.build(0).population
    p, groups, d = objective.shares(population.train), population.groups, population.d
    lam = objective.resolve_lambda(p, groups, d, fraction=case.fraction, value=None)
    mu = case.problem.curvature[0]

    def value(theta):
        return objective.penalised_objective(case.problem.losses(theta), p, groups, d, lam)

    g = np.random.default_rng(case.seed)
    for scale in np.geomspace(0.01, 3.0, pairs):  # near the optimum, where groups tie, and far
        x, y = case.best.theta + scale * g.standard_normal((2, case.dim))
        chord = (value(x) + value(y)) / 2 - mu / 8 * float(np.sum((x - y) ** 2))
        assert value((x + y) / 2) <= chord + 1e-12 * (1 + abs(chord)), (scale, x, y)


def lambda_max_is_where_a_weight_can_vanish(case: Case) -> None:
    """At λ_max the lowest rank takes the whole weight of one client, and of none more than that."""
    groups = np.array(case.groups)
    bound = objective.lambda_max(case.p, groups, case.d)
    lowest = case.p - bound * (case.d - 1) / case.members
    assert abs(lowest.min()) <= 1e-15


# The δ-subgradient inequality, on what the engine sent out and summed


def weights_make_a_subgradient(case: Case, rounds: int = 8) -> None:
    """Σ c_k = 1, c_k > 0, and H(y) ≥ H(θ) + ⟨g, y−θ⟩ − δ + (μ/2)‖y−θ‖² for the engine's c and δ."""
    mu, L = case.problem.curvature
    path = follow(case.scenario(rounds, {"lr": 0.2 / L}, audit={"every": 1}))
    sent, done = path.tables["dispatches"], path.tables["rounds"]
    order = np.lexsort((sent["client"].to_numpy(), sent["round"].to_numpy()))
    omega = sent["weight"].to_numpy()[order].reshape(rounds, -1)
    c = omega * (1 + sent["tilt"].to_numpy()[order].reshape(rounds, -1))
    assert np.allclose(omega, case.p, rtol=1e-12, atol=0)
    assert np.allclose(c.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert c.min() > 0
    assert np.allclose(done["lam"].to_numpy(), case.lam, rtol=1e-12)
    g = np.random.default_rng(case.seed)
    for theta, weights, delta, value in zip(
        path.models, c, done["delta"].to_numpy(), done["H"].to_numpy(), strict=False
    ):
        assert delta >= 0
        here = H(case, theta)
        assert abs(here - value) <= 1e-12 * (1 + here)
        F, slope = case.problem.losses(theta), weights @ case.problem.gradients(theta)
        assert abs(here - weights @ F - delta) <= 1e-12 * (1 + here)  # what δ is
        for y in (case.best.theta, *(theta + g.standard_normal((2, case.dim)))):
            away = y - theta
            least = here + slope @ away - delta + mu / 2 * away @ away
            assert H(case, y) >= least - 1e-11 * (1 + here)


def ranks_come_from_the_losses_that_are_named(case: Case, rounds: int = 8) -> None:
    """exact: at the current model; received: at the model before; estimated: at the local ones."""
    L = case.problem.curvature[1]
    path = follow(case.scenario(rounds, {"lr": 0.5 / L}))
    sent, rates = path.ranks(), path.rates()
    losses = np.zeros(case.clients)  # nothing is known: all tie
    for c, theta in enumerate(path.models[:-1]):
        if case.ranks == "exact":
            losses = case.problem.losses(theta)
        assert_ranks(case, losses, sent[c])
        m = 1 + case.lam * sent[c] / (case.p * case.members)
        local = local_models(case, theta, m, rates[c])
        if case.ranks == "received":
            losses = case.problem.losses(theta)
        elif case.ranks == "estimated":
            losses = np.array([case.problem.losses(y)[k] for k, y in enumerate(local)])


def assert_ranks(case: Case, losses: np.ndarray, sent: np.ndarray) -> None:
    """Equal, unless two groups are so close that rounding decides between them."""
    if np.array_equal(ranks_of(case, losses), sent):
        return
    L = np.array([losses[np.array(case.groups) == i].mean() for i in range(case.d)])
    closest = min(abs(L[i] - L[j]) for i in range(case.d) for j in range(i))
    assert closest <= 1e-13 * (1 + abs(L).max()), (losses, sent)


# T2, T3, constant steps


def averaged_iterate_obeys_its_bound(case: Case, T: int = 60) -> None:
    """T2: E = 1, exact ranks, everybody: H(θ̂) − H* ≤ 2G²/(μ(T+1))."""
    mu = case.problem.curvature[0]
    path = follow(case.scenario(T - 1, {"kind": "inverse", "beta": 2 / mu, "gamma": 2.0}))
    G = longest_subgradient(case.problem, case.lam, path.models)
    gap = H(case, average(path.models)) - case.best.H
    assert -1e-12 <= gap <= averaged(mu, G, T)


def recursion_holds(case: Case, rounds: int = 40) -> None:
    """T3: Δ never exceeds the recursion, from round to round nor unrolled from the start."""
    mu, L = case.problem.curvature
    path = follow(case.scenario(rounds, case.decaying(mu, L), audit={"every": 1}))
    k = constants(case.problem, case.best, path.models)
    delta = path.tables["rounds"]["delta"].to_numpy()
    distance = np.sum((path.models - case.best.theta) ** 2, axis=1)
    rates = path.rates()
    bound = next_distance(distance[:-1], rates, delta, k)
    assert (distance[1:] <= bound * (1 + 1e-9) + 1e-15).all()
    whole = distances(float(distance[0]), rates, delta, k)
    assert (distance <= whole * (1 + 1e-9) + 1e-15).all()


def constant_steps_end_in_a_neighbourhood(case: Case, rounds: int = 60) -> None:
    """The mean gap is O(ηE): at most Δ_0/(2ηEC) + mean δ + ηEG²/2 + D²/2μ."""
    L = case.problem.curvature[1]
    lr = 0.5 / (L * case.steps)
    path = follow(case.scenario(rounds, {"lr": lr}, audit={"every": 1}))
    k = constants(case.problem, case.best, path.models)
    done, rates = path.tables["rounds"], path.rates()
    start = float(np.sum((path.models[0] - case.best.theta) ** 2))
    gaps = done["H"].to_numpy() - case.best.H
    assert gaps.mean() <= mean_gap(start, rates, done["delta"].to_numpy(), k) + 1e-12
    # and of the second half alone, from where it starts
    half = rounds // 2
    start = float(np.sum((path.models[half] - case.best.theta) ** 2))
    later = mean_gap(start, rates[half:], done["delta"].to_numpy()[half:], k)
    assert gaps[half:].mean() <= later + 1e-12


# Sampling


def freedman(n: int, largest: float, level: float) -> float:
    """t with P(|Σ Y| ≥ t) ≤ level, for n martingale differences |Y| ≤ largest of variance 1."""
    log = math.log(2 / level)
    a = largest * log / 3
    return a + math.sqrt(a * a + 2 * n * log)


def sampled_steps_are_unbiased(case: Case, scheme: str, rounds: int = 100) -> None:
    """Given the model, the step has the mean of everybody's step Σ p_k (θ_k − θ): so its limit.

    Differences from that mean are divided by their known standard deviation and summed over the
    rounds, coordinate by coordinate. With everybody in every round there is no difference.
    """
    mu, L = case.problem.curvature
    path = follow(case.scenario(rounds, case.decaying(mu, L), scheme))
    K, m, p = case.clients, case.cohort, case.p
    m = min(m, K) if scheme == "uniform" else m
    sums, counts = np.zeros(case.dim), np.zeros(case.dim, dtype=int)
    for theta, after, rates in zip(path.models, path.models[1:], path.rates(), strict=False):
        r = ranks_of(case, case.problem.losses(theta))
        moves = local_models(case, theta, 1 + case.lam * r / (p * case.members), rates) - theta
        expected = p @ moves
        if scheme == "all" or (scheme == "uniform" and m == K):
            assert np.allclose(after - theta, expected, rtol=1e-9, atol=1e-13)
            continue
        if scheme == "p-replace":
            variance = p @ (moves - expected) ** 2 / m
        else:
            scaled = K * p[:, None] * moves
            variance = np.mean((scaled - expected) ** 2, axis=0) * (K - m) / (m * (K - 1))
        varies = variance > 1e-24
        sums[varies] += ((after - theta - expected) / np.sqrt(np.maximum(variance, 1e-300)))[varies]
        counts += varies
    largest = math.sqrt(m / p.min() if scheme == "p-replace" else K * m * (K - 1) / max(K - m, 1))
    for total, n in zip(sums, counts, strict=True):
        assert abs(total) <= freedman(int(n), largest, FALSE_ALARM / case.dim), (sums, counts)


def gradient_noise_is_what_it_says(case: Case, scheme: str, rounds: int = 40) -> None:
    """With E = 1, given the model and who takes part, the step is normal: its mean and variance.

    The standardised differences are then independent standard normal, so their sum and their sum
    of squares have exactly known laws.
    """
    mu, L = case.problem.curvature
    path = follow(case.scenario(rounds, case.decaying(mu, L), scheme))
    sent = path.tables["dispatches"]
    z = []
    for c, (theta, (eta,)) in enumerate(zip(path.models[:-1], path.rates(), strict=True)):
        mine = sent["round"].to_numpy() == c + 1
        who, omega = sent["client"].to_numpy()[mine], sent["weight"].to_numpy()[mine]
        r = ranks_of(case, case.problem.losses(theta))[who]
        scale = eta * omega * (1 + case.lam * r / (case.p * case.members)[who])
        drift = scale @ case.problem.gradients(theta)[who]
        sd = case.noise * np.sqrt(np.sum(scale**2))
        z.append((path.models[c + 1] - theta + drift) / sd)
    n = np.size(z)
    assert abs(np.sum(z)) <= norm.isf(FALSE_ALARM / 4) * math.sqrt(n)
    low, high = chi2.ppf(FALSE_ALARM / 4, n), chi2.isf(FALSE_ALARM / 4, n)
    assert low <= np.sum(np.square(z)) <= high


# Asynchronous runs


def asynchronous_limit(
    case: Case, seconds: tuple[float, ...], corrected: bool, rounds: int, lr: float
) -> np.ndarray:
    """The mean model of the second half of a run in which clients come back at their own pace.

    Group i takes `seconds[i]` for its work. The run starts at the optimum of H.
    """
    by_group = {str(i): {"sample_s": s} for i, s in enumerate(seconds)}
    corrections = {"rates": "empirical", "own_discount": True} if corrected else {}
    scenario = case.scenario(
        rounds, {"lr": lr}, model={"init": case.best.theta.tolist()},
        policy={"kind": "fedbuff", "buffer": 2, **corrections},
        devices={
            "latency_s": 0.0, "up_mbps": INF, "down_mbps": INF, "eval_fraction": 0.0,
            "sample_s": 1.0, "groups": by_group,
        },
    )  # fmt: skip
    return follow(scenario).models[rounds // 2 :].mean(axis=0)
