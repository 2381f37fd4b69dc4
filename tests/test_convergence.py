"""Theory as properties of random federations, on runs of the engine.

The properties are in `theory_properties.py`, T1 to T6 among them. Seeds are fixed under the profile
"ci" and free at night. A statement about chance says how often it may fail on a right engine.
"""

from __future__ import annotations

import numpy as np
import pytest
import theory_properties as properties
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from profiles import examples
from theory_properties import SCHEMES, Case, cases

from gifair_ray.theory import constants, follow, optimum, quadratics
from gifair_ray.theory.recursion import distances, largest_weights, second_moment

EXACT = cases(modes=("exact",))


@examples(100)
@given(cases())
def test_t1_h_is_strongly_convex_up_to_lambda_max(case):
    properties.h_is_strongly_convex(case)
    properties.lambda_max_is_where_a_weight_can_vanish(case)


@examples(100)
@given(cases())
def test_t3_the_recursion_is_never_violated(case):
    properties.recursion_holds(case)


@examples(50)
@given(cases())
def test_the_weights_in_use_make_a_delta_subgradient(case):
    properties.weights_make_a_subgradient(case)


@examples(50)
@given(cases())
def test_ranks_come_from_the_losses_that_are_named(case):
    properties.ranks_come_from_the_losses_that_are_named(case)


@examples(25)
@given(cases(modes=("exact",), steps=(1,)))
def test_t2_the_averaged_iterate_obeys_its_bound(case):
    properties.averaged_iterate_obeys_its_bound(case)


@examples(25)
@given(cases())
def test_constant_steps_end_in_a_neighbourhood_of_order_eta_e(case):
    properties.constant_steps_end_in_a_neighbourhood(case)


@pytest.mark.parametrize("scheme", SCHEMES)
@examples(100)
@given(case=EXACT)
def test_sampled_steps_have_the_mean_of_everybodys(scheme, case):
    # A false alarm in 2,000 federations: 2,000 · FALSE_ALARM = 1 in 500 at most.
    properties.sampled_steps_are_unbiased(case, scheme, rounds=50)


@examples(25)
@given(cases(modes=("exact",), steps=(1,), noise=(0.3, 2.0)), st.sampled_from([*SCHEMES, "all"]))
def test_noise_of_gradients_is_what_it_says(case, scheme):
    # False alarms as above.
    properties.gradient_noise_is_what_it_says(case, scheme)


@pytest.mark.parametrize("scheme", [*SCHEMES, "all"])
def test_t3_with_noise_and_sampling_holds_in_the_mean(scheme):
    # The bound is on the expected distance, and the mean of six seeds stays below a tenth of it.
    cohort = Case(5, 2, (0, 1, 2, 1, 0), (30, 5, 12, 9, 20), 3.0, 0.9, steps=2, noise=1.0)
    best, problem = cohort.best, cohort.problem
    schedule = cohort.decaying(*problem.curvature)
    seeds = [
        follow(cohort.scenario(60, schedule, scheme, seed=seed, data=cohort.data))
        for seed in range(6)
    ]
    models = np.concatenate([path.models for path in seeds])
    k = constants(problem, best, models, sigma2=2 * 1.0**2)
    s = second_moment(scheme, 2, largest_weights(problem, best.lam))
    found = np.mean([np.sum((path.models - best.theta) ** 2, axis=1) for path in seeds], axis=0)
    bound = distances(float(found[0]), seeds[0].rates(), 0.0, k, s)
    assert (found[1:] <= bound[1:]).all()
    assert found[-1] <= bound[-1] / 10


@examples(15)
@given(EXACT)
def test_everybodys_step_is_weighted_by_p(case):
    properties.sampled_steps_are_unbiased(case, "all", rounds=15)


# The limit under sampling: Q3 with p = (.5, .2, .1, .1, .05, .05), m = 2, E = 2 (§B.3)

SKEWED = [50, 20, 10, 10, 5, 5]


