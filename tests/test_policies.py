"""Every participation policy in virtual time, event by event, with timelines computed by hand.

Four clients with losses F_k = ½ a_k (θ − b_k)², two samples each, so that every p_k is ¼:

    client   a_k   b_k   training   received   done   arrival, from the moment of sending
    0         1     0      0.5 s      1.25     1.75      4
    1         2     1      2.5 s      1.25     3.75      6
    2         1     3      4.5 s      1.25     5.75      8
    3         2    −1      8.5 s      1.25     9.75     12

A latency of 0.25 s, 8 bytes down in 1 s, 8 bytes up in 2 s. Model and scalars have 8 bytes each.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from typing import Literal

import numpy as np
import pytest

import gifair_ray
from gifair_ray import draws
from gifair_ray.availability import Availability
from gifair_ray.errors import BadInput, RunFailed
from gifair_ray.sampling import Sampling
from gifair_ray.scenario import merge

A, B, K = (1.0, 2.0, 1.0, 2.0), (0.0, 1.0, 3.0, -1.0), 4
LR, STEPS, THETA, SEED = 0.1, 2, 2.0, 9
TAKES = (4.0, 6.0, 8.0, 12.0)
SOON = 1 / math.sqrt(2)  # FedBuff's discount of a lag of 1

BASE = {
    "seed": SEED,
    "data": {
        "source": "quadratic",
        "problem": "own",
        "A": [[[a]] for a in A],
        "b": [[b] for b in B],
        "sizes": [2] * K,
        "groups": [0, 1, 2, 3],
    },
    "model": {"kind": "quadratic", "init": THETA},
    "work": {"steps": STEPS, "schedule": {"lr": LR}},
    "sampling": {"scheme": "all"},
    "devices": {
        "eval_fraction": 0.0,
        "down_mbps": 64e-6,
        "up_mbps": 32e-6,
        "latency_s": 0.25,
        "groups": {str(k): {"sample_s": (TAKES[k] - 3.5) / 4} for k in range(K)},
    },
    "stop": {"rounds": 1},
    "evaluation": {"every": 0, "splits": ["train"]},
    "audit": {"every": 0},
}
KEEP = {"solver": {"keep": True}}


class Away(Availability):
    """Offline from one moment to another, by client number."""

    kind: Literal["test_policies:Away"] = "test_policies:Away"
    spans: dict[int, list[tuple[float, float]]]

    def build(self, seed, population):
        return self

    def online(self, clients, t):
        moments = np.broadcast_to(t, len(clients)).tolist()
        pairs = zip(clients.tolist(), moments, strict=True)
        return np.array(
            [not any(a <= at < b for a, b in self.spans.get(k, [])) for k, at in pairs], dtype=bool
        )

    def until(self, clients, t, horizon):
        found = np.full(len(clients), np.inf)
        for i, k in enumerate(clients.tolist()):
            starts = [max(a, t[i]) for a, b in self.spans.get(k, []) if b > t[i]]
            found[i] = min((s for s in starts if s < horizon[i] or s == t[i]), default=np.inf)
        return found

    def next_online(self, t, clients=None):
        clients = np.arange(K) if clients is None else clients
        moments = [t, *(b for spans in self.spans.values() for _, b in spans if b > t)]
        return min((m for m in moments if self.online(clients, m).any()), default=math.inf)


def away(**spans):
    """Clients by letter: a is client 0."""
    return {
        "availability": {
            "kind": "test_policies:Away",
            "spans": {"abcd".index(name): times for name, times in spans.items()},
        }
    }


def run(kind, *changes, stop=1, algorithm=None, **policy):
    """A run under a policy; the limit is a number of rounds unless it says what it is."""
    table = merge(
        BASE, {"algorithm": algorithm or ("fedasync" if kind == "fedasync" else "fedavg")}
    )
    limit = stop if isinstance(stop, dict) else {"rounds": stop}
    table = {**merge(table, {"policy": {"kind": kind, **policy}}), "stop": limit}
    for change in changes:
        table = merge(table, change)
    return gifair_ray.run(table, backend="local")


def column(found, table, name):
    return found.table(table)[name].to_pylist()


def times(found):
    return column(found, "rounds", "time_s")


def dispatches(found, *names):
    """Rows in the order in which they were sent; single values instead of tuples of one."""
    rows = sorted(found.table("dispatches").to_pylist(), key=lambda row: row["dispatch"])
    return [tuple(row[n] for n in names) if len(names) > 1 else row[names[0]] for row in rows]


def aggregated(found):
    """{round: {client: (staleness, weight)}} of what made each server update."""
    out = {}
    for row in found.table("dispatches").to_pylist():
        if row["outcome"] == "completed":
            out.setdefault(row["version"] + row["staleness"] + 1, {})[row["client"]] = (
                row["staleness"],
                pytest.approx(row["weight"], rel=1e-12),
            )
    return out


def theta(found):
    return found.outcome.theta.item()


def local(theta, k, steps=STEPS, mu=0.0):
    """The client's model after its steps, by hand."""
    y = theta
    for _ in range(steps):
        y = y - LR * (A[k] * (y - B[k]) + mu * (y - theta))
    return y


def change(theta, k, steps=STEPS):
    return local(theta, k, steps) - theta


def drop(*clients, dropout=1.0):
    """These clients always drop out."""
    return {"devices": {"groups": {str(k): {"dropout": dropout} for k in clients}}}


