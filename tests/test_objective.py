"""GIFAIR's objective: the golden case of the reference, and identities over any federation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from strategies import ANY, DYADIC, TIED, federations, fractions

import gifair_ray
from gifair_ray import objective
from gifair_ray.errors import BadInput
from gifair_ray.losses import LossTable

SIX_DIGITS = {"rtol": 0, "atol": 5e-7}

# Golden case G1 (reference/algorithms.md, section D): three clients in two groups. The second
# half of the case has F_k = ½(x − b_k)² at x = 1, with the ranks of the losses ℓ.
SIZES = np.array([100, 200, 100])
GROUPS = np.array([0, 1, 1])
LOSSES = np.array([2.0, 0.5, 1.5])
LAM = 0.125
CENTRES = [3.0, 0.0, 1.0]


def naive_group_losses(losses, groups, d):
    """L_i by the definition; None where no member's loss is known."""
    L = []
    for i in range(d):
        known = [x for x, s in zip(losses, groups, strict=True) if s == i and not math.isnan(x)]
        L.append(math.fsum(known) / len(known) if known else None)
    return L


def sign(a, b):
    return 0 if a is None or b is None else (a > b) - (a < b)


def naive_ranks(L):
    return np.array([sum(sign(own, other) for other in L) for own in L])


# The golden case


def test_golden_case_g1_of_the_objective():
    p = objective.shares(SIZES)
    L = objective.group_losses(LOSSES, GROUPS, 2)
    r = objective.group_ranks(L)[GROUPS]
    assert_allclose(p, [0.25, 0.5, 0.25], **SIX_DIGITS)
    assert_allclose(L, [2, 1], **SIX_DIGITS)
    assert_array_equal(r, [1, -1, -1])
    assert objective.lambda_max(p, GROUPS, 2) == pytest.approx(0.25, abs=5e-7)
    m = objective.multipliers(LAM, r, p, GROUPS, 2)
    c = objective.effective_weights(LAM, r, p, GROUPS, 2)
    assert_allclose(m, [1.5, 0.875, 0.75], **SIX_DIGITS)
    assert_allclose(c, [0.375, 0.4375, 0.1875], **SIX_DIGITS)
    assert objective.penalised_objective(LOSSES, p, GROUPS, 2, LAM) == pytest.approx(1.25, abs=5e-7)
    assert objective.weighted_objective(LOSSES, p, GROUPS, 2, LAM) == pytest.approx(1.25, abs=5e-7)


def g1(**weighting):
    return {
        "algorithm": "gifair-per",
        "data": {
            "source": "quadratic",
            "problem": "own",
            "A": [[[1.0]]] * 3,
            "b": [[b] for b in CENTRES],
            "sizes": SIZES.tolist(),
            "groups": GROUPS.tolist(),
        },
        "model": {"kind": "quadratic", "init": 1.0},
        "work": {"steps": 2, "schedule": {"lr": 0.1}},
        "sampling": {"scheme": "all"},
        "weighting": {"lambda_value": LAM, "initial": {"0": 2.0, "1": 1.0}, **weighting},
        "stop": {"rounds": 1},
        "evaluation": {"every": 0, "splits": ["train"]},
        "audit": {"every": 0},
    }


@pytest.mark.parametrize("n", [3, 5, 7, 10, 49])
def test_a_group_of_equal_losses_ties_with_one_such_loss(n):
    # The sum of n equal numbers, rounded and divided by n, is often another number.
    for x in np.random.default_rng(n).uniform(0.0, 3.0, 200):
        L = objective.group_losses(np.full(n + 1, x), np.array([0] + [1] * n), 2)
        assert L[0] == L[1] == x
        assert objective.group_ranks(L).tolist() == [0, 0]


def test_golden_case_g1_of_a_round():
    run = gifair_ray.run(g1(), backend="local")
    personal = [run.outcome.personal[k][0] for k in range(3)]
    assert_allclose(personal, [1.555, 0.832656, 1], **SIX_DIGITS)
    assert_allclose(run.outcome.theta, [1.055078], **SIX_DIGITS)
    dispatches = run.table("dispatches").to_pydict()
    assert dispatches["client"] == [0, 1, 2]
    assert dispatches["rank"] == [1, -1, -1]
    assert_allclose(dispatches["tilt"], [0.5, -0.125, -0.25], **SIX_DIGITS)
    assert_allclose(dispatches["loss_local"], [1.044012, 0.346658, 0], **SIX_DIGITS)


