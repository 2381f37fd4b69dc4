"""What happens to one piece of work in virtual time, computed by hand.

Unless a test says otherwise a client is sent 1 MB at time 10, trains on 4 samples and replies
with 0.5 MB:

    10 → latency 0.25, download 1 → 11.25 → compute 2 → 13.25 → latency 0.25, upload 1 → 14.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from gifair_ray import draws
from gifair_ray.availability.always import Always
from gifair_ray.availability.blocks import Blocks
from gifair_ray.clock import Clock, Event
from gifair_ray.devices import Fleet
from gifair_ray.errors import RunFailed
from gifair_ray.federation import Population
from gifair_ray.timeline import timeline, transfer_s

SEED = 3
SEND, START, END, ARRIVAL = 10.0, 11.25, 13.25, 14.5


@dataclass(frozen=True)
class Leaves:
    """A calendar by hand: from when on each client is offline (∞: never)."""

    at: tuple[float, ...]

    def online(self, clients, t):
        return np.array([t < self.at[k] for k in clients])

    def until(self, clients, t, horizon):
        gone = np.maximum([self.at[k] for k in clients], t)
        return np.where((gone < horizon) | (gone == t), gone, np.inf)


def fleet(n=1, **columns):
    normal = {
        "sample_s": 0.5,
        "up_mbps": 4.0,
        "down_mbps": 8.0,
        "latency_s": 0.25,
        "jitter": 0.0,
        "dropout": 0.0,
        "lifetime_s": math.inf,
        "hazard_growth": 1.0,
    }
    filled = {name: np.full(n, value) for name, value in normal.items()}
    filled |= {name: np.array(column, dtype=float) for name, column in columns.items()}
    return Fleet(eval_fraction=0.25, **filled)


def fate(
    devices=None,
    leaves=None,
    *,
    purpose="train",
    clients=(0,),
    ordinals=None,
    passes=4.0,
    timeout_s=math.inf,
    notice="disconnect",
    send=SEND,
    **more,
):
    n = len(clients)
    k = np.array(clients)
    return timeline(
        devices or fleet(),
        Leaves(leaves) if leaves else Always().build(0, None),
        SEED,
        purpose,
        k,
        np.zeros(n, dtype=np.int64) if ordinals is None else np.array(ordinals),
        send,
        np.full(n, 1_000_000),
        np.full(n, 500_000),
        np.full(n, passes),
        timeout_s,
        notice,
        **more,
    )


def told(found, client=0):
    """One client's fate: (start, end, arrival, notice, outcome, uploaded[, steps])."""
    names = ["outcome" if field.name == "code" else field.name for field in fields(found)]
    columns = [getattr(found, name) for name in names]
    return tuple(column[client].item() for column in columns if column is not None)


def test_bytes_take_their_time():
    mbps = np.array([8.0, 1.0, math.inf])
    assert transfer_s(1_000_000, mbps).tolist() == [1.0, 8.0, 0.0]
    assert transfer_s(np.array([0, 500_000, 1]), mbps).tolist() == [0.0, 4.0, 0.0]


def test_download_compute_upload():
    found = fate()
    assert told(found) == (START, END, ARRIVAL, ARRIVAL, "completed", True)
    assert found.busy.tolist() == [2.0]
    assert found.completed.tolist() == [True]


def test_every_client_has_its_own_device():
    devices = fleet(
        4,
        sample_s=[0.5, 2.0, 0.0, 0.5],
        down_mbps=[8.0, 8.0, 2.0, 8.0],
        up_mbps=[4.0, 4.0, 4.0, 1.0],
        latency_s=[0.25, 0.0, 0.5, 1.0],
    )
    found = fate(devices, clients=(0, 1, 2, 3))
    assert found.start.tolist() == [11.25, 11.0, 14.5, 12.0]
    assert found.end.tolist() == [13.25, 19.0, 14.5, 14.0]
    assert found.arrival.tolist() == [14.5, 20.0, 16.0, 19.0]
    assert found.busy.tolist() == [2.0, 8.0, 0.0, 2.0]


