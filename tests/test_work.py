"""Local work: learning rates by formula, and which samples are visited in which step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from pydantic import ValidationError

from gifair_ray.schedules import Schedule
from gifair_ray.work import Work

CLOCKS = [0.0, 1.0, 7.0, 2.5, 1000.0]


@pytest.mark.parametrize("c", CLOCKS)
@pytest.mark.parametrize("E", [1, 5])
@pytest.mark.parametrize(
    ("options", "eta"),
    [
        ({"kind": "constant", "lr": 0.3}, lambda c, t: 0.3),
        ({"kind": "geometric", "lr": 0.1}, lambda c, t: 0.1 * 0.99**c),
        ({"kind": "geometric", "lr": 0.8, "decay": 0.95}, lambda c, t: 0.8 * 0.95**c),
        ({"kind": "inverse"}, lambda c, t: 2 / (t + 16)),
        ({"kind": "inverse", "beta": 3.0, "gamma": 40.0}, lambda c, t: 3 / (t + 40)),
        ({"kind": "inverse-sqrt", "lr": 0.5}, lambda c, t: 0.5 / (t + 1) ** 0.5),
    ],
)
def test_rates_follow_their_formula(options, eta, c, E):
    rates = Schedule(**options).rates(c, E)
    expected = [eta(c, c * E + i) for i in range(E)]  # t = cE + i
    np.testing.assert_allclose(rates, expected, rtol=1e-14)


@pytest.mark.parametrize("kind", ["inverse", "inverse-sqrt"])
def test_steps_are_counted_through_from_round_to_round(kind):
    schedule = Schedule(kind=kind)
    rounds = np.concatenate([schedule.rates(float(c), 4) for c in range(5)])
    assert rounds.tolist() == schedule.rates(0.0, 20).tolist()
    assert (np.diff(rounds) < 0).all()


@pytest.mark.parametrize(
    "bad",
    [{"lr": 0}, {"decay": 1.01}, {"decay": 0}, {"beta": -1}, {"gamma": 0}, {"kind": "cosine"}],
)
def test_impossible_schedules_are_refused(bad):
    with pytest.raises(ValidationError, match=next(iter(bad))):
        Schedule(**bad)


@pytest.mark.parametrize("bad", [{}, {"steps": 1, "epochs": 1}])
def test_work_is_stated_in_either_steps_or_epochs(bad):
    with pytest.raises(ValidationError, match=r"either work\.steps or work\.epochs"):
        Work(**bad)


works = st.builds(
    lambda unit, n, batch: Work(**{unit: n}, batch_size=batch),
    st.sampled_from(["steps", "epochs"]),
    st.integers(1, 9),
    st.none() | st.integers(1, 12),
)


@given(works, st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 2**40))
@examples(150)
def test_counts_and_rows_agree(work, samples, client):
    n = np.array(samples)
    columns = (samples, work.batches(n), work.step_counts(n), work.sample_passes(n))
    for samples_k, batches, steps, passes in zip(*columns, strict=True):
        order = work.order(3, client, 2, samples_k)
        assert order.shape == (steps, work.batch_size or samples_k)
        assert (order >= 0).sum() == passes
        assert steps == work.steps or steps == batches * (work.epochs or 0)


@given(works, st.integers(1, 40), st.integers(0, 50), st.integers(0, 5))
@examples(150)
def test_every_pass_visits_every_sample_once(work, samples, client, ordinal):
    order = work.order(3, client, ordinal, samples)
    per_pass = int(work.batches(np.array([samples]))[0])
    size = work.batch_size or samples
    for at in range(0, len(order), per_pass):
        rows = order[at : at + per_pass]
        visited = rows[rows >= 0].tolist()
        assert len(set(visited)) == len(visited)
        assert set(visited) <= set(range(samples))
        filled = (rows >= 0).sum(axis=1).tolist()
        if len(rows) == per_pass:  # not cut short by the number of steps
            assert sorted(visited) == list(range(samples))
            assert filled == [size] * (per_pass - 1) + [samples - size * (per_pass - 1)]
        else:
            assert filled == [size] * len(rows)
        assert all((row[n:] == -1).all() for row, n in zip(rows, filled, strict=True))


def test_a_short_last_batch_by_hand():
    work = Work(epochs=2, batch_size=4)
    order = work.order(1, 0, 0, 10)
    assert (order >= 0).sum(axis=1).tolist() == [4, 4, 2, 4, 4, 2]
    n = np.array([10, 4, 3, 1])
    assert work.batches(n).tolist() == [3, 1, 1, 1]
    assert work.step_counts(n).tolist() == [6, 2, 2, 2]
    assert work.sample_passes(n).tolist() == [20, 8, 6, 2]
    # 5 steps on 10 samples: 4 + 4 + 2, then 4 + 4
    assert Work(steps=5, batch_size=4).sample_passes(n).tolist() == [18, 20, 15, 5]


def test_a_full_batch_is_all_of_the_clients_samples_in_their_own_order():
    order = Work(steps=3).order(1, 0, 0, 5)
    assert order.tolist() == [[0, 1, 2, 3, 4]] * 3
    assert Work(epochs=3).order(1, 0, 0, 5).tolist() == order.tolist()
    assert Work(steps=3).sample_passes(np.array([5])).tolist() == [15]


def test_shuffles_differ_by_seed_client_ordinal_and_pass_and_by_nothing_else():
    work = Work(epochs=3, batch_size=7)
    names = [(1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]
    passes = []
    for name in names:
        order = work.order(*name, 40)
        assert order.tolist() == work.order(*name, 40).tolist()
        passes += [tuple(rows.ravel().tolist()) for rows in np.split(order, 3)]
    assert len(set(passes)) == 3 * len(names)
    # More passes, or another size of batch, leave the passes before as they were.
    longer = Work(epochs=4, batch_size=7).order(1, 0, 0, 40)
    assert longer[:18].tolist() == work.order(1, 0, 0, 40).tolist()
    other = Work(epochs=3, batch_size=40).order(1, 0, 0, 40)
    assert [row[row >= 0].tolist() for row in other] == [
        [row for row in rows if row >= 0] for rows in passes[:3]
    ]
