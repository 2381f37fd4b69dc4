"""Whole rounds in virtual time, with hand-computed closing times, bytes, weights and models.

Three clients with losses F_k = ½ a_k (θ − b_k)² on the real line. Unless a test says otherwise,

    client   n_k   a_k   b_k   compute (2 full-batch steps, 0.5 s a sample)
    0         4     1     0    4 s
    1         2     2     1    2 s
    2         2     1     3    2 s

a latency of 0.25 s, 8 bytes down in 1 s, 8 bytes up in 2 s. Model and scalars have 8 bytes each.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest

import gifair_ray
from gifair_ray import draws
from gifair_ray.availability import Availability
from gifair_ray.errors import RunFailed
from gifair_ray.scenario import merge

A, B, N = (1.0, 2.0, 1.0), (0.0, 1.0, 3.0), (4, 2, 2)
P = np.array(N) / 8
LR, STEPS, THETA = 0.1, 2, 2.0
DONE = (7.5, 5.5, 5.5)  # when each client's reply to FedAvg arrives, from the start of the round

BASE = {
    "algorithm": "fedavg",
    "seed": 9,
    "data": {
        "source": "quadratic",
        "problem": "own",
        "A": [[[a]] for a in A],
        "b": [[b] for b in B],
        "sizes": list(N),
        "groups": [0, 1, 2],
    },
    "model": {"kind": "quadratic", "init": THETA},
    "work": {"steps": STEPS, "schedule": {"lr": LR}},
    "sampling": {"scheme": "all"},
    "devices": {
        "sample_s": 0.5,
        "eval_fraction": 0.25,
        "down_mbps": 64e-6,
        "up_mbps": 32e-6,
        "latency_s": 0.25,
    },
    "stop": {"rounds": 1},
    "evaluation": {"every": 0, "splits": ["train"]},
    "audit": {"every": 0},
}


class Absent(Availability):
    """Offline from one moment to another, by client number."""

    kind: Literal["test_rounds:Absent"] = "test_rounds:Absent"
    away: dict[int, list[tuple[float, float]]]

    def build(self, seed, population):
        return self

    def online(self, clients, t):
        away = [self.away.get(k, []) for k in clients.tolist()]
        return np.array([not any(a <= t < b for a, b in spans) for spans in away], dtype=bool)

    def until(self, clients, t, horizon):
        found = np.full(len(clients), np.inf)
        for i, k in enumerate(clients.tolist()):
            starts = [max(a, t[i]) for a, b in self.away.get(k, []) if b > t[i]]
            found[i] = min((s for s in starts if s < horizon[i] or s == t[i]), default=np.inf)
        return found

    def next_online(self, t, clients=None):
        moments = [t, *(b for spans in self.away.values() for _, b in spans if b > t)]
        those = np.arange(len(N)) if clients is None else clients
        return min((m for m in moments if self.online(those, m).any()), default=math.inf)


def absent(**away):
    """Clients by letter: a is client 0."""
    spans = {"abc".index(name): times for name, times in away.items()}
    return {"kind": "test_rounds:Absent", "away": spans}


def run(**changes):
    return gifair_ray.run(merge(BASE, changes), backend="local")


def column(found, table, name):
    """A column; dispatches in the order in which they were sent, not in which they ended."""
    rows = found.table(table)
    if table == "dispatches":
        rows = rows.sort_by("dispatch")
    return rows[name].to_pylist()


def times(found):
    """When each round closed."""
    return pytest.approx(column(found, "rounds", "time_s"), rel=1e-9)


def outcomes(found):
    return column(found, "dispatches", "outcome")


def theta(found):
    return found.outcome.theta.item()


def local(theta, k, eta=LR, m=1.0):
    """The client's model after its steps, by hand."""
    for _ in range(STEPS):
        theta = theta - eta * m * A[k] * (theta - B[k])
    return theta


def step(theta, weights, eta=LR, m=(1.0, 1.0, 1.0)):
    """θ + Σ ω_k Δ_k."""
    return theta + sum(w * (local(theta, k, eta, m[k]) - theta) for k, w in weights.items())


