"""Partial participation: who is drawn, who stays drawn when another goes, and what each weighs.

Statistical tests have fixed seeds; a perfect sampler would fail one of their checks with
probability ALARM.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray.sampling import Sampling, aggregation_weights

ALARM = 1e-7
Z = NormalDist().inv_cdf(1 - ALARM / 2)
SCHEMES = ("p-replace", "uniform", "all")


def draw(scheme, m, p, index=0, online=None, seed=1):
    """{client: slots} of one draw; `online` is the set of clients that are there."""
    there = np.array([online is None or k in online for k in range(len(p))])
    sampling = Sampling(scheme=scheme, cohort=m)
    clients, slots = sampling.draw(seed, index, np.cumsum(p), lambda some: there[some])
    assert clients.tolist() == sorted(set(clients.tolist()))
    assert (slots >= 1).all()
    assert there[clients].all()
    return dict(zip(clients.tolist(), slots.tolist(), strict=True))


def shares(sizes):
    return np.array(sizes) / np.sum(sizes)


def test_p_replace_fills_slots_in_proportion_to_p():
    p, m, rounds = shares([50, 25, 15, 9, 1]), 4, 3000
    slots = np.zeros(5)
    for index in range(rounds):
        drawn = draw("p-replace", m, p, index)
        assert sum(drawn.values()) == m
        for k, n in drawn.items():
            slots[k] += n
    spread = np.sqrt(p * (1 - p) * rounds * m)
    assert (np.abs(slots - p * rounds * m) < Z * spread).all()


def test_p_replace_slots_are_independent_of_each_other():
    p, rounds = shares([5, 3, 2]), 3000
    pairs = Counter(
        tuple(sorted(Counter(draw("p-replace", 2, p, index)).elements())) for index in range(rounds)
    )
    for a, b in itertools.combinations_with_replacement(range(3), 2):
        q = p[a] * p[b] * (1 if a == b else 2)
        assert abs(pairs[a, b] - q * rounds) < Z * math.sqrt(q * (1 - q) * rounds)


@pytest.mark.parametrize("m", [3, 5], ids=["by sequence", "by priority"])
def test_uniform_draws_distinct_clients_and_all_pairs_alike(m):
    p, K, rounds = shares([90, 1, 1, 1, 1, 1, 1, 4]), 8, 3000
    singles, pairs = Counter(), Counter()
    for index in range(rounds):
        drawn = draw("uniform", m, p, index)
        assert len(drawn) == m
        assert set(drawn.values()) == {1}
        singles.update(drawn)
        pairs.update(itertools.combinations(sorted(drawn), 2))
    for counts, names, q in (
        (singles, range(K), m / K),
        (pairs, itertools.combinations(range(K), 2), m * (m - 1) / (K * (K - 1))),
    ):
        spread = math.sqrt(q * (1 - q) * rounds)
        assert all(abs(counts[name] - q * rounds) < Z * spread for name in names)


def test_all_is_everybody_who_is_online():
    assert draw("all", 2, shares([1, 2, 3])) == {0: 1, 1: 1, 2: 1}
    assert draw("all", 2, shares([1, 2, 3]), online={0, 2}) == {0: 1, 2: 1}


@pytest.mark.parametrize("scheme", ["p-replace", "uniform"])
def test_every_draw_is_another_and_named_by_seed_and_index(scheme):
    p = shares(range(1, 101))
    drawn = [draw(scheme, 10, p, index, seed=seed) for seed in (1, 2) for index in range(5)]
    assert len({tuple(d.items()) for d in drawn}) == len(drawn)
    assert draw(scheme, 10, p, 3, seed=2) == drawn[8]


@pytest.mark.parametrize(
    "absent",
    [[], [1] * 500, [10**5], [10**7] * 2000],
    ids=["many online", "fewer", "few by p", "few by number"],
)
@pytest.mark.parametrize("scheme", SCHEMES)
@given(seed=st.integers(0, 2**32))
@examples(60)
def test_one_client_going_offline_does_not_reshuffle_the_rest(scheme, absent, seed):
    g = np.random.default_rng(seed)
    present, m = int(g.integers(2, 30)), int(g.integers(1, 13))
    p = shares(g.choice([10, 11, 300], present).tolist() + absent)  # the absent are never online
    online = set(g.choice(present, int(g.integers(1, present + 1)), replace=False).tolist())
    gone = int(g.choice(sorted(online)))
    before = Counter(draw(scheme, m, p, 0, online, seed))
    after = Counter(draw(scheme, m, p, 0, online - {gone}, seed))
    n = len(online)
    asked = {"p-replace": m, "uniform": min(m, n), "all": n}[scheme]
    left = {"p-replace": m if n > 1 else 0, "uniform": min(m, n - 1), "all": n - 1}[scheme]
    assert before.total() == asked
    assert after.total() == left
    kept = before - Counter({gone: before[gone]})
    assert kept <= after
    if gone not in before:
        assert after == before


@pytest.mark.parametrize("online", [{3, 4}, {4}], ids=["few", "one"])
def test_where_hardly_anybody_is_online_those_are_drawn_by_their_p(online):
    p, m, rounds = shares([10**6, 10**6, 10**6, 3, 1]), 4, 500
    slots = Counter()
    for index in range(rounds):
        drawn = draw("p-replace", m, p, index, online)
        assert sum(drawn.values()) == m
        slots.update(drawn)
    q = p[4] / sum(p[k] for k in online)
    assert abs(slots[4] - q * rounds * m) <= Z * math.sqrt(q * (1 - q) * rounds * m)


def test_where_hardly_anybody_is_online_uniform_takes_them_all_alike():
    p, K, online, rounds = shares([1] * 3000), 3000, (7, 100, 2000, 2999), 400
    assert draw("uniform", 5, p, 0, set(online)) == dict.fromkeys(online, 1)
    counts = Counter()
    for index in range(rounds):
        drawn = draw("uniform", 2, p, index, set(online))
        assert len(drawn) == 2
        counts.update(drawn)
    assert K > 2 * 2 + 16  # so that few candidates of the sequence are online
    assert all(abs(counts[k] - rounds / 2) < Z * math.sqrt(rounds / 4) for k in online)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("m", [1, 3, 20])
def test_nobody_online_is_nobody_drawn(scheme, m):
    assert draw(scheme, m, shares([1, 2, 3]), online=set()) == {}


def test_a_cohort_larger_than_the_population():
    p = shares([1, 2, 3])
    assert draw("uniform", 10, p) == {0: 1, 1: 1, 2: 1}
    assert sum(draw("p-replace", 10, p).values()) == 10
    # A round of distinct clients has no more slots than there are clients.
    slots = {s: Sampling(scheme=s, cohort=10).slots(3) for s in SCHEMES}
    assert slots == {"p-replace": 10, "uniform": 3, "all": 3}


def test_a_million_clients_are_not_looked_at_one_by_one():
    looked_at = 0

    def online(some):
        nonlocal looked_at
        looked_at += len(some)
        return np.ones(len(some), np.bool_)

    cumulative = np.cumsum(np.full(10**6, 1e-6))
    for scheme in ("p-replace", "uniform"):
        _, slots = Sampling(scheme=scheme, cohort=10).draw(1, 0, cumulative, online)
        assert slots.sum() == 10
    assert looked_at < 1000


# Aggregation weights


def weights(scheme, p, drawn, answered, failures="slots", reliability=None):
    """ω of all clients (0 for those without an answer), for {client: slots} and who answered."""
    K, asked = len(p), sum(drawn.values())
    who = np.array(sorted(answered), dtype=np.int64)
    slots = np.array([drawn[k] for k in who.tolist()], dtype=np.int64)
    q = np.ones(K) if reliability is None else np.array(reliability)
    omega = np.zeros(K)
    omega[who] = aggregation_weights(scheme, p[who], slots, asked, K, failures, q[who])
    return omega


def all_draws(scheme, p, m):
    """(probability, {client: slots}) of every possible draw."""
    K = len(p)
    if scheme == "all":
        yield 1.0, dict.fromkeys(range(K), 1)
    elif scheme == "uniform":
        for drawn in itertools.combinations(range(K), m):
            yield 1 / math.comb(K, m), dict.fromkeys(drawn, 1)
    else:
        for drawn in itertools.product(range(K), repeat=m):
            yield math.prod(p[k] for k in drawn), dict(Counter(drawn))


def all_answers(drawn, q):
    """(probability, those who answer), each client on its own with probability q_k."""
    for answers in itertools.product((False, True), repeat=len(drawn)):
        fates = list(zip(drawn, answers, strict=True))
        probability = math.prod(q[k] if answer else 1 - q[k] for k, answer in fates)
        yield probability, [k for k, answer in fates if answer]


P = shares([5, 3, 1, 1])
Q = (1.0, 0.5, 0.8, 0.1)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("failures", ["slots", "survivors", "corrected"])
def test_weights_are_unbiased_when_nobody_fails(scheme, m, failures):
    mean = sum(
        chance * weights(scheme, P, drawn, list(drawn), failures)
        for chance, drawn in all_draws(scheme, P, m)
    )
    np.testing.assert_allclose(mean, P, rtol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_failures_do_to_the_mean_weight(scheme, m):
    def mean(failures):
        return sum(
            chance * luck * weights(scheme, P, drawn, answered, failures, Q)
            for chance, drawn in all_draws(scheme, P, m)
            for luck, answered in all_answers(drawn, Q)
        )

    np.testing.assert_allclose(mean("corrected"), P, rtol=1e-12)
    np.testing.assert_allclose(mean("slots"), P * Q, rtol=1e-12)
    if scheme == "all" or m > 1:  # alone, a survivor has the whole step, or nobody has
        gain = mean("survivors") / (P * Q)
        assert (gain > 1).all()


@pytest.mark.parametrize(
    ("scheme", "failures", "expected"),
    [
        # Drawn: client 0 twice, 1 once, 2 once; client 2 does not answer. p = (.5, .3, .2).
        ("p-replace", "slots", [2 / 4, 1 / 4, 0]),
        ("p-replace", "survivors", [2 / 3, 1 / 3, 0]),
        ("p-replace", "corrected", [2 / 4 / 0.8, 1 / 4 / 0.5, 0]),
        # All three asked; client 2 does not answer. K p_k / m = p_k when all are asked.
        ("uniform", "slots", [0.5, 0.3, 0]),
        ("uniform", "survivors", [3 * 0.5 / 2, 3 * 0.3 / 2, 0]),
        ("uniform", "corrected", [0.5 / 0.8, 0.3 / 0.5, 0]),
        ("all", "slots", [0.5, 0.3, 0]),
        ("all", "survivors", [3 * 0.5 / 2, 3 * 0.3 / 2, 0]),
        ("all", "corrected", [0.5 / 0.8, 0.3 / 0.5, 0]),
    ],
)
def test_weights_by_hand(scheme, failures, expected):
    p, reliability = np.array([0.5, 0.3, 0.2]), (0.8, 0.5, 0.9)
    drawn = {0: 2, 1: 1, 2: 1} if scheme == "p-replace" else {0: 1, 1: 1, 2: 1}
    found = weights(scheme, p, drawn, [0, 1], failures, reliability)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("failures", ["slots", "survivors", "corrected"])
def test_nobody_answered(failures):
    none = np.array([])
    found = aggregation_weights("p-replace", none, none.astype(int), 4, 3, failures, none)
    assert found.tolist() == []


def test_slot_shares_without_replacement_are_those_of_golden_case_a7():
    scheme = Sampling(scheme="p-distinct", cohort=2)
    shares = scheme.slot_shares(np.array([0.5, 0.3, 0.2]))
    assert shares == pytest.approx([0.419643, 0.3375, 0.242857], abs=5e-7)


@pytest.mark.parametrize("cohort", [1, 3, 7, 12])
def test_distinct_clients_fill_slots_by_their_shares(cohort):
    p = np.r_[np.full(6, 0.14), np.full(8, 0.02)]
    scheme = Sampling(scheme="p-distinct", cohort=cohort)
    counts = np.zeros(len(p))
    for index in range(3000):
        clients, slots = scheme.draw(3, index, np.cumsum(p), lambda those: those >= 0)
        assert len(clients) == cohort
        assert (slots == 1).all()
        counts[clients] += 1
    share = scheme.slot_shares(p)
    assert share.sum() == pytest.approx(1.0, abs=1e-9)
    assert share[:6].sum() == pytest.approx(counts[:6].sum() / counts.sum(), abs=0.02)


def test_sampling_without_replacement_comes_with_a_warning(tmp_path):
    with pytest.warns(UserWarning, match="p-distinct"):
        gifair_ray.run("quickstart", sets=["study=", "sampling.scheme=p-distinct", "stop.rounds=1"],
                       backend="local")  # fmt: skip