def drop_time(client, ordinal=0, send=0.0):
    when = draws.uniform(SEED, "dropout/when", client, ordinal)[0]
    return send + 1.25 + when * (TAKES[client] - 3.5)


def uniform(cohort):
    return {"sampling": {"scheme": "uniform", "cohort": cohort}}


# A deadline


def test_who_is_late_at_a_deadline():
    found = run("deadline", deadline_s=7.0, stop=2)
    assert times(found) == [7.0, 14.0]
    assert dispatches(found, "outcome") == ["completed", "completed", "late", "late"] * 2
    assert dispatches(found, "arrival_s")[:4] == [4.0, 6.0, None, None]
    assert dispatches(found, "notice_s")[:4] == [4.0, 6.0, 7.0, 7.0]
    # Client 2 was uploading: its bytes are spent. Client 3 stopped in its training.
    assert dispatches(found, "end_s")[:4] == [1.75, 3.75, 5.75, 7.0]
    assert dispatches(found, "bytes_up")[:4] == [8, 8, 8, 0]
    assert column(found, "participation", "wasted_s") == [0, 0, 9.0, 11.5]
    assert column(found, "participation", "wasted_bytes") == [0, 0, 32, 16]
    assert aggregated(found)[1] == {0: (0, 0.25), 1: (0, 0.25)}
    one = THETA + 0.25 * change(THETA, 0) + 0.25 * change(THETA, 1)
    assert theta(found) == pytest.approx(one + 0.25 * (change(one, 0) + change(one, 1)))


def test_a_round_does_not_wait_for_a_deadline_that_nobody_needs():
    assert times(run("deadline", deadline_s=13.0, stop=2)) == [12.0, 24.0]


@pytest.mark.parametrize(
    ("quantile", "closes", "in_time"),
    [(0.5, 7.0, 2), (1 / 3, 6.0, 2), (2 / 3, 8.0, 3), (1.0, 12.0, 4), (0.01, 4.06, 1)],
)
def test_a_quantile_of_the_expected_durations_as_the_deadline(quantile, closes, in_time):
    found = run("deadline", quantile=quantile, stop=5)
    assert times(found) == pytest.approx([closes * c for c in range(1, 6)], rel=1e-8)
    assert column(found, "rounds", "completed") == [in_time] * 5


@pytest.mark.parametrize("ranks", ["estimated", "received", "exact-participants", "exact"])
def test_what_is_expected_includes_the_losses_that_clients_report(ranks):
    weighting = {"weighting": {"lambda_fraction": 0.5, "ranks": ranks}}
    costly = {"devices": {"eval_fraction": 0.5}}
    found = run("deadline", weighting, costly, algorithm="gifair-global", quantile=1.0, stop=3)
    assert set(dispatches(found, "outcome")) == {"completed"}


def test_late_work_that_is_carried_counts_in_the_round_in_which_it_arrives():
    found = run("deadline", deadline_s=7.0, late="carry", stop=2)
    # In round 2 only clients 0 and 1 have nothing to do; they are back at 11 and 13.
    assert times(found) == [7.0, 13.0]
    assert dispatches(found, "client", "send_s", "arrival_s") == [
        (0, 0.0, 4.0), (1, 0.0, 6.0), (2, 0.0, 8.0), (3, 0.0, 12.0), (0, 7.0, 11.0), (1, 7.0, 13.0),
    ]  # fmt: skip
    # Each piece of work counts in one round: two in the first, four in the second.
    assert aggregated(found) == {
        1: {0: (0, 0.5), 1: (0, 0.5)},
        2: {0: (0, 0.25), 1: (0, 0.25), 2: (1, 0.25 * SOON), 3: (1, 0.25 * SOON)},
    }
    one = THETA + 0.5 * (change(THETA, 0) + change(THETA, 1))
    fresh = 0.25 * (change(one, 0) + change(one, 1))
    stale = 0.25 * SOON * (change(THETA, 2) + change(THETA, 3))
    assert theta(found) == pytest.approx(one + fresh + stale, rel=1e-14)
    assert column(found, "participation", "wasted_s") == [0] * 4


def test_carried_work_may_be_too_stale():
    found = run("deadline", deadline_s=7.0, late="carry", max_staleness=0, stop=2)
    assert dispatches(found, "outcome") == ["completed"] * 2 + ["too-stale"] * 2 + ["completed"] * 2
    assert dispatches(found, "arrival_s")[2:4] == [8.0, 12.0]  # it did arrive
    assert dispatches(found, "bytes_up") == [8] * 6
    assert dispatches(found, "staleness") == [0, 0, None, None, 0, 0]
    assert aggregated(found)[2] == {0: (0, 0.25), 1: (0, 0.25)}


def test_carried_work_at_the_end_of_the_run_is_unfinished():
    found = run("deadline", deadline_s=7.0, late="carry")
    assert dispatches(found, "outcome") == ["completed"] * 2 + ["unfinished"] * 2
    # Client 2 was uploading when the run ended.
    assert dispatches(found, "bytes_up") == [8, 8, 8, 0]
    assert dispatches(found, "end_s") == [1.75, 3.75, 5.75, 7.0]
    assert dispatches(found, "arrival_s") == [4.0, 6.0, None, None]


