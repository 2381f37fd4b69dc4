"""Softmax regression in closed form: the same as autograd, and bit by bit a client's own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from torch.nn.functional import cross_entropy

from gifair_ray import draws
from gifair_ray.errors import BadInput, Diverged
from gifair_ray.federation import Population, Samples, Shard, Task
from gifair_ray.learners import dense
from gifair_ray.learners._common import BoundedCache
from gifair_ray.models.softmax import Softmax
from gifair_ray.protocol import Message, TrainJob
from gifair_ray.schedules import Schedule
from gifair_ray.solvers.proximal import Proximal
from gifair_ray.solvers.sgd import Sgd
from gifair_ray.work import Work

SEED = 4
BOTH = frozenset({"local", "received"})


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Toy:
    """Noise whose labels follow from it, with as many training samples as `sizes` says."""

    sizes: tuple[int, ...]
    features: int = 5
    classes: int = 3
    tests: tuple[int, ...] | None = None
    nan_in: int | None = None

    @property
    def task(self):
        return Task((self.features,), self.classes)

    @property
    def population(self):
        n = np.array(self.sizes)
        return Population(0 * n, ("all",), n, 0 * n, np.array(self.tests or self.sizes))

    def shard(self, client):
        return _shard(self, client)


@cache
def _shard(toy, client):
    g = np.random.default_rng([7, client])
    W = g.standard_normal((toy.features, toy.classes))

    def samples(n):
        x = g.standard_normal((n, toy.features))
        y = (x @ W + g.standard_normal((n, toy.classes))).argmax(axis=1)
        if client == toy.nan_in:
            x[:] = np.nan
        return Samples(x, y)

    sizes = (toy.sizes[client], 0, (toy.tests or toy.sizes)[client])
    return Shard(*(samples(n) for n in sizes))


def learner(toy, work, solver=None, dtype="float64", reports=BOTH, init="random"):
    model = Softmax(dtype=dtype, init=init)
    return model.learner(toy, work, solver or Sgd(), SEED, reports)


def job(client=0, ordinal=0, tilt=0.0, clock=0.0, version=0, steps=None):
    return TrainJob(client, client, ordinal, Message(version, clock, tilt), steps)


def split(toy, theta):
    """W and the bias as tensors of their own."""
    theta = torch.tensor(theta)
    n = toy.features * toy.classes
    return theta[:n].reshape(toy.features, toy.classes).clone(), theta[n:].clone()


def loss_by_hand(toy, theta, client, part="train"):
    data = getattr(toy.shard(client), part)
    W, bias = split(toy, theta)
    return cross_entropy(torch.tensor(data.x) @ W + bias, torch.tensor(data.y)).item()


def by_hand(toy, work, theta, item, mu=0.0):
    """The local training written out: autograd, one client, one step after the other."""
    data = toy.shard(item.client).train
    start = split(toy, theta)
    W, bias = (part.clone().requires_grad_() for part in start)
    order = work.order(SEED, item.client, item.ordinal, len(data))
    rates = work.schedule.rates(item.message.clock, len(order))
    for rows, eta in list(zip(order, rates.tolist(), strict=True))[: item.steps]:
        rows = rows[rows >= 0]
        z = torch.tensor(data.x[rows]) @ W + bias
        gradients = torch.autograd.grad(cross_entropy(z, torch.tensor(data.y[rows])), (W, bias))
        with torch.no_grad():
            for part, g, s in zip((W, bias), gradients, start, strict=True):
                part -= eta * ((1 + item.message.tilt) * g + mu * (part - s))
    return torch.cat([W.detach().reshape(-1), bias.detach()]).numpy()


RAGGED = Toy((7, 1, 40, 12, 9))
ALIKE = Toy((9, 9, 9, 9, 9))
ALIKE_AND_EVEN = Toy((10, 10, 10, 10, 10))  # no batch of one row, with those below


@pytest.mark.parametrize(
    "work",
    [
        Work(steps=4),
        Work(epochs=3),
        Work(steps=7, batch_size=4),
        Work(epochs=2, batch_size=4),
        Work(epochs=2, batch_size=1),
        Work(steps=3, batch_size=100),
        Work(steps=5, batch_size=4, schedule=Schedule(kind="inverse", beta=4.0)),
    ],
    ids=["full", "full, epochs", "steps", "epochs", "one row", "large batch", "decay"],
)
@pytest.mark.parametrize("mu", [0.0, 0.7])
@pytest.mark.parametrize(
    "toy", [RAGGED, ALIKE, ALIKE_AND_EVEN], ids=["ragged", "alike", "alike and even"]
)
def test_closed_form_is_what_autograd_finds(toy, work, mu):
    maker = learner(toy, work, Proximal(mu=mu))
    theta = maker.initial()
    limits = (None, 2, None, 1, None)
    jobs = [
        job(k, ordinal=k % 2, tilt=0.3 * k - 0.5, clock=float(k), steps=limit)
        for k, limit in enumerate(limits)
    ]
    found = maker.train(theta, jobs)
    for item, model, local, received in zip(
        jobs, found.models, found.loss_local, found.loss_received, strict=True
    ):
        expected = by_hand(toy, work, theta, item, mu)
        np.testing.assert_allclose(model, expected, rtol=0, atol=1e-10)
        assert local == pytest.approx(loss_by_hand(toy, expected, item.client), abs=1e-10)
        assert received == pytest.approx(loss_by_hand(toy, theta, item.client), abs=1e-10)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_float32_is_close_to_float64(batch_size):
    work = Work(epochs=2, batch_size=batch_size)
    models = {
        dtype: learner(RAGGED, work, dtype=dtype).train(
            learner(RAGGED, work).initial().astype(dtype), [job(k) for k in range(5)]
        )
        for dtype in ("float32", "float64")
    }
    assert models["float32"].models.dtype == np.float32
    np.testing.assert_allclose(models["float32"].models, models["float64"].models, atol=1e-5)


def test_a_multiplier_scales_the_steps_and_mu_pulls_back():
    maker, far = learner(RAGGED, Work(steps=1)), Work(steps=20)
    theta = maker.initial()
    plain, steep = maker.train(theta, [job(), job(tilt=1)]).models
    np.testing.assert_allclose(steep - theta, 2 * (plain - theta), rtol=1e-9)
    free = learner(RAGGED, far).train(theta, [job()]).models[0]
    held = learner(RAGGED, far, Proximal(mu=5.0)).train(theta, [job()]).models[0]
    assert np.linalg.norm(held - theta) < 0.5 * np.linalg.norm(free - theta)
    zero = learner(RAGGED, far, Proximal(mu=0.0)).train(theta, [job()]).models[0]
    assert zero.tobytes() == free.tobytes()


def test_only_the_losses_that_are_asked_for_are_reported():
    for reports in (frozenset(), frozenset({"local"}), frozenset({"received"}), BOTH):
        found = learner(RAGGED, Work(steps=1), reports=reports).train(
            learner(RAGGED, Work(steps=1)).initial(), [job(0), job(3)]
        )
        assert np.isfinite(found.loss_local).all() == ("local" in reports)
        assert np.isfinite(found.loss_received).all() == ("received" in reports)


def test_the_flat_vector_is_the_weights_then_the_bias():
    maker = learner(RAGGED, Work(steps=1))
    assert maker.layout.names == ("weight", "bias")
    assert maker.layout.shapes == ((5, 3), (3,))
    assert maker.layout.trainable == maker.layout.size == 18
    theta = maker.initial()
    assert theta[:15].tolist() == (draws.normal(SEED, "model", np.arange(15)) / 5**0.5).tolist()
    assert theta[15:].tolist() == [0, 0, 0]
    assert not learner(RAGGED, Work(steps=1), init="zeros").initial().any()


# Evaluation


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_evaluation_by_hand(dtype):
    toy = Toy((7, 1, 40, 12, 9), tests=(3, 20, 1, 8, 9))
    maker = learner(toy, Work(steps=1), dtype=dtype)
    theta = maker.initial()
    own = np.stack([theta + 0.1 * k for k in range(5)] + [theta]).astype(dtype)
    own[:, ::2] *= 1.5
    clients = np.array([4, 0, 2, 2, 1, 3])
    for models in (theta, own):
        found = maker.evaluate(models, clients, "test")
        for i, client in enumerate(clients.tolist()):
            model = (models if models.ndim == 1 else models[i]).astype(np.float64)
            data = toy.shard(client).test
            W, bias = split(toy, model)
            right = (torch.tensor(data.x) @ W + bias).argmax(dim=1).numpy() == data.y
            accurate = 1e-5 if dtype == "float32" else 1e-12
            expected = loss_by_hand(toy, model, client, "test")
            assert found.loss[i] == pytest.approx(expected, rel=accurate)
            assert found.correct[i] == right.sum()


def test_an_empty_split_has_no_loss_and_nothing_correct():
    toy = Toy((3, 3, 3), tests=(0, 4, 0))
    maker = learner(toy, Work(steps=1))
    found = maker.evaluate(maker.initial(), np.arange(3), "test")
    assert np.isnan(found.loss).tolist() == [True, False, True]
    assert found.correct.tolist()[::2] == [0, 0]
    nobody = maker.evaluate(maker.initial(), np.arange(3), "val")
    assert np.isnan(nobody.loss).all()
    assert nobody.correct.tolist() == [0, 0, 0]
    assert len(maker.evaluate(maker.initial(), np.arange(0), "test").loss) == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_of_one_loss_have_exactly_that_mean_however_many(dtype):
    toy = Toy(tuple(range(1, 80)), classes=10)
    maker = learner(toy, Work(steps=1), dtype=dtype, init="zeros")
    found = maker.evaluate(maker.initial(), np.arange(79), "train")
    assert len(set(found.loss.tolist())) == 1
    assert found.loss[0] == pytest.approx(np.log(10), rel=1e-6)


def test_an_infinite_loss_of_one_sample_is_an_infinite_loss_of_the_client():
    toy = Toy((30,))
    maker = learner(toy, Work(steps=1), dtype="float32")
    y = toy.shard(0).train.y
    for label in {y[0], next(c for c in y if c != y[0])}:  # the first sample's, and another
        theta = np.zeros(18, dtype=np.float32)
        theta[15:] = 3e38
        theta[15 + label] = -3e38
        assert maker.evaluate(theta, np.array([0]), "train").loss[0] == np.inf


def test_large_logits_do_not_overflow():
    maker = learner(RAGGED, Work(steps=2), dtype="float32")
    theta = np.float32(1e6) * maker.initial()
    assert np.isfinite(maker.evaluate(theta, np.arange(5), "train").loss).all()
    assert np.isfinite(maker.train(theta, [job(k) for k in range(5)]).models).all()


# A client's result is its own, whoever shares the batch

SHAPES = st.sampled_from([1, 2, 3, 15, 16, 17, 61, 62, 64, 130])
SIZE = st.sampled_from([1, 1, 2, 3, 7, 8, 9, 31, 33, 64, 65, 130, 200, 330])
SIZES = st.lists(SIZE, min_size=2, max_size=9) | st.builds(
    lambda n, clients: [n] * clients, SIZE, st.integers(2, 9)
)
WORKS = st.builds(
    lambda unit, n, batch: Work(**{unit: n}, batch_size=batch),
    st.sampled_from(["steps", "epochs"]),
    st.integers(1, 3),
    st.none() | st.integers(1, 17) | st.sampled_from([32, 64]),
)


def in_chunks(items, size):
    return [items[at : at + size] for at in range(0, len(items), size)]


@given(
    features=SHAPES,
    classes=SHAPES.filter(lambda n: n > 1),
    sizes=SIZES,
    work=WORKS,
    dtype=st.sampled_from(["float32", "float64"]),
    mu=st.sampled_from([0.0, 0.5]),
    data=st.data(),
)
@examples(120)
def test_a_clients_bits_do_not_depend_on_its_place_or_company(
    features, classes, sizes, work, dtype, mu, data
):
    toy = Toy(tuple(sizes), features, classes)
    maker = learner(toy, work, Proximal(mu=mu), dtype=dtype)
    theta = maker.initial()
    jobs = [
        job(
            k,
            ordinal=k % 3,
            tilt=0.1 * (k % 4),
            clock=k % 2 / 2,
            steps=data.draw(st.none() | st.just(1)),
        )
        for k in range(len(sizes))
    ]
    alone = {}
    for item in jobs:
        found = maker.train(theta, [item])
        alone[item.client] = (
            found.models[0].tobytes(),
            found.loss_local.tobytes(),
            found.loss_received.tobytes(),
        )
    shuffled = data.draw(st.permutations(jobs))
    for size in (len(jobs), data.draw(st.integers(2, 7))):
        for chunk in in_chunks(shuffled, size):
            found = maker.train(theta, chunk)
            for i, item in enumerate(chunk):
                shared = (
                    found.models[i].tobytes(),
                    found.loss_local[i : i + 1].tobytes(),
                    found.loss_received[i : i + 1].tobytes(),
                )
                assert shared == alone[item.client], f"client {item.client} at place {i}"


@given(
    features=SHAPES,
    classes=SHAPES.filter(lambda n: n > 1),
    sizes=SIZES,
    dtype=st.sampled_from(["float32", "float64"]),
    shared=st.booleans(),
    data=st.data(),
)
@examples(120)
def test_an_evaluations_bits_do_not_depend_on_place_or_company(
    features, classes, sizes, dtype, shared, data
):
    toy = Toy(tuple(sizes), features, classes)
    maker = learner(toy, Work(steps=1), dtype=dtype)
    theta = maker.initial()
    own = np.stack([theta * (1 + k / 10) for k in range(len(sizes))]).astype(dtype)

    def evaluate(clients):
        models = theta if shared else own[clients]
        found = maker.evaluate(models, np.array(clients), "test")
        return list(zip(found.loss.tolist(), found.correct.tolist(), strict=True))

    alone = {k: evaluate([k])[0] for k in range(len(sizes))}
    shuffled = data.draw(st.permutations(range(len(sizes))))
    for size in (len(sizes), data.draw(st.integers(2, 7))):
        for chunk in in_chunks(shuffled, size):
            assert evaluate(chunk) == [alone[k] for k in chunk]


# Sizes on both sides of the blocks in which matrix products sum up their rows.
LARGE = Toy((40, 50, 1, 130, 300, 300, 440, 9, 440, 210, 60), features=61, classes=10)
MANY = Toy(tuple(40 + 5 * (k % 4) for k in range(33)), features=61, classes=10)


def check_every_place(toy, work, dtype):
    """Train and evaluate all clients together, and each of them alone: the same bits."""
    maker = learner(toy, work, dtype=dtype)
    theta = maker.initial()
    jobs = [job(k) for k in range(len(toy.sizes))]
    together = maker.train(theta, jobs)
    for item in jobs:
        alone = maker.train(theta, [item])
        for name in ("models", "loss_local", "loss_received"):
            own, shared = getattr(alone, name)[0], getattr(together, name)[item.client]
            assert own.tobytes() == shared.tobytes(), (toy, work, dtype, name, item.client)


def check_every_place_in_large_stacks():
    for dtype in ("float32", "float64"):
        check_every_place(LARGE, Work(steps=1), dtype)
        for batch_size in (None, 1, 10, 32):
            check_every_place(MANY, Work(epochs=1, batch_size=batch_size), dtype)


def test_every_place_in_a_large_stack():
    check_every_place_in_large_stacks()


@pytest.mark.parametrize("instructions", ["AVX2", "SSE4_2"])
def test_every_place_in_a_large_stack_with_the_kernels_of_older_machines(instructions):
    # Where Intel's library multiplies matrices it is told to do as on an older processor: its
    # kernels differ in what they make of alignment and of the number of rows.
    code = (
        "import torch, test_softmax_learner as t; torch.set_num_threads(1); "
        "t.check_every_place_in_large_stacks()"
    )
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=os.environ | {"MKL_ENABLE_INSTRUCTIONS": instructions},
        cwd=Path(__file__).parent,
        check=True,
    )


def test_one_client_twice_in_a_batch_and_after_its_data_left_the_cache():
    maker = learner(RAGGED, Work(epochs=2, batch_size=4))
    theta = maker.initial()
    first, other, again = maker.train(theta, [job(2), job(2, ordinal=1), job(2)]).models
    assert first.tobytes() == again.tobytes() != other.tobytes()
    maker.rows.resize(1)
    assert maker.train(theta, [job(2), job(3)]).models[0].tobytes() == first.tobytes()


def test_a_small_stack_limit_changes_nothing(monkeypatch):
    maker = learner(RAGGED, Work(steps=1))
    clients = np.array([0, 1, 2, 3, 4, 0, 1])
    whole = maker.evaluate(maker.initial(), clients, "train")
    monkeypatch.setattr(dense, "STACK_BYTES", 1)
    cut = maker.evaluate(maker.initial(), clients, "train")
    assert cut.loss.tobytes() == whole.loss.tobytes()
    assert cut.correct.tolist() == whole.correct.tolist()


def test_training_leaves_the_received_model_alone():
    maker = learner(RAGGED, Work(steps=3))
    theta = maker.initial()
    before = theta.copy()
    theta.setflags(write=False)
    found = maker.train(theta, [job(0), job(1)])
    assert theta.tobytes() == before.tobytes()
    assert not np.shares_memory(found.models, theta)


# What goes wrong


def test_divergence_names_the_client_its_dispatch_and_the_learning_rate():
    schedule = Schedule(kind="geometric", lr=0.5, decay=0.5)
    toy = Toy((5, 5, 5), nan_in=1)
    maker = learner(toy, Work(steps=2, schedule=schedule))
    items = [job(k, version=9) for k in range(3)]
    items[1] = job(1, ordinal=6, tilt=-0.25, clock=2.0, version=9)
    with pytest.raises(Diverged) as caught:
        maker.train(maker.initial(), items)
    message = str(caught.value)
    assert "client 1 " in message
    assert "dispatch 6 " in message
    assert "version 9" in message
    assert "learning rate 0.125" in message
    assert "multiplier 0.75" in message
    assert "lower work.schedule.lr" in message


def test_steps_that_are_far_too_large_diverge():
    work = Work(steps=25, schedule=Schedule(lr=100.0))
    maker = learner(RAGGED, work, Proximal(mu=1.0), dtype="float32")  # grows 99-fold in a step
    with pytest.raises(Diverged, match=r"client 2 .*learning rate 100,"):
        maker.train(maker.initial(), [job(2)])


@pytest.mark.parametrize("task", [Task((5,), 3, tokens=9), Task((5,), 1), Task((1,), 0)])
def test_what_is_no_classification_of_vectors_is_refused(task):
    class Other(Toy):
        @property
        def task(self):
            return task

    with pytest.raises(BadInput, match="real features and at least two classes"):
        learner(Other((3,)), Work(steps=1))


def test_the_cache_forgets_the_least_recently_used():
    made = []
    cache = BoundedCache(limit_bytes=10)

    def get(key, size=4):
        return cache.get(key, lambda: (made.append(key) or key, size))

    assert [get(key) for key in "aba"] == list("aba")
    get("c")  # b was not used for longest
    get("a")
    get("c")
    assert made == ["a", "b", "c"]
    get("b")
    assert made == ["a", "b", "c", "b"]
    assert get("huge", 100) == "huge"  # larger than the limit: kept alone
    get("huge")
    get("a")
    assert made == ["a", "b", "c", "b", "huge", "a"]