def test_golden_case_g1_of_the_exact_losses_after_a_round():
    # At x = 1 the losses are (2, .5, 0): L = (2, .25), hence the ranks of the golden case again.
    run = gifair_ray.run(g1(ranks="exact") | {"stop": {"rounds": 2}}, backend="local")
    learned = run.table("losses").to_pydict()
    assert learned["version"] == [0, 0, 0, 1, 1, 1]
    assert set(learned["basis"]) == {"global"}
    assert_allclose(learned["loss"][:3], [2, 0.5, 0], **SIX_DIGITS)
    assert_allclose(learned["loss"][3:], [1.891361, 0.556595, 0.001517], **SIX_DIGITS)


def test_losses_given_for_the_groups_hold_until_a_client_is_heard():
    # The wrong way round: group 1 is said to be the worse one, until both have reported.
    run = gifair_ray.run(
        g1(initial={"0": 1.0, "1": 2.0}) | {"stop": {"rounds": 2}}, backend="local"
    )
    assert run.table("dispatches")["rank"].to_pylist() == [-1, 1, 1, 1, -1, -1]


# Identities


@given(federations(), fractions)
def test_the_penalised_and_the_weighted_form_are_one_objective(fed, fraction):
    lam = fraction * objective.lambda_max(fed.p, fed.groups, fed.d)
    args = fed.losses, fed.p, fed.groups, fed.d, lam
    L = naive_group_losses(fed.losses, fed.groups, fed.d)
    pairs = sum(abs(L[i] - L[j]) for i in range(fed.d) for j in range(i))
    by_definition = sum(fed.p * fed.losses) + lam * pairs
    slack = 1e-12 * max(1.0, fed.losses.max())
    assert objective.penalised_objective(*args) == pytest.approx(by_definition, rel=0, abs=slack)
    assert objective.weighted_objective(*args) == pytest.approx(by_definition, rel=0, abs=slack)


@given(federations(), fractions)
def test_ranks_cancel_and_effective_weights_are_shares(fed, fraction):
    lam = fraction * objective.lambda_max(fed.p, fed.groups, fed.d)
    r = objective.group_ranks(objective.group_losses(fed.losses, fed.groups, fed.d))
    assert r.sum() == 0
    c = objective.effective_weights(lam, r[fed.groups], fed.p, fed.groups, fed.d)
    m = objective.multipliers(lam, r[fed.groups], fed.p, fed.groups, fed.d)
    assert c.sum() == pytest.approx(1.0, rel=0, abs=1e-12)
    assert (c > 0).all()
    assert_allclose(c, fed.p * m, rtol=1e-9, atol=1e-15)


@given(federations(), fractions)
def test_multipliers_stay_between_zero_and_two_below_the_bound(fed, fraction):
    lam = fraction * objective.lambda_max(fed.p, fed.groups, fed.d)
    r = objective.group_ranks(objective.group_losses(fed.losses, fed.groups, fed.d))[fed.groups]
    m = objective.multipliers(lam, r, fed.p, fed.groups, fed.d)
    assert ((m > 0) & (m < 2)).all()
    assert_allclose(m, 1 + lam * r / (fed.p * fed.members), rtol=1e-12)


@given(federations())
def test_the_bound_cannot_be_raised(fed):
    # At λ_max the weight of some client vanishes, as soon as its group is the best of all.
    lam = objective.lambda_max(fed.p, fed.groups, fed.d)
    weakest = int(np.argmin(fed.p * fed.members))
    losses = np.where(fed.groups == fed.groups[weakest], 0.0, 1.0)
    r = objective.group_ranks(objective.group_losses(losses, fed.groups, fed.d))[fed.groups]
    m = objective.multipliers(lam, r, fed.p, fed.groups, fed.d)
    assert m[weakest] == pytest.approx(0.0, abs=1e-12) == m.min()


@given(federations())
def test_ranks_are_the_sums_of_signs(fed):
    L = objective.group_losses(fed.losses, fed.groups, fed.d)
    naive = naive_group_losses(fed.losses, fed.groups, fed.d)
    assert L.tolist() == naive
    assert_array_equal(objective.group_ranks(L), naive_ranks(naive))


