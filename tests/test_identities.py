"""What must hold between runs, and within any run, whatever the numbers."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from profiles import examples
from torch import nn
from watching import watch

import gifair_ray
from gifair_ray.aggregators.mean import Mean
from gifair_ray.aggregators.paper_literal import PaperLiteral
from gifair_ray.protocol import Message, TrainJob
from gifair_ray.scenario import merge
from gifair_ray.tables import DIGESTED, OUTCOMES

MODES = ["estimated", "received", "exact-participants", "exact"]

SOFTMAX: dict[str, Any] = {
    "seed": 3,
    "data": {
        "source": "synthetic",
        "clients": 12,
        "features": 5,
        "classes": 3,
        "samples": 30,
        "minority": {"share": 0.25, "size_factor": 0.6},
    },
    "model": {"kind": "softmax"},
    "work": {"epochs": 1, "batch_size": 8, "schedule": {"kind": "geometric", "lr": 0.3}},
    "sampling": {"scheme": "p-replace", "cohort": 4},
    "stop": {"rounds": 6},
    "evaluation": {"every": 2},
    "audit": {"every": 2},
}
NOISY: dict[str, Any] = {
    "seed": 5,
    "data": {"source": "quadratic", "problem": "random", "clients": 9, "noise": 0.3},
    "model": {"kind": "quadratic", "init": 1.0},
    "work": {"steps": 3, "schedule": {"kind": "inverse"}},
    "sampling": {"scheme": "uniform", "cohort": 3},
    "stop": {"rounds": 8},
    "evaluation": {"every": 3, "splits": ["train"]},
    "audit": {"every": 3},
}
UNRELIABLE: dict[str, Any] = {
    "devices": {
        "sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 1.0},
        "jitter": 0.3,
        "dropout": 0.3,
    }
}
both_problems = pytest.mark.parametrize("problem", [SOFTMAX, NOISY], ids=["softmax", "quadratic"])


def run(*tables: dict[str, Any]) -> gifair_ray.Run:
    """A run of these tables, each on top of those before it."""
    scenario: dict[str, Any] = {}
    for table in tables:
        scenario = merge(scenario, table)
    return gifair_ray.run(scenario, backend="local")


def gifair(fraction: float, ranks: str, **weighting: Any) -> dict[str, Any]:
    return {
        "algorithm": "gifair-global",
        "weighting": {"lambda_fraction": fraction, "ranks": ranks, **weighting},
    }


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def same_rows(a: pa.Table, b: pa.Table, *, but: tuple[str, ...] = ()) -> bool:
    """Whether two tables are equal in all columns but some; values are compared exactly."""
    kept = [name for name in a.column_names if name not in but]
    return a.num_rows > 0 and a.select(kept).equals(b.select(kept))


# λ = 0 is FedAvg


@pytest.mark.parametrize("initial", ["none", "bootstrap"])
@pytest.mark.parametrize("ranks", MODES)
@both_problems
def test_without_lambda_gifair_is_fedavg_bit_for_bit(problem, ranks, initial):
    # Evaluating costs no virtual time, so that nothing but the messages can differ.
    free = {"devices": {"eval_fraction": 0.0}}
    fedavg = run(problem, UNRELIABLE, free)
    zero = run(problem, UNRELIABLE, free, gifair(0.0, ranks, initial=initial))
    assert same_bits(zero.outcome.theta, fedavg.outcome.theta)
    # Ranks travel as extra scalars, and exact ones take a round trip of their own: that is time.
    for table in ("evaluations", "groups"):
        assert same_rows(zero.table(table), fedavg.table(table), but=("time_s",))
    columns = ["round", "client", "slots", "outcome", "weight", "steps"]
    of_zero, of_fedavg = (r.table("dispatches").select(columns) for r in (zero, fedavg))
    assert of_zero.equals(of_fedavg)
    assert set(zero.table("dispatches")["tilt"].to_pylist()) == {0.0}


@pytest.mark.parametrize("ranks", ["estimated", "received"])
def test_without_lambda_gifair_takes_as_long_as_fedavg_where_bytes_are_free(ranks):
    free = {"devices": {"eval_fraction": 0.0, "up_mbps": 1e300, "down_mbps": 1e300}}
    fedavg, zero = run(SOFTMAX, free), run(SOFTMAX, free, gifair(0.0, ranks))
    assert same_rows(zero.table("evaluations"), fedavg.table("evaluations"))
    assert zero.table("rounds")["time_s"].equals(fedavg.table("rounds")["time_s"])


@both_problems
def test_with_lambda_gifair_is_not_fedavg(problem):
    assert not same_bits(
        run(problem, gifair(0.5, "exact")).outcome.theta, run(problem).outcome.theta
    )


# GIFAIR-Per is GIFAIR-Global that keeps the local models


@both_problems
def test_per_follows_the_global_trajectory_bit_for_bit(problem):
    weighting = gifair(0.7, "estimated")
    shared = watch(merge(merge(problem, UNRELIABLE), weighting))
    personal = watch(
        merge(merge(merge(problem, UNRELIABLE), weighting), {"algorithm": "gifair-per"})
    )
    assert len(shared.models) == problem["stop"]["rounds"] + 1
    assert same_bits(shared.models, personal.models)
    for table in ("rounds", "dispatches", "losses", "ranks", "participation"):
        assert same_rows(shared.table(table), personal.table(table))
    assert not shared.outcome.personal
    of_all = personal.table("evaluations")
    of_global = of_all.filter(pc.equal(of_all["model"], "global"))
    assert same_rows(of_global, shared.table("evaluations"))


@both_problems
def test_personal_models_are_the_last_local_models_of_those_who_took_part(problem):
    few = {"algorithm": "gifair-per", "weighting": {"lambda_fraction": 0.7}, "stop": {"rounds": 5}}
    done = watch(merge(merge(problem, UNRELIABLE), few))
    last = {job.client: done.replies[job.id].model for job in done.jobs}
    K = done.table("clients").num_rows
    assert len(last) < K  # the case is about both: some never took part, some more than once
    assert len(last) < len(done.jobs)
    assert set(done.outcome.personal) == set(last)
    for k, model in last.items():
        assert same_bits(done.outcome.personal[k], model)
    final = done.table("evaluations").to_pylist()
    final = [row for row in final if row["version"] == 5 and row["split"] == "train"]
    flags = {row["client"]: row["selected_ever"] for row in final if row["model"] == "global"}
    assert flags == {k: k in last for k in range(K)}
    assert {row["client"] for row in final if row["model"] == "personal"} == set(last)


def test_a_client_that_never_took_part_is_given_the_global_model():
    few = {"algorithm": "gifair-per", "weighting": {"lambda_fraction": 0.7}, "stop": {"rounds": 1}}
    done = run(NOISY, few)
    absent = sorted(set(range(9)) - set(done.outcome.personal))
    assert absent
    for k in absent:
        assert same_bits(done.model(k)["theta"], done.outcome.theta)
    present = next(iter(done.outcome.personal))
    assert not same_bits(done.model(present)["theta"], done.outcome.theta)


# Ties


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clients_of_any_size_tie_where_every_loss_is_the_same(dtype):
    # The zero model gives every sample of every client the loss log C.
    scenario = {
        "data": {"source": "synthetic", "clients": 30, "features": 3, "classes": 10},
        "model": {"kind": "softmax", "init": "zeros", "dtype": dtype},
        "work": {"steps": 1},
        "sampling": {"scheme": "all"},
        "stop": {"rounds": 1},
        "evaluation": {"every": 0, "splits": ["train"]},
    }
    done = run(scenario, gifair(0.9, "exact"))
    assert len(set(done.table("clients")["train_samples"].to_pylist())) > 10
    assert_allclose(done.table("losses")["loss"].to_numpy(), np.log(10), rtol=1e-6)
    assert set(done.table("dispatches")["rank"].to_pylist()) == {0}


# Nothing depends on what the clients are called


@examples(25)
@given(
    st.integers(0, 2**32),
    st.integers(2, 8).flatmap(lambda K: st.permutations(range(K))),
    st.sampled_from(MODES),
)
def test_relabelling_the_clients_relabels_the_results(seed, order, ranks):
    g = np.random.default_rng(seed)
    K, d = len(order), max(2, len(order) // 2)
    A, b = g.uniform(0.5, 3.0, (K, 1, 1)), g.standard_normal((K, 1))
    sizes, groups = g.integers(1, 30, K), np.arange(K) % d
    new_name = g.permutation(d)  # of the groups

    def result(clients: np.ndarray, names: np.ndarray) -> gifair_ray.Run:
        data = {
            "source": "quadratic",
            "problem": "own",
            "A": A[clients].tolist(),
            "b": b[clients].tolist(),
            "sizes": sizes[clients].tolist(),
            "groups": names[groups[clients]].tolist(),
        }
        weighting = {"lambda_fraction": 0.6, "ranks": ranks, "initial": "bootstrap"}
        return run(
            {
                "algorithm": "gifair-per",
                "data": data,
                "model": {"kind": "quadratic"},
                "work": {"steps": 2, "schedule": {"lr": 0.05}},
                "sampling": {"scheme": "all"},
                "weighting": weighting,
                "stop": {"rounds": 4},
                "evaluation": {"every": 0, "splits": ["train"]},
                "audit": {"every": 1},
            }
        )

    plain, moved = result(np.arange(K), np.arange(d)), result(np.array(order), new_name)
    close = {"rtol": 1e-9, "atol": 1e-9}
    assert_allclose(moved.outcome.theta, plain.outcome.theta, **close)
    for now, before in enumerate(order):
        assert_allclose(moved.outcome.personal[now], plain.outcome.personal[before], **close)

    def columns(done: gifair_ray.Run, table: str, column: str, width: int) -> np.ndarray:
        return np.array(done.table(table)[column].to_pylist(), dtype=float).reshape(-1, width)

    for column in ("tilt", "rank", "loss_local", "loss_received", "weight"):
        a, b_ = (columns(r, "dispatches", column, K) for r in (moved, plain))
        assert_allclose(a, b_[:, order], **close)
    for column in ("L_used", "L_exact", "r_used", "r_exact"):
        a, b_ = (columns(r, "ranks", column, d) for r in (moved, plain))
        assert_allclose(a[:, new_name], b_, **close)
    for column in ("H", "delta", "step_norm", "time_s"):
        a, b_ = (columns(r, "rounds", column, 1) for r in (moved, plain))
        assert_allclose(a, b_, **close)


# Time and accounts

distributions = st.sampled_from([0.0, 0.01]) | st.fixed_dictionaries(
    {"dist": st.just("lognormal"), "median": st.floats(1e-3, 0.1), "sigma": st.floats(0, 2)}
)


@st.composite
def rough_worlds(draw) -> dict[str, Any]:
    """Slow, jittery, unreliable clients that come and go, and a server of limited patience."""
    world: dict[str, Any] = {
        "seed": draw(st.integers(0, 1000)),
        "devices": {
            "sample_s": draw(distributions),
            "latency_s": draw(distributions),
            "jitter": draw(st.sampled_from([0.0, 1.0])),
            "dropout": draw(st.sampled_from([0.0, 0.3, 0.9])),
        },
        "policy": {
            "kind": "sync",
            "timeout_s": draw(st.sampled_from([0.05, 0.5, 5.0, 100.0])),
            "notice": draw(st.sampled_from(["timeout", "disconnect"])),
            "failures": draw(st.sampled_from(["slots", "survivors", "corrected"])),
            "reliability": draw(st.sampled_from(["known", "estimated"])),
        },
        "sampling": {"scheme": draw(st.sampled_from(["p-replace", "uniform", "all"]))},
    }
    if draw(st.booleans()):
        blocks = {"block_s": draw(st.floats(0.05, 5.0)), "offline": draw(st.floats(0.0, 0.7))}
        world["availability"] = {"kind": "blocks"} | blocks
    return world


@examples(45)
@given(rough_worlds(), st.sampled_from(MODES))
def test_virtual_time_never_runs_backwards(world, ranks):
    done = run(NOISY, gifair(0.5, ranks, initial="bootstrap"), world)
    closed = done.table("rounds")["time_s"].to_numpy()
    assert len(closed) == NOISY["stop"]["rounds"]
    assert (np.diff(closed, prepend=0.0) >= 0).all()
    opened = 0.0
    for row in done.table("dispatches").to_pylist():
        assert row["send_s"] >= opened
        opened = row["send_s"]
        assert row["send_s"] <= row["start_s"] <= row["end_s"] <= row["notice_s"], row
        if row["arrival_s"] is not None:
            assert row["end_s"] <= row["arrival_s"] <= row["notice_s"], row
        assert row["notice_s"] <= closed[row["round"] - 1]
        assert (row["outcome"] == "completed") == (row["arrival_s"] is not None)
    for table in ("losses", "ranks", "evaluations", "participation"):
        times = done.table(table)["time_s"].to_numpy()
        assert (np.diff(times) >= 0).all(), table


@examples(45)
@given(rough_worlds(), st.sampled_from(["estimated", "exact"]))
def test_every_dispatch_is_accounted_for_once(world, ranks):
    done = run(NOISY, gifair(0.5, ranks), world)
    rounds = done.table("rounds")
    dispatches = done.table("dispatches").sort_by("dispatch").to_pylist()
    at_the_end = done.table("participation").to_pylist()[-9:]
    assert [row["client"] for row in at_the_end] == list(range(9))
    for row in at_the_end:
        own = [d for d in dispatches if d["client"] == row["client"]]
        ends = Counter(d["outcome"] for d in own)
        assert row["selected"] == len(own) == sum(ends.values())
        assert {o: row[o.replace("-", "_")] for o in OUTCOMES} == {o: ends[o] for o in OUTCOMES}
        assert [d["ordinal"] for d in own] == list(range(len(own)))
        lost = [d for d in own if d["outcome"] != "completed"]
        questions = row["bytes"] - sum(d["bytes_down"] + d["bytes_up"] for d in own)
        assert questions == 0 if ranks == "estimated" else questions >= 0
        assert row["wasted_bytes"] == sum(d["bytes_down"] + d["bytes_up"] for d in lost)
        assert row["busy_s"] == pytest.approx(sum(d["end_s"] - d["start_s"] for d in own))
        assert row["wasted_s"] == pytest.approx(sum(d["end_s"] - d["start_s"] for d in lost))
        assert row["weight"] == pytest.approx(sum(d["weight"] or 0.0 for d in own))
        results = ("loss_local", "loss_received", "weight", "staleness", "arrival_s")
        assert all(d[name] is None for d in lost for name in results)
    by_round = Counter(d["round"] for d in dispatches)
    arrived = Counter(d["round"] for d in dispatches if d["outcome"] == "completed")
    numbers = rounds["round"].to_pylist()
    assert rounds["selected"].to_pylist() == [by_round[c] for c in numbers]
    assert rounds["completed"].to_pylist() == [arrived[c] for c in numbers]
    updates = [d["slots"] for d in dispatches if d["outcome"] == "completed"]
    assert rounds["updates"].to_pylist()[-1] == sum(updates)
    assert [d["dispatch"] for d in dispatches] == list(range(len(dispatches)))


# One run has one answer


@both_problems
def test_the_same_scenario_has_the_same_digest_and_another_seed_another(problem):
    scenario = merge(problem, gifair(0.5, "received"))
    first, again, other = run(scenario), run(scenario), run(scenario, {"seed": 99})
    assert first.digest == again.digest
    assert first.digest != other.digest
    for table in DIGESTED:
        assert first.table(table).equals(again.table(table))


@pytest.mark.parametrize("ranks", MODES)
@both_problems
def test_audits_look_and_do_not_touch(problem, ranks):
    scenario = merge(merge(problem, UNRELIABLE), gifair(0.8, ranks))
    never, always = (watch(merge(scenario, {"audit": {"every": n}})) for n in (0, 1))
    assert same_bits(never.models, always.models)
    for table in DIGESTED:
        if table not in ("ranks", "participation"):
            but = ("H", "delta") if table == "rounds" else ()
            assert same_rows(never.table(table), always.table(table), but=but), table
    assert never.table("ranks").num_rows == 0
    assert never.table("rounds")["H"].null_count == never.table("rounds").num_rows
    assert always.table("rounds")["H"].null_count == 0
    K = never.table("clients").num_rows
    assert never.table("participation").equals(always.table("participation")[-K:])


# What the server tells a client


@pytest.mark.parametrize("ranks", MODES)
def test_a_message_carries_a_product_and_none_of_its_factors(ranks):
    assert [f.name for f in dataclasses.fields(Message)] == ["version", "clock", "tilt"]
    fields = [f.name for f in dataclasses.fields(TrainJob)]
    assert fields == ["id", "client", "ordinal", "message", "steps", "personal"]
    done = watch(merge(NOISY, gifair(0.7, ranks, initial="bootstrap")))
    clients = done.table("clients").to_pylist()
    members = Counter(row["group"] for row in clients)
    lam = done.table("rounds")["lam"][0].as_py()
    rows = done.table("dispatches").to_pylist()
    assert len(rows) == len(done.jobs)
    for job, row in zip(done.jobs, rows, strict=True):
        client, message = clients[job.client], job.message
        assert (job.client, job.ordinal) == (row["client"], row["ordinal"])
        assert message.version == row["version"] == row["round"] - 1
        assert message.clock == row["version"]  # 3 updates of 3 in each round: c counts rounds
        product = lam * row["rank"] / (client["p"] * members[client["group"]])
        assert message.tilt == row["tilt"] == pytest.approx(product, rel=1e-12)
        assert type(message.tilt) is float
        assert job.steps is None  # all of them
    assert any(row["rank"] for row in rows)
    # It is charged as one scalar of 8 bytes beside the model of 3 float64.
    model = 0 if ranks.startswith("exact") else 24  # they had the model when they were asked
    assert {row["bytes_down"] for row in rows} == {model + 8}


# Aggregation


def test_paper_literal_warns_and_sums_models_instead_of_changes():
    scenario = merge(NOISY, {"aggregator": {"kind": "paper-literal"}, "stop": {"rounds": 1}})
    scenario = merge(scenario, {"solver": {"keep": True}})
    with pytest.warns(UserWarning, match="paper-literal"):
        done = run(scenario)
    p = done.table("clients")["p"].to_numpy()
    took_part = done.table("dispatches")["client"].to_pylist()
    K, m = 9, 3
    assert len(took_part) == m
    literal = K / m * sum(p[k] * done.outcome.personal[k] for k in took_part)
    assert_allclose(done.outcome.theta, literal, rtol=1e-12)
    share = K / m * sum(p[k] for k in took_part)
    assert abs(share - 1) > 0.01  # the weights do not sum to 1, which is what is wrong with it
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sound = run(merge(scenario, {"aggregator": {"kind": "mean"}}))
    assert_allclose(literal - sound.outcome.theta, (share - 1) * np.ones(3), rtol=1e-9)


def with_buffers(task: Any) -> nn.Module:
    """A linear model behind a layer that keeps running statistics."""
    features = task.input_shape[0]
    return nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, task.classes))


def test_buffers_of_a_module_take_the_mean_of_the_clients_whatever_the_weights_sum_to():
    model = {"kind": f"{__name__}:with_buffers", "dtype": "float64"}
    uniform = {"sampling": {"scheme": "uniform", "cohort": 4}}
    done = watch(merge(SOFTMAX | {"model": model}, uniform))
    trained = done.outcome.layout.trainable
    assert 0 < trained < done.outcome.layout.size
    rows = done.table("dispatches").to_pylist()
    uneven = 0
    for c in range(SOFTMAX["stop"]["rounds"]):
        weights = np.array([row["weight"] for row in rows if row["round"] == c + 1])
        locals_ = np.array(
            [done.replies[job.id].model for job in done.jobs if job.message.version == c]
        )
        before, after = done.models[c], done.models[c + 1]
        change = weights @ (locals_ - before)
        assert_allclose(after[:trained], (before + change)[:trained], rtol=1e-12, atol=1e-14)
        mean = weights @ locals_ / weights.sum()
        assert_allclose(after[trained:], mean[trained:], rtol=1e-12, atol=1e-14)
        assert np.ptp(locals_[:, trained:], axis=0).max() > 0.01
        uneven += abs(weights.sum() - 1) > 0.01
    assert uneven


@pytest.mark.parametrize("aggregator", [Mean(), PaperLiteral()])
@given(st.data())
def test_any_aggregator_keeps_buffers_within_the_values_of_the_clients(aggregator, data):
    n, trained, buffers = (data.draw(st.integers(1, 5)) for _ in range(3))
    g = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    theta, models = g.standard_normal(trained + buffers), g.standard_normal((n, trained + buffers))
    weights = g.uniform(0.01, 2.0, n)
    bases = g.standard_normal((n, trained + buffers))  # what each of them started from
    out = aggregator(theta, list(models), list(bases), weights, trained)
    literal = isinstance(aggregator, PaperLiteral)
    start = np.zeros(trained) if literal else theta[:trained]
    changes = models[:, :trained] - (0 if literal else bases[:, :trained])
    assert_allclose(out[:trained], start + weights @ changes, atol=1e-12)
    assert_allclose(out[trained:], weights @ models[:, trained:] / weights.sum(), atol=1e-12)
    assert (out[trained:] >= models[:, trained:].min(axis=0) - 1e-12).all()
    assert (out[trained:] <= models[:, trained:].max(axis=0) + 1e-12).all()
    assert_array_equal(aggregator(theta, [], [], np.zeros(0), trained), theta)