def test_jitter_multiplies_the_time_to_compute_by_a_draw_of_its_own():
    devices = fleet(3, jitter=[0.0, 0.5, 1.0])
    found = fate(devices, clients=(0, 1, 2), ordinals=(4, 4, 5))
    z = draws.normal(SEED, "jitter/train", np.array([0, 1, 2]), np.array([4, 4, 5]))
    compute = 2.0 * np.exp(np.array([0.0, 0.5, 1.0]) * z)
    np.testing.assert_allclose(found.end - START, compute, rtol=1e-14)
    np.testing.assert_allclose(found.arrival, found.end + 1.25, rtol=1e-14)
    assert found.end[0] == END  # exactly, whoever else has jitter
    again = fate(devices, clients=(1,), ordinals=(5,))
    assert again.end[0] != found.end[1]
    asked = fate(devices, clients=(1,), ordinals=(4,), purpose="ask")
    assert asked.end[0] != found.end[1]


# Dropping out


def drop_time(client=0, ordinal=0):
    return START + 2.0 * draws.uniform(SEED, "dropout/when", client, ordinal)[0].item()


@pytest.mark.parametrize(
    ("notice", "timeout_s", "noticed"),
    [
        ("disconnect", math.inf, drop_time() + 0.25),
        ("disconnect", 100.0, drop_time() + 0.25),
        ("timeout", 100.0, SEND + 100.0),
        ("timeout", 5.0, SEND + 5.0),
    ],
)
def test_dropping_out_in_the_middle_of_training(notice, timeout_s, noticed):
    lost = drop_time()
    found = fate(fleet(dropout=[1.0]), timeout_s=timeout_s, notice=notice)
    assert told(found) == (START, lost, math.inf, noticed, "dropped", False)
    assert START < lost < END
    assert found.busy[0] == lost - START


def test_the_notice_of_a_disconnect_does_not_come_after_the_timeout():
    lost = drop_time()
    timeout_s = lost + 0.125 - SEND
    found = fate(fleet(dropout=[1.0]), timeout_s=timeout_s)
    assert told(found) == (START, lost, math.inf, SEND + timeout_s, "dropped", False)


def test_every_dispatch_of_a_client_has_its_own_luck():
    risk, n = 0.3, 4000
    devices = fleet(2, dropout=[risk, 0.0])
    dropped = fate(devices, clients=[0] * n + [1] * n, ordinals=[*range(n)] * 2).outcome
    share = (dropped[:n] == "dropped").mean()
    z = NormalDist().inv_cdf(1 - 1e-7 / 2)  # fails once in 10^7 seeds; the seed is fixed
    assert abs(share - risk) < z * math.sqrt(risk * (1 - risk) / n)
    assert (dropped[n:] == "completed").all()


def test_a_reply_that_takes_no_time_to_compute_can_be_dropped_too():
    found = fate(fleet(dropout=[1.0], sample_s=[0.0]))
    assert told(found) == (START, START, math.inf, START + 0.25, "dropped", False)


def test_being_asked_for_a_loss_is_no_training_to_drop_out_of():
    assert told(fate(fleet(dropout=[1.0]), purpose="ask"))[4] == "completed"


# Lifetimes: the longer the work, the likelier a client drops out


N = 4000
Z = NormalDist().inv_cdf(1 - 1e-7 / 2)  # fails once in 10^7 seeds; the seed is fixed


def mortal(life, growth, passes, **more):
    """N dispatches of a client that computes half a second per pass."""
    devices = fleet(1, lifetime_s=[life], hazard_growth=[growth])
    return fate(devices, clients=[0] * N, ordinals=range(N), passes=passes, **more)