def sampled_limit(scheme, aggregator, rounds, seed, fraction=0.5):
    """‖tail mean − θ*‖ over the second half of a run with decaying steps."""
    q3 = quadratics(
        Case(2, 1, (0, 1), (1, 1), 1.0).scenario(1, {"lr": 0.1}, data={"problem": "q3"})
    )
    case = Case(
        6, 3, (0, 0, 1, 1, 2, 2), tuple(SKEWED), 1.0, fraction, steps=2, seed=seed,
        more={"data": {"A": q3.A.tolist(), "b": q3.b.tolist()}, "aggregator": aggregator},
    )  # fmt: skip
    path = follow(case.scenario(rounds, case.decaying(*q3.curvature), scheme))
    best = optimum(quadratics(path.scenario), case.lam)
    assert best.certificate <= 1e-12
    return float(np.linalg.norm(path.models[rounds // 2 :].mean(axis=0) - best.theta))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_ways_of_sampling_have_the_limit_of_h(scheme):
    # An allowance from measurement, not a proved rate.
    assert sampled_limit(scheme, {"kind": "mean"}, 1000, seed=1) < 0.08


def test_the_papers_literal_weights_have_another_limit():
    assert sampled_limit("uniform", {"kind": "paper-literal"}, 1000, seed=1) > 0.3


@pytest.mark.nightly
def test_the_limits_of_all_schemes_as_printed():
    # §B.3: .0087, .0046 and .596, the last with rare large excursions: it may be more.
    def limit(scheme, aggregator="mean"):
        found = [sampled_limit(scheme, {"kind": aggregator}, 6000, seed) for seed in range(4)]
        return float(np.mean(found))

    assert limit("p-replace") < 0.03
    assert limit("uniform") < 0.03
    assert limit("uniform", "paper-literal") > 0.4


# Asynchronous runs: durations by group, clients that restart themselves, buffers of two


@st.composite
def slow_and_fast(draw):
    """Federations in which the fast pull the limit of an uncorrected run away from θ*."""
    K = draw(st.integers(2, 4))
    d = draw(st.integers(2, min(3, K)))
    others = draw(st.lists(st.integers(0, d - 1), min_size=K - d, max_size=K - d))
    case = Case(
        clients=K, dim=draw(st.integers(1, 2)), groups=(*range(d), *others), sizes=(1,) * K,
        condition=draw(st.sampled_from([1.0, 3.0])),
        fraction=draw(st.sampled_from([0.0, 0.3, 0.6])), ranks="received",
        seed=draw(st.integers(0, 2**32)),
    )  # fmt: skip
    seconds = draw(st.sampled_from([(1.0, 4.0, 2.0), (3.0, 1.0, 1.0), (2.0, 1.0, 5.0)]))
    pace = np.array([1 / seconds[s] for s in case.groups]) * case.best.c
    pulled = case.problem.minimise(pace / pace.sum(), case.best.theta)
    # At a tie the ranks pull back, so that the bias need not show, and there clients of different
    # pace see different ranks: a counter-example is below.
    assume(not case.best.ties)
    ranks = [properties.ranks_of(case, case.problem.losses(at)) for at in (case.best.theta, pulled)]
    assume(np.array_equal(*ranks))
    assume(np.linalg.norm(pulled - case.best.theta) > 0.3)
    return case, seconds[:d]


def away(case, seconds, corrected, rounds):
    L = case.problem.curvature[1]
    limit = properties.asynchronous_limit(case, seconds, corrected, rounds, 0.01 / L)
    return float(np.linalg.norm(limit - case.best.theta))


ASYNC = settings(max_examples=4 if settings.get_current_profile_name() == "ci" else 60)


@ASYNC
@given(slow_and_fast())
def test_asynchronous_runs_have_the_limit_of_h_with_the_corrections_and_not_without(drawn):
    rounds = 800 if settings.get_current_profile_name() == "ci" else 3000
    corrected, uncorrected = away(*drawn, True, rounds), away(*drawn, False, rounds)
    assert corrected < 0.06, corrected
    assert uncorrected > 2 * corrected, (uncorrected, corrected)


@pytest.mark.parametrize(
    ("eta", "rounds"), [(0.01, 1500), pytest.param(0.0025, 6000, marks=pytest.mark.nightly)]
)
def test_at_a_tie_corrected_asynchronous_runs_may_have_another_limit(eta, rounds):
    # Ranks change sides from update to update there, in step with who comes back when, so that the
    # slow group is not given the mean of the ranks that the fast one is. Smaller steps do not help.
    case = Case(3, 2, (0, 1, 0), (1, 1, 1), 1.0, 0.3, ranks="received", seed=1)
    assert case.best.ties
    limit = properties.asynchronous_limit(case, (3.0, 1.0), True, rounds, eta)
    assert 0.06 < np.linalg.norm(limit - case.best.theta) < 0.1