def test_if_everybody_is_late_and_carried_the_server_goes_on_when_one_is_back():
    found = run("deadline", deadline_s=3.0, late="carry", stop=4)
    # Nobody is back at 3, and nobody can be sent anything until client 0 is, at 4. It is sent
    # more work, until 7, when client 1 is in, too; its own work and client 2's arrive at 8.
    assert times(found) == [3.0, 4.0, 7.0, 10.0]
    assert aggregated(found) == {
        2: {0: (1, SOON)},
        3: {1: (2, 3**-0.5)},
        4: {0: (1, 0.5 * SOON), 2: (3, 0.5 * 0.5)},
    }


def test_a_lost_client_is_not_sent_more_before_the_server_misses_it():
    found = run(
        "deadline", drop(0), deadline_s=7.0, late="carry", notice="timeout", timeout_s=20.0,
        stop=5,
    )  # fmt: skip
    sends = [send for client, send in dispatches(found, "client", "send_s") if client == 0]
    opened = [0.0, *times(found)]
    assert sends == [0.0, min(t for t in opened if t >= 20.0)]
    assert dispatches(found, "outcome", "notice_s")[0] == ("dropped", 20.0)


def test_partial_work_is_what_the_client_has_done_by_the_deadline():
    # Four steps take 1, 5, 9 and 17 s; of 10 s, 6.5 are left beside the network.
    work = {"work": {"steps": 4}}
    found = run("deadline", work, deadline_s=10.0, partial=True)
    assert dispatches(found, "outcome") == ["completed"] * 4
    assert dispatches(found, "steps") == [4, 4, 2, 1]
    assert dispatches(found, "arrival_s") == [4.5, 8.5, 8.0, 7.75]
    assert times(found) == [8.5]
    moved = sum(change(THETA, k, steps) for k, steps in enumerate((4, 4, 2, 1)))
    assert theta(found) == pytest.approx(THETA + 0.25 * moved, rel=1e-14)
    # The same client with so many steps to do in the first place ends at the same model.
    short = run("sync", {"work": {"steps": 2}}, KEEP)
    full = run("deadline", work, KEEP, deadline_s=10.0, partial=True)
    assert full.outcome.personal[2] == short.outcome.personal[2]


def test_whoever_has_not_done_a_single_step_is_late():
    found = run("deadline", {"work": {"steps": 4}}, deadline_s=7.0, partial=True)
    assert dispatches(found, "outcome") == ["completed"] * 3 + ["late"]
    assert dispatches(found, "steps")[:3] == [4, 2, 1]
    assert times(found) == [7.0]


def test_deadlines_that_say_too_much_or_too_little_are_refused():
    for wrong in ({}, {"deadline_s": 1.0, "quantile": 0.5}):
        with pytest.raises(BadInput, match="either deadline_s or quantile"):
            run("deadline", **wrong)
    with pytest.raises(BadInput, match="partial work is never late"):
        run("deadline", deadline_s=1.0, partial=True, late="carry")


# Over-selection


def test_a_round_goes_on_with_the_first_that_come_back():
    found = run("overselect", uniform(3), stop=2)  # 1.3 · 3 is 3.9: four are asked
    assert times(found) == [8.0, 16.0]
    assert dispatches(found, "outcome") == (["completed"] * 3 + ["surplus"]) * 2
    assert dispatches(found, "end_s", "notice_s", "arrival_s")[3] == (8.0, 8.0, None)
    assert dispatches(found, "bytes_up")[:4] == [8, 8, 8, 0]
    assert aggregated(found)[1] == dict.fromkeys(range(3), (0, 1 / 3))  # of the three wanted
    survivors = run("overselect", uniform(3), failures="survivors")
    assert aggregated(survivors)[1] == dict.fromkeys(range(3), (0, 1 / 3))
    moved = sum(change(THETA, k) for k in range(3)) / 3
    assert theta(survivors) == pytest.approx(THETA + moved, rel=1e-14)


def test_who_is_uploading_when_the_round_closes_has_spent_its_bytes():
    found = run("overselect", uniform(2), factor=2.0)
    assert times(found) == [6.0]
    assert dispatches(found, "outcome") == ["completed"] * 2 + ["surplus"] * 2
    assert dispatches(found, "end_s") == [1.75, 3.75, 5.75, 6.0]
    assert dispatches(found, "bytes_up") == [8, 8, 8, 0]
    assert column(found, "participation", "wasted_bytes") == [0, 0, 16, 8]
    assert column(found, "participation", "wasted_s") == [0, 0, 4.5, 4.75]


def test_of_those_that_arrive_at_once_the_first_by_number_count():
    alike = {"devices": {"groups": {str(k): {"sample_s": 0.125} for k in range(K)}}}
    found = run("overselect", alike, uniform(2), factor=2.0)
    assert times(found) == [4.0]
    assert dispatches(found, "outcome") == ["completed"] * 2 + ["surplus"] * 2


def test_a_lost_client_does_not_hold_up_a_round_that_has_enough():
    silent = {"notice": "timeout", "timeout_s": 100.0}
    found = run("overselect", drop(0), uniform(3), **silent)
    assert times(found) == [12.0]  # the third arrival
    assert dispatches(found, "outcome") == ["dropped"] + ["completed"] * 3
    assert dispatches(found, "notice_s")[0] == 12.0
    assert dispatches(found, "end_s")[0] == pytest.approx(drop_time(0))


