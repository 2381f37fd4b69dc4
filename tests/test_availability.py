"""Availability of every kind: calendars that agree with themselves, with the file and with the law.

Statistical tests have fixed seeds; a perfect generator would fail one of their checks with
probability ALARM.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from pyarrow import csv, feather, parquet
from pydantic import ValidationError

import gifair_ray
from gifair_ray.availability import Availability
from gifair_ray.availability.bernoulli import Bernoulli
from gifair_ray.availability.blocks import Blocks
from gifair_ray.availability.diurnal import Diurnal
from gifair_ray.availability.markov import Markov
from gifair_ray.availability.outages import Outages
from gifair_ray.availability.trace import Trace
from gifair_ray.errors import BadInput, RunFailed
from gifair_ray.federation import Population

ALARM = 1e-7
Z = NormalDist().inv_cdf(1 - ALARM / 2)
KS = math.sqrt(-math.log(ALARM / 2) / 2)
HOUR = 3600.0


def population(K=4, names=None):
    """K clients; those with odd numbers live on the farm."""
    n = np.ones(K, dtype=np.int64)
    return Population(np.arange(K) % 2, ("city", "farm"), n, 0 * n, 0 * n, names)


def write(path, **columns):
    """A file with these columns, in the format that its name says."""
    table = pa.table({name.rstrip("_"): column for name, column in columns.items()})
    writers = {".csv": csv.write_csv, ".parquet": parquet.write_table}
    writers.get(path.suffix, feather.write_feather)(table, path)
    return str(path)


def grid(calendar, clients, moments):
    """Who is online when, as (moments, clients), from a single question."""
    k, t = np.tile(clients, len(moments)), np.repeat(moments, len(clients))
    return calendar.online(k, t).reshape(len(moments), len(clients))


def likely(count, q, n):
    """Whether so many of n can be, when each is with probability q."""
    return abs(count - q * n) <= Z * math.sqrt(q * (1 - q) * n)


# Every calendar agrees with itself


def blocks(s, folder):
    return Blocks(block_s=s, offline=0.5, groups={"farm": 0.8})


def markov(s, folder):
    return Markov(on_s=3 * s, off_s=2 * s, groups_on_s={"farm": s}, groups_off_s={"farm": 4 * s})


def diurnal(s, folder):
    return Diurnal(block_s=s, zone_hours={"dist": "uniform", "low": -12, "high": 12})


def trace(s, folder):
    """Client 0 goes on from one turn of the trace into the next; 2 never leaves, 3 never comes."""
    name = folder / f"{s.hex()}.arrow"
    rows = [(0, 0, 2), (0, 2.5, 4), (0, 7, 10), (1, 1, 3), (1, 2, 5), (1, 6, 6.5), (2, 0, 10)]
    client, begin, end = zip(*rows, strict=True)
    if not name.exists():
        write(name, client=client, from_=np.array(begin) * s, until=np.array(end) * s)
    return Trace(path=str(name), period_s=10 * s)


def outages(s, folder):
    return Outages(block_s=3 * s, probability=0.4, base=markov(s, folder))


def outages_of_a_trace(s, folder):
    return Outages(block_s=s, groups={"city": 0.5, "farm": 0.9}, base=trace(s, folder))


INTERVALS = [blocks, markov, diurnal, trace, outages, outages_of_a_trace]


def bernoulli(s, folder):
    return Bernoulli(offline=0.5, groups={"farm": 0.9}, retry_s=s)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


SCALE = st.sampled_from([0.1, 0.3, 1 / 3, 1.0, 3600.0, math.pi]) | st.floats(1e-3, 1e6)
FIRST = st.integers(0, 50) | st.integers(0, 10**6)
SEED = st.integers(0, 10**6)


def moments(s, first):
    """Around a moment at which a block, a turn of the trace and an era of the chain begin."""
    at = np.arange(max(0, 320 * first - 6), 320 * first + 14) * s
    there = [at, np.nextafter(at, np.inf), np.nextafter(at, 0), at + 0.3 * s, at + 0.7 * s]
    return np.unique(np.concatenate(there))


@pytest.mark.parametrize("rule", INTERVALS)
@given(s=SCALE, first=FIRST, seed=SEED)
@examples(15)
def test_until_is_the_first_moment_offline(rule, folder, s, first, seed):
    calendar = rule(s, folder).build(seed, population())
    k, looks = np.arange(4), moments(s, first)
    online = grid(calendar, k, looks)
    i = np.arange(0, len(looks) - 1, 3)
    clients, t = np.tile(k, len(i)), np.repeat(looks[i], 4)
    horizon = looks[-1]
    found = calendar.until(clients, t, np.full(len(t), horizon))
    assert (found >= t).all()
    lost = np.isfinite(found)
    assert (found[lost] < horizon).all()
    assert not calendar.online(clients[lost], found[lost]).any()
    left = lost & (found > t)  # it was there until then
    assert calendar.online(clients[left], np.nextafter(found[left], 0)).all()
    for client, begin, end in zip(clients.tolist(), t.tolist(), found.tolist(), strict=True):
        assert online[(begin <= looks) & (looks < min(end, horizon)), client].all()


@pytest.mark.parametrize("rule", INTERVALS)
@given(s=SCALE, first=FIRST, seed=SEED, those=st.sets(st.integers(0, 3), min_size=1))
@examples(10)
def test_next_online_is_the_first_moment_at_which_one_of_them_is(
    rule, folder, s, first, seed, those
):
    calendar = rule(s, folder).build(seed, population())
    k, looks = np.array(sorted(those)), moments(s, first)
    online = grid(calendar, k, looks)
    for t in looks[:: len(looks) // 4].tolist():
        when = calendar.next_online(t, k)
        assert when >= t
        assert not online[(t <= looks) & (looks < when)].any()
        if math.isinf(when):
            assert those == {3}
            assert rule in (trace, outages_of_a_trace)
            continue
        assert calendar.online(k, when).any()
        assert when == t or not calendar.online(k, math.nextafter(when, 0)).any()
        assert calendar.next_online(t) <= when


@pytest.mark.parametrize("rule", [*INTERVALS, bernoulli])
@given(s=SCALE, first=FIRST, seed=SEED, data=st.data())
@examples(8)
def test_an_answer_depends_on_seed_client_and_time_and_on_no_other_question(
    rule, folder, s, first, seed, data
):
    calendar = rule(s, folder).build(seed, population())
    k, looks = np.arange(4), moments(s, first)[::5]
    online = grid(calendar, k, looks)
    for i in data.draw(st.lists(st.integers(0, len(looks) - 1), min_size=1, max_size=5)):
        some = np.array(data.draw(st.lists(st.integers(0, 3), max_size=6)), dtype=np.int64)
        t = looks[i].item()
        calendar.next_online(t, k)
        calendar.until(k, np.full(4, t), np.full(4, t + s))
        assert calendar.online(some, t).tolist() == online[i, some].tolist()
    again = rule(s, folder).build(seed, population())
    backwards = grid(again, k[::-1], looks[::-1])
    assert backwards[::-1, ::-1].tolist() == online.tolist()


@pytest.mark.parametrize("rule", [r for r in [*INTERVALS, bernoulli] if r is not trace])
def test_another_seed_is_another_calendar(rule, folder):
    looks = np.arange(200) * 1.7
    one, other = (grid(rule(1.0, folder).build(n, population()), np.arange(3), looks) for n in "12")
    assert (one != other).any(axis=0).all()


@pytest.mark.parametrize("rule", [*INTERVALS, bernoulli])
def test_only_those_who_are_always_there_are_reliable(rule, folder):
    assert not rule(1.0, folder).reliable


@pytest.mark.parametrize("kind", ["blocks", "bernoulli", "markov", "diurnal", "outages"])
def test_a_group_that_does_not_exist_is_refused(kind):
    key = {"markov": "groups_off_s", "diurnal": "groups_zone_hours"}.get(kind, "groups")
    rule = Availability.model_validate({"kind": kind, key: {"fram": 1.0}})
    with pytest.raises(BadInput, match=rf"availability\.{key} has 'fram'.*did you mean 'farm'"):
        rule.build(1, population())


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("bernoulli", "groups", 1.5),
        ("markov", "groups_on_s", 0.0),
        ("markov", "groups_off_s", -1.0),
        ("diurnal", "groups_zone_hours", 25.0),
        ("outages", "groups", -0.5),
    ],
)
def test_an_impossible_value_of_a_group_is_refused(kind, key, value):
    rule = Availability.model_validate({"kind": kind, key: {"farm": value}})
    with pytest.raises(BadInput, match=rf"availability\.{key}\.farm = .* is outside \["):
        rule.build(1, population())


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "bernoulli", "offline": 1.1},
        {"kind": "bernoulli", "retry_s": 0.0},
        {"kind": "markov", "on_s": 0.0},
        {"kind": "markov", "off_s": math.inf},
        {"kind": "markov", "groups_off_s": {"farm": math.nan}},
        {"kind": "diurnal", "peak_hour": 24.0},
        {"kind": "diurnal", "swing": -0.1},
        {"kind": "diurnal", "block_s": 0.0},
        {"kind": "trace", "path": "x.csv", "period_s": 0.0},
        {"kind": "outages", "probability": 2.0},
        {"kind": "outages", "base": {"kind": "blocks", "offline": 2.0}},
    ],
    ids=str,
)
def test_impossible_rules_are_refused(bad):
    with pytest.raises(ValidationError, match=list(bad)[-1]):
        Availability.model_validate(bad)


# A coin at every look


def test_a_coin_has_the_probability_of_the_group_and_no_memory():
    calendar = Bernoulli(offline=0.2, groups={"farm": 0.7}).build(1, population(100))
    online = grid(calendar, np.arange(100), np.cumsum(np.full(300, 1e-3)))
    for group, q in ((0, 0.8), (1, 0.3)):
        own = online[:, group::2]
        assert likely(own.sum(), q, own.size)
        pairs = own[1:] & own[:-1]
        assert likely(pairs[::2].sum(), q * q, pairs[::2].size)  # pairs that do not overlap
        neighbours = own[:, :-1:2] & own[:, 1::2]
        assert likely(neighbours.sum(), q * q, neighbours.size)


def test_whoever_was_online_when_sent_work_stays_for_it():
    calendar = Bernoulli(offline=0.9).build(1, population())
    assert np.isinf(calendar.until(np.arange(4), np.zeros(4), np.full(4, 1e9))).all()


def test_when_nobody_is_online_we_look_again_after_a_while():
    calendar = Bernoulli(offline=0.9, retry_s=2.5).build(1, population())
    k, waits = np.array([1, 2]), []
    for t in (np.arange(400) * 1000.25).tolist():
        when = calendar.next_online(t, k)
        looks = [t + i * 2.5 for i in range(round((when - t) / 2.5) + 1)]
        assert when == looks[-1]
        assert [calendar.online(k, look).any() for look in looks[-2:]] == [False, True][
            -len(looks) :
        ]
        waits.append(len(looks))
    q = 1 - 0.9**2  # a geometric number of looks
    assert abs(np.mean(waits) - 1 / q) < Z * math.sqrt((1 - q) / q**2 / len(waits))


def test_who_is_never_online_is_not_waited_for():
    calendar = Bernoulli(offline=0.1, groups={"farm": 1.0}).build(1, population())
    assert math.isinf(calendar.next_online(0.0, np.array([1, 3])))
    assert not calendar.online(np.array([1, 3] * 50), np.arange(100.0)).any()
    assert math.isfinite(calendar.next_online(0.0))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_is_one_moment(zero):
    calendar = Bernoulli(offline=0.5).build(1, population(64))
    k = np.arange(64)
    assert calendar.online(k, zero).tolist() == calendar.online(k, np.zeros(64)).tolist()


# On and off in turns


def test_the_chain_is_online_for_its_share_of_the_time():
    rule = Markov(on_s=30.0, off_s=10.0, groups_on_s={"farm": 5.0}, groups_off_s={"farm": 45.0})
    calendar = rule.build(1, population(200))
    online = grid(calendar, np.arange(200), np.arange(60) * 1234.5)  # many cycles in between
    for group, share in ((0, 0.75), (1, 0.1)):
        own = online[:, group::2]
        assert likely(own.sum(), share, own.size)


def test_the_chain_forgets_at_its_rate():
    rule = Markov(on_s=30.0, off_s=10.0)
    calendar = rule.build(1, population(200))
    k, t = np.arange(200), np.arange(40) * 1234.5 + 200.0
    before = grid(calendar, k, t)
    for delay in (1.0, 5.0, 20.0):
        after = grid(calendar, k, t + delay)
        kept = math.exp(-delay * (1 / 30.0 + 1 / 10.0))
        assert likely(after[before].sum(), 0.75 + 0.25 * kept, before.sum())
        assert likely(after[~before].sum(), 0.75 - 0.75 * kept, (~before).sum())


@pytest.mark.parametrize("at", [0.0, 321.0])
def test_times_online_are_exponential(at):
    calendar = Markov(on_s=30.0, off_s=10.0).build(1, population(4000))
    k = np.arange(4000)
    k = k[calendar.online(k, at)]
    stays = calendar.until(k, np.full(len(k), at), np.full(len(k), 1e9)) - at
    F = 1 - np.exp(-np.sort(stays) / 30.0)
    n = len(k)
    assert math.sqrt(n) * np.abs(F - (np.arange(n) + 0.5) / n).max() < KS


def test_times_offline_are_exponential():
    calendar = Markov(on_s=30.0, off_s=10.0).build(1, population(1200))
    k = np.arange(1200)
    k = k[~calendar.online(k, 100.0)]
    waits = [calendar.next_online(100.0, k[i : i + 1]) - 100.0 for i in range(len(k))]
    F = 1 - np.exp(-np.sort(waits) / 10.0)
    n = len(k)
    assert math.sqrt(n) * np.abs(F - (np.arange(n) + 0.5) / n).max() < KS


@pytest.mark.parametrize("era", [43, 81, 86, 91, 162])
def test_the_chain_goes_on_where_rounding_puts_the_end_of_an_era_before_itself(era):
    span = 64 * (0.08 + 0.02)  # 64 cycles
    assert math.floor(era * span / span) == era - 1
    calendar = Markov(on_s=0.08, off_s=0.02).build(1, population(50))
    k, t = np.arange(50), np.full(50, era * span - 0.01)
    found = calendar.until(k, t, t + 10.0)  # later than that somebody leaves
    assert (found > era * span).any()
    assert not calendar.online(k, found).any()
    for client in k[~calendar.online(k, t)].tolist():
        when = calendar.next_online(t[0].item(), np.array([client]))
        assert t[0] < when < t[0] + 10.0


# Day and night


def test_the_share_online_follows_the_local_hour():
    rule = Diurnal(mean=0.5, swing=0.4, peak_hour=2.0, groups_zone_hours={"farm": -6.0})
    calendar = rule.build(1, population(200))
    days = np.arange(25) * 24
    total = np.zeros(2)
    for hour in range(24):
        online = grid(calendar, np.arange(200), (days + hour) * HOUR + 60.0)
        for group, zone in ((0, 0.0), (1, -6.0)):
            local = hour + 0.25 + zone  # the middle of the half hour
            share = 0.5 + 0.4 * math.cos(2 * math.pi * (local - 2.0) / 24)
            own = online[:, group::2]
            assert likely(own.sum(), share, own.size), (hour, group)
            total[group] += own.mean() / 24
    np.testing.assert_allclose(total, 0.5, atol=Z * 0.5 / math.sqrt(24 * 25 * 100))


def test_a_time_zone_shifts_the_wave():
    k, looks = np.arange(50), np.arange(300) * 1801.0
    ahead = Diurnal(peak_hour=2.0, zone_hours=6.0).build(1, population(50))
    earlier = Diurnal(peak_hour=20.0).build(1, population(50))
    assert grid(ahead, k, looks).tolist() == grid(earlier, k, looks).tolist()
    here = Diurnal(peak_hour=2.0).build(1, population(50))
    assert grid(ahead, k, looks).tolist() != grid(here, k, looks).tolist()
    of_group = Diurnal(peak_hour=2.0, groups_zone_hours={"farm": 6.0}).build(1, population(50))
    shifted = grid(of_group, k, looks)
    assert shifted[:, 1::2].tolist() == grid(ahead, k, looks)[:, 1::2].tolist()
    assert shifted[:, ::2].tolist() == grid(here, k, looks)[:, ::2].tolist()


def test_a_wave_is_cut_at_never_and_always():
    calendar = Diurnal(mean=0.5, swing=1.0, peak_hour=12.0).build(1, population(300))
    k = np.arange(300)
    assert calendar.online(k, 12 * HOUR).all()
    assert not calendar.online(k, 24 * HOUR).any()
    # Nobody is online while the cosine is below −½: from 20 to 4 o'clock.
    assert 28 * HOUR <= calendar.next_online(20 * HOUR) < 29 * HOUR
    assert np.isinf(calendar.until(k, np.full(300, 9 * HOUR), np.full(300, 15 * HOUR))).all()


def test_a_population_without_any_day_is_never_online():
    calendar = Diurnal(mean=0.0, swing=0.0).build(1, population(200_000))
    assert math.isinf(calendar.next_online(0.0))


# Traces


ROWS = {"client": ["ben", "anna", "ben", "ben", "anna"]}
ROWS |= {"from_": [50.0, 10.0, 0.0, 5.0, 20.0], "until": [60.0, 20.0, 10.0, 15.0, 30.5]}
NAMED = population(4, ("anna", "ben", "cleo", "dan"))


@pytest.mark.parametrize("suffix", ["csv", "arrow", "feather", "parquet"])
def test_a_trace_is_read_from_any_format(tmp_path, suffix):
    path = write(tmp_path / f"who.{suffix}", note=["x"] * 5, **ROWS)  # other columns do no harm
    calendar = Trace(path=path).build(1, NAMED)
    looks = [0.0, 5.0, 9.9, 10.0, 14.9, 15.0, 20.0, 30.4, 30.5, 49.9, 50.0, 59.9, 60.0, 1e9]
    online = grid(calendar, np.arange(4), looks)
    # Intervals that touch or overlap are one: anna from 10 to 30.5, ben from 0 to 15.
    assert online[:, 0].tolist() == [10 <= t < 30.5 for t in looks]
    assert online[:, 1].tolist() == [t < 15 or 50 <= t < 60 for t in looks]
    assert not online[:, 2:].any()  # who has no rows is never there
    k, t = np.array([0, 1, 1, 1, 2]), np.array([12.0, 3.0, 20.0, 55.0, 0.0])
    assert calendar.until(k, t, np.full(5, 100.0)).tolist() == [30.5, 15.0, 20.0, 60.0, 0.0]
    assert np.isinf(calendar.until(k[:2], t[:2], np.array([30.5, 15.0]))).all()
    assert calendar.next_online(15.0, np.array([1, 2])) == 50.0
    assert calendar.next_online(15.0) == 15.0
    assert calendar.next_online(40.0) == 50.0
    assert math.isinf(calendar.next_online(60.0))
    assert math.isinf(calendar.next_online(0.0, np.array([2, 3])))


@pytest.mark.parametrize("suffix", ["csv", "arrow", "parquet"])
def test_clients_without_names_go_by_their_numbers(tmp_path, suffix):
    path = write(tmp_path / f"who.{suffix}", client=[3, 0], from_=[0, 5], until=[7, 9])
    online = grid(Trace(path=path).build(1, population()), np.arange(4), [0.0, 6.0, 8.0])
    assert online.T.tolist() == [[False, True, True], [False] * 3, [False] * 3, [True, True, False]]


def test_names_that_look_like_numbers_are_names(tmp_path):
    path = write(tmp_path / "who.csv", client=["007", "7"], from_=[0, 5], until=[1, 6])
    calendar = Trace(path=path).build(1, population(2, ("7", "007")))
    assert grid(calendar, np.arange(2), [0.0, 5.0]).tolist() == [[False, True], [True, False]]


def test_a_trace_starts_again_after_its_period(tmp_path):
    path = write(tmp_path / "who.arrow", **ROWS)
    once, again = Trace(path=path).build(1, NAMED), Trace(path=path, period_s=60.0).build(1, NAMED)
    k, looks = np.arange(4), np.arange(0, 60, 0.5)
    for turn in (0, 1, 7, 10**6):
        assert grid(again, k, looks + 60 * turn).tolist() == grid(once, k, looks).tolist()
    # Ben's last interval of a turn goes on in the first of the next, from 50 to 75.
    t, horizon = np.array([55.0, 615.0 - 3.0]), np.full(2, 1e6)
    assert again.until(np.array([1, 1]), t, horizon).tolist() == [75.0, 615.0]
    assert again.next_online(40.0, np.array([0])) == 70.0
    assert math.isinf(again.next_online(40.0, np.array([2])))


def test_who_is_there_for_the_whole_period_never_leaves(tmp_path):
    path = write(tmp_path / "who.csv", client=[0, 0], from_=[0.0, 0.05], until=[0.06, 0.1])
    calendar = Trace(path=path, period_s=0.1).build(1, population())
    one = np.zeros(200, dtype=np.int64)
    t = np.arange(200) * 0.1
    assert calendar.online(one, t).all()
    assert calendar.online(one, np.nextafter(t, 0)).all()
    assert np.isinf(calendar.until(one, t, t + 5.0)).all()


def test_a_trace_without_rows_is_of_nobody(tmp_path):
    empty = pa.array([], pa.float64())
    path = write(tmp_path / "who.arrow", client=pa.array([], pa.string()), from_=empty, until=empty)
    calendar = Trace(path=path).build(1, population())
    assert not calendar.online(np.arange(4), 0.0).any()
    assert math.isinf(calendar.next_online(0.0))


@pytest.mark.parametrize("suffix", ["csv", "arrow", "parquet"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": None}, "has no column 'client'; it needs client, from and until"),
        ({"from_": None}, "has no column 'from'"),
        ({"until": None}, "has no column 'until'"),
        ({"client": ["anna", "bob"]}, "row 1: there is no client 'bob' in the data"),
        ({"client": ["anna", None]}, "row 1: there is no client"),
        ({"until": [5.0, 1.0]}, "row 1: from 1 until 1 is no interval of time"),
        ({"until": [5.0, 0.5]}, "row 1: from 1 until 0.5 is no interval"),
        ({"from_": [-1.0, 1.0]}, "row 0: from -1 until 5 is no interval"),
        ({"from_": [0.0, None]}, "row 1: from nan until 6 is no interval"),
        ({"until": [math.nan, 6.0]}, "row 0: from 0 until nan is no interval"),
        ({"from_": ["soon", "later"]}, "from and until must be seconds"),
    ],
    ids=str,
)
def test_a_bad_trace_is_refused_by_name_and_row(tmp_path, suffix, change, message):
    columns = {"client": ["anna", "ben"], "from_": [0.0, 1.0], "until": [5.0, 6.0]} | change
    columns = {name: column for name, column in columns.items() if column is not None}
    path = write(tmp_path / f"bad.{suffix}", **columns)
    with pytest.raises(BadInput, match=message) as caught:
        Trace(path=path).build(1, NAMED)
    assert path in str(caught.value)


@pytest.mark.parametrize("name", ["none.csv", "none.parquet", "junk.arrow", "junk.parquet", ""])
def test_a_trace_that_cannot_be_read_is_refused_by_name(tmp_path, name):
    for junk in ("junk.arrow", "junk.parquet"):
        (tmp_path / junk).write_bytes(b"no such format")
    with pytest.raises(BadInput, match="cannot read the availability trace") as caught:
        Trace(path=str(tmp_path / name)).build(1, NAMED)
    assert str(tmp_path / name) in str(caught.value)


def test_a_trace_may_not_be_longer_than_its_period(tmp_path):
    path = write(tmp_path / "who.csv", **ROWS)
    with pytest.raises(BadInput, match=r"goes to 60 s, beyond availability\.period_s = 59\.5"):
        Trace(path=path, period_s=59.5).build(1, NAMED)
    Trace(path=path, period_s=60.0).build(1, NAMED)


# Outages


def test_an_outage_strikes_a_whole_group_and_no_other():
    rule = Outages(block_s=10.0, probability=0.3, groups={"farm": 0.6})
    calendar = rule.build(1, population(20))
    online = grid(calendar, np.arange(20), np.arange(2000) * 10.0 + 5.0)
    city, farm = online[:, ::2], online[:, 1::2]
    for own, q in ((city, 0.7), (farm, 0.4)):
        assert (own.all(axis=1) | ~own.any(axis=1)).all()
        assert likely(own[:, 0].sum(), q, len(own))
    assert likely((city[:, 0] & farm[:, 0]).sum(), 0.7 * 0.4, len(online))


def test_online_are_those_that_are_neither_cut_off_nor_away_by_themselves():
    base = Markov(on_s=30.0, off_s=30.0)
    outage = {"block_s": 7.0, "probability": 0.5}
    parts = [base, Outages(**outage), Outages(**outage, base=base)]
    k, looks = np.arange(10), np.arange(500) * 3.3
    alone, cut_off, both = (grid(part.build(1, population(10)), k, looks) for part in parts)
    assert both.tolist() == (alone & cut_off).tolist()
    assert both.any()
    assert (alone & ~cut_off).any()
    assert (cut_off & ~alone).any()


def test_a_group_that_is_always_cut_off_is_not_waited_for():
    calendar = Outages(probability=0.2, groups={"farm": 1.0}).build(1, population())
    assert math.isinf(calendar.next_online(0.0, np.array([1, 3])))
    assert calendar.online(np.array([0]), calendar.next_online(0.0)).all()


def test_somebody_who_comes_back_after_millions_of_outages_is_found(tmp_path):
    path = write(tmp_path / "who.csv", client=[0, 0], from_=[0, 5e6], until=[10, 5e6 + 100])
    rule = Outages(block_s=1.0, probability=0.5, base=Trace(path=path))
    calendar = rule.build(1, population())
    when = calendar.next_online(20.0)
    assert 5e6 <= when < 5e6 + 100
    assert calendar.online(np.array([0]), when).all()
    assert math.isinf(calendar.next_online(5e6 + 100))


def test_outages_come_on_top_of_any_rule():
    rule = Availability.model_validate(
        {"kind": "outages", "base": {"kind": "outages", "base": {"kind": "bernoulli"}}}
    )
    assert isinstance(rule.base.base, Bernoulli)
    assert rule.model_dump()["base"]["base"]["offline"] == 0.1
    with pytest.raises(ValidationError, match="base"):
        Availability.model_validate({"kind": "outages", "base": {"kind": "outage"}})


# In a run


SCENARIO = {
    "seed": 3,
    "data": {"source": "quadratic"},
    "model": {"kind": "quadratic", "init": 1.5},
    "work": {"steps": 2, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "all"},
    "stop": {"rounds": 12},
}


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "bernoulli", "offline": 0.6},
        {"kind": "markov", "on_s": 1.0, "off_s": 2.0},
        {"kind": "diurnal", "mean": 0.2, "block_s": 0.1},
        {"kind": "outages", "block_s": 0.5, "probability": 0.5, "base": {"kind": "bernoulli"}},
    ],
    ids=lambda rule: rule["kind"],
)
def test_runs_with_any_availability(rule):
    scenario = SCENARIO | {"availability": rule}
    done, again = (gifair_ray.run(scenario, backend="local") for _ in range(2))
    assert done.digest == again.digest
    rows = done.table("dispatches")
    assert len(set(rows["round"].to_pylist())) == 12
    assert rows.num_rows < 24  # somebody was away
    calendar = Availability.model_validate(rule).build(SCENARIO["seed"], population(2))
    assert calendar.online(rows["client"].to_numpy(), rows["send_s"].to_numpy()).all()


def test_a_run_with_a_trace_sends_work_to_those_who_are_there(tmp_path):
    path = write(tmp_path / "who.csv", client=[0, 1], from_=[100.0, 50.0], until=[101.0, 101.0])
    scenario = SCENARIO | {"availability": {"kind": "trace", "path": path}, "stop": {"rounds": 1}}
    done = gifair_ray.run(scenario, backend="local")
    rows = done.table("dispatches").to_pylist()
    assert [(row["client"], row["send_s"]) for row in rows] == [(1, 50.0)]
    with pytest.raises(RunFailed, match="no client is ever online again"):
        gifair_ray.run(scenario | {"stop": {"rounds": 10**6}}, backend="local")