@given(federations(), st.randoms(use_true_random=False))
def test_groups_with_the_same_losses_tie_whatever_the_order_of_their_members(fed, random):
    order = list(range(len(fed.groups)))
    random.shuffle(order)
    again = np.array(order)
    groups = np.concatenate([fed.groups, fed.groups[again] + fed.d])  # every group twice
    losses = np.concatenate([fed.losses, fed.losses[again]])
    r = objective.group_ranks(objective.group_losses(losses, groups, 2 * fed.d))
    assert_array_equal(r[: fed.d], r[fed.d :])
    once = objective.group_ranks(objective.group_losses(fed.losses, fed.groups, fed.d))
    assert_array_equal(r[: fed.d], 2 * once)


@given(federations(losses=DYADIC), st.integers(-20, 20), st.integers(-(1 << 20), 1 << 20))
def test_ranks_do_not_depend_on_the_unit_or_the_zero_of_losses(fed, exponent, shift):
    def ranks(losses):
        return objective.group_ranks(objective.group_losses(losses, fed.groups, fed.d))

    # Dyadic numbers: scaling and shifting are exact, so that no tie is made or broken.
    moved = fed.losses * 2.0**exponent + shift * 2.0**exponent
    assert_array_equal(ranks(moved), ranks(fed.losses))


@given(st.data(), federations(), TIED | ANY)
def test_raising_the_losses_of_a_group_never_lowers_its_rank(data, fed, more):
    raised = data.draw(st.integers(0, len(fed.groups) - 1))
    losses = fed.losses.copy()
    losses[raised] += more
    before = objective.group_ranks(objective.group_losses(fed.losses, fed.groups, fed.d))
    after = objective.group_ranks(objective.group_losses(losses, fed.groups, fed.d))
    own = fed.groups[raised]
    others = np.arange(fed.d) != own
    assert after[own] >= before[own]
    assert (after[others] <= before[others]).all()


@given(federations(losses=TIED | ANY | st.just(math.nan)))
def test_unknown_losses_are_left_out_and_unknown_groups_tie_with_all(fed):
    L = objective.group_losses(fed.losses, fed.groups, fed.d)
    naive = naive_group_losses(fed.losses, fed.groups, fed.d)
    assert [None if math.isnan(x) else x for x in L] == naive
    r = objective.group_ranks(L)
    assert_array_equal(r, naive_ranks(naive))
    assert (r[np.isnan(L)] == 0).all()
    assert r.sum() == 0


@given(federations(losses=TIED | ANY | st.just(math.nan)), st.integers(0, 100), st.integers(0, 9))
def test_the_table_of_losses_ranks_what_the_server_has_heard(fed, version, later):
    table = LossTable.empty(fed.groups, fed.d)
    assert (table.ranks() == 0).all()
    heard = np.flatnonzero(~np.isnan(fed.losses))
    table.learn(heard, fed.losses[heard], version)
    assert_array_equal(
        table.ranks(), naive_ranks(naive_group_losses(fed.losses, fed.groups, fed.d))
    )
    ages = table.ages(version + later)
    assert_array_equal(ages, np.where(np.isnan(fed.losses), np.nan, later))


@given(st.data(), federations(), fractions)
def test_the_error_of_ranks_is_twice_what_they_have_the_wrong_way_round(data, fed, fraction):
    K, d = len(fed.groups), fed.d
    lam = fraction * objective.lambda_max(fed.p, fed.groups, d)
    # Ranks from other losses: right pairs, flipped ones, spurious ties, groups never heard of.
    other = data.draw(st.lists(TIED | ANY | st.just(math.nan), min_size=K, max_size=K))
    believed = naive_group_losses(other, fed.groups, d)
    used = naive_ranks(believed)
    L = naive_group_losses(fed.losses, fed.groups, d)
    naive = 0.0
    for i in range(d):
        for j in range(i):
            wrong = {0: 1, -1: 2, 1: 0}  # spurious tie, flipped, right
            naive += (
                lam * wrong[sign(believed[i], believed[j]) * sign(L[i], L[j])] * abs(L[i] - L[j])
            )
    delta = objective.rank_error(fed.losses, used, fed.groups, d, lam)
    slack = 1e-11 * max(1.0, fed.losses.max())
    assert delta >= 0
    assert delta == pytest.approx(naive, rel=0, abs=slack)
    # …which is H − Σ c_k(r̂) F_k.
    H = objective.penalised_objective(fed.losses, fed.p, fed.groups, d, lam)
    c = objective.effective_weights(lam, used[fed.groups], fed.p, fed.groups, d)
    assert H - np.inner(c, fed.losses) == pytest.approx(delta, rel=0, abs=slack)


