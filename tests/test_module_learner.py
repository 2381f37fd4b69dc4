"""The learner for torch modules, and the models made of them, on federations of a few rows."""

from __future__ import annotations

import hashlib
import math
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn.functional import cross_entropy

from gifair_ray.errors import BadInput, Diverged
from gifair_ray.federation import Population, Samples, Shard, Task
from gifair_ray.learners.module import EVALUATION_ROWS, ModuleLearner
from gifair_ray.models import Model
from gifair_ray.models.cnn import Cnn
from gifair_ray.models.lstm import Lstm
from gifair_ray.models.mlp import Mlp
from gifair_ray.protocol import Message, TrainJob
from gifair_ray.schedules import Schedule
from gifair_ray.solvers.proximal import Proximal
from gifair_ray.solvers.sgd import Sgd
from gifair_ray.work import Work

SEED = 5
NOTHING = frozenset()
BOTH = frozenset({"local", "received"})
VECTORS = Task((5,), 3)


@dataclass(frozen=True)
class Toy:
    """Noise, with every third entry raised; or tokens, of which the last gives the class."""

    sizes: tuple[int, ...] = (7, 4, 1, 10)
    task: Task = VECTORS
    alike: bool = False
    test: int = 6
    asked: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def population(self):
        n, k = np.array(self.sizes), len(self.sizes)
        return Population(
            np.zeros(k, dtype=np.int64), ("all",), n, np.zeros_like(n), np.full(k, self.test)
        )

    def shard(self, client):
        self.asked[client] += 1
        g = np.random.default_rng([1, 0 if self.alike else client])
        sizes = (self.sizes[client], 0, self.test)
        return Shard(*(self._samples(g, n) for n in sizes))

    def _samples(self, g, n):
        shape, classes = (n, *self.task.input_shape), self.task.classes
        if self.task.tokens:
            x = g.integers(0, self.task.tokens, shape)
            return Samples(x, x[:, -1] % classes)
        x = g.standard_normal((n, math.prod(self.task.input_shape)))
        y = g.integers(0, classes, n)
        x += 2.0 * (np.arange(x.shape[1]) % classes == y[:, None])
        return Samples(x.reshape(shape), y)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)


def network():
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


def make(
    factory=network, toy=None, work=None, solver=None, reports=BOTH, dtype="float64", **options
):
    work = work or Work(epochs=2, batch_size=3)
    args = (toy or Toy(), work, solver or Sgd(), SEED, dtype, reports)
    return ModuleLearner(factory, *args, **options)


def job(client=0, ordinal=0, tilt=0.0, clock=0.0):
    return TrainJob(client, client, ordinal, Message(0, clock, tilt))


def loaded(factory, learner, theta):
    """A module of its own with the model in it, for hand-written checks."""
    module = factory().to(getattr(torch, learner.layout.dtype))
    named = {k: torch.tensor(v) for k, v in learner.layout.tensors(theta).items()}
    module.load_state_dict(named, strict=False)
    return module


def by_hand(factory, learner, toy, work, theta, work_item, mu=0.0):
    """The local training written out with a loop over parameters."""
    module = loaded(factory, learner, theta).train()
    parameters = list(module.parameters())
    start = [p.detach().clone() for p in parameters]
    data = toy.shard(work_item.client).train
    order = work.order(SEED, work_item.client, work_item.ordinal, len(data))
    rates = work.schedule.rates(work_item.message.clock, len(order))
    for rows, eta in zip(order, rates, strict=True):
        rows = [r for r in rows if r >= 0]
        loss = cross_entropy(module(torch.tensor(data.x[rows])), torch.tensor(data.y[rows]))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for p, g, s in zip(parameters, gradients, start, strict=True):
                p -= eta * ((1 + work_item.message.tilt) * g + mu * (p - s))
    return module


def flat(module, learner):
    named = module.state_dict()
    return np.concatenate([named[n].numpy().ravel() for n in learner.layout.names])


