"""Ditto: a model of its own for every client, beside a global one that never hears of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from golden import NOISY, SOFTMAX
from numpy.testing import assert_allclose
from watching import Watched, watch

from gifair_ray.protocol import Learner, Message, TrainJob
from gifair_ray.scenario import merge
from gifair_ray.solvers.ditto import Ditto
from gifair_ray.solvers.proximal import Proximal
from gifair_ray.solvers.sgd import Sgd

# A dispatch of Ditto's takes twice as long as one of FedAvg's, unless the device is twice as fast.
SLOW = {"devices": {"sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 1.0}}}
FAST = {"devices": {"sample_s": {"dist": "lognormal", "median": 0.005, "sigma": 1.0}}}
FEW = {"sampling": {"scheme": "uniform", "cohort": 3}, "stop": {"rounds": 5}}
LEARNERS: dict[str, dict[str, Any]] = {
    "quadratic": NOISY,
    "softmax": NOISY | SOFTMAX,
    "module": NOISY | SOFTMAX | {"model": {"kind": "mlp", "hidden": [5]}},
}
every_learner = pytest.mark.parametrize("learner", list(LEARNERS))
STREAM = {"kind": "fedbuff", "concurrency": 4, "buffer": 3}
POLICIES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync"},
    "deadline": {"kind": "deadline", "quantile": 0.5},
    "partial": {"kind": "deadline", "quantile": 0.5, "partial": True},
    "carry": {"kind": "deadline", "quantile": 0.5, "late": "carry"},
    "overselect": {"kind": "overselect", "factor": 2.0},
    "fedbuff": STREAM,
    "stale": STREAM | {"concurrency": 6, "buffer": 2, "max_staleness": 1},
    "fedasync": {"kind": "fedasync", "concurrency": 4},
    "tiers": {"kind": "tiers", "tiers": 2},
}


def ditto(lam: float) -> dict[str, Any]:
    return {"algorithm": "ditto", "solver": {"lambda_value": lam}}


def mixes(policy: dict[str, Any]) -> dict[str, Any]:
    """The aggregator that goes with a policy."""
    return {"aggregator": {"kind": "mixing" if policy["kind"] == "fedasync" else "mean"}}


def build(done: Watched, solver: Any) -> Learner:
    """A learner for the clients of a run, with another solver."""
    scenario = done.scenario
    federation = scenario.data.build(scenario.seed)
    reports = scenario.weighting.reports
    return scenario.model.learner(federation, scenario.work, solver, scenario.seed, reports)


def bits(model: Any) -> bytes:
    return np.ascontiguousarray(model).tobytes()


@every_learner
@pytest.mark.parametrize("policy", ["sync", "partial", "fedbuff"])
def test_the_global_model_never_hears_of_the_personal_ones(learner, policy):
    base = merge(merge(LEARNERS[learner], FEW), {"policy": POLICIES[policy]})
    plain = watch(merge(base, SLOW))
    for lam in (0.0, 0.7):
        done = watch(merge(merge(base, FAST), ditto(lam)))
        assert bits(done.models) == bits(plain.models)
        columns = ["client", "outcome", "weight", "steps", "bytes_up", "bytes_down"]
        a, b = (run.table("dispatches").select(columns) for run in (done, plain))
        assert a.equals(b)
        assert done.outcome.personal


@every_learner
def test_without_lambda_a_client_trains_alone_from_the_initial_model(learner):
    done = watch(merge(merge(LEARNERS[learner], FEW), ditto(0.0)))
    alone = build(done, Sgd())
    v = defaultdict(alone.initial)
    came_back = 0
    for job in done.jobs:
        came_back += job.client in v
        # The same minibatches, dropout and noise: those of the job.
        again = TrainJob(job.id, job.client, job.ordinal, job.message, job.steps)
        v[job.client] = alone.train(v[job.client], [again]).models[0]
        assert bits(done.replies[job.id].personal) == bits(v[job.client])
    assert came_back
    assert set(done.outcome.personal) == set(v)  # the others have none
    assert len(v) < done.table("clients").num_rows or learner != "quadratic"
    for client, model in done.outcome.personal.items():
        assert bits(model) == bits(v[client])


@every_learner
def test_a_personal_model_that_is_the_received_one_trains_as_fedprox_does(learner):
    done = watch(merge(merge(LEARNERS[learner], FEW), ditto(0.7)))
    proximal = build(done, Proximal(mu=0.7))
    first = [job for job in done.jobs if job.message.version == 0]
    assert first
    models = proximal.train(done.models[0], first).models
    for job, model in zip(first, models, strict=True):
        assert job.personal is None
        assert_allclose(done.replies[job.id].personal, model, rtol=1e-6)


@every_learner
def test_the_pull_is_towards_the_model_that_was_received(learner):
    done = watch(merge(merge(LEARNERS[learner], FEW), ditto(0.7)))
    learners = {lam: build(done, Ditto(lambda_value=lam)) for lam in (0.0, 0.7, 5.0)}
    job = next(job for job in done.jobs if job.personal is not None)
    one_step = TrainJob(0, job.client, job.ordinal, Message(0, job.message.clock, 0.0), 1,
                        job.personal)  # fmt: skip
    theta = done.models[job.message.version]
    v = {lam: each.train(theta, [one_step]).personal[0] for lam, each in learners.items()}
    rate = done.scenario.work.schedule.rates(job.message.clock, 2)[0]
    if done.scenario.work.schedule.kind == "constant":
        rate = done.scenario.work.schedule.lr
    for lam in (0.7, 5.0):
        pulled = v[lam] - v[0.0]
        assert_allclose(pulled, -rate * lam * (job.personal - theta), rtol=1e-4, atol=1e-6)
        assert np.abs(pulled).max() > 1e-5


def follow(done: Watched, *, kept: bool) -> tuple[dict[int, Any], int]:
    """Check that every job starts from what its client has; (that at the end, returns lost)."""
    rows = {(r["client"], r["ordinal"]): r for r in done.table("dispatches").to_pylist()}
    own: dict[int, Any] = {}
    accepted: dict[int, Any] = {}
    lost = 0
    for job in sorted(done.jobs, key=lambda job: (job.client, job.ordinal)):
        expected = own.get(job.client)
        assert (job.personal is None) == (expected is None)
        assert expected is None or bits(job.personal) == bits(expected)
        outcome = rows[job.client, job.ordinal]["outcome"]
        reply = done.replies.get(job.id)
        if reply is None:  # the run was over
            continue
        lost += outcome != "completed"
        if outcome == "completed" or kept:
            accepted[job.client] = reply.personal
        if outcome in ("completed", "unfinished") or kept:  # unfinished: still in the buffer
            own[job.client] = reply.personal
    return accepted, lost


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_client_goes_on_from_what_was_accepted_of_it(name):
    policy = POLICIES[name]
    world = merge(FEW, {"stop": {"rounds": 25}, "devices": {"dropout": 0.3, "jitter": 0.5}})
    done = watch(merge(merge(merge(NOISY, world), ditto(0.7)), mixes(policy) | {"policy": policy}))
    accepted, _ = follow(done, kept=False)
    assert set(done.outcome.personal) == set(accepted)
    for client, model in accepted.items():
        assert bits(done.outcome.personal[client]) == bits(model)


@pytest.mark.parametrize("name", ["deadline", "overselect", "stale"])
def test_a_client_may_keep_what_the_server_discards(name):
    policy = POLICIES[name] | {"discarded": "kept"}
    slow = {"up_mbps": {"dist": "lognormal", "median": 0.0002, "sigma": 2.0}}
    world = merge(FEW, {"stop": {"rounds": 30}, "devices": slow, "policy": policy})
    done = watch(merge(merge(NOISY, world), ditto(0.7)))
    kept, lost = follow(done, kept=True)
    assert lost
    for client, model in done.outcome.personal.items():
        assert bits(model) == bits(kept[client])


def test_what_is_kept_is_not_undone_by_earlier_work_that_still_waited_in_the_buffer():
    policy = {"kind": "fedbuff", "buffer": 25, "timeout_s": 1.2, "discarded": "kept"}
    rough = {"dropout": 0.0, "jitter": 0.5, "up_mbps": 0.001}
    world = {"sampling": {"scheme": "all"}, "stop": {"rounds": 5}, "devices": rough}
    done = watch(merge(merge(NOISY, world), ditto(0.7) | {"policy": policy}))
    kept, lost = follow(done, kept=True)
    assert lost
    assert set(done.outcome.personal) == set(kept)
    for client, model in kept.items():  # that of the buffer that never filled is kept as well
        assert bits(done.outcome.personal[client]) == bits(model)


def test_a_client_that_is_back_twice_before_the_model_changes():
    fast = {"devices": {"dropout": 0.0}, "sampling": {"scheme": "all"}, "stop": {"rounds": 4}}
    policy = {"kind": "fedbuff", "buffer": 12}
    done = watch(merge(merge(NOISY, fast), ditto(0.7) | {"policy": policy}))
    follow(done, kept=False)
    of_version = defaultdict(list)
    for job in done.jobs:
        of_version[job.message.version, job.client].append(job)
    assert max(map(len, of_version.values())) >= 3
    one = max(of_version.values(), key=len)
    assert len({bits(job.personal) for job in one[1:]}) == len(one) - 1


def test_those_who_were_never_selected_are_told_apart():
    done = watch(merge(merge(NOISY, FEW), ditto(0.7) | {"stop": {"rounds": 1}}))
    rows = [r for r in done.table("evaluations").to_pylist() if r["version"] == 1]
    never = {r["client"] for r in rows if not r["selected_ever"]}
    assert never
    assert {r["client"] for r in rows if r["model"] == "personal"}.isdisjoint(never)