def loss(theta, k):
    return 0.5 * A[k] * (theta - B[k]) ** 2


GIFAIR = {"algorithm": "gifair-global"}
EVERYBODY = dict(enumerate(P.tolist()))


def drop(*clients, **policy):
    """These clients always drop out."""
    groups = {str(k): {"dropout": 1.0} for k in clients}
    return {"devices": {"groups": groups}, "policy": policy}


def drop_time(client, ordinal=0, send=0.0):
    """When it does, in the middle of its computation."""
    when = draws.uniform(BASE["seed"], "dropout/when", client, ordinal)[0]
    return send + 1.25 + when * N[client] * STEPS * 0.5


# When rounds close


def test_nobody_fails():
    found = run(stop={"rounds": 3})
    assert times(found) == [7.5, 15.0, 22.5]
    assert column(found, "dispatches", "arrival_s")[:3] == pytest.approx(DONE)
    assert column(found, "dispatches", "send_s") == pytest.approx([0] * 3 + [7.5] * 3 + [15] * 3)
    assert set(outcomes(found)) == {"completed"}
    assert column(found, "rounds", "bytes_down") == [24, 48, 72]
    assert column(found, "rounds", "bytes_up") == [24, 48, 72]
    assert column(found, "participation", "busy_s") == pytest.approx([12, 6, 6])
    assert column(found, "participation", "wasted_s") == [0, 0, 0]


def test_a_disconnect_is_noticed_a_latency_later():
    slow = {"groups": {"0": {"dropout": 1.0, "sample_s": 2.0}}}  # 16 s of computation
    found = run(devices=slow, stop={"rounds": 2})
    when = draws.uniform(BASE["seed"], "dropout/when", 0, np.arange(2))
    first = 1.25 + 16 * when[0] + 0.25
    second = first + 1.25 + 16 * when[1] + 0.25
    assert first > 5.5
    assert times(found) == [first, second]
    assert outcomes(found) == ["dropped", "completed", "completed"] * 2
    assert column(found, "dispatches", "notice_s")[::3] == pytest.approx([first, second])
    assert column(found, "dispatches", "arrival_s")[::3] == [None, None]


def test_a_silent_loss_occupies_its_slot_until_the_timeout():
    found = run(**drop(2, notice="timeout", timeout_s=40.0), stop={"rounds": 2})
    assert times(found) == [40.0, 80.0]
    assert column(found, "dispatches", "notice_s")[2] == 40.0
    assert column(found, "dispatches", "end_s")[2] == pytest.approx(drop_time(2))


def test_if_all_drop_the_round_ends_at_the_timeout_and_the_model_stays():
    found = run(**drop(0, 1, 2, notice="timeout", timeout_s=9.0), stop={"rounds": 3})
    assert times(found) == [9.0, 18.0, 27.0]
    assert theta(found) == THETA
    assert column(found, "rounds", "round") == [1, 2, 3]
    assert column(found, "rounds", "completed") == [0, 0, 0]
    assert column(found, "rounds", "updates") == [0, 0, 0]
    assert column(found, "rounds", "weight_sum") == [0, 0, 0]
    assert column(found, "rounds", "step_norm") == [0, 0, 0]
    assert column(found, "dispatches", "version") == [0] * 3 + [1] * 3 + [2] * 3
    assert column(found, "dispatches", "weight") == [None] * 9
    assert column(found, "dispatches", "ordinal") == [0] * 3 + [1] * 3 + [2] * 3


def test_all_drop_and_all_disconnect():
    found = run(**drop(0, 1, 2))
    assert times(found) == [max(drop_time(k) for k in range(3)) + 0.25]
    assert theta(found) == THETA


def test_the_server_does_not_wait_for_the_late():
    found = run(policy={"timeout_s": 6.0})
    assert times(found) == [6.0]
    assert outcomes(found) == ["late", "completed", "completed"]
    assert theta(found) == pytest.approx(step(THETA, {1: P[1], 2: P[2]}), rel=1e-14)
    # It was in the middle of its upload: its bytes are spent, and all of its work is wasted.
    assert column(found, "dispatches", "bytes_up") == [8, 8, 8]
    assert column(found, "participation", "wasted_s") == pytest.approx([4, 0, 0])
    assert column(found, "participation", "wasted_bytes") == [16, 0, 0]


