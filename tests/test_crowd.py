"""Clients who share pools of samples: who has which, and that training on them is the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray.data.crowd import Crowd, CrowdFederation
from gifair_ray.errors import BadInput
from gifair_ray.federation import SPLITS, Population, Task
from gifair_ray.learners import _common
from gifair_ray.models.mlp import Mlp
from gifair_ray.models.softmax import Softmax
from gifair_ray.protocol import Message, TrainJob
from gifair_ray.schedules import Schedule
from gifair_ray.solvers.sgd import Sgd
from gifair_ray.work import Work

SMALL = Crowd(clients=50, samples=20, types=4, pool=60, features=5, classes=3)
BOTH = frozenset({"local", "received"})
WORK = Work(epochs=2, batch_size=6, schedule=Schedule(lr=0.2))


@dataclass(frozen=True)
class Unshared:
    """The same clients, without a word about their pool."""

    crowd: CrowdFederation

    @property
    def population(self) -> Population:
        return self.crowd.population

    @property
    def task(self) -> Task:
        return self.crowd.task

    def shard(self, client):
        return self.crowd.shard(client)


@examples(30)
@given(st.integers(0, 5), st.integers(0, 49))
def test_a_client_has_samples_of_its_type_by_its_number(seed, client):
    crowd, others = SMALL.build(seed), SMALL.build(seed)
    others.shard((client + 1) % 50)  # what was asked for before does not matter
    again = others.shard(client)
    sizes, first = {"train": 14, "val": 2, "test": 4}, int(crowd.types[client]) * 60
    parts = {"train": (0, 42), "val": (42, 48), "test": (48, 60)}
    for split in SPLITS:
        rows = crowd.held(np.array([client]), split)[0]
        low, high = parts[split]
        assert len(rows) == sizes[split] == crowd.population.sizes(split)[client]
        assert first + low <= rows.min() <= rows.max() < first + high
        samples = getattr(again, split)
        np.testing.assert_array_equal(samples.x, crowd.pool.x[rows])
        np.testing.assert_array_equal(samples.y, crowd.pool.y[rows])


def test_draws_are_spread_over_the_whole_part_of_the_pool():
    crowd = replace(SMALL.build(0), types=np.zeros(50, dtype=np.int64))
    counts = np.bincount(crowd.held(np.arange(50), "train").reshape(-1), minlength=42)
    # 700 draws out of 42: each is missed with probability e^−17.
    assert len(counts) == 42
    assert counts.min() > 0


def test_groups_are_types_unless_told_otherwise():
    crowd = SMALL.build(0)
    np.testing.assert_array_equal(crowd.population.groups, crowd.types)
    assert crowd.population.d == 4
    assert SMALL.model_copy(update={"groups": 2}).build(0).population.d == 2
    assert SMALL.model_copy(update={"groups": "each"}).build(0).population.d == 50


@pytest.mark.parametrize("model", [Softmax(), Mlp(hidden=[4])], ids=["softmax", "mlp"])
@pytest.mark.parametrize("cache", [None, 0], ids=["kept", "forgotten"])
def test_training_out_of_the_pool_is_training_on_shards(model, cache, monkeypatch):
    if cache is not None:
        monkeypatch.setattr(_common, "CACHE_BYTES", cache)
    crowd = SMALL.build(1)
    both = [model.learner(f, WORK, Sgd(), 1, BOTH) for f in (crowd, Unshared(crowd))]
    theta = both[0].initial()
    for some in ([3, 4, 11, 40], [0, 4, 41], [49]):
        jobs = [TrainJob(i, k, 0, Message(0, 0.0, 0.1)) for i, k in enumerate(some)]
        pooled, shards = (learner.train(theta, jobs) for learner in both)
        for name in ("models", "loss_local", "loss_received"):
            assert getattr(pooled, name).tobytes() == getattr(shards, name).tobytes()
        for split in SPLITS:
            a, b = (x.evaluate(theta, np.array(some), split) for x in both)
            assert a.loss.tobytes() == b.loss.tobytes()
            np.testing.assert_array_equal(a.correct, b.correct)


def test_a_crowd_runs_as_any_other_federation():
    scenario = {
        "data": {"source": "crowd", "clients": 100_000, "samples": 10, "pool": 50, "types": 3},
        "algorithm": "gifair-global",
        "weighting": {"lambda_fraction": 0.5},
        "model": {"kind": "softmax"},
        "work": {"epochs": 1, "batch_size": 5, "schedule": {"lr": 0.1}},
        "sampling": {"scheme": "uniform", "cohort": 5},
        "evaluation": {"every": 0, "splits": []},
        "audit": {"every": 0},
        "stop": {"rounds": 3},
    }
    first, again = (gifair_ray.run(scenario, backend="local") for _ in range(2))
    assert first.digest == again.digest
    assert len(first.table("dispatches")) == 15


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"clients": 3}, "data.types = 4, but there are 3 clients"),
        ({"pool": 6}, "data.pool = 6 leaves nothing for val"),
    ],
)
def test_what_cannot_be_is_refused(change, why):
    with pytest.raises(BadInput, match=why):
        SMALL.model_copy(update=change).build(0)