# The step


@pytest.mark.parametrize("client", range(4))
@pytest.mark.parametrize(
    ("work", "tilt", "mu"),
    [
        (Work(epochs=2, batch_size=3), 0.0, 0.0),
        (Work(epochs=1, batch_size=1), 0.0, 0.0),
        (Work(steps=5, batch_size=4), 0.7, 0.0),
        (Work(steps=3), -0.4, 0.0),
        (Work(steps=4, batch_size=2), 0.0, 0.3),
        (Work(epochs=2, batch_size=8, schedule=Schedule(kind="geometric", decay=0.5)), 0.2, 2.0),
        (Work(steps=6, batch_size=3, schedule=Schedule(kind="inverse")), 0.5, 0.1),
    ],
)
def test_training_equals_a_loop_written_by_hand(client, work, tilt, mu):
    toy = Toy()
    solver = Proximal(mu=mu) if mu else Sgd()
    learner = make(toy=toy, work=work, solver=solver)
    theta, item = learner.initial(), job(client, ordinal=2, tilt=tilt, clock=3.0)
    trained = learner.train(theta, [item])
    module = by_hand(network, learner, toy, work, theta, item, mu)
    np.testing.assert_allclose(trained.models[0], flat(module, learner), rtol=0, atol=1e-12)
    assert not np.array_equal(trained.models[0], theta)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tilt_zero_is_plain_sgd_bit_for_bit(dtype):
    work, toy = Work(epochs=3, batch_size=3), Toy()
    learner = make(toy=toy, work=work, dtype=dtype)
    theta, data = learner.initial(), toy.shard(0).train
    y, module = torch.tensor(theta), network()
    x = torch.tensor(data.x, dtype=y.dtype)
    for rows in work.order(SEED, 0, 0, len(data)):
        rows = torch.tensor(rows[rows >= 0])
        sizes = [int(np.prod(shape)) for shape in learner.layout.shapes]
        views = [v.requires_grad_() for v in y.split(sizes)]
        named = {
            name: v.view(shape)
            for name, v, shape in zip(
                learner.layout.names, views, learner.layout.shapes, strict=True
            )
        }
        scores = torch.func.functional_call(module, named, (x[rows],))
        gradient = torch.autograd.grad(cross_entropy(scores, torch.tensor(data.y)[rows]), views)
        y = y.detach().add(torch.cat(gradient), alpha=-work.schedule.lr)
    assert np.array_equal(learner.train(theta, [job()]).models[0], y.numpy())
    same = make(toy=toy, work=work, dtype=dtype, solver=Proximal(mu=0.0))
    assert np.array_equal(same.train(theta, [job()]).models[0], y.numpy())


# Losses and evaluation


def test_reports_are_full_losses_or_nan():
    toy, theta = Toy(), make().initial()
    for reports in (BOTH, NOTHING, frozenset({"local"}), frozenset({"received"})):
        learner = make(toy=toy, reports=reports)
        trained = learner.train(theta, [job(0), job(3)])
        for i, k in enumerate((0, 3)):
            data = toy.shard(k).train
            for name, column, model in (
                ("local", trained.loss_local, trained.models[i]),
                ("received", trained.loss_received, theta),
            ):
                if name not in reports:
                    assert np.isnan(column[i])
                    continue
                scores = loaded(network, learner, model)(torch.tensor(data.x))
                expected = cross_entropy(scores, torch.tensor(data.y)).item()
                assert column[i] == pytest.approx(expected, abs=1e-12)
        assert trained.loss_local.dtype == np.float64