@pytest.mark.parametrize("growth", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("compute", [0.5, 2.0, 5.0])
def test_the_probability_of_dropping_out_grows_with_the_work_as_weibull_says(growth, compute):
    found = mortal(2.0, growth, 2 * compute)
    dropped = found.outcome == "dropped"
    q = 1 - math.exp(-((compute / 2.0) ** growth))
    assert abs(dropped.sum() - q * N) < Z * math.sqrt(q * (1 - q) * N)
    assert set(found.outcome[~dropped].tolist()) <= {"completed"}
    assert (found.end[~dropped] == START + compute).all()
    # When they drop out, it is by the same law, cut off where the work is done.
    F = np.sort(1 - np.exp(-((found.busy[dropped] / 2.0) ** growth))) / q
    n = len(F)
    gap = np.abs(F - (np.arange(n) + 0.5) / n).max()
    assert math.sqrt(n) * gap < math.sqrt(-math.log(1e-7 / 2) / 2)  # Kolmogorov and Smirnov


def test_a_client_that_drops_out_of_short_work_drops_out_of_longer_work_at_the_same_moment():
    short, long = mortal(2.0, 1.5, 3.0), mortal(2.0, 1.5, 8.0)
    dropped = short.outcome == "dropped"
    assert (short.end[dropped] == long.end[dropped]).all()
    assert (long.outcome[dropped] == "dropped").all()
    assert (long.outcome == "dropped").sum() > dropped.sum() > 0


def test_lifetimes_and_dropout_come_to_whatever_is_first():
    devices = {"lifetime_s": [2.0], "hazard_growth": [2.0]}
    both = fate(fleet(dropout=[1.0], **devices), clients=[0] * N, ordinals=range(N))
    dropout = fate(fleet(dropout=[1.0]), clients=[0] * N, ordinals=range(N))
    life = mortal(2.0, 2.0, 4.0)
    assert both.end.tolist() == np.minimum(dropout.end, life.end).tolist()
    assert set(both.outcome.tolist()) == {"dropped"}
    assert 0 < (life.end < dropout.end).sum() < N


def test_only_training_wears_a_client_out():
    assert set(mortal(1e-9, 1.0, 4.0, purpose="ask").outcome.tolist()) == {"completed"}
    assert set(mortal(1e-9, 1.0, 4.0).outcome.tolist()) == {"dropped"}
    assert set(mortal(math.inf, 1.0, 4.0).outcome.tolist()) == {"completed"}
    found = fate(fleet(3, lifetime_s=[math.inf, 1e-9, math.inf]), clients=(0, 1, 2))
    assert found.outcome.tolist() == ["completed", "dropped", "completed"]


# Work that begins later, takes longer, or is cut short


def test_every_client_may_be_sent_its_work_at_its_own_moment():
    devices = fleet(3, jitter=[0.5] * 3, dropout=[0.0, 1.0, 0.0])
    send, leaves = np.array([10.0, 20.0, 4.0]), (math.inf, math.inf, 7.0)
    together = fate(devices, leaves, clients=(0, 1, 2), send=send, timeout_s=50.0)
    for k in range(3):
        alone = fate(devices, leaves, clients=(k,), send=float(send[k]), timeout_s=50.0)
        assert told(together, k) == told(alone)
    assert together.outcome.tolist() == ["completed", "dropped", "offline"]
    late = fate(clients=(0, 0), send=np.array([10.0, 30.0]), timeout_s=2.0)
    assert late.notice.tolist() == [12.0, 32.0]


def test_what_comes_after_the_training_is_computed_too():
    found = fate(after=np.array([2.0]))
    assert told(found) == (START, END + 1.0, ARRIVAL + 1.0, ARRIVAL + 1.0, "completed", True)


def test_a_client_that_is_busy_answers_when_it_is_done():
    found = fate(purpose="ask", wait=np.array([1.5]))
    assert told(found) == (START, END + 1.5, ARRIVAL + 1.5, ARRIVAL + 1.5, "completed", True)


@pytest.mark.parametrize(
    ("timeout_s", "end", "done"),
    [
        (100.0, END, 4),
        (4.5, END, 4),  # just in time
        (4.25, 12.75, 3),
        (4.0, 12.75, 3),
        (3.5, 12.25, 2),
        (3.0, 11.75, 1),
    ],
)
def test_a_client_that_would_be_late_returns_the_steps_that_it_has_done(timeout_s, end, done):
    found = fate(steps=np.array([4]), timeout_s=timeout_s)  # of half a second each
    assert told(found) == (START, end, end + 1.25, end + 1.25, "completed", True, done)


def test_not_a_single_step_in_time_is_late():
    found = fate(steps=np.array([4]), timeout_s=2.875)
    assert told(found) == (START, 12.875, math.inf, 12.875, "late", False, 4)


def test_time_for_what_comes_after_the_steps_is_kept():
    found = fate(steps=np.array([4]), after=1.0, timeout_s=4.0)
    assert told(found) == (START, 12.75, 14.0, 14.0, "completed", True, 2)


@given(st.integers(1, 60), st.floats(1e-4, 10.0), st.floats(0.1, 60.0), st.sampled_from([0.0, 0.7]))
@examples(150)
def test_as_many_steps_as_fit_and_no_more(steps, sample_s, timeout_s, after):
    devices = fleet(sample_s=[sample_s])
    work = {"passes": float(steps), "timeout_s": timeout_s, "after": after}
    found = fate(devices, steps=np.array([steps]), **work)
    done = found.steps[0].item()
    if found.completed[0]:
        assert 1 <= done <= steps
        assert found.arrival[0] <= SEND + timeout_s
        if done < steps:  # one more would have been late
            more = fate(devices, passes=done + 1 + 1e-9, timeout_s=timeout_s, after=after)
            assert more.outcome.tolist() == ["late"]
    else:
        one = fate(devices, passes=1 + 1e-9, timeout_s=timeout_s, after=after)
        assert one.outcome.tolist() == ["late"]
        assert done == steps


# Going offline


@pytest.mark.parametrize("notice", ["disconnect", "timeout"])
@pytest.mark.parametrize(
    ("leaves", "start", "end", "uploaded"),
    [
        (5.0, 10.0, 10.0, False),  # before it was sent anything
        (10.75, 10.75, 10.75, False),  # in the download
        (12.0, START, 12.0, False),  # in the computation
        (14.0, START, END, True),  # in the upload
    ],
)
def test_going_offline_on_the_way(leaves, start, end, uploaded, notice):
    found = fate(leaves=(leaves,), timeout_s=100.0, notice=notice)
    noticed = max(leaves, SEND) + 0.25 if notice == "disconnect" else SEND + 100.0
    assert told(found) == (start, end, math.inf, noticed, "offline", uploaded)
    assert found.busy.tolist() == [end - start]


@pytest.mark.parametrize("leaves", [ARRIVAL, 20.0])
def test_going_offline_after_the_reply_has_arrived(leaves):
    assert told(fate(leaves=(leaves,)))[4] == "completed"


def test_whatever_comes_first_of_dropping_out_and_going_offline():
    lost = drop_time()
    before, after = lost - 0.125, lost + 0.125
    assert told(fate(fleet(dropout=[1.0]), (before,)))[1::3] == (before, "offline")
    assert told(fate(fleet(dropout=[1.0]), (after,)))[1::3] == (lost, "dropped")


# Being late


@pytest.mark.parametrize(
    ("timeout_s", "start", "end", "uploaded"),
    [
        (4.25, START, END, True),  # in the upload
        (2.0, START, 12.0, False),  # in the computation
        (1.0, 11.0, 11.0, False),  # in the download
    ],
)
def test_late_at_the_timeout(timeout_s, start, end, uploaded):
    found = fate(timeout_s=timeout_s)
    assert told(found) == (start, end, math.inf, SEND + timeout_s, "late", uploaded)
    assert found.busy.tolist() == [end - start]


def test_at_the_very_timeout_is_in_time():
    assert told(fate(timeout_s=4.5)) == (START, END, ARRIVAL, ARRIVAL, "completed", True)


@pytest.mark.parametrize("notice", ["disconnect", "timeout"])
def test_what_would_have_happened_after_the_timeout_does_not(notice):
    # At 12 the client is told to stop: it neither goes offline at 13 nor drops out later on.
    late = (START, 12.0, math.inf, 12.0, "late", False)
    assert told(fate(leaves=(13.0,), timeout_s=2.0, notice=notice)) == late
    slow = fleet(dropout=[1.0], sample_s=[500.0])
    assert told(fate(slow, timeout_s=2.0, notice=notice)) == late


def test_a_client_that_never_goes_offline_is_not_looked_for_beyond_the_timeout():
    population = Population(np.zeros(1, dtype=np.int64), ("all",), *np.ones((3, 1), dtype=np.int64))
    calendar = Blocks(block_s=1.0, offline=0.0).build(SEED, population)
    one = np.array([0])
    found = timeline(
        fleet(sample_s=[1e12]), calendar, SEED, "train", one, one, SEND, one, one, one + 1.0, 5.0,
        "timeout",
    )  # fmt: skip
    assert told(found)[4] == "late"


# All together


@given(data=st.data(), notice=st.sampled_from(["disconnect", "timeout"]))
@examples(150)
def test_what_holds_of_every_fate(data, notice):
    n = data.draw(st.integers(1, 5))

    def column(*values):
        return data.draw(st.lists(st.sampled_from(values), min_size=n, max_size=n))

    devices = fleet(
        n,
        sample_s=column(0.0, 0.5, 3.0),
        up_mbps=column(4.0, 0.5, math.inf),
        down_mbps=column(8.0, 0.5, math.inf),
        latency_s=column(0.0, 0.25, 2.0),
        jitter=column(0.0, 1.0),
        dropout=column(0.0, 0.5, 1.0),
    )
    leaves = tuple(column(0.0, 10.5, 12.0, 14.0, math.inf))
    ordinals = column(0, 1, 2)
    timeout_s = data.draw(st.sampled_from([0.5, 2.0, 10.0, 1e9]))
    everybody = tuple(range(n))
    found = fate(
        devices,
        leaves,
        clients=everybody,
        ordinals=ordinals,
        timeout_s=timeout_s,
        notice=notice,
    )
    deadline = SEND + timeout_s
    for k in everybody:
        start, end, arrival, noticed, outcome, uploaded = told(found, k)
        assert SEND <= start <= end <= noticed <= deadline
        assert (outcome == "completed") == (arrival <= deadline) == math.isfinite(arrival)
        if outcome == "completed":
            assert noticed == arrival
            assert uploaded
        elif notice == "timeout" or outcome == "late":
            assert noticed == deadline
        elif not uploaded:
            assert noticed == min(end + devices.latency_s[k], deadline)
        if outcome == "dropped":
            assert not uploaded
        # Whoever else is sent work, and in whatever order, this client's fate is the same.
        alone = fate(
            devices, leaves, clients=(k,), ordinals=ordinals[k : k + 1],
            timeout_s=timeout_s, notice=notice,
        )  # fmt: skip
        assert told(alone) == told(found, k)


# The clock


def test_events_happen_by_time_then_priority_then_in_the_order_of_their_making():
    clock = Clock()
    clock.at(2.0, Event("d"))
    clock.at(1.0, Event("b"))
    clock.at(1.0, Event("c"))
    clock.at(1.0, Event("a"), priority=-1)
    found = []
    while len(clock):
        found.append((clock.pop().kind, clock.now))
    assert found == [("a", 1.0), ("b", 1.0), ("c", 1.0), ("d", 2.0)]


@pytest.mark.parametrize("time", [0.5, math.inf, math.nan])
def test_an_event_is_not_in_the_past_nor_at_no_time(time):
    clock = Clock(now=1.0)
    clock.at(1.0, Event("now"))
    with pytest.raises(RunFailed, match=r"event 'x' at .*virtual time is 1"):
        clock.at(time, Event("x"))