def test_what_a_failure_costs():
    found = run(**drop(0))
    spent = drop_time(0) - 1.25
    assert column(found, "dispatches", "bytes_down") == [8, 8, 8]
    assert column(found, "dispatches", "bytes_up") == [0, 8, 8]
    assert column(found, "rounds", "bytes_up") == [16]
    assert column(found, "participation", "busy_s") == pytest.approx([spent, 2, 2])
    assert column(found, "participation", "wasted_s") == pytest.approx([spent, 0, 0])
    assert column(found, "participation", "bytes") == [8, 16, 16]
    assert column(found, "participation", "wasted_bytes") == [8, 0, 0]
    assert column(found, "participation", "dropped") == [1, 0, 0]
    for name in ("loss_local", "loss_received", "weight", "staleness"):
        assert column(found, "dispatches", name)[0] is None


def test_going_offline_in_the_middle_of_a_round():
    # Client 0 leaves in its computation, client 1 in its upload.
    found = run(availability=absent(a=[(4.0, 6.0)], b=[(5.0, 20.0)]), stop={"rounds": 2})
    assert outcomes(found)[:3] == ["offline", "offline", "completed"]
    assert column(found, "dispatches", "notice_s")[:3] == pytest.approx([4.25, 5.25, 5.5])
    assert column(found, "dispatches", "bytes_up")[:3] == [0, 8, 8]
    # At 5.5 only client 2 is there.
    assert column(found, "dispatches", "client")[3:] == [2]
    assert times(found) == [5.5, 11.0]
    busy = column(found, "participation", "busy_s")
    assert busy == pytest.approx([2.75, 2, 4])


def test_nobody_is_online_for_a_while():
    spans = [(0.0, 100.0), (105.0, 200.0)]
    found = run(
        availability=absent(a=spans, b=spans, c=[*spans, (200.0, 300.0)]), stop={"rounds": 3}
    )
    # At 100 all are asked, and lost at 105; at 200 client 2 is still away.
    assert times(found) == [105.25, 207.5, 215.0]
    assert outcomes(found) == ["offline"] * 3 + ["completed"] * 4
    assert column(found, "dispatches", "send_s")[0] == 100.0
    assert column(found, "dispatches", "client")[3:] == [0, 1, 0, 1]


def test_a_run_in_which_nobody_is_ever_online_again_says_so():
    never = [(50.0, math.inf)]
    with pytest.raises(RunFailed, match=r"from 50\.25 s on, no client is ever online again"):
        run(availability=absent(a=never, b=never, c=never), stop={"rounds": 100})


# Losses: what asking for them costs


def test_a_reported_loss_is_paid_for_in_time_and_bytes():
    # + a scalar down, a scalar up, and an evaluation: 8 + ¼·4 passes for client 0
    for ranks in ("estimated", "received"):
        found = run(**GIFAIR, weighting={"lambda_fraction": 0.5, "ranks": ranks})
        assert times(found) == [0.25 + 2 + 4.5 + 0.25 + 4]
        assert column(found, "rounds", "bytes_down") == [3 * 16]
        assert column(found, "rounds", "bytes_up") == [3 * 16]
        assert column(found, "participation", "busy_s") == pytest.approx([4.5, 2.25, 2.25])
        heard, expected = (
            ("loss_local", "local") if ranks == "estimated" else ("loss_received",) * 2
        )
        at = [local(THETA, k) if ranks == "estimated" else THETA for k in range(3)]
        assert column(found, "dispatches", heard) == pytest.approx(
            [loss(at[k], k) for k in range(3)]
        )
        assert column(found, "losses", "basis") == [expected.removeprefix("loss_")] * 3


def test_at_zero_evaluation_cost_a_report_takes_no_time_to_compute():
    found = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5},
        devices={**BASE["devices"], "eval_fraction": 0},
    )
    assert column(found, "participation", "busy_s") == pytest.approx([4, 2, 2])