def test_a_client_that_was_stopped_cannot_drop_out_any_more():
    assert drop_time(3) > 4.0
    found = run("overselect", drop(3), uniform(1), factor=4.0)
    assert times(found) == [4.0]
    assert dispatches(found, "outcome") == ["completed"] + ["surplus"] * 3
    assert dispatches(found, "end_s")[3] == 4.0


def test_if_too_few_come_back_the_round_ends_when_that_is_known():
    found = run("overselect", drop(2, 3), uniform(3), notice="timeout", timeout_s=30.0)
    assert times(found) == [30.0]
    assert dispatches(found, "outcome") == ["completed"] * 2 + ["dropped"] * 2


# FedBuff


def test_a_buffer_of_two_of_clients_that_restart_themselves():
    found = run("fedbuff", buffer=2, stop=4)
    assert times(found) == [6.0, 8.0, 12.0, 16.0]
    #   6  0, 1
    #   8  2, 0          both sent version 0
    #  12  3, 1          sent 0 and 1; then client 0 arrives, sent 2
    #  16  0, 2          sent 2 and 1
    assert aggregated(found) == {
        1: {0: (0, 0.5), 1: (0, 0.5)},
        2: {2: (1, 0.5 * SOON), 0: (1, 0.5 * SOON)},
        3: {3: (2, 0.5 / math.sqrt(3)), 1: (1, 0.5 * SOON)},
        4: {0: (1, 0.5 * SOON), 2: (2, 0.5 / math.sqrt(3))},
    }
    models = [THETA]
    for version, rows in aggregated(found).items():
        moved = sum(
            weight.expected * change(models[version - 1 - lag], k)
            for k, (lag, weight) in rows.items()
        )
        models.append(models[-1] + moved)
    assert theta(found) == pytest.approx(models[-1], rel=1e-13)
    assert dispatches(found, "client", "version", "send_s")[4:] == [
        (0, 0, 4.0), (1, 1, 6.0), (2, 1, 8.0), (0, 2, 8.0), (3, 2, 12.0), (1, 3, 12.0),
        (0, 3, 12.0),
    ]  # fmt: skip
    # Still under way at 16: client 3 trains, client 1 uploads, client 0 has just arrived.
    under_way = [row for row in found.table("dispatches").to_pylist() if row["staleness"] is None]
    assert {row["client"]: row["outcome"] for row in under_way} == dict.fromkeys(
        (0, 1, 3), "unfinished"
    )
    assert {row["client"]: row["bytes_up"] for row in under_way} == {0: 8, 1: 8, 3: 0}


def test_the_discount_may_be_left_out_and_the_step_scaled():
    found = run("fedbuff", buffer=2, discount={"kind": "constant"}, server_lr=0.5, stop=2)
    assert aggregated(found)[2] == {2: (1, 0.25), 0: (1, 0.25)}


def test_updates_that_are_too_stale_are_discarded_and_their_slots_count_as_failed():
    found = run("fedbuff", buffer=2, max_staleness=1, stop=3)
    assert times(found) == [6.0, 8.0, 12.0]
    stale = [row for row in found.table("dispatches").to_pylist() if row["outcome"] == "too-stale"]
    assert [(row["client"], row["arrival_s"], row["bytes_up"]) for row in stale] == [(3, 12.0, 8)]
    assert aggregated(found)[3] == {0: (0, 1 / 3), 1: (1, SOON / 3)}
    survivors = run("fedbuff", buffer=2, max_staleness=1, failures="survivors", stop=3)
    assert aggregated(survivors)[3] == {0: (0, 1 / 2), 1: (1, SOON / 2)}


def test_free_slots_may_wait_for_the_next_update():
    found = run("fedbuff", buffer=2, refill="update", stop=3)
    # Clients 0 and 1 go on at 6; 2 is in at 8 and 0 at 10, and both go on; 3 and 1 at 12.
    assert times(found) == [6.0, 10.0, 12.0]
    assert dispatches(found, "client", "version", "send_s")[4:] == [
        (0, 1, 6.0), (1, 1, 6.0), (0, 2, 10.0), (2, 2, 10.0),
    ]  # fmt: skip
    assert aggregated(found)[2] == {0: (0, 0.5), 2: (1, 0.5 * SOON)}


def test_a_buffer_that_nothing_can_fill_any_more_is_an_update():
    everyone = run("fedbuff", buffer=9, refill="update", stop=2)
    assert times(everyone) == [12.0, 24.0]
    assert column(everyone, "rounds", "completed") == [4, 4]
    nobody = run("fedbuff", drop(0, 1, 2, 3), refill="update", stop=2)
    assert column(nobody, "rounds", "completed") == [0, 0]
    assert theta(nobody) == THETA
    assert nobody.table("rounds") == run("sync", drop(0, 1, 2, 3), stop=2).table("rounds")


@pytest.mark.parametrize("at_end", ["discard", "flush"])
def test_what_is_in_the_buffer_at_the_end(at_end):
    found = run("fedbuff", buffer=3, at_end=at_end, stop={"virtual_s": 6.0})
    flushed = at_end == "flush"
    assert times(found) == ([6.0] if flushed else [])
    first = dispatches(found, "outcome", "arrival_s", "bytes_up")[:4]
    outcome = "completed" if flushed else "unfinished"
    assert first == [
        (outcome, 4.0, 8), (outcome, 6.0, 8), ("unfinished", None, 8), ("unfinished", None, 0),
    ]  # fmt: skip
    expected = THETA + 0.5 * (change(THETA, 0) + change(THETA, 1)) if flushed else THETA
    assert theta(found) == pytest.approx(expected, rel=1e-14)