def test_evaluation_of_a_shared_model_and_of_a_stack():
    toy = Toy(sizes=(2 * EVALUATION_ROWS + 1, 3, 1))
    learner, clients = make(toy=toy), np.array([2, 0, 1])
    theta = learner.initial()
    shared = learner.evaluate(theta, clients, "train")
    stacked = learner.evaluate(np.stack([theta, 2 * theta, 3 * theta]), clients, "train")
    for i, k in enumerate(clients):
        data = toy.shard(k).train
        for result, factor in ((shared, 1), (stacked, i + 1)):
            scores = loaded(network, learner, factor * theta)(torch.tensor(data.x)).detach()
            expected = cross_entropy(scores, torch.tensor(data.y)).item()
            assert result.loss[i] == pytest.approx(expected, abs=1e-12)
            assert result.correct[i] == (scores.numpy().argmax(1) == data.y).sum()
    alone = learner.evaluate(theta, clients[1:2], "train")
    assert (alone.loss[0], alone.correct[0]) == (shared.loss[1], shared.correct[1])


def test_an_empty_split_has_no_loss():
    result = make().evaluate(make().initial(), np.array([0, 1]), "val")
    assert np.isnan(result.loss).all()
    assert result.correct.tolist() == [0, 0]


def test_no_jobs_and_no_clients():
    learner = make()
    assert learner.train(learner.initial(), []).models.shape == (0, learner.layout.size)
    assert len(learner.evaluate(learner.initial(), np.array([], dtype=np.int64), "test").loss) == 0


def test_a_read_only_model_will_do():
    learner = make()
    theta = learner.initial()
    expected = learner.train(theta, [job()]).models
    theta.flags.writeable = False
    assert np.array_equal(learner.train(theta, [job()]).models, expected)


# One answer


def dropping():
    return nn.Sequential(
        nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 3)
    )


def digest(reverse=False):
    """A hash of what some jobs give; another process imports this module and calls it."""
    torch.set_num_threads(1)
    h = hashlib.blake2b()
    for model, task in (
        (Mlp(hidden=[6, 5]), Task((5,), 3)),
        (Cnn(image=(1, 9, 7), conv=(3, 5), hidden=11), Task((63,), 3)),
        (Lstm(hidden=9), Task((7,), 3, tokens=6)),
    ):
        toy = Toy(task=task, sizes=(7, 1, 12, 5))
        learner = model.learner(toy, Work(epochs=2, batch_size=3), Proximal(), SEED, BOTH)
        theta, jobs = learner.initial(), [job(k, k + 1, 0.1 * k) for k in (0, 1, 2, 3)]
        trained = learner.train(theta, jobs[::-1] if reverse else jobs)
        tested = learner.evaluate(trained.models[0], np.arange(4), "test")
        back = slice(None, None, -1 if reverse else None)
        for column in (trained.models, trained.loss_local, trained.loss_received):
            h.update(column[back].tobytes())
        h.update(learner.evaluate(theta, np.arange(4), "test").loss.tobytes())
        assert np.isfinite(tested.loss).all()
    return h.hexdigest()


def test_the_same_bits_in_another_process_and_order():
    code = "import test_module_learner as t; print(t.digest(reverse=True))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_job_depends_on_nothing_that_came_before_it(dtype):
    toy = Toy(sizes=(7, 4, 2, 11))
    work = Work(epochs=2, batch_size=9)
    jobs = [job(k, ordinal, tilt=k / 7) for k in range(4) for ordinal in (0, 3)]
    one, two = (make(dropping, toy, work, dtype=dtype, cache_bytes=b) for b in (0, 1 << 20))
    theta = one.initial()
    assert np.array_equal(theta, two.initial())
    together = one.train(theta, jobs)
    one.evaluate(together.models, np.array([j.client for j in jobs]), "test")
    for i in (3, 7, 0, 2, 1, 6, 5, 4):
        alone = two.train(theta, [jobs[i]])
        assert np.array_equal(alone.models[0], together.models[i])
        assert alone.loss_local[0] == together.loss_local[i]
        assert alone.loss_received[0] == together.loss_received[i]
    quiet = make(dropping, toy, work, dtype=dtype, reports=NOTHING)
    assert np.array_equal(quiet.train(theta, jobs).models, together.models)