def exact_multipliers(theta, fraction):
    """m_k = 1 + λ r_k/p_k with λ = fraction · min p/2, every client a group."""
    F = [float(loss(theta, k)) for k in range(3)]
    r = [sum((F[k] > F[j]) - (F[k] < F[j]) for j in range(3)) for k in range(3)]
    lam = fraction * P.min() / 2
    return [1 + lam * r[k] / P[k] for k in range(3)], r


def test_exact_ranks_take_an_extra_round_trip_to_everybody():
    found = run(**GIFAIR, weighting={"lambda_fraction": 0.5, "ranks": "exact"}, stop={"rounds": 2})
    # Ask: model down 1.25, evaluate 1 pass 0.5, scalar up 2.25. Then a scalar down 1.25, train 4,
    # model up 2.25. The slowest is client 0.
    assert times(found) == [4.0 + 7.5, 2 * (4.0 + 7.5)]
    assert column(found, "dispatches", "send_s") == pytest.approx([4.0] * 3 + [15.5] * 3)
    # K models and m scalars down; K scalars and m models up.
    assert column(found, "rounds", "bytes_down") == [48, 96]
    assert column(found, "rounds", "bytes_up") == [48, 96]
    assert column(found, "dispatches", "bytes_down") == [8] * 6  # they hold the model already
    m, r = exact_multipliers(THETA, 0.5)
    assert column(found, "dispatches", "rank")[:3] == r == [2, 0, -2]
    first = step(THETA, EVERYBODY, m=m)
    m, _ = exact_multipliers(first, 0.5)
    assert theta(found) == pytest.approx(step(first, EVERYBODY, m=m), rel=1e-14)
    assert column(found, "losses", "version") == [0] * 3 + [1] * 3
    assert column(found, "losses", "time_s") == pytest.approx([4.0] * 3 + [15.5] * 3)


@pytest.mark.parametrize(
    ("ranks", "models_down", "scalars_down", "models_up", "scalars_up"),
    [
        ("estimated", 2, 2, 2, 2),
        ("received", 2, 2, 2, 2),
        ("exact-participants", 2, 2, 2, 2),
        ("exact", 3, 2, 2, 3),  # + (K − m) models down, K scalars up
    ],
)
def test_bytes_of_a_round_with_two_of_three(
    ranks, models_down, scalars_down, models_up, scalars_up
):
    found = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5, "ranks": ranks},
        sampling={"scheme": "uniform", "cohort": 2},
        stop={"rounds": 3},
    )
    down, up = 8 * (models_down + scalars_down), 8 * (models_up + scalars_up)
    assert column(found, "rounds", "bytes_down") == [down, 2 * down, 3 * down]
    assert column(found, "rounds", "bytes_up") == [up, 2 * up, 3 * up]


@pytest.mark.parametrize("ranks", ["estimated", "received", "exact-participants", "exact"])
def test_the_bytes_of_all_clients_are_the_bytes_of_the_run(ranks):
    found = run(
        **GIFAIR,
        **drop(1),
        weighting={"lambda_fraction": 0.5, "ranks": ranks},
        sampling={"scheme": "uniform", "cohort": 2},
        stop={"rounds": 4},
    )
    total = column(found, "rounds", "bytes_down")[-1] + column(found, "rounds", "bytes_up")[-1]
    assert sum(column(found, "participation", "bytes")) == total


def test_exact_participants_ask_those_who_were_drawn_and_nobody_else():
    found = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5, "ranks": "exact-participants"},
        sampling={"scheme": "uniform", "cohort": 2},
        stop={"rounds": 4},
    )
    drawn = column(found, "dispatches", "client")
    assert column(found, "losses", "client") == drawn
    ended, expected = 0.0, []
    for pair in np.reshape(drawn, (-1, 2)).tolist():
        ended += 4.0 if 0 in pair else 3.75  # the question
        ended += 7.5 if 0 in pair else 5.5  # the work
        expected.append(ended)
    assert times(found) == expected


