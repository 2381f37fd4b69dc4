"""Where the algorithms' formulas have no value, and what holds for any losses and changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden import THETA, golden, quadratics, run
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from profiles import examples

from gifair_ray.aggregators.fedmgda import Fedmgda
from gifair_ray.errors import Diverged
from gifair_ray.federation import Population
from gifair_ray.weightings import Update
from gifair_ray.weightings.afl import Afl, onto_simplex
from gifair_ray.weightings.q_ffl import QFfl
from gifair_ray.weightings.term import Term


def update(losses: Any, changes: Any, *, rates: Any = 0.1, omega: Any = None) -> Update:
    losses, changes = np.array(losses, dtype=float), np.array(changes, dtype=float)
    m = len(losses)
    omega = np.full(m, 1 / m) if omega is None else np.array(omega)
    p, rates = np.full(m, 1 / m), np.full(m, rates)
    bases = [np.zeros(changes.shape[1])] * m
    return Update(np.arange(m), p, omega, float(omega.sum()), losses, rates, list(changes), bases)


def people(K: int) -> Population:
    ones = np.ones(K, dtype=np.int64)
    return Population(0 * ones, ("0",), ones, 0 * ones, 0 * ones)


RULES = {"q-ffl": QFfl(q=1.0), "q < 1": QFfl(q=0.1), "term": Term(t=2.0), "afl": Afl(gamma=0.1)}
every_rule = pytest.mark.parametrize("part", RULES.values(), ids=RULES)


def test_q_ffl_counts_the_clients_at_its_floor_that_move():
    rule = QFfl(q=0.5).start(people(3))
    memory = rule.memory()
    assert rule.remarks(memory) == []
    rule.weigh(update([0, 0, 1], [[0.0], [0.2], [0.1]]), memory)
    rule.weigh(update([1, 0, 1], [[0.1], [0.2], [0.1]]), memory)
    (remark,) = rule.remarks(memory)
    assert "2 replies" in remark


def test_q_ffl_where_a_client_without_loss_stays_where_it_is():
    rule = QFfl(q=0.5).start(people(2))
    w = rule.weigh(update([0, 1], [[0.0], [0.1]]), rule.memory())
    assert w[1] == pytest.approx(10 / (10 * 1e-5 + 0.5 + 10), rel=1e-6)


@pytest.mark.parametrize("rate", [1e-200, 5e-324, 0.0])
def test_q_ffl_when_the_learning_rate_has_faded_away(rate):
    rule = QFfl(q=1.0).start(people(2))
    w = rule.weigh(update([2, 1], [[0.0], [0.0]], rates=rate), rule.memory())
    assert_allclose(w, [2 / 3, 1 / 3])


@pytest.mark.parametrize("q", [0.001, 1.0, 10.0, 1000.0])
def test_q_ffl_with_all_losses_zero_or_all_huge(q):
    for losses in ([0.0, 0.0], [1e200, 1e200], [0.0, 1e200]):
        rule = QFfl(q=q).start(people(2))
        w = rule.weigh(update(losses, [[0.0], [0.0]]), rule.memory())
        assert w.sum() == pytest.approx(1)
        assert (w >= 0).all()


@pytest.mark.parametrize("t", [1e308, -1e308, 5.0, -5.0])
def test_term_never_overflows(t):
    rule = Term(t=t).start(people(3))
    with np.errstate(over="ignore"):  # as in a run; exp(−∞) is 0
        w = rule.weigh(update([1000, 1e6, 1000], [[1.0]] * 3), rule.memory())
    assert_allclose(w, [0, 1, 0] if t > 0 else [0.5, 0, 0.5])


@every_rule
def test_identical_losses_and_changes_weigh_the_same(part):
    rule = part.start(people(4))
    w = rule.weigh(update([0.7] * 4, [[0.1, 0.2]] * 4), rule.memory())
    assert_array_equal(w, np.full(4, w[0]))


@every_rule
def test_one_participant(part):
    rule = part.start(people(1))
    w = rule.weigh(update([0.7], [[0.1]]), rule.memory())
    # q-FedAvg shortens its step by its curvature even then.
    q = getattr(part, "q", 0.0)
    assert_allclose(w, [10 * 0.7**q / (q * 0.7 ** (q - 1) + 10 * 0.7**q)])


@pytest.mark.parametrize("kind", ["q-ffl", "term", "afl", "fedmgda+", "ditto"])
@pytest.mark.parametrize("failures", ["slots", "survivors", "corrected"])
def test_a_round_that_nobody_answers_changes_nothing(kind, failures):
    policy = {"kind": "sync", "failures": failures}
    done = run(golden(), {"algorithm": kind, "policy": policy, "devices": {"dropout": 1.0}})
    assert_array_equal(done.outcome.theta, THETA)
    assert done.table("rounds")["completed"].to_pylist() == [0]
    assert not done.outcome.personal


def step(changes: Any, **options: Any) -> np.ndarray:
    """−d of FedMGDA+ from 0, for clients that moved by these changes."""
    changes = np.array(changes, dtype=float)
    m, n = changes.shape
    omega = np.array(options.pop("omega", np.full(m, 1 / m)))
    return Fedmgda(**options)(np.zeros(n), list(changes), [np.zeros(n)] * m, omega, n)


def test_fedmgda_at_its_edges():
    for scale in (1.0, 3.7, 1e-5):  # opposite directions: no step serves both
        assert_array_equal(step([[0.3, 0.7], [-0.3 * scale, -0.7 * scale]], epsilon=1), [0, 0])
    assert_allclose(step([[3.0, 4.0]], epsilon=0.1), [0.6, 0.8])
    assert_allclose(step([[3.0, 4.0], [0, 0], [1e-13, 0]], epsilon=0.1), [0.6, 0.8])
    assert_array_equal(step([[0.0, 0.0], [0.0, 0.0]], epsilon=1), [0, 0])
    assert_allclose(step([[2.0, 0.0]] * 3, epsilon=0.5), [1, 0])
    # Of those who weigh anything, nobody has moved.
    assert_array_equal(step([[0, 0], [1.0, 0]], prior="weights", omega=[1.0, 0.0]), [0, 0])


@pytest.mark.parametrize("kind", ["q-ffl", "term", "afl"])
def test_a_loss_that_overflows_is_named_and_never_becomes_a_weight(kind):
    far = quadratics([[[1.0]], [[1.0]]], [[0.0], [1.0]], 1e200)
    with pytest.raises(Diverged, match="client 0 diverged"):
        run(far, {"algorithm": kind})


# Properties


@st.composite
def updates(draw: Any, most: int = 8) -> Update:
    """Any losses and changes, zeros and ties among them."""
    m = draw(st.integers(1, most))
    losses = draw(arrays(float, m, elements=st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0, 1e6)))
    changes = draw(arrays(float, (m, 3), elements=st.sampled_from([0.0, 1.0]) | st.floats(-9, 9)))
    omega = draw(arrays(float, m, elements=st.floats(0.01, 2)))
    return update(losses, changes, omega=omega / omega.sum())


@examples(100)
@given(updates(), st.floats(-50, 50).filter(lambda t: abs(t) > 1e-9))
def test_terms_weights_are_a_distribution(given_, t):
    w = Term(t=t).start(people(8)).weigh(given_, {})
    assert (w >= 0).all()
    assert w.sum() == pytest.approx(1)


@examples(60)
@given(updates(), st.floats(-5, 5), st.floats(0.001, 5))
def test_the_larger_t_the_more_the_larger_losses_weigh(given_, t, more):
    def beyond(t: float) -> np.ndarray:
        """The weight of all whose loss is at least so large, for every loss."""
        w = given_.weights if t == 0 else Term(t=t).start(people(8)).weigh(given_, {})
        return np.array([w[given_.losses >= F].sum() for F in given_.losses])

    assert (beyond(t + more) >= beyond(t) - 1e-9).all()


@examples(60)
@given(st.lists(updates(), min_size=1, max_size=6), st.floats(0, 100))
def test_afls_lambda_stays_on_the_simplex(rounds, gamma):
    rule = Afl(gamma=gamma).start(people(8))
    memory = rule.memory()
    for one in rounds:
        w = rule.weigh(one, memory)
        lam = memory["lambda"]
        assert (w >= 0).all()
        assert (lam >= 0).all()
        assert lam.sum() == pytest.approx(1, abs=1e-12)


@examples(100)
@given(arrays(float, st.integers(1, 12), elements=st.floats(-1e6, 1e6)))
def test_nothing_on_the_simplex_is_nearer_than_the_projection(v):
    x = onto_simplex(v)
    assert x.sum() == pytest.approx(1, abs=1e-12)
    assert (x >= 0).all()
    # ⟨v − x, y − x⟩ ≤ 0 for the corners y, so for everything between them.
    assert ((v - x) - (v - x) @ x <= 1e-9 * max(1, np.abs(v).max())).all()


@every_rule
@examples(30)
@given(updates(), st.randoms(use_true_random=False))
def test_other_numbers_for_the_clients_permute_the_weights(part, given_, random):
    order = list(range(len(given_.clients)))
    random.shuffle(order)
    moved = update(
        given_.losses[order], [given_.models[k] for k in order], omega=given_.weights[order]
    )
    rule = part.start(people(8))
    memories = rule.memory(), rule.memory()
    w, permuted = rule.weigh(given_, memories[0]), rule.weigh(moved, memories[1])
    assert_allclose(permuted, w[order], rtol=1e-9, atol=1e-12)
    if "lambda" in memories[0]:
        m = len(order)
        lam, other = (memory["lambda"][:m] for memory in memories)
        assert_allclose(other, lam[order], rtol=1e-9, atol=1e-9)


@examples(60)
@given(updates(), st.sampled_from([0.0, 0.1, 1.0]))
def test_fedmgda_steps_no_further_than_one_and_against_nobody(given_, epsilon):
    d = -step(given_.models, epsilon=epsilon)
    assert np.linalg.norm(d) <= 1 + 1e-12
    if epsilon == 1:
        for change in given_.models:
            if (norm := np.linalg.norm(change)) > 1e-12:
                assert -(change / norm) @ d >= d @ d - 1e-9