def stream(busy_drawn, concurrency, n):
    """(client, send) of the first n dispatches, by a simulation of its own."""
    p = np.cumsum(np.full(K, 1 / K))
    sequence = iter(Sampling().sequence(SEED, 0, 64 * n, p).tolist())
    queue, busy, flying, sent, free, now = Counter(), set(), [], [], concurrency, 0.0
    while len(sent) < n:
        chosen = [k for k in queue if queue[k] and k not in busy]
        for k in chosen:
            queue[k] -= 1
            busy.add(k)
        while free:
            k = next(sequence)
            if k not in busy:
                chosen.append(k)
                busy.add(k)
            elif busy_drawn == "skip":
                continue
            else:
                queue[k] += 1
            free -= 1
        for k in sorted(chosen):
            heapq.heappush(flying, (now + TAKES[k], len(sent), k))
            sent.append((k, now))
        now, _, k = heapq.heappop(flying)
        busy.remove(k)
        free += 1
    return sent[:n]


@pytest.mark.parametrize("busy_drawn", ["skip", "queue"])
@pytest.mark.parametrize("concurrency", [1, 2, 3, 4])
def test_who_is_next_where_the_server_draws(busy_drawn, concurrency):
    found = run(
        "fedbuff", {"sampling": {"scheme": "p-replace"}}, buffer=2, busy_drawn=busy_drawn,
        concurrency=concurrency, stop=100,
    )  # fmt: skip
    sent = dispatches(found, "client", "send_s")
    assert sent == stream(busy_drawn, concurrency, len(sent))


def test_work_that_waits_for_a_client_makes_arrivals_follow_p_whatever_the_speeds():
    def shares(busy_drawn):
        found = run(
            "fedbuff", {"sampling": {"scheme": "p-replace"}}, buffer=2, busy_drawn=busy_drawn,
            concurrency=4, stop=600,
        )  # fmt: skip
        count = Counter(
            row["client"]
            for row in found.table("dispatches").to_pylist()
            if row["outcome"] == "completed"
        )
        return [count[k] / count.total() for k in range(K)]

    assert shares("queue") == pytest.approx([0.25] * 4, abs=0.04)
    fast, *_, slow = shares("skip")
    assert fast > 0.3 > 0.2 > slow


def test_more_slots_than_clients():
    few = run("fedbuff", uniform(4), buffer=2, concurrency=50, stop=30)
    enough = run("fedbuff", buffer=2, stop=30)
    # Everybody is always at work, as where all take part.
    assert dispatches(few, "client", "send_s", "outcome", "weight") == dispatches(
        enough, "client", "send_s", "outcome", "weight"
    )


# FedAsync


def test_every_arrival_is_mixed_into_the_model():
    found = run("fedasync", {"solver": {"mu": 0.5}}, stop=4)
    assert times(found) == [4.0, 6.0, 8.0, 8.0]
    models = [THETA]
    for k, sent, lag in ((0, 0, 0), (1, 0, 1), (2, 0, 2), (0, 1, 2)):
        alpha = 0.6 / math.sqrt(1 + lag)
        models.append((1 - alpha) * models[-1] + alpha * local(models[sent], k, mu=0.5))
    assert theta(found) == pytest.approx(models[-1], rel=1e-14)
    completed = [row for row in found.table("dispatches").to_pylist() if row["weight"] is not None]
    assert [row["staleness"] for row in completed] == [0, 1, 2, 2]


def test_mixing_never_goes_beyond_the_local_model():
    found = run(
        "fedasync", drop(0, dropout=0.5), alpha=0.9, failures="corrected", reliability="known",
        stop=30,
    )  # fmt: skip
    weights = {
        (row["client"], row["staleness"]): row["weight"]
        for row in found.table("dispatches").to_pylist()
        if row["weight"] is not None
    }
    assert max(weights.values()) == 1.0
    assert weights[0, 2] == 1.0  # 0.9/√3 = 0.52, twice that is above 1
    assert weights[1, 1] == pytest.approx(0.9 * SOON)


def test_mixing_belongs_to_fedasync():
    with pytest.raises(BadInput, match="mixing"):
        run("fedasync", algorithm="fedavg")
    with pytest.raises(BadInput, match="mixing"):
        run("fedbuff", {"aggregator": {"kind": "mixing"}})


# Tiers


def test_no_tier_waits_for_a_slower_one():
    found = run("tiers", tiers=2, stop=4)
    # Clients 0 and 1 every 6 s, 2 and 3 every 12 s.
    assert times(found) == [6.0, 12.0, 12.0, 18.0]
    assert aggregated(found) == {
        1: {0: (0, 0.5), 1: (0, 0.5)},
        2: {2: (1, 0.5 * SOON), 3: (1, 0.5 * SOON)},
        3: {0: (1, 0.5 * SOON), 1: (1, 0.5 * SOON)},
        4: {0: (0, 0.5), 1: (0, 0.5)},
    }
    unfinished = [r for r in found.table("dispatches").to_pylist() if r["outcome"] == "unfinished"]
    assert [(row["client"], row["send_s"]) for row in unfinished] == [(2, 12.0), (3, 12.0)]


def test_one_tier_is_a_synchronous_round():
    for sampling in ({"sampling": {"scheme": "all"}}, uniform(2)):
        tiers, sync = run("tiers", sampling, tiers=1, stop=5), run("sync", sampling, stop=5)
        assert tiers.digest == sync.digest