def test_those_who_did_not_answer_in_time_are_sent_the_model_again():
    # The question takes client 0 until 4.0; the server goes on at 3.9.
    found = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5, "ranks": "exact"},
        policy={"timeout_s": 3.9, "failures": "survivors"},
    )
    assert column(found, "losses", "client") == [1, 2]
    assert column(found, "dispatches", "send_s") == pytest.approx([3.9] * 3)
    assert column(found, "dispatches", "bytes_down") == [16, 8, 8]
    # 3 models and 3 scalars to ask (all on their way when time was up), then one model again.
    assert column(found, "rounds", "bytes_down") == [24 + 32]
    assert outcomes(found) == ["late"] * 3


def test_a_client_that_left_after_the_question_is_lost_to_the_work():
    found = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5, "ranks": "exact-participants"},
        availability=absent(b=[(3.8, 100.0)]),
    )
    assert column(found, "losses", "client") == [0, 1, 2]
    assert outcomes(found) == ["completed", "offline", "completed"]
    assert column(found, "dispatches", "notice_s")[1] == pytest.approx(4.25)
    exact = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5, "ranks": "exact"},
        availability=absent(b=[(3.8, 100.0)]),
    )
    assert column(exact, "dispatches", "client") == [0, 2]  # drawn after the answers


EXACT = {**GIFAIR, "weighting": {"lambda_fraction": 0.5, "ranks": "exact"}}


def test_a_question_waits_for_somebody_to_answer_it():
    spans = [(0.0, 50.0)]
    found = run(**EXACT, availability=absent(a=spans, b=spans, c=spans))
    assert column(found, "losses", "time_s") == pytest.approx([54.0] * 3)
    assert times(found) == [61.5]


def test_if_all_leave_between_the_question_and_the_work_it_is_asked_again():
    spans = [(3.9, 100.0)]
    found = run(**EXACT, availability=absent(a=spans, b=spans, c=spans))
    # Clients 1 and 2 have answered by 3.75; that client 0 never will is known at 4.15.
    assert column(found, "losses", "client") == [1, 2, 0, 1, 2]
    assert column(found, "losses", "time_s") == pytest.approx([4.15] * 2 + [104.0] * 3)
    assert column(found, "losses", "age") == [None, None, None, 0, 0]
    assert times(found) == [111.5]
    assert column(found, "rounds", "bytes_down") == [24 + 24 + 24]
    assert column(found, "rounds", "bytes_up") == [24 + 24 + 24]


def test_if_nobody_answers_the_question_the_work_goes_out_without_ranks():
    found = run(**EXACT, policy={"timeout_s": 3.0})
    assert found.table("losses").num_rows == 0
    assert column(found, "dispatches", "rank") == [0, 0, 0]
    assert column(found, "dispatches", "bytes_down") == [16, 16, 16]
    assert column(found, "dispatches", "send_s") == [3.0] * 3
    assert outcomes(found) == ["late"] * 3
    assert times(found) == [6.0]
    assert theta(found) == THETA


def test_bootstrap_asks_everybody_once():
    def first_round(**weighting):
        return run(**GIFAIR, weighting={"lambda_fraction": 0.5, **weighting}, stop={"rounds": 2})

    cold, warm = first_round(), first_round(initial="bootstrap")
    assert column(cold, "dispatches", "rank")[:3] == [0, 0, 0]
    assert column(warm, "dispatches", "rank")[:3] == [2, 0, -2]
    assert times(warm) == [4.0 + 11.0, 4.0 + 22.0]
    assert column(warm, "rounds", "bytes_down") == [24 + 48, 24 + 96]
    assert column(warm, "rounds", "bytes_up") == [24 + 48, 24 + 96]
    assert column(warm, "losses", "time_s")[:3] == pytest.approx([4.0] * 3)
    # Asking everybody before every round includes the first: nothing is asked twice.
    exact = first_round(ranks="exact", initial="bootstrap")
    assert exact.digest == first_round(ranks="exact").digest


def test_bootstrap_waits_for_somebody_to_ask():
    spans = [(0.0, 50.0)]
    found = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5, "initial": "bootstrap"},
        availability=absent(a=spans, b=spans, c=spans),
    )
    assert column(found, "losses", "time_s")[:3] == pytest.approx([54.0] * 3)
    assert column(found, "dispatches", "rank") == [2, 0, -2]


