"""Where what one would like to believe is false, kept as tests; and what the extensions do.

Q1: F_1 = 2θ², F_2 = ½(θ − 1)², λ_max = ½; the groups tie at θ = 1/3, which is the optimum for every
λ ≥ 1/6. Numbers are from reference/algorithms.md (sections in brackets).
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from strategies import federations, fractions
from test_q1_q3 import agrees
from test_theory import named, on, values

import gifair_ray
from gifair_ray import objective
from gifair_ray.errors import BadInput
from gifair_ray.theory import follow, optimum
from gifair_ray.theory.clarke import stationarity
from gifair_ray.theory.problems import shares


def q1(rounds, lr, lam, steps=1, start=1.5, kind="constant", **weighting):
    schedule = {"kind": kind, "lr": lr}
    return follow(on("q1", rounds, schedule, steps, start, lambda_value=lam, **weighting))


def slope_of_h(theta, lam):
    """H' on Q1, by definition, off the tie."""
    worse = np.where(2 * theta**2 > (theta - 1) ** 2 / 2, 1, -1)
    return 4 * theta * (0.5 + lam * worse) + (theta - 1) * (0.5 - lam * worse)


# Theorem 3: the gradient of H need not vanish along a run that converges


@pytest.mark.parametrize("rounds", [1500, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_the_gradient_norm_of_theorem_3_is_stuck_at_a_tie(rounds):
    theta = q1(rounds, 0.125, 0.3, kind="inverse-sqrt").models[:, 0]  # [B.5.9]
    squares = slope_of_h(theta, 0.3) ** 2
    assert squares.min() >= (4 / 15) ** 2
    assert agrees(squares.min(), ".071111" if rounds > 10_000 else ".0711")
    # It is no matter of stopping early: H has converged, and Clarke's measure says so.
    problem, last = named("q1"), theta[-1:]
    assert values(problem, last[None], 0.3)[0] - optimum(problem, 0.3).H < 3e-3
    F, g = problem.losses(last), problem.gradients(last)
    assert stationarity(F, g, shares(problem), problem.groups, 0.3, 0.02) < 1e-9


def test_the_gradient_norm_vanishes_where_nothing_ties():
    theta = q1(800, 0.125, 0.1, kind="inverse-sqrt").models[:, 0]
    assert slope_of_h(theta, 0.1)[-1] ** 2 < 1e-12  # [B.5.9]: 1.6e-28 in the end


def test_one_sided_slopes_at_the_tie():
    for lam in (0.2, 0.3, 0.45):
        left, right = slope_of_h(np.array([1 / 3 - 1e-9, 1 / 3 + 1e-9]), lam)
        assert left == pytest.approx(-(2 * lam - 1 / 3), abs=1e-6)
        assert right == pytest.approx(2 * lam + 1 / 3, abs=1e-6)


# Estimated ranks can make things less fair than FedAvg


def test_estimated_ranks_invert_fairness():
    def disparity(**weighting):
        done = gifair_ray.run(
            on("q1", 60, {"lr": 0.05}, 20, 1.5, **weighting).table(), backend="local"
        )
        last = done.table("groups")["loss"].to_numpy()[-2:]
        return abs(last[0] - last[1])

    fedavg = disparity(lambda_value=0.0)
    exact, estimated = (disparity(lambda_value=0.1, ranks=r) for r in ("exact", "estimated"))
    assert agrees(fedavg, ".12592")  # [B.4]
    assert agrees(exact, ".05254")
    assert agrees(estimated, ".19078")


# Constant steps: limit cycles


def test_constant_steps_cycle_about_the_tie():
    theta = q1(200, 0.01, 0.3, steps=20).models[-60:, 0]  # [B.4]: a cycle of three
    assert agrees(theta.min(), ".26143")
    assert agrees(theta.max(), ".37486")
    assert np.abs(theta[3:] - theta[:-3]).max() < 1e-5
    assert np.abs(theta[1:] - theta[:-1]).min() > 0.01


def test_the_neighbourhood_shrinks_with_the_step():
    def amplitude(lr):
        return float(np.ptp(q1(400, lr, 0.3, start=1 / 3).models[-300:, 0]))

    found = [amplitude(lr) for lr in (0.04, 0.02, 0.01)]
    assert all(0.4 <= small / large <= 0.6 for large, small in pairwise(found))


# Beyond λ_max H is not convex


def test_convexity_is_lost_at_three_times_lambda_max():
    problem, lam = named("q1"), 1.5
    left = values(problem, np.array([[0.2], [0.25], [0.3]]), lam)
    assert (left[0] - 2 * left[1] + left[2]) / 0.05**2 == pytest.approx(-2)  # [0.1]: H'' = −2
    with pytest.raises(BadInput, match="outside"):
        optimum(problem, lam)
    with pytest.raises(BadInput, match="outside"):
        gifair_ray.run(on("q1", 1, {"lr": 0.1}, lambda_value=lam).table(), backend="local")


def midpoints_violated(lam, pairs):
    """Pairs at which the midpoint inequality of μ-strong convexity fails, on Q1 (μ = 1)."""
    g = np.random.default_rng(0)
    x, y = 2 * g.standard_normal((2, pairs, 1))
    ends = (values(named("q1"), x, lam) + values(named("q1"), y, lam)) / 2
    chord = ends - (x - y)[:, 0] ** 2 / 8
    return int(np.sum(values(named("q1"), (x + y) / 2, lam) > chord + 1e-12))


def test_convexity_holds_up_to_lambda_max_and_fails_beyond():
    assert midpoints_violated(0.5, 20_000) == 0  # [B.6]
    assert midpoints_violated(0.75, 20_000) > 500


# The extensions: soft signs, and a tolerance for ties


@cache
def tail(**weighting):
    theta = q1(900, 0.01, 0.3, start=1 / 3, **weighting).models[-600:]
    return theta[:, 0], float(np.mean(values(named("q1"), theta, 0.3)) - 2 / 9)


def test_soft_signs_stop_the_chattering():
    theta, gap = tail(soft_sign=0.02)  # [B.4]
    assert np.ptp(theta) < 1e-12
    assert agrees(theta[-1], ".327937")
    assert agrees(gap, "1.5e-3")
    chattering, _ = tail()
    assert np.ptp(chattering) > 0.01


def test_a_tolerance_for_ties_halves_the_chattering():
    theta, gap = tail(tie_tolerance=0.005)  # [B.4]
    assert agrees(np.ptp(theta), "5.9e-3")
    usual, usual_gap = tail()
    assert np.ptp(theta) < 0.6 * np.ptp(usual)
    assert gap < usual_gap
    assert tail(tie_tolerance=0.02)[1] > 2 * gap  # larger values bias


def test_soft_ranks_are_recorded_as_they_are():
    path = q1(3, 0.01, 0.3, start=0.33, audit=1, soft_sign=0.02)
    F = named("q1").losses(path.models[0])
    wanted = (F[0] - F[1]) / 0.02
    assert 0 < abs(wanted) < 1
    sent = path.tables["dispatches"].to_pylist()[:2]
    assert [row["rank"] for row in sent] == pytest.approx([wanted, -wanted])
    assert sent[0]["tilt"] == pytest.approx(0.3 * wanted / 0.5)
    audits = path.tables["ranks"].to_pylist()[:2]
    assert [row["r_used"] for row in audits] == pytest.approx([wanted, -wanted])
    assert [row["r_exact"] for row in audits] == [np.sign(wanted), -np.sign(wanted)]
    delta = 0.3 * abs(F[0] - F[1]) * (1 - abs(wanted))
    assert path.tables["rounds"]["delta"][0].as_py() == pytest.approx(delta)


@examples(100)
@given(federations(), st.sampled_from([0.01, 0.25, 1.0, 100.0]), fractions)
def test_soft_ranks_are_the_gradient_of_hubers_penalty(federation, tau, fraction):
    f = federation
    L = objective.group_losses(f.losses, f.groups, f.d)
    r = objective.soft_ranks(L, tau)
    wanted = np.clip((L[:, None] - L) / tau, -1, 1).sum(axis=1)
    scale = 1e-12 * (1 + np.abs(L).max() / tau)
    assert np.allclose(r, wanted, rtol=1e-9, atol=scale)
    assert abs(r.sum()) <= f.d * scale
    if fraction < 1:
        lam = fraction * objective.lambda_max(f.p, f.groups, f.d)
        delta = objective.rank_error(f.losses, r, f.groups, f.d, lam)
        pairs = f.d * (f.d - 1) / 2
        assert 0 <= delta <= lam * pairs * tau / 4 + lam * scale * (1 + np.abs(L).max()) * f.d


@examples(100)
@given(federations(), st.sampled_from([0.0, 0.1, 0.25, 1.0, 7.0]))
def test_ranks_with_a_tolerance_are_signs_of_larger_differences(federation, tolerance):
    L = objective.group_losses(federation.losses, federation.groups, federation.d)
    r = objective.group_ranks(L, tolerance)
    above = L[None, :] < L[:, None] - tolerance  # i above j, as rounded
    assert r.tolist() == (above.sum(axis=1) - above.sum(axis=0)).tolist()
    assert r.sum() == 0
    if tolerance == 0:
        assert r.tolist() == np.sign(L[:, None] - L).sum(axis=1).tolist()


def test_groups_of_unknown_loss_tie_in_every_way():
    L = np.array([np.nan, 1.0, 3.0, np.nan])
    assert objective.soft_ranks(L, 4.0).tolist() == [0, -0.5, 0.5, 0]
    assert objective.group_ranks(L, 2.5).tolist() == [0, 0, 0, 0]
    assert objective.soft_ranks(np.full(3, np.nan), 1.0).tolist() == [0, 0, 0]


def test_the_two_extensions_do_not_go_together():
    with pytest.raises(BadInput, match="either soft_sign or tie_tolerance"):
        on("q1", 1, {"lr": 0.1}, lambda_value=0.1, soft_sign=0.1, tie_tolerance=0.1)