def test_dropout_differs_by_client_and_ordinal_only():
    def factory():
        return nn.Sequential(nn.Linear(5, 20), nn.Dropout(0.5), nn.Linear(20, 3))

    learner = make(factory, Toy(sizes=(6, 6), alike=True), Work(steps=1))
    theta = learner.initial()
    jobs = [job(0, 0), job(1, 0), job(0, 1), job(0, 0)]
    a, b, c, again = learner.train(theta, jobs).models
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, c)
    first, second = learner.evaluate(theta, np.array([0, 1]), "train").loss
    assert first == second


def test_the_callers_generator_is_left_alone():
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    before = torch.get_rng_state()
    learner = make(dropping, Toy(sizes=(4,)), Work(steps=2))
    theta = learner.initial()
    learner.train(theta, [job()])
    learner.evaluate(theta, np.array([0]), "test")
    with pytest.raises(Diverged):
        learner.train(theta * np.nan, [job()])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.rand(3), expected)


def test_the_seed_decides_the_initial_model():
    other = ModuleLearner(network, Toy(), Work(steps=1), Sgd(), SEED + 1, "float64", BOTH)
    assert not np.array_equal(make().initial(), other.initial())
    assert np.array_equal(make().initial(), make().initial())
    learner = make()
    learner.initial()[:] = 0  # a copy: the learner's own is not touched
    assert learner.initial().any()


def test_shards_are_built_once_while_they_fit():
    for limit, times in ((1 << 20, 1), (0, 2)):
        toy = Toy()
        learner = make(toy=toy, cache_bytes=limit, reports=NOTHING)
        for _ in range(2):
            learner.train(learner.initial(), [job(0), job(1)])
        assert dict(toy.asked) == {0: times, 1: times}


# What the flat vector holds


