"""A test of the tests: with a bug put in, at least one property of `theory_properties` fails."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import theory_properties as properties
from theory_properties import Case

from gifair_ray import committing, objective, weighing
from gifair_ray.learners.quadratic import QuadraticLearner
from gifair_ray.policies import _rounds

UNEQUAL = Case(
    clients=5, dim=2, groups=(0, 1, 2, 1, 0), sizes=(30, 5, 12, 9, 20), condition=3.0,
    fraction=0.9, steps=2, cohort=2, seed=3,
)  # fmt: skip
EACH = Case(
    clients=4,
    dim=2,
    groups=(0, 1, 2, 3),
    sizes=(10, 25, 8, 17),
    condition=3.0,
    fraction=0.5,
    seed=5,
)  # individual fairness
TWINS = dataclasses.replace(UNEQUAL, twins=True, fraction=0.5)  # two groups tie everywhere
TWO = Case(clients=2, dim=1, groups=(0, 1), sizes=(1, 1), condition=4.0, fraction=0.2, seed=2)
LATE = dataclasses.replace(UNEQUAL, ranks="received", steps=5)

PROPERTIES = {
    "T1": lambda: properties.h_is_strongly_convex(UNEQUAL),
    "λ_max": lambda: properties.lambda_max_is_where_a_weight_can_vanish(UNEQUAL),
    "subgradient": lambda: properties.weights_make_a_subgradient(UNEQUAL),
    "subgradient, ties": lambda: properties.weights_make_a_subgradient(TWINS),
    "subgradient, individual": lambda: properties.weights_make_a_subgradient(EACH),
    "basis": lambda: properties.ranks_come_from_the_losses_that_are_named(LATE),
    "T2": lambda: properties.averaged_iterate_obeys_its_bound(dataclasses.replace(EACH, steps=1)),
    "T3": lambda: properties.recursion_holds(UNEQUAL),
    "sampling, all": lambda: properties.sampled_steps_are_unbiased(UNEQUAL, "all", 5),
    "sampling, p": lambda: properties.sampled_steps_are_unbiased(UNEQUAL, "p-replace", 300),
    "sampling, uniform": lambda: properties.sampled_steps_are_unbiased(UNEQUAL, "uniform", 300),
}


def fails(name: str) -> bool:
    """Whether a property fails."""
    try:
        PROPERTIES[name]()
    except AssertionError:
        return True
    return False


def group_ranks_with(sign_of_a_tie):
    def group_ranks(L, tolerance=0.0):
        r = [[sign_of_a_tie if a == b else 1 if a > b else -1 for b in L] for a in L]
        return np.array([sum(row) - row[i] for i, row in enumerate(r)])

    return group_ranks


def lambda_max_with(pairs):
    def lambda_max(p, groups, d):
        return float(np.min(p * objective.group_sizes(groups, d)[groups])) / pairs(d)

    return lambda_max


def weights_with(ratio):
    def aggregation_weights(scheme, p, slots, asked, K, failures, reliability):
        return slots * ratio(scheme, p, K) / asked

    return aggregation_weights


def local_losses_as_received(train):
    def mutant(self, theta, jobs):
        done = train(self, theta, jobs)
        at_local = self._losses(done.models, np.array([job.client for job in jobs]))
        return dataclasses.replace(done, loss_received=at_local)

    return mutant


def stale_by_one_more(report):
    """The table is told of a round's losses a round late."""
    waiting = []

    def mutant(world, state, rows, replies):
        waiting.append(replies.loss_received)
        late = waiting[max(0, len(waiting) - 2)]
        return report(world, state, rows, dataclasses.replace(replies, loss_received=late))

    return mutant


_group_ranks = objective.group_ranks


def usual_ratio(scheme, p, K):
    return np.ones(len(p)) if scheme == "p-replace" else K * p


def reversed_ranks(L, tolerance=0.0):
    return -_group_ranks(L)


MUTATIONS = {  # what is replaced, by what, and the properties that see it
    "a tie counts as worse": (
        (objective, "group_ranks", group_ranks_with(1)), ["subgradient, ties"]
    ),
    "a tie counts as better": (
        (objective, "group_ranks", group_ranks_with(-1)), ["subgradient, ties"]
    ),
    "ranks are reversed": (
        (objective, "group_ranks", reversed_ranks), ["subgradient", "basis", "sampling, all"]
    ),
    "p_k is forgotten in individual fairness": (
        (objective, "tilts", lambda lam, r, p, members: lam * r / members),
        ["subgradient, individual", "sampling, all"],
    ),
    "unweighted mean under full participation": (
        (weighing, "aggregation_weights",
         weights_with(lambda s, p, K: np.ones(len(p)) if s == "all" else usual_ratio(s, p, K))),
        ["subgradient", "sampling, all"],
    ),
    "λ_max for one group more": (
        (objective, "lambda_max", lambda_max_with(lambda d: d)), ["λ_max", "subgradient"]
    ),
    "λ_max for one group fewer": (
        (objective, "lambda_max", lambda_max_with(lambda d: max(d - 2, 1))),
        ["λ_max", "subgradient"],
    ),
    "the received loss is the local one": (
        (QuadraticLearner, "train", local_losses_as_received(QuadraticLearner.train)), ["basis"]
    ),
    "the received loss is that of an older round": (
        (_rounds, "report", stale_by_one_more(committing.report)), ["basis"]
    ),
    "the importance weight is dropped": (
        (weighing, "aggregation_weights",
         weights_with(lambda s, p, K: np.ones(len(p)) if s == "uniform" else usual_ratio(s, p, K))),
        ["sampling, uniform"],
    ),
    "p is applied twice": (
        (weighing, "aggregation_weights",
         weights_with(lambda s, p, K: K * p if s == "p-replace" else usual_ratio(s, p, K))),
        ["sampling, p"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROPERTIES)
def test_without_a_bug_every_property_holds(name):
    assert not fails(name)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_bug_makes_properties_fail(mutation, monkeypatch):
    (where, name, mutant), seen_by = MUTATIONS[mutation]
    assert getattr(where, name) is not mutant
    monkeypatch.setattr(where, name, mutant)
    assert [property for property in seen_by if fails(property)] == seen_by


def test_without_its_corrections_an_asynchronous_run_has_another_limit():
    # The property of asynchronous runs can fail: it does on a run that is not corrected.
    case = dataclasses.replace(TWO, ranks="received")
    right, wrong = (
        properties.asynchronous_limit(case, (1.0, 4.0), corrected, 700, 0.004) - case.best.theta
        for corrected in (True, False)
    )
    assert abs(right[0]) < 0.02
    assert abs(wrong[0]) > 0.1