def test_more_tiers_than_clients_are_refused():
    with pytest.raises(BadInput, match="exceeds the 4 clients"):
        run("tiers", tiers=5)


def test_tiers_may_weigh_by_what_really_arrives():
    found = run("tiers", tiers=2, rates="empirical", kappa=4.0, own_discount=True, stop=3)
    # ρ_k = (n_k + 4/4)/(n + 4); a first update with its own discount as the mean weighs 1.
    assert aggregated(found)[1] == dict.fromkeys((0, 1), (0, 0.5 * 0.25 / (1 / 4)))
    assert aggregated(found)[2] == dict.fromkeys((2, 3), (1, 0.5 * 0.25 / (1 / 6)))
    own = SOON / ((1 + SOON) / 2)
    assert aggregated(found)[3] == dict.fromkeys((0, 1), (1, 0.5 * 0.25 / (2 / 8) * own))


# Who failed changes the estimate

POLICIES = {
    "sync": {},
    "deadline": {"deadline_s": 9.0},
    "carry": {"deadline_s": 9.0, "late": "carry"},
    "overselect": {"factor": 1.5},
    "fedbuff": {"buffer": 3, "concurrency": 3},
    "update": {"buffer": 3, "concurrency": 3, "refill": "update"},
    "fedasync": {"concurrency": 3},
    "tiers": {"tiers": 2},
}
KIND = {"carry": "deadline", "update": "fedbuff"}


@pytest.mark.parametrize("scheme", ["uniform", "p-replace"])
@pytest.mark.parametrize("name", POLICIES)
def test_weights_of_those_that_remain(name, scheme):
    risky = drop(0, 2, dropout=0.4)
    sampling = {"sampling": {"scheme": scheme, "cohort": 2}}

    def rows(**policy):
        kind = KIND.get(name, name)
        found = run(kind, risky, sampling, stop=25, **POLICIES[name], **policy)
        return sorted(found.table("dispatches").to_pylist(), key=lambda row: row["dispatch"])

    slots, survivors = rows(), rows(failures="survivors")
    known = rows(failures="corrected", reliability="known")
    by_round = {}
    for row, other, corrected in zip(slots, survivors, known, strict=True):
        assert row["outcome"] == other["outcome"] == corrected["outcome"]
        if row["weight"] is None:
            continue
        at = row["version"] + row["staleness"]
        discount = 1 / math.sqrt(1 + row["staleness"])
        by_round.setdefault(at, []).append(other["weight"] / discount)
        probability = 0.6 if row["client"] in (0, 2) else 1.0
        expected = row["weight"] / probability
        if name == "overselect":  # two are wanted, or as many as come; corrected, all three count
            back = [r["slots"] for r in slots if r["round"] == row["round"] and r["weight"]]
            expected *= max(2, sum(back)) / 3
        if name == "fedasync":
            assert corrected["weight"] == pytest.approx(min(expected, 1.0))
            assert other["weight"] == row["weight"] == pytest.approx(0.6 * discount)
        else:
            assert corrected["weight"] == pytest.approx(expected)
            assert other["weight"] >= row["weight"] * (1 - 1e-12)
    if name != "fedasync":  # p_k/ρ_k is 1 for everybody: survivors share the whole step
        assert [sum(weights) for weights in by_round.values()] == pytest.approx([1] * len(by_round))
        shrunk = sum(row["weight"] or 0 for row in slots)
        assert shrunk < sum(row["weight"] or 0 for row in survivors)


def test_reliability_is_estimated_from_work_that_has_ended():
    found = run("fedbuff", drop(0, dropout=0.5), buffer=2, failures="corrected", stop=40)
    slots = run("fedbuff", drop(0, dropout=0.5), buffer=2, stop=40)
    pairs = zip(*(x.table("dispatches").to_pylist() for x in (found, slots)), strict=True)
    history = list(pairs)  # in the order in which outcomes were recorded
    seen = 0
    for at, (row, plain) in enumerate(history):
        if row["outcome"] != "completed":
            continue
        update = row["version"] + row["staleness"]
        mine = [r for r, _ in history[:at] if r["client"] == row["client"]]
        good = sum(r["weight"] is not None and r["version"] + r["staleness"] < update for r in mine)
        bad = sum(r["weight"] is None for r in mine)
        expected = (1 + good) / (1 + good + bad)
        assert row["weight"] == pytest.approx(plain["weight"] / expected)
        seen += expected < 1
    assert seen > 3


# What a client keeps of work that the server discards


@pytest.mark.parametrize(
    ("kind", "policy", "discarded"),
    [
        ("sync", {"timeout_s": 7.0}, {2}),
        ("deadline", {"deadline_s": 7.0}, {2}),
        ("overselect", {"factor": 2.0}, {2}),
        ("fedbuff", {"buffer": 2, "timeout_s": 7.0, "concurrency": 4}, {2}),
        ("fedasync", {"timeout_s": 7.0, "concurrency": 4}, {2}),
    ],
)
def test_discarded_work_that_was_finished_is_kept_or_not(kind, policy, discarded):
    stop = {"virtual_s": 6.0 if kind == "overselect" else 7.0}
    for choice, owners in (("unchanged", {0, 1}), ("kept", {0, 1} | discarded)):
        found = run(kind, KEEP, uniform(2) if kind == "overselect" else {}, stop=stop,
                    discarded=choice, **policy)  # fmt: skip
        assert found.outcome.personal.keys() == owners  # client 3 never got so far
        if choice == "kept":
            assert found.outcome.personal[2] == pytest.approx(
                local(THETA, 2, mu=0.005 if kind == "fedasync" else 0.0)
            )
    # The global model knows nothing of it.
    unchanged = run(kind, KEEP, stop=stop, **policy)
    kept = run(kind, KEEP, stop=stop, discarded="kept", **policy)
    assert theta(kept) == theta(unchanged)
    assert kept.table("dispatches") == unchanged.table("dispatches")