@given(federations(), fractions)
def test_exact_ranks_have_no_error(fed, fraction):
    lam = fraction * objective.lambda_max(fed.p, fed.groups, fed.d)
    used = objective.group_ranks(objective.group_losses(fed.losses, fed.groups, fed.d))
    assert objective.rank_error(fed.losses, used, fed.groups, fed.d, lam) == 0.0


@pytest.mark.parametrize("each", [1, 3])
def test_ten_thousand_groups_are_ranked_as_a_sample_of_them_says(each):
    d = 10_000
    g = np.random.default_rng(4)
    groups = g.permutation(np.tile(np.arange(d), each))
    losses = g.integers(0, 3000, d * each) / 4  # thousands of ties
    L = objective.group_losses(losses, groups, d)
    r = objective.group_ranks(L)
    for i in g.choice(d, 50, replace=False):
        own = math.fsum(losses[groups == i]) / each
        assert L[i] == own
        assert r[i] == np.sum(own > L) - np.sum(own < L)
    assert len(np.unique(L)) < d
    assert r.sum() == 0


# The bound on λ


@given(federations(), fractions)
def test_a_fraction_of_the_bound_is_accepted(fed, fraction):
    def resolve(**what):
        return objective.resolve_lambda(
            fed.p, fed.groups, fed.d, **({"fraction": None, "value": None} | what)
        )

    bound = objective.lambda_max(fed.p, fed.groups, fed.d)
    naive = min(fed.p * fed.members) / (fed.d - 1)
    assert bound == pytest.approx(naive, rel=1e-12)
    assert resolve(fraction=fraction) == fraction * bound
    assert resolve(value=fraction * bound) == fraction * bound
    for too_large in (bound, np.nextafter(bound, 1), 2 * bound):
        with pytest.raises(BadInput, match="λ_max"):
            resolve(value=too_large)


@given(federations(fewest=1, most=1), st.floats(1e-6, 0.9))
def test_one_group_alone_has_no_use_for_lambda(fed, lam):
    one = fed.p, fed.groups, 1
    assert objective.lambda_max(*one) == math.inf
    assert objective.resolve_lambda(*one, fraction=0.0, value=None) == 0.0
    assert objective.resolve_lambda(*one, fraction=None, value=0.0) == 0.0
    with pytest.raises(BadInput, match="one group"):
        objective.resolve_lambda(*one, fraction=lam, value=None)
    with pytest.raises(BadInput, match="one group"):
        objective.resolve_lambda(*one, fraction=None, value=lam)
    assert_array_equal(objective.group_ranks(objective.group_losses(fed.losses, fed.groups, 1)), 0)
    H = objective.penalised_objective(fed.losses, *one, 0.0)
    assert pytest.approx(np.inner(fed.p, fed.losses), rel=1e-12, abs=1e-12) == H


def one_group(**weighting):
    scenario = g1(**weighting)
    scenario["data"] |= {"groups": [0, 0, 0]}
    scenario["weighting"] |= {"initial": "none"}
    return scenario


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (g1(lambda_value=0.25), "λ_max = 0.25"),  # the bound of the golden case
        (g1(lambda_value=3.0), "λ_max = 0.25"),
        (g1(lambda_value=-0.1), "weighting.lambda_value"),
        (g1(lambda_value=None, lambda_fraction=1.0), "weighting.lambda_fraction"),
        (g1(lambda_fraction=0.5), "either lambda_fraction or lambda_value"),
        (g1(lambda_value=None), "either lambda_fraction or lambda_value"),
        (one_group(), "one group"),
    ],
)
def test_a_run_refuses_a_lambda_that_its_clients_cannot_have(scenario, message):
    with pytest.raises(BadInput, match=message):
        gifair_ray.run(scenario, backend="local")


def test_a_run_of_one_group_is_possible_without_lambda():
    run = gifair_ray.run(one_group(lambda_value=0.0), backend="local")
    assert run.table("dispatches")["tilt"].to_pylist() == [0.0, 0.0, 0.0]
    assert run.table("rounds")["lam"].to_pylist() == [0.0]