class Odd(nn.Module):
    """Every kind of state there is."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.full((3,), 2.0), requires_grad=False)
        self.linear = nn.Linear(5, 3)
        self.norm = nn.BatchNorm1d(5, momentum=None)  # uses its count of batches
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(2))
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]), persistent=False)
        self.register_buffer("later", None)

    def forward(self, x):
        if self.training:
            assert self.later is None or self.calls > 0
            self.calls += 1
            self.later = torch.ones(1)
            self.average = self.average + x.shape[0]  # replaced, not changed in place
        return self.linear(self.norm(x)) * self.frozen


def test_layout_has_trained_parameters_first_and_persistent_buffers_last():
    layout = make(Odd, Toy(sizes=(4,)), Work(steps=1)).layout
    assert layout.names == (
        *("linear.weight", "linear.bias", "norm.weight", "norm.bias"),
        *("frozen", "average", "norm.running_mean", "norm.running_var"),
    )
    assert layout.shapes == ((3, 5), (3,), (5,), (5,), (3,), (2,), (5,), (5,))
    assert layout.trainable == 15 + 3 + 5 + 5
    assert layout.size == layout.trainable + 3 + 2 + 5 + 5
    assert layout.dtype == "float64"


@pytest.mark.parametrize(("tilt", "mu"), [(0.0, 0.0), (-1.0, 0.0), (0.5, 3.0)])
def test_buffers_travel_untouched_by_gradients(tilt, mu):
    toy, work = Toy(sizes=(4, 8)), Work(epochs=3, batch_size=4)
    learner = make(Odd, toy, work, Proximal(mu=mu))
    theta = learner.initial()
    assert learner.layout.tensors(theta)["average"].tolist() == [0, 0]
    learner.layout.tensors(theta)["frozen"][:] = [1.0, -1.0, 0.5]
    learner.layout.tensors(theta)["norm.running_mean"][:] = 7.0
    learner.layout.tensors(theta)["average"][:] = 100.0
    first, second, again = learner.train(theta, [job(k, tilt=tilt) for k in (0, 1, 0)]).models
    assert np.array_equal(first, again)  # the counts of batches start anew
    for model, k, rows in ((first, 0, 12), (second, 1, 24)):
        got = learner.layout.tensors(model)
        assert got["frozen"].tolist() == [1.0, -1.0, 0.5]
        assert got["average"].tolist() == [100 + rows, 100 + rows]
        data = toy.shard(k).train
        batches = [data.x[r] for r in work.order(SEED, k, 0, len(data))]
        means, variances = (np.mean([f(b) for b in batches], 0) for f in (_mean, _variance))
        np.testing.assert_allclose(got["norm.running_mean"], means, atol=1e-12)
        np.testing.assert_allclose(got["norm.running_var"], variances, atol=1e-12)
        n = learner.layout.trainable
        assert np.array_equal(model[:n], theta[:n]) == (tilt == -1.0)


def _mean(batch):
    return batch.mean(0)


def _variance(batch):
    return batch.var(0, ddof=1)


def test_evaluation_uses_the_buffers_it_is_given():
    learner = make(Odd, Toy(sizes=(4,)), Work(steps=1))
    theta = learner.initial()
    moved = theta.copy()
    learner.layout.tensors(moved)["norm.running_mean"][:] = 3.0
    one, two, three = learner.evaluate(
        np.stack([theta, moved, theta]), np.zeros(3, int), "test"
    ).loss
    assert one != two
    assert one == three


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(5, 3, bias=False)
        self.decode = nn.Linear(5, 3, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, x):
        return self.encode(x) + 2 * self.decode(x)


def test_tied_parameters_count_once():
    toy, work = Toy(), Work(epochs=1, batch_size=3)
    learner = make(Tied, toy, work)
    assert learner.layout.names == ("encode.weight",)
    assert learner.layout.size == learner.layout.trainable == 15
    theta = learner.initial()
    module = by_hand(Tied, learner, toy, work, theta, job())
    got = learner.train(theta, [job()]).models[0]
    np.testing.assert_allclose(got, flat(module, learner), rtol=0, atol=1e-12)


def test_a_parameter_without_a_gradient_stays():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(5, 3), nn.Parameter(torch.ones(()))

        def forward(self, x):
            return self.used(x)

    learner = make(Spare)
    model = learner.train(learner.initial(), [job()]).models[0]
    assert (learner.layout.names[0], learner.layout.shapes[0]) == ("spare", ())
    assert model[0] == 1.0


# Refusals


@pytest.mark.parametrize("reports", [BOTH, NOTHING])
def test_divergence_names_client_dispatch_and_rate(reports):
    work = Work(steps=4, schedule=Schedule(lr=1e38))
    learner = make(lambda: nn.Linear(5, 3), work=work, dtype="float32", reports=reports)
    with pytest.raises(Diverged, match=r"client 3 .*dispatch 17 .*1e\+38.*work\.schedule\.lr"):
        learner.train(learner.initial(), [job(3, ordinal=17)])


def test_an_infinite_loss_is_a_divergence_if_it_is_reported():
    def huge():
        module = nn.Linear(5, 3)
        nn.init.constant_(module.weight, 3e38)
        return module

    # The rate is so small that the model stays finite.
    work = Work(steps=1, schedule=Schedule(lr=1e-30))
    toy = Toy(sizes=(1,))
    theta = make(huge, toy, work, dtype="float32", reports=NOTHING).initial()
    theta[:5] *= -1
    for reports in (frozenset({"received"}), frozenset({"local"})):
        with pytest.raises(Diverged, match="dispatch 0"):
            make(huge, toy, work, dtype="float32", reports=reports).train(theta, [job()])


def misfit(task, **options):
    """A factory as a user writes one, going wrong in the way that is asked for."""
    match options.get("fault"):
        case "raises":
            raise RuntimeError("out of cheese")
        case "returns":
            return "a string"
        case "width":
            return nn.Linear(task.input_shape[0], task.classes + 1)
        case "tuple":
            return nn.LSTM(task.input_shape[0], task.classes)
        case "input":
            return nn.Linear(99, task.classes)
        case "frozen":
            return nn.Linear(task.input_shape[0], task.classes).requires_grad_(False)
        case "unused":
            module = nn.Linear(task.input_shape[0], task.classes).requires_grad_(False)
            module.spare = nn.Parameter(torch.ones(2))
            return module
        case "nan":
            module = nn.Linear(task.input_shape[0], task.classes)
            module.register_buffer("mask", torch.tensor(-torch.inf))
            return module
        case "lazy":
            return nn.LazyLinear(task.classes)
        case "complex":
            return nn.Linear(task.input_shape[0], task.classes, dtype=torch.complex64)
    return nn.Linear(task.input_shape[0], task.classes, bias=options.get("bias", True))


NOT_A_FACTORY = 3


def own(name="misfit", **options):
    return Model.model_validate({"kind": f"{__name__}:{name}", "options": options})


def learner_of(model, toy=None, work=None, reports=NOTHING):
    return model.learner(toy or Toy(), work or Work(epochs=1, batch_size=3), Sgd(), SEED, reports)


def test_a_model_of_ones_own_trains():
    assert learner_of(own()).layout.size == 18
    learner = learner_of(own(bias=False))
    assert learner.layout.names == ("weight",)
    assert learner.layout.dtype == "float32"
    assert learner.train(learner.initial(), [job()]).models.dtype == np.float32


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "raised RuntimeError: out of cheese"),
        ("returns", "returned a str, not a torch.nn.Module"),
        ("width", r"into \(1, 4\); the data's 3 classes need \(1, 3\)"),
        ("tuple", "into tuple"),
        ("input", r"failed on a batch of 1 inputs of shape \(5,\)"),
        ("frozen", "no parameters to train"),
        ("unused", "do not depend on its trained parameters"),
        ("nan", "persistent=False"),
        ("lazy", "lazy"),
        ("complex", "complex"),
    ],
)
def test_a_bad_factory_is_refused_by_name(fault, message):
    with pytest.raises(BadInput, match=f"misfit.*{message}"):
        learner_of(own(fault=fault))


def test_what_is_no_factory_is_refused():
    with pytest.raises(BadInput, match=r"NOT_A_FACTORY.* is a int, not a function"):
        learner_of(own("NOT_A_FACTORY"))
    with pytest.raises(ValidationError, match="has no 'nowhere'"):
        own("nowhere")
    with pytest.raises(ValidationError, match=r"package\.module:factory"):
        Model.model_validate({"kind": "own"})
    with pytest.raises(BadInput, match=r"network.* raised TypeError"):
        learner_of(own("network", width=3))


def test_batches_too_short_for_the_model_are_refused_before_training():
    toy = Toy(sizes=(5, 9))
    for work in (Work(epochs=1, batch_size=4), Work(steps=3, batch_size=4)):
        with pytest.raises(BadInput, match="batch of 1 inputs"):
            make(dropping, toy, work)
    make(dropping, toy, Work(epochs=1, batch_size=3))
    make(dropping, toy, Work(epochs=1))
    make(dropping, toy, Work(steps=1, batch_size=4))  # never gets to the short batch


def test_models_refuse_data_that_they_cannot_read():
    text, real = Toy(task=Task((7,), 3, tokens=6)), Toy(task=Task((60,), 3))
    with pytest.raises(BadInput, match=r"\(1, 28, 28\).*\(60,\)"):
        learner_of(Cnn(), real)
    with pytest.raises(BadInput, match=r"\(3, 8, 8\).*\(8, 8, 3\)"):
        learner_of(Cnn(image=(3, 8, 8)), Toy(task=Task((8, 8, 3), 3)))
    with pytest.raises(BadInput, match=r"'lstm' needs sequences of tokens.*real"):
        learner_of(Lstm(), real)
    for model in (Cnn(image=(1, 7, 7)), Mlp()):
        with pytest.raises(BadInput, match=f"{model.kind}.*needs real inputs"):
            learner_of(model, text)
    with pytest.raises(ValidationError, match="image"):
        Cnn(image=(1, 3, 28))


# The models


def test_default_architectures():
    shapes = learner_of(Mlp()).layout.shapes
    assert shapes == ((64, 5), (64,), (3, 64), (3,))
    shapes = learner_of(Cnn(), Toy(task=Task((784,), 10))).layout.shapes
    assert shapes[::2] == ((32, 1, 5, 5), (64, 32, 5, 5), (512, 3136), (10, 512))
    layout = learner_of(Lstm(), Toy(task=Task((80,), 60, tokens=60))).layout
    assert layout.shapes[0] == (60, 8)
    assert layout.shapes[1] == (400, 8)
    assert layout.shapes[5] == (400, 100)
    assert layout.shapes[-2:] == ((60, 100), (60,))
    linear = learner_of(Mlp(hidden=[])).layout
    assert linear.shapes == ((3, 5), (3,))


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        ((3, 9, 6), (162,)),
        ((3, 9, 6), (3, 9, 6)),
        ((1, 5, 8), (5, 8)),
        ((1, 5, 8), (5, 8, 1)),
        ((1, 5, 8), (40,)),
    ],
)
def test_cnn_is_the_network_that_it_says(image, shape):
    module = Cnn(image=image, conv=(3, 4), hidden=6).module(Task(shape, 3)).double()
    x = torch.tensor(np.random.default_rng(2).standard_normal((4, *shape)))
    plain = nn.Sequential(
        *(nn.Conv2d(image[0], 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(4 * (image[1] // 4) * (image[2] // 4), 6), nn.ReLU()),
        nn.Linear(6, 3),
    ).double()
    plain.load_state_dict(dict(zip(plain.state_dict(), module.state_dict().values(), strict=True)))
    torch.testing.assert_close(module(x), plain(x.reshape(4, *image)), rtol=0, atol=1e-12)
    for a, b in zip(
        torch.autograd.grad(module(x).square().sum(), list(module.parameters())),
        torch.autograd.grad(plain(x.reshape(4, *image)).square().sum(), list(plain.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("model", "task", "lr"),
    [
        (Mlp(hidden=[16]), Task((5,), 3), 0.5),
        (Cnn(image=(1, 8, 8), conv=(4, 8), hidden=16), Task((64,), 3), 0.1),
        (Lstm(hidden=16), Task((6,), 3, tokens=5), 1.0),
    ],
)
def test_models_learn(model, task, lr):
    toy = Toy(task=task, sizes=(64,), test=100)
    work = Work(epochs=12, batch_size=8, schedule=Schedule(lr=lr))
    learner = learner_of(model, toy, work, BOTH)
    trained = learner.train(learner.initial(), [job()])
    assert trained.loss_local[0] < 0.5 * trained.loss_received[0]
    assert learner.evaluate(trained.models[0], np.array([0]), "test").correct[0] > 60


def test_describing_models_does_not_import_torch():
    code = (
        "import sys\n"
        "from gifair_ray.models import Model\n"
        "for kind in ('mlp', 'cnn', 'lstm'): Model.model_validate({'kind': kind})\n"
        "import gifair_ray.models.own\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clients_of_any_size_tie_where_every_loss_is_the_same(dtype):
    sizes = (*range(1, 60), EVALUATION_ROWS + 3)
    learner = make(toy=Toy(sizes=sizes), dtype=dtype)
    indifferent = np.zeros_like(learner.initial())  # every class as likely as any other
    losses = learner.evaluate(indifferent, np.arange(len(sizes)), "train").loss
    assert set(losses.tolist()) == {losses[0]}
    assert losses[0] == pytest.approx(math.log(3))