@pytest.mark.parametrize("kind", ["fedbuff", "deadline"])
def test_work_that_is_too_stale_is_kept_by_its_client(kind):
    policy = {"buffer": 2} if kind == "fedbuff" else {"deadline_s": 7.0, "late": "carry"}
    policy |= {"max_staleness": 0, "stop": 2}
    assert 2 not in run(kind, KEEP, **policy).outcome.personal
    kept = run(kind, KEEP, discarded="kept", **policy).outcome.personal
    assert kept[2] == pytest.approx(local(THETA, 2))


# Losses that are asked for


EXACT = {"weighting": {"lambda_fraction": 0.5, "ranks": "exact"}}


@pytest.mark.parametrize(
    ("busy_asked", "sent", "who"),
    [
        # Asked at 10.5: the model down 1.25, no time to evaluate, a scalar up 2.25.
        ("answer", 14.0, [0, 1, 2, 3]),
        ("skip", 14.0, [0, 1]),
        ("wait", 15.5, [0, 1, 2, 3]),  # client 3 trains until 13.25
    ],
)
def test_a_client_that_is_asked_while_it_trains(busy_asked, sent, who):
    found = run(
        "deadline", EXACT, algorithm="gifair-global", deadline_s=7.0, late="carry",
        busy_asked=busy_asked, stop=2,
    )  # fmt: skip
    # The first work goes out at 3.5, when all have answered; the round closes at 10.5.
    assert times(found)[0] == 10.5
    rows = found.table("losses").to_pylist()
    assert [row["client"] for row in rows if row["version"] == 1] == who
    assert dispatches(found, "send_s") == [3.5] * 4 + [sent] * 2


@pytest.mark.parametrize("busy_asked", ["answer", "wait", "skip"])
@pytest.mark.parametrize("kind", ["fedbuff", "fedasync", "tiers", "deadline"])
def test_participants_answer_before_they_are_sent_work(kind, busy_asked):
    weighting = {"weighting": {"kind": "gifair", "lambda_fraction": 0.5}}
    weighting["weighting"]["ranks"] = "exact-participants"
    policy = {"quantile": 1.0} if kind == "deadline" else {}
    found = run(kind, weighting, uniform(2), busy_asked=busy_asked, stop=6, **policy)
    heard = Counter(column(found, "losses", "client"))
    sent = Counter(column(found, "dispatches", "client"))
    # What was asked when the run ended has not been answered, or has not been sent.
    assert all(0 <= heard[k] - sent[k] <= 1 for k in range(K))
    assert sum(heard.values()) > 6


@pytest.mark.parametrize("ranks", ["exact", "exact-participants"])
def test_a_model_that_is_held_already_is_not_sent_again(ranks):
    weighting = {"weighting": {"lambda_fraction": 0.5, "ranks": ranks}}
    for kind, policy in (("fedbuff", {"buffer": 4}), ("sync", {}), ("tiers", {"tiers": 1})):
        found = run(kind, weighting, algorithm="gifair-global", stop=1, **policy)
        assert dispatches(found, "bytes_down")[:4] == [8] * 4


def test_a_model_that_has_changed_since_it_was_held_is_sent():
    weighting = {"weighting": {"lambda_fraction": 0.5, "ranks": "exact-participants"}}
    as_slow = {"devices": {"groups": {"3": BASE["devices"]["groups"]["2"]}}}
    found = run("tiers", weighting, as_slow, algorithm="gifair-global", tiers=2, stop=3)
    # Both tiers send at 3.5. The first is done at 9.5 and asks until 13; meanwhile, at 11.5, the
    # second makes version 2.
    assert times(found)[:2] == [9.5, 11.5]
    rows = dispatches(found, "client", "send_s", "version", "bytes_down")
    assert rows[:2] == [(0, 3.5, 0, 8), (1, 3.5, 0, 8)]
    assert rows[4:6] == [(0, 13.0, 2, 16), (1, 13.0, 2, 16)]


@pytest.mark.parametrize("refill", ["arrival", "update"])
def test_exact_ranks_hold_everything_until_the_answers_are_in(refill):
    found = run(
        "fedbuff", EXACT, algorithm="gifair-global", buffer=2, refill=refill, stop=3,
    )  # fmt: skip
    losses = found.table("losses").to_pylist()
    for row in found.table("dispatches").to_pylist():
        heard = [r["time_s"] for r in losses if r["version"] == row["version"]]
        assert len(heard) == K
        assert row["send_s"] >= max(heard)


def test_pipelined_ranks_hold_nothing_up():
    free = {"devices": {"down_mbps": math.inf}}  # where a scalar more or less makes no difference
    found = run(
        "fedbuff", EXACT, free, algorithm="gifair-global", buffer=2, exact="pipelined", stop=9
    )
    plain = run("fedbuff", free, buffer=2, stop=9)
    # Everything is later by the first question, to which there is no alternative.
    assert times(found) == [2.5 + t for t in times(plain)]


