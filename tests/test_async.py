"""Policies without rounds, and GIFAIR under all of them: golden values, invariants, the known bias.

I1 … I10 are the invariants of asynchronous GIFAIR. They are checked on random populations of
quadratic clients, whose losses, and so ranks and δ, are exact.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from watching import watch

import gifair_ray
from gifair_ray import engine
from gifair_ray.aggregators.mean import Mean
from gifair_ray.aggregators.mixing import Mixing
from gifair_ray.discounts import Discount
from gifair_ray.losses import LossTable
from gifair_ray.policies._stream import Stream
from gifair_ray.policies._together import Together
from gifair_ray.scenario import merge

INF = float("inf")
IN_NO_TIME = {
    "sample_s": 0.0, "latency_s": 0.0, "up_mbps": INF, "down_mbps": INF, "eval_fraction": 0.0,
}  # fmt: skip


def run(*tables):
    table = {}
    for change in tables:
        table = merge(table, change)
    return gifair_ray.run(table, backend="local")


def same(one, other, table, *, but=()):
    """The same rows, columns `but` for some."""
    return one.table(table).drop(list(but)).equals(other.table(table).drop(list(but)))


# Golden values


@pytest.mark.parametrize(("steps", "expected"), [(1, 1.2), (2, 1.37), (3, 1.5145)])
def test_local_steps_of_fedprox(steps, expected):
    found = run(
        {
            "algorithm": "fedprox",
            "data": {
                "source": "quadratic", "problem": "own", "A": [[[1.0]]], "b": [[3.0]],
                "sizes": [1], "groups": [0],
            },
            "model": {"kind": "quadratic", "init": 1.0},
            "work": {"steps": steps, "schedule": {"lr": 0.1}},
            "solver": {"mu": 0.5},
            "sampling": {"scheme": "all"},
            "stop": {"rounds": 1},
        }
    )  # fmt: skip
    assert found.outcome.theta.item() == pytest.approx(expected, abs=1e-12)


def test_discounts_of_fedasync():
    lags = np.array([0, 1, 4, 5, 8])
    alpha = 0.6 * Discount(kind="polynomial").s(lags)
    assert alpha == pytest.approx([0.6, 0.424264, 0.268328, 0.244949, 0.2], abs=5e-7)
    assert Discount(kind="constant").s(lags).tolist() == [1.0] * 5
    hinge = Discount(kind="hinge", a=10.0, b=4).s(lags)
    assert hinge == pytest.approx([1, 1, 1, 1 / 11, 1 / 41])


def test_a_sequence_of_fedasync():
    theta, seen = np.array([1.0]), []
    for model, lag in ((2.0, 0), (0.0, 1), (3.0, 3)):
        alpha = 0.6 * Discount().s(np.array([lag]))
        theta = Mixing()(theta, [np.array([model])], [np.array([-7.0])], alpha, 1)
        seen.append(theta.item())
    assert seen == pytest.approx([1.6, 0.921177, 1.544824], abs=5e-7)


@pytest.mark.parametrize(("kind", "expected"), [("polynomial", 0.830474), ("constant", 0.8)])
def test_a_buffer_of_fedbuff(kind, expected):
    bases = [np.array([5.0]), np.array([6.0]), np.array([7.0])]  # wherever they started
    descents, lags = (0.5, -0.2, 0.3), np.array([0, 1, 3])
    models = [base - descent for base, descent in zip(bases, descents, strict=True)]
    weights = Discount(kind=kind).s(lags) / 3
    assert Mean()(np.array([1.0]), models, bases, weights, 1) == pytest.approx(expected, abs=5e-7)


# Random scenarios


@st.composite
def populations(draw):
    """Data, model, work and a seed; three to seven clients."""
    K = draw(st.integers(3, 7))
    return {
        "seed": draw(st.integers(0, 10_000)),
        "data": {
            "source": "quadratic", "problem": "random", "clients": K,
            "dim": draw(st.integers(1, 2)), "random_groups": draw(st.integers(2, min(K, 4))),
            "noise": draw(st.sampled_from([0.0, 0.1])),
        },
        "model": {"kind": "quadratic", "init": 1.0},
        "work": {"steps": draw(st.integers(1, 3)), "schedule": {"lr": 0.05}},
        "sampling": {
            "scheme": draw(st.sampled_from(["p-replace", "uniform", "all"])),
            "cohort": draw(st.integers(1, 3)),
        },
        "stop": {"rounds": draw(st.integers(2, 8))},
        "evaluation": {"every": 2, "splits": ["train"]},
        "audit": {"every": 1},
    }  # fmt: skip


speeds = st.sampled_from(
    [
        0.01,  # many arrive at the same moment
        {"dist": "uniform", "low": 0.001, "high": 0.02},
        {"dist": "lognormal", "median": 0.01, "sigma": 1.0},
    ]
)
FREE_MESSAGES = {"up_mbps": INF, "down_mbps": INF, "eval_fraction": 0.0}


@st.composite
def fleets(draw, dropouts=(0.0, 0.2)):
    """Devices on which a scalar more and an evaluation cost nothing."""
    return {
        **FREE_MESSAGES,
        "sample_s": draw(speeds),
        "latency_s": draw(st.sampled_from([0.0, 0.05])),
        "jitter": draw(st.sampled_from([0.0, 0.3])),
        "dropout": draw(st.sampled_from(dropouts)),
    }


availabilities = st.sampled_from(
    [{"kind": "always"}, {"kind": "markov", "on_s": 4.0, "off_s": 1.0}]
)


@st.composite
def policies(draw):
    """Any policy with any options."""
    kind = draw(st.sampled_from(["sync", "deadline", "overselect", "fedbuff", "fedasync", "tiers"]))
    out = {"kind": kind}
    failures = draw(st.sampled_from(["slots", "survivors", "corrected"]))
    if draw(st.booleans()):
        out |= {"timeout_s": 3.0, "notice": draw(st.sampled_from(["timeout", "disconnect"]))}
    out |= {"failures": failures, "busy_asked": draw(st.sampled_from(["answer", "wait", "skip"]))}
    if kind == "deadline":
        out |= draw(st.sampled_from([{"deadline_s": 0.4}, {"quantile": 0.5}]))
        out |= draw(st.sampled_from([{}, {"late": "carry"}, {"partial": True}]))
    if kind == "tiers":
        out["tiers"] = draw(st.integers(1, 3))
    if kind in ("fedbuff", "fedasync"):
        out |= {
            "concurrency": draw(st.integers(1, 5)),
            "busy_drawn": draw(st.sampled_from(["skip", "queue"])),
            "refill": draw(st.sampled_from(["arrival", "update"])),
            "at_end": draw(st.sampled_from(["discard", "flush"])),
            "exact": draw(st.sampled_from(["blocking", "pipelined"])),
        }
    if kind == "fedbuff":
        out["buffer"] = draw(st.integers(1, 5))
    if kind in ("fedbuff", "tiers", "deadline"):
        out |= {
            "rates": draw(st.sampled_from(["design", "empirical"])),
            "own_discount": draw(st.booleans()),
        }
    if kind not in ("sync", "overselect"):
        out["discount"] = {"kind": draw(st.sampled_from(["constant", "polynomial", "hinge"]))}
        out["max_staleness"] = draw(st.sampled_from([100, 3]))
    return out


def under(policy):
    """The policy, and the aggregator that goes with it."""
    kind = "mixing" if policy["kind"] == "fedasync" else "mean"
    return {"policy": policy, "aggregator": {"kind": kind}}


def gifair(ranks, fraction=0.5, **more):
    weighting = {"kind": "gifair", "ranks": ranks, "lambda_fraction": fraction, **more}
    return {"algorithm": "gifair-global", "weighting": weighting}


RANKS = st.sampled_from(["estimated", "received", "exact-participants", "exact"])
RESULTS = ("rank", "loss_local", "loss_received", "bytes_down", "bytes_up")


# Invariants


@examples(40)
@given(
    population=populations(),
    ranks=RANKS | st.none(),
    dropout=st.sampled_from([0.0, 0.3]),
    failures=st.sampled_from(["slots", "survivors", "corrected"]),
)
def test_a_buffer_of_a_whole_cohort_that_takes_no_time_is_a_round(
    population, ranks, dropout, failures
):
    # I1
    table = merge(population, {} if ranks is None else gifair(ranks))
    table = merge(table, {"devices": {**IN_NO_TIME, "dropout": dropout}})
    sampling, K = table["sampling"], table["data"]["clients"]
    m = {"p-replace": sampling["cohort"], "uniform": min(sampling["cohort"], K), "all": K}
    m = m[sampling["scheme"]]
    sync = run(table, {"policy": {"kind": "sync", "failures": failures}})
    buffered = run(
        table,
        {
            "policy": {
                "kind": "fedbuff", "buffer": m, "concurrency": m, "refill": "update",
                "discount": {"kind": "constant"}, "failures": failures,
            }
        },
    )  # fmt: skip
    assert buffered.outcome.theta.tobytes() == sync.outcome.theta.tobytes()
    for name in ("dispatches", "rounds", "evaluations", "groups", "ranks", "participation"):
        assert same(buffered, sync, name), name


@examples(40)
@given(population=populations(), fleet=fleets(), policy=policies(), calendar=availabilities,
       ranks=st.sampled_from(["estimated", "received"]))  # fmt: skip
def test_without_a_penalty_gifair_is_the_plain_algorithm(
    population, fleet, policy, calendar, ranks
):
    # I2, at zero cost of evaluations and messages
    table = merge(population, {"devices": fleet, "availability": calendar})
    plain = run(table, under(policy))
    fair = run(table, gifair(ranks, 0.0), under(policy))
    assert fair.outcome.theta.tobytes() == plain.outcome.theta.tobytes()
    assert same(fair, plain, "dispatches", but=RESULTS)
    assert same(fair, plain, "evaluations")
    assert fair.table("dispatches")["tilt"].to_pylist() == [0.0] * len(fair.table("dispatches"))


@examples(20)
@given(population=populations(), fleet=fleets(), alpha=st.sampled_from([0.6, 1.0, 0.1]),
       concurrency=st.integers(1, 3))  # fmt: skip
def test_mixing_is_a_buffer_of_one_where_nothing_is_stale(population, fleet, alpha, concurrency):
    # I3
    table = merge(population, {"devices": fleet, "sampling": {"scheme": "p-replace"}})
    table["stop"] = {"rounds": 12}
    common = {"concurrency": concurrency, "failures": "survivors"}
    mixed = run(table, under({"kind": "fedasync", "alpha": alpha, **common}))
    buffered = run(table, under({"kind": "fedbuff", "buffer": 1, "server_lr": alpha, **common}))
    lags = mixed.table("dispatches")["staleness"].drop_null().to_pylist()
    equal = mixed.outcome.theta.tobytes() == buffered.outcome.theta.tobytes()
    assert equal == (max(lags) == 0)
    if concurrency == 1:
        assert equal


@examples(40)
@given(population=populations(), fleet=fleets(), policy=policies(), calendar=availabilities,
       ranks=RANKS, fraction=st.sampled_from([0.3, 0.9]))  # fmt: skip
def test_multipliers_and_audits_under_any_policy(
    population, fleet, policy, calendar, ranks, fraction
):
    table = merge(population, {"devices": fleet, "availability": calendar})
    found = run(table, gifair(ranks, fraction), under(policy))
    clients = found.table("clients").to_pylist()
    members = Counter(row["group"] for row in clients)
    # I4: 0 < m_k < 2, and the ranks in use sum to 0 over groups, the weights c_k to 1.
    tilts = found.table("dispatches")["tilt"].to_numpy()
    assert (np.abs(tilts) < 1).all()
    used = {}
    for row in found.table("ranks").to_pylist():
        if row["r_used"] is not None:
            used.setdefault(row["version"], []).append(row["r_used"])
    lam = fraction * min(r["p"] * members[r["group"]] for r in clients) / (len(members) - 1)
    for r in used.values():
        assert len(r) == len(members)  # one audit of a version
        assert sum(r) == 0
        c = [k["p"] + lam * r[k["group"]] / members[k["group"]] for k in clients]
        assert math.fsum(c) == pytest.approx(1)
        assert min(c) > 0
    # I5
    deltas = [d for d in found.table("rounds")["delta"].to_pylist() if d is not None]
    assert all(delta >= -1e-12 for delta in deltas)


@examples(40)
@given(population=populations(), fleet=fleets(dropouts=(0.0,)),
       policy=st.sampled_from(["sync", "overselect", "fedbuff", "fedasync"]),
       refill=st.sampled_from(["arrival", "update"]),
       busy=st.sampled_from(["answer", "wait"]))  # fmt: skip
def test_exact_ranks_are_exact_where_everybody_answers(population, fleet, policy, refill, busy):
    # I5 and I9: they depend on the model and on nothing else, whoever is slow
    options = {"refill": refill, "concurrency": 3} if policy.startswith("fed") else {}
    found = run(
        population, {"devices": fleet}, gifair("exact"),
        under({"kind": policy, "busy_asked": busy, **options}),
    )  # fmt: skip
    audits = found.table("ranks").to_pylist()
    assert all(row["r_used"] in (row["r_exact"], None) for row in audits)
    deltas = [d for d in found.table("rounds")["delta"].to_pylist() if d is not None]
    assert deltas == pytest.approx([0.0] * len(deltas), abs=1e-12)
    groups = found.table("clients")["group"].to_pylist()
    exact = {(row["version"], row["group"]): row["r_exact"] for row in audits}
    for row in found.table("dispatches").to_pylist():
        assert row["rank"] == exact[row["version"], groups[row["client"]]]


@examples(30)
@given(population=populations(), fleet=fleets(), policy=policies(), ranks=RANKS)
def test_the_order_of_arrivals_in_a_buffer_is_irrelevant(population, fleet, policy, ranks):
    # I6
    policy = {**policy, "kind": "fedbuff", "buffer": 4}
    for name in ("deadline_s", "quantile", "late", "partial", "tiers"):
        policy.pop(name, None)
    table = merge(population, {"devices": fleet})
    usual = run(table, gifair(ranks), under(policy))
    with pytest.MonkeyPatch.context() as patch:
        update = Stream._update

        def backwards(self, world, state):
            buffer = state.policy.buffer
            slots = [int(state.flights["slots"][row]) for row, _ in buffer]
            if sum(slots[:-1]) < 4 and sum(slots[1:]) < 4:  # all of them are taken, either way
                state.policy.buffer = buffer[::-1]
            return update(self, world, state)

        patch.setattr(Together, "_update", backwards)
        assert run(table, gifair(ranks), under(policy)).digest == usual.digest


@examples(100)
@given(losses=st.lists(st.integers(0, 64).map(lambda n: n / 8), min_size=6, max_size=6),
       scale=st.sampled_from([0.25, 1.0, 8.0]), shift=st.integers(-4, 4), group=st.integers(0, 2),
       more=st.integers(1, 9))  # fmt: skip
def test_ranks_are_those_of_any_scale(losses, scale, shift, group, more):
    # I7
    groups, clients = np.array([0, 0, 1, 1, 2, 2]), np.arange(6)

    def ranks(values):
        table = LossTable.empty(groups, 3)
        table.learn(clients, np.array(values, dtype=float), np.zeros(6, dtype=np.int64))
        return table.ranks()

    before = ranks(losses)
    assert ranks([scale * x + shift for x in losses]).tolist() == before.tolist()
    raised = ranks([x + more * (g == group) for x, g in zip(losses, groups, strict=True)])
    assert raised[group] >= before[group]


@examples(40)
@given(population=populations(), fleet=fleets(), policy=policies(), calendar=availabilities,
       ranks=RANKS | st.none())  # fmt: skip
def test_every_dispatch_ends_once_and_time_never_runs_backwards(
    population, fleet, policy, calendar, ranks
):
    # I8
    table = merge(population, {"devices": fleet, "availability": calendar})
    table = merge(table, {} if ranks is None else gifair(ranks))
    found = run(table, under(policy))
    rows = sorted(found.table("dispatches").to_pylist(), key=lambda row: row["dispatch"])
    assert [row["dispatch"] for row in rows] == list(range(len(rows)))
    ordinals = Counter()
    for row in rows:
        assert row["ordinal"] == ordinals[row["client"]]
        ordinals[row["client"]] += 1
        assert row["send_s"] <= row["start_s"] <= row["end_s"] <= row["notice_s"]
        assert (row["staleness"] is None) == (row["outcome"] != "completed")
        assert row["staleness"] is None or row["staleness"] >= 0
        if row["outcome"] == "completed":
            assert row["end_s"] <= row["arrival_s"] == row["notice_s"]
    last = found.table("participation").to_pylist()[-table["data"]["clients"] :]
    for row in last:
        mine = Counter(r["outcome"] for r in rows if r["client"] == row["client"])
        assert row["selected"] == mine.total() == ordinals[row["client"]]
        for outcome, n in mine.items():
            assert row[outcome.replace("-", "_")] == n
    for name in ("rounds", "losses", "evaluations", "ranks", "participation"):
        moments = found.table(name)["time_s"].to_pylist()
        assert moments == sorted(moments), name
    assert found.table("rounds")["round"].to_pylist() == list(
        range(1, len(found.table("rounds")) + 1)
    )
    if ranks is None or "exact" not in ranks:  # questions are charged beside the dispatches
        final = found.table("rounds").to_pylist()
        charged = sum(row["bytes_down"] + row["bytes_up"] for row in rows)
        assert sum(row["bytes"] for row in last) == charged
        assert not final or final[-1]["bytes_down"] + final[-1]["bytes_up"] <= charged
    assert run(table, under(policy)).digest == found.digest  # and all of it again


@examples(40)
@given(population=populations(), fleet=fleets(), policy=policies(), calendar=availabilities,
       kept=st.sampled_from(["unchanged", "kept"]))  # fmt: skip
def test_personal_models_do_not_change_the_global_one(population, fleet, policy, calendar, kept):
    # I10
    table = merge(population, {"devices": fleet, "availability": calendar})
    shared = run(table, gifair("estimated"), under(policy))
    per = {"algorithm": "gifair-per", "weighting": {"lambda_fraction": 0.5}}
    own = run(table, per, under({**policy, "discarded": kept}))
    assert own.outcome.theta.tobytes() == shared.outcome.theta.tobytes()
    for name in ("dispatches", "rounds", "losses", "ranks", "participation"):
        assert same(own, shared, name), name
    completed = {
        row["client"]
        for row in shared.table("dispatches").to_pylist()
        if row["outcome"] == "completed"
    }
    assert completed <= own.outcome.personal.keys()
    if kept == "unchanged":
        assert completed == own.outcome.personal.keys()


@examples(25)
@given(
    population=populations(),
    fleet=fleets(),
    times=st.sampled_from([None, (1.0, 2.0, 3.0), (0.1, 0.2, 0.3), (0.3, 0.7, 2.1)]),
    buffer=st.integers(1, 6),
    concurrency=st.integers(1, 7),
    failures=st.sampled_from(["slots", "survivors", "corrected"]),
    evaluation=st.sampled_from(
        [{"every": 1}, {"every": 0}, {"every": 5}, {"every": 7, "unit": "updates"},
         {"every": 2.5, "unit": "virtual_s"}]
    ),
    stop=st.sampled_from([{"rounds": 12}, {"updates": 31}, {"rounds": 9, "updates": 40}]),
)  # fmt: skip
def test_arrivals_that_are_handled_together_come_to_the_same(
    population, fleet, times, buffer, concurrency, failures, evaluation, stop
):
    table = merge(population, {"devices": fleet, "evaluation": evaluation})
    table["stop"] = stop
    if population["sampling"]["scheme"] == "all":
        table["sampling"] = {"scheme": "uniform", "cohort": 2}
    if times is not None:  # whose sums and multiples meet again and again
        groups = {str(g): {"sample_s": times[g] / 60} for g in range(2)}
        table["data"] = {
            "source": "quadratic", "problem": "own", "A": [[[1.0]]] * 6,
            "b": [[float(k)] for k in range(6)], "sizes": [60] * 6, "groups": [0, 1, 2] * 2,
        }  # fmt: skip
        table["devices"] = {**fleet, "jitter": 0.0, "sample_s": times[2] / 60, "groups": groups}
    policy = under(
        {"kind": "fedbuff", "buffer": buffer, "concurrency": concurrency, "failures": failures}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "STEP_S", math.inf)  # whatever the time, as many as can be
        usual = run(table, policy)
        patch.setattr(Together, "gather", lambda *_: [])
        one_by_one = run(table, policy)
    for name in ("rounds", "dispatches", "evaluations", "participation"):
        assert same(usual, one_by_one, name), name
    assert usual.digest == one_by_one.digest


def test_several_updates_are_made_of_arrivals_that_were_gathered():
    """A large crowd under way, and short buffers: a step of the loop is many server updates."""
    table = {
        "algorithm": "fedbuff",
        "data": {"source": "synthetic", "clients": 400, "samples": 8, "features": 3, "classes": 2},
        "model": {"kind": "softmax"},
        "work": {"steps": 2, "batch_size": 4},
        "policy": {"kind": "fedbuff", "concurrency": 100, "buffer": 2},
        "devices": {"sample_s": {"dist": "lognormal", "median": 0.05, "sigma": 0.3}},
        "evaluation": {"every": 30},
        "stop": {"rounds": 100},
    }
    updates, handle = [], Together.handle_together

    def counted(self, world, state, events, results):
        before = state.version
        commands = handle(self, world, state, events, results)
        updates.append(state.version - before)
        return commands

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "STEP_S", math.inf)
        patch.setattr(Together, "handle_together", counted)
        usual = run(table)
        patch.setattr(Together, "gather", lambda *_: [])
        one_by_one = run(table)
    assert max(updates) > 4
    assert usual.digest == one_by_one.digest


# The bias of clients that come back at their own pace, and its correction


def q1(lam, correction, rounds, start=0.2):
    """Q1, durations 1 : 4, a buffer of two, clients that restart themselves: θ of each version."""
    rates, own = {
        "none": ("design", False),
        "rate": ("empirical", False),
        "rate+stale": ("empirical", True),
    }[correction]
    watched = watch(
        {
            "algorithm": "gifair-global",
            "data": {"source": "quadratic"},
            "model": {"kind": "quadratic", "init": start},
            "work": {"steps": 1, "schedule": {"lr": 0.004}},
            "sampling": {"scheme": "all"},
            "weighting": {"lambda_value": lam, "ranks": "received"},
            "policy": {"kind": "fedbuff", "buffer": 2, "rates": rates, "own_discount": own},
            "devices": {**IN_NO_TIME, "sample_s": 1.0, "groups": {"1": {"sample_s": 4.0}}},
            "stop": {"rounds": rounds},
            "evaluation": {"every": 0},
            "audit": {"every": 0},
        }
    )
    return watched.models[:, 0]


@pytest.mark.parametrize(
    ("lam", "correction", "limit"),
    [(0.0, "none", 0.03642), (0.0, "rate+stale", 0.20043), (0.1, "rate", 0.18493)],
)
def test_corrections_of_the_bias_towards_the_fast(lam, correction, limit):
    tail = q1(lam, correction, 800, start=limit)[400:]
    assert tail.mean() == pytest.approx(limit, abs=0.006)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("lam", "none", "rate", "both"),
    [
        (0.0, 0.03642, 0.13139, 0.20043),
        (0.1, 0.05366, 0.18493, 0.27326),
        (0.3, 0.13135, 0.33139, 0.33293),
    ],
)
def test_the_whole_table_of_corrections(lam, none, rate, both):
    for correction, limit in (("none", none), ("rate", rate), ("rate+stale", both)):
        tail = q1(lam, correction, 6000)[3001:]
        assert tail.mean() == pytest.approx(limit, abs=0.004), correction