# Who failed changes the estimate


@pytest.mark.parametrize(
    ("failures", "reliability", "weights"),
    [
        # All are asked, client 2 never answers; K p_k/m with m = 3 asked or 2 answered.
        ("slots", "known", {0: P[0], 1: P[1]}),
        ("survivors", "known", {0: 1.5 * P[0], 1: 1.5 * P[1]}),
        # Client 1 drops out half of the time, but not in the first round of this seed.
        ("corrected", "known", {0: P[0], 1: 2 * P[1]}),
        ("corrected", "estimated", {0: P[0], 1: P[1]}),
    ],
)
def test_weights_of_those_that_remain(failures, reliability, weights):
    found = run(
        devices={"groups": {"1": {"dropout": 0.5}, "2": {"dropout": 1.0}}},
        policy={"failures": failures, "reliability": reliability},
    )
    assert outcomes(found) == ["completed", "completed", "dropped"]
    assert column(found, "dispatches", "weight") == pytest.approx([weights[0], weights[1], None])
    assert column(found, "rounds", "weight_sum") == pytest.approx([sum(weights.values())])
    assert theta(found) == pytest.approx(step(THETA, weights), rel=1e-14)


def test_an_estimate_of_reliability_is_the_record_of_a_client():
    found = run(
        devices={"groups": {"1": {"dropout": 0.5}}},
        policy={"failures": "corrected", "reliability": "estimated"},
        stop={"rounds": 12},
    )
    fates = [outcome == "completed" for outcome in outcomes(found)[1::3]]
    assert 0 < sum(fates) < 12
    weights = column(found, "dispatches", "weight")[1::3]
    for c, answered in enumerate(fates):
        expected = P[1] / (sum(fates[: c + 1]) / (c + 1)) if answered else None
        assert weights[c] == pytest.approx(expected)


def test_p_replace_weighs_by_slots_and_trains_a_client_once():
    found = run(sampling={"scheme": "p-replace", "cohort": 5}, stop={"rounds": 6})
    model = THETA
    rows = found.table("dispatches").to_pylist()
    for c in range(1, 7):
        drawn = {row["client"]: row["slots"] / 5 for row in rows if row["round"] == c}
        assert sum(drawn.values()) == pytest.approx(1)
        model = step(model, drawn)
    assert max(row["slots"] for row in rows) > 1
    assert theta(found) == pytest.approx(model, rel=1e-13)
    assert column(found, "rounds", "updates") == [5, 10, 15, 20, 25, 30]


# Clocks that compare


@pytest.mark.parametrize(
    ("limit", "rounds"),
    [
        ({"rounds": 4}, 4),
        ({"rounds": 0}, 0),
        ({"updates": 7}, 3),  # 3, 6, 9
        ({"updates": 6}, 2),
        ({"virtual_s": 15.0}, 2),  # 7.5, 15
        ({"virtual_s": 15.1}, 3),
        ({"bytes": 96}, 2),  # 48, 96
        ({"bytes": 97}, 3),
        ({"rounds": 5, "bytes": 97, "virtual_s": 1e9}, 3),  # whatever comes first
    ],
    ids=str,
)
def test_the_end_of_a_run(limit, rounds):
    found = run(stop={"rounds": None, **limit})
    assert found.table("rounds").num_rows == rounds
    assert column(found, "participation", "version") == [rounds] * 3
    assert column(found, "evaluations", "version") == [0] * 3 + [rounds] * 3


@pytest.mark.parametrize(
    ("every", "unit", "versions"),
    [
        (0, "rounds", [0, 8]),
        (3, "rounds", [0, 3, 6, 8]),
        (4, "updates", [0, 2, 3, 4, 6, 7, 8]),  # 6, 9, 12, 18, 21, and 24 at the end
        (20.0, "virtual_s", [0, 3, 6, 8]),  # 22.5, 45, and 60 at the end
        (100, "bytes", [0, 3, 5, 7, 8]),  # 144, 240, 336, and 384 at the end
        (1000, "rounds", [0, 8]),
    ],
)
def test_evaluations_by_any_clock(every, unit, versions):
    found = run(stop={"rounds": 8}, evaluation={"every": every, "unit": unit})
    rows = found.table("evaluations").to_pylist()
    assert [row["version"] for row in rows] == [v for v in versions for _ in range(3)]
    assert [row["evaluation"] for row in rows] == [
        i for i in range(len(versions)) for _ in range(3)
    ]
    assert [row["time_s"] for row in rows] == pytest.approx([7.5 * r["version"] for r in rows])