def test_fedasync_takes_arrivals_one_by_one_even_if_they_had_to_wait():
    gifair = {"weighting": {"kind": "gifair", "lambda_fraction": 0.5, "ranks": "exact"}}
    found = run("fedasync", gifair, stop=6)
    assert column(found, "rounds", "completed") == [1] * 6


# Nobody is there


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_waits_for_somebody_to_come_online(name):
    spans = [(0.0, 100.0)]
    found = run(
        KIND.get(name, name), away(a=spans, b=spans, c=spans, d=[(0.0, 200.0)]),
        stop={"virtual_s": 300.0}, **POLICIES[name],
    )  # fmt: skip
    sends = dispatches(found, "client", "send_s")
    assert min(send for _, send in sends) == 100.0
    assert min(send for k, send in sends if k == 3) >= 200.0


@pytest.mark.parametrize("kind", ["fedbuff", "fedasync"])
def test_a_client_that_restarts_itself_does_so_as_soon_as_it_is_back(kind):
    policy = {"buffer": 1} if kind == "fedbuff" else {}
    found = run(kind, away(a=[(2.0, 50.0), (51.0, 52.0)]), stop={"virtual_s": 60.0}, **policy)
    mine = [
        (send, outcome)
        for k, send, outcome in dispatches(found, "client", "send_s", "outcome")
        if k == 0
    ]
    assert mine[:3] == [(0.0, "offline"), (50.0, "offline"), (52.0, "completed")]


@pytest.mark.parametrize("ranks", ["exact", "exact-participants", "estimated"])
@pytest.mark.parametrize("kind", ["fedbuff", "fedasync", "sync", "tiers"])
def test_a_question_waits_for_somebody_to_answer_it(kind, ranks):
    weighting = {"weighting": {"kind": "gifair", "lambda_fraction": 0.5, "initial": "bootstrap"}}
    weighting["weighting"]["ranks"] = ranks
    spans = [(0.0, 50.0)]
    found = run(kind, weighting, away(a=spans, b=spans, c=spans, d=spans))
    assert column(found, "losses", "time_s")[:4] == [53.5] * 4
    assert 0 not in dispatches(found, "rank")[:1]  # known from the first dispatch on


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_in_which_nobody_is_ever_online_again_says_so(name):
    never = [(50.0, math.inf)]
    with pytest.raises(RunFailed, match="no client is ever online again"):
        run(KIND.get(name, name), away(a=never, b=never, c=never, d=never), stop=1000,
            **POLICIES[name])  # fmt: skip


def test_a_slot_stands_empty_no_longer_than_it_must():
    # All but client 0 are away until 500. It leaves at 6, in its second piece of work, and goes on
    # as soon as it is back.
    found = run(
        "fedbuff", {"sampling": {"scheme": "uniform"}},
        away(a=[(6.0, 30.0)], b=[(0.0, 500.0)], c=[(0.0, 500.0)], d=[(0.0, 500.0)]),
        buffer=2, concurrency=2, stop={"virtual_s": 100.0},
    )  # fmt: skip
    assert [send for _, send in dispatches(found, "client", "send_s")][:3] == [0.0, 4.0, 30.0]


@pytest.mark.parametrize(
    ("policy", "rounds"),
    [
        ({"kind": "sync"}, 30),
        ({"kind": "tiers", "tiers": 3}, 90),
        ({"kind": "fedbuff", "buffer": 1, "concurrency": 5}, 240),
        ({"kind": "fedbuff", "buffer": 3, "concurrency": 5}, 90),
        ({"kind": "fedbuff", "buffer": 3, "concurrency": 5, "refill": "update"}, 90),
        ({"kind": "fedasync", "concurrency": 5}, 240),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("scheme", ["p-replace", "uniform", "all"])
def test_audits_cost_about_a_tenth_of_the_training_whatever_the_policy(scheme, policy, rounds):
    sizes, steps, eval_fraction = [1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32, 32], 4, 0.25
    scenario = {
        "algorithm": "gifair-global",
        "data": {
            "source": "quadratic",
            "problem": "own",
            "A": [[[1.0]]] * len(sizes),
            "b": [[float(k)] for k in range(len(sizes))],
            "sizes": sizes,
            "groups": [k % 2 for k in range(len(sizes))],
        },
        "model": {"kind": "quadratic"},
        "work": {"steps": steps, "schedule": {"lr": 0.01}},
        "weighting": {"lambda_fraction": 0.5, "ranks": "received"},
        "sampling": {"scheme": scheme, "cohort": 3},
        "policy": policy,
        "aggregator": {"kind": "mixing" if policy["kind"] == "fedasync" else "mean"},
        "devices": {"sample_s": 0.5, "eval_fraction": eval_fraction},
        "evaluation": {"every": 0},
        "audit": {"every": "auto"},
        "stop": {"rounds": rounds},
    }
    found = gifair_ray.run(scenario, backend="local")
    clients = [k for k, outcome in dispatches(found, "client", "outcome") if outcome == "completed"]
    training = sum(sizes[k] * (steps + eval_fraction) for k in clients)
    audits = len(set(column(found, "ranks", "version"))) - 1  # one is made after the end
    assert audits >= 5
    assert 0.06 <= audits * sum(sizes) / 3 / training <= 0.14
