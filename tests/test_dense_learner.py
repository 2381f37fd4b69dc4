"""Multi-layer perceptrons in closed form: what autograd finds, and bit by bit a client's own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from test_softmax_learner import RAGGED, SEED, Toy, job, one_thread  # noqa: F401

from gifair_ray.errors import BadInput, Diverged
from gifair_ray.federation import Task
from gifair_ray.learners import dense
from gifair_ray.learners.module import ModuleLearner
from gifair_ray.models.mlp import Mlp
from gifair_ray.schedules import Schedule
from gifair_ray.solvers.ditto import Ditto
from gifair_ray.solvers.proximal import Proximal
from gifair_ray.solvers.sgd import Sgd
from gifair_ray.work import Work

BOTH = frozenset({"local", "received"})
LR = Schedule(lr=0.3)


def stacked(toy, work, solver=None, hidden=(6,), dtype="float64"):
    model = Mlp(hidden=list(hidden), dtype=dtype)
    return model.learner(toy, work, solver or Sgd(), SEED, BOTH)


def one_by_one(toy, work, solver=None, hidden=(6,), dtype="float64"):
    model = Mlp(hidden=list(hidden), dtype=dtype)
    factory = lambda: model.module(toy.task)  # noqa: E731
    return ModuleLearner(factory, toy, work, solver or Sgd(), SEED, dtype, BOTH)


def test_the_model_is_torchs_own_in_name_shape_and_start():
    a, b = stacked(RAGGED, Work(steps=1)), one_by_one(RAGGED, Work(steps=1))
    assert a.layout == b.layout
    assert a.initial().tobytes() == b.initial().tobytes()


@pytest.mark.parametrize("hidden", [(), (1,), (6,), (15, 16, 17)], ids=str)
@pytest.mark.parametrize("solver", [Sgd(), Proximal(mu=0.7), Ditto(lambda_value=0.4)], ids=str)
@pytest.mark.parametrize(
    "work",
    [
        Work(steps=4, schedule=LR),
        Work(steps=7, batch_size=4, schedule=LR),
        Work(epochs=2, batch_size=4, schedule=Schedule(kind="inverse", beta=4.0)),
        Work(epochs=2, batch_size=1, schedule=LR),
    ],
    ids=["full", "steps", "epochs", "one row"],
)
def test_closed_form_is_what_autograd_finds(work, solver, hidden):
    ours = stacked(RAGGED, work, solver, hidden)
    theirs = one_by_one(RAGGED, work, solver, hidden)
    theta = ours.initial()
    jobs = [job(k, ordinal=k % 2, tilt=0.3 * k - 0.5, clock=float(k)) for k in range(5)]
    jobs[2] = replace(jobs[2], steps=2)
    jobs[3] = replace(jobs[3], personal=theta + 0.1)
    a, b = ours.train(theta, jobs), theirs.train(theta, jobs)
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(a.models, b.models, **close)
    np.testing.assert_allclose(a.loss_local, b.loss_local, **close)
    np.testing.assert_allclose(a.loss_received, b.loss_received, **close)
    assert (a.personal is None) == (b.personal is None)
    if a.personal is not None:
        np.testing.assert_allclose(a.personal, b.personal, **close)


def test_evaluations_are_those_of_autograds_learner():
    toy = Toy((7, 1, 40, 12, 9), tests=(3, 0, 70, 8, 1))
    ours, theirs = (make(toy, Work(steps=1), hidden=(5, 4)) for make in (stacked, one_by_one))
    shared = ours.initial() + 0.05
    own = np.stack([shared * (1 + 0.1 * k) for k in range(5)])
    for models in (shared, own):
        for split in ("train", "val", "test"):
            a, b = (m.evaluate(models, np.arange(5), split) for m in (ours, theirs))
            np.testing.assert_allclose(a.loss, b.loss, rtol=1e-10)
            assert a.correct.tolist() == b.correct.tolist()


@cache
def _learner(toy, work, solver, hidden, dtype):
    return stacked(toy, work, solver, hidden, dtype)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=9)
    | st.builds(lambda n, clients: [n] * clients, st.integers(1, 40), st.integers(2, 9)),
    features=st.sampled_from([1, 15, 16, 61]),
    hidden=st.sampled_from([(), (3,), (16,), (20, 33)]),
    work=st.builds(
        lambda unit, n, batch: Work(**{unit: n}, batch_size=batch),
        st.sampled_from(["steps", "epochs"]),
        st.integers(1, 3),
        st.sampled_from([None, 1, 2, 3, 10]),
    ),
    dtype=st.sampled_from(["float32", "float64"]),
    solver=st.sampled_from([Sgd(), Proximal(mu=0.3), Ditto()]),
    data=st.data(),
)
@examples(25)
def test_a_clients_bits_do_not_depend_on_its_company(
    sizes, features, hidden, work, dtype, solver, data
):
    toy = Toy(tuple(sizes), features=features, classes=4)
    learner = _learner(toy, work, solver, hidden, dtype)
    theta = learner.initial()
    jobs = [
        job(k, ordinal=k % 3, tilt=0.1 * (k % 3), clock=0.5 * (k % 2)) for k in range(len(sizes))
    ]
    together = learner.train(theta, jobs)
    order = data.draw(st.permutations(range(len(jobs))))
    cut = data.draw(st.integers(1, len(jobs)))
    for group in (order[:cut], order[cut:], order[:1]):
        if group:
            some = learner.train(theta, [jobs[i] for i in group])
            for name in ("models", "loss_local", "loss_received", "personal"):
                whole, part = getattr(together, name), getattr(some, name)
                if whole is not None:
                    assert whole[list(group)].tobytes() == part.tobytes(), name


def test_a_small_stack_of_models_changes_nothing(monkeypatch):
    work = Work(epochs=2, batch_size=4)
    jobs = [job(k) for k in range(5)]
    large = stacked(RAGGED, work)
    monkeypatch.setattr(dense, "MODEL_BYTES", 1)
    small = stacked(RAGGED, work)
    theta = large.initial()
    assert large.train(theta, jobs).models.tobytes() == small.train(theta, jobs).models.tobytes()


def test_a_network_that_diverges_is_named():
    wild = Work(steps=60, batch_size=4, schedule=Schedule(lr=1e200))
    with pytest.raises(Diverged, match=r"client \d diverged"):
        stacked(RAGGED, wild).train(stacked(RAGGED, wild).initial(), [job(0), job(2)])


def test_tokens_are_refused():
    class Text(Toy):
        @property
        def task(self):
            return Task((8,), 3, tokens=5)

    with pytest.raises(BadInput, match="needs real inputs"):
        stacked(Text((4, 4)), Work(steps=1))


def test_training_leaves_torchs_generator_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    learner = stacked(RAGGED, Work(steps=2, batch_size=3))
    learner.train(learner.initial(), [job(0), job(1)])
    assert torch.equal(before, torch.get_rng_state())