def test_a_split_without_samples_is_left_out_of_an_evaluation():
    found = gifair_ray.run(
        {
            "data": {"source": "prototypes", "majority": 2, "minority": 1, "val": 0, "test": 3},
            "model": {"kind": "softmax"},
            "work": {"steps": 1},
            "stop": {"rounds": 1},
        },
        backend="local",
    )
    assert column(found, "evaluations", "split") == [
        s for s in ("train", "test") * 2 for _ in "abc"
    ]
    assert set(column(found, "groups", "split")) == {"train", "test"}


def test_measuring_changes_nothing_but_the_record():
    plain = run(**GIFAIR, weighting={"lambda_fraction": 0.5}, stop={"rounds": 6})
    measured = run(
        **GIFAIR,
        weighting={"lambda_fraction": 0.5},
        stop={"rounds": 6},
        evaluation={"every": 1},
        audit={"every": 2},
    )
    assert theta(measured) == theta(plain)
    assert measured.table("dispatches") == plain.table("dispatches")
    drop_audit = ["H", "delta"]
    assert measured.table("rounds").drop(drop_audit) == plain.table("rounds").drop(drop_audit)
    assert measured.table("ranks").num_rows > plain.table("ranks").num_rows == 0
    audited = [row["H"] is not None for row in measured.table("rounds").to_pylist()]
    assert audited == [True, False] * 3


@pytest.mark.parametrize(
    ("scheme", "cohort", "trained"),
    [
        # Sample passes of a round, for n = 40, 2, 2 and two steps.
        ("all", 1, 88.0),
        ("uniform", 2, 2 / 3 * 88.0),
        ("p-replace", 1, 80 * (40 / 44) + 2 * 4 * (2 / 44)),
        ("p-replace", 5, 80 * (1 - (4 / 44) ** 5) + 2 * 4 * (1 - (42 / 44) ** 5)),
    ],
)
def test_audits_cost_about_a_tenth_of_the_training(scheme, cohort, trained):
    found = run(
        **GIFAIR,
        data={"sizes": [40, 2, 2]},
        weighting={"lambda_fraction": 0.5, "ranks": "exact"},
        sampling={"scheme": scheme, "cohort": cohort},
        stop={"rounds": 20},
        audit={"every": "auto"},
    )
    every = math.ceil(10 * (44 / 3) / trained)  # an evaluation is a third of a pass over all data
    versions = sorted(set(column(found, "ranks", "version")))
    assert versions == [*range(0, 20, every), 20]


@pytest.mark.parametrize("clock", ["updates", "rounds"])
def test_the_schedule_counts_client_updates_or_rounds(clock):
    found = run(
        **drop(2, failures="survivors"),
        work={"steps": STEPS, "schedule": {"kind": "geometric", "decay": 0.5, "clock": clock}},
        stop={"rounds": 4},
    )
    model = THETA
    for c in range(4):
        passed = 2 * c / 3 if clock == "updates" else c  # two of three answer in every round
        model = step(model, {0: 1.5 * P[0], 1: 1.5 * P[1]}, eta=0.1 * 0.5**passed)
    assert theta(found) == pytest.approx(model, rel=1e-13)


def test_without_failures_the_two_clocks_of_the_schedule_agree():
    def final(clock, **sampling):
        schedule = {"kind": "inverse", "clock": clock}
        return theta(run(work={"schedule": schedule}, sampling=sampling, stop={"rounds": 5}))

    for sampling in (
        {"scheme": "all"},
        {"scheme": "p-replace", "cohort": 4},
        {"scheme": "uniform", "cohort": 2},
        {"scheme": "uniform", "cohort": 10},  # more than there are
    ):
        assert final("updates", **sampling) == final("rounds", **sampling)
