"""Devices and availability: values by their distribution, and calendars that agree with
themselves.

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
from pyarrow import csv
from pydantic import ValidationError

from gifair_ray.availability import Availability
from gifair_ray.availability.always import Always
from gifair_ray.availability.blocks import Blocks
from gifair_ray.devices import Devices
from gifair_ray.distributions import Spread
from gifair_ray.errors import BadInput
from gifair_ray.federation import Population

ALARM = 1e-7
Z = NormalDist().inv_cdf(1 - ALARM / 2)
KS = math.sqrt(-math.log(ALARM / 2) / 2)
N = 5000


def population(K=N, groups=("city", "farm"), names=None):
    """K clients, dealt out to the groups in turn."""
    n = np.ones(K, dtype=np.int64)
    return Population(np.arange(K) % len(groups), groups, n, 0 * n, 0 * n, names)


def values(seed=1, clients=None, **spread):
    return Spread(**spread).draw(seed, "x", np.arange(N) if clients is None else clients)


# Distributions


def phi(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


@pytest.mark.parametrize(
    ("spread", "cdf"),
    [
        ({"dist": "uniform", "low": 2.0, "high": 5.0}, lambda x: (x - 2) / 3),
        ({"dist": "uniform", "low": -4.0, "high": 0.0}, lambda x: (x + 4) / 4),
        (
            {"dist": "lognormal", "median": 3.0, "sigma": 0.5},
            lambda x: phi(math.log(x / 3) / 0.5),
        ),
        ({"dist": "pareto", "minimum": 2.0, "shape": 1.5}, lambda x: 1 - (2 / x) ** 1.5),
    ],
    ids=lambda value: value["dist"] if isinstance(value, dict) else "",
)
def test_values_follow_their_distribution(spread, cdf):
    F = np.array([cdf(x) for x in np.sort(values(**spread)).tolist()])
    assert F.min() >= 0
    assert math.sqrt(N) * np.abs(F - (np.arange(N) + 0.5) / N).max() < KS


def test_constants():
    assert set(values(dist="constant", value=2.5).tolist()) == {2.5}
    assert set(values(dist="uniform", low=3.0, high=3.0).tolist()) == {3.0}
    assert set(values(dist="lognormal", median=3.0, sigma=0.0).tolist()) == {3.0}
    devices = Devices(sample_s=0.5)  # a plain number is short for a constant
    assert devices.build(1, population(3)).sample_s.tolist() == [0.5] * 3


@pytest.mark.parametrize(
    "spread",
    [
        {"dist": "uniform", "low": 0.0, "high": 1.0},
        {"dist": "lognormal", "median": 1.0, "sigma": 1.0},
        {"dist": "pareto", "minimum": 1.0, "shape": 1.0},
    ],
    ids=lambda spread: spread["dist"],
)
def test_a_value_belongs_to_a_client_by_its_number(spread):
    drawn = values(**spread)
    some = np.array([4000, 3, 17])
    assert values(clients=some, **spread).tolist() == drawn[some].tolist()
    assert values(seed=2, **spread).tolist() != drawn.tolist()
    assert Spread(**spread).draw(1, "y", np.arange(N)).tolist() != drawn.tolist()


@pytest.mark.parametrize(
    ("spread", "message"),
    [
        ({"dist": "constant"}, "needs value"),
        ({"dist": "uniform", "low": 1.0}, "needs low and high"),
        ({"dist": "uniform", "low": 2.0, "high": 1.0}, "low = 2.0 is above high = 1.0"),
        ({"dist": "lognormal", "median": 1.0}, "needs median and sigma"),
        ({"dist": "lognormal", "median": 0.0, "sigma": 1.0}, "median"),
        ({"dist": "pareto", "minimum": 1.0, "shape": 0.0}, "shape"),
        ({"dist": "trace", "path": "x.csv"}, "needs path and column"),
        ({"dist": "normal"}, "dist"),
        ({"dist": "constant", "value": 1.0, "mean": 2.0}, "mean"),
    ],
)
def test_impossible_distributions_are_refused(spread, message):
    with pytest.raises(ValidationError, match=message):
        Spread(**spread)


# Traces


def write(path, columns):
    table = pa.table(columns)
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize("suffix", ["csv", "arrow"])
def test_a_trace_gives_every_client_one_of_the_measured_values(tmp_path, suffix):
    measured = [0.5, 1.0, 8.0, 1.0]
    path = write(tmp_path / f"speeds.{suffix}", {"n": [1, 2, 3, 4], "speed": measured})
    drawn = values(dist="trace", path=str(path), column="speed")
    assert set(drawn.tolist()) == set(measured)
    for value, q in ((0.5, 0.25), (1.0, 0.5), (8.0, 0.25)):
        assert abs((drawn == value).sum() - q * N) < Z * math.sqrt(q * (1 - q) * N)
    whole_numbers = values(dist="trace", path=str(path), column="n")
    assert set(whole_numbers.tolist()) == {1.0, 2.0, 3.0, 4.0}
    assert whole_numbers.dtype == np.float64


def test_the_same_values_in_both_formats_give_the_same_devices(tmp_path):
    columns = {"speed": [0.1, 0.7, 3.0]}
    drawn = [
        values(dist="trace", path=str(write(tmp_path / name, columns)), column="speed")
        for name in ("a.csv", "a.arrow")
    ]
    assert drawn[0].tolist() == drawn[1].tolist()


@pytest.mark.parametrize("suffix", ["csv", "arrow"])
@pytest.mark.parametrize(
    ("column", "message"),
    [
        (None, "no column 'speed'; it has other"),
        ([], "empty"),
        ([1.0, None], "not finite"),
        ([1.0, math.inf], "not finite"),
        (["fast", "slow"], "not numeric"),
        ([None, "slow"], "not numeric"),
    ],
    ids=["missing", "no rows", "null", "infinite", "text", "null and text"],
)
def test_a_bad_trace_is_refused_by_name(tmp_path, suffix, column, message):
    columns = {"other": [1]} if column is None else {"speed": column, "other": [1] * len(column)}
    if not column:
        columns = {name: pa.array(values, pa.float64()) for name, values in columns.items()}
    path = write(tmp_path / f"bad.{suffix}", columns)
    with pytest.raises(BadInput, match=message) as caught:
        values(dist="trace", path=str(path), column="speed")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["none.csv", "none.arrow", "junk.csv", "junk.arrow", ""])
def test_a_trace_that_cannot_be_read_is_refused_by_name(tmp_path, name):
    (tmp_path / "junk.arrow").write_bytes(b"ARROW1 but no more")
    (tmp_path / "junk.csv").write_bytes(b'a,b\n1\n2,3,4\n"')
    with pytest.raises(BadInput, match="cannot read the trace"):
        values(dist="trace", path=str(tmp_path / name), column="speed")


# Devices


def test_a_group_has_its_own_profile_and_the_rest_of_the_populations():
    devices = Devices(
        sample_s={"dist": "uniform", "low": 1.0, "high": 2.0},
        latency_s=0.25,
        groups={"farm": {"sample_s": {"dist": "uniform", "low": 10.0, "high": 20.0}, "dropout": 1}},
    )
    fleet = devices.build(1, population(8))
    farm = np.arange(8) % 2 == 1
    same = Devices(sample_s=devices.sample_s).build(1, population(8))
    assert fleet.sample_s[~farm].tolist() == same.sample_s[~farm].tolist()
    # Drawn by the same name: the faster client of two is the faster one on the farm, too.
    np.testing.assert_allclose(fleet.sample_s[farm], 10 * same.sample_s[farm])
    assert fleet.dropout.tolist() == farm.astype(float).tolist()
    assert fleet.latency_s.tolist() == [0.25] * 8


def test_the_properties_of_a_device_are_independent():
    spread = {"dist": "uniform", "low": 0.0, "high": 1.0}
    fleet = Devices(sample_s=spread, latency_s=spread, jitter=spread, dropout=spread).build(
        1, population()
    )
    columns = [fleet.sample_s, fleet.latency_s, fleet.jitter, fleet.dropout]
    off_diagonal = np.corrcoef(columns)[np.triu_indices(4, 1)]
    assert np.abs(off_diagonal).max() < Z / math.sqrt(N)


def test_a_group_that_does_not_exist_is_refused():
    with pytest.raises(BadInput, match=r"devices\.groups has 'fram'.*did you mean 'farm'"):
        Devices(groups={"fram": {}}).build(1, population(4))
    with pytest.raises(BadInput, match=r"availability\.groups has 'fram'.*did you mean 'farm'"):
        Blocks(groups={"fram": 0.5}).build(1, population(4))


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("sample_s", -1.0, r"-1 .*\[0, inf\)"),
        ("sample_s", math.inf, r"inf .*\[0, inf\)"),
        ("up_mbps", 0.0, r"0 .*\(0, inf\]"),
        ("down_mbps", -5.0, r"-5 .*\(0, inf\]"),
        ("latency_s", math.inf, r"inf .*\[0, inf\)"),
        ("jitter", -0.1, r"-0.1 .*\[0, inf\)"),
        ("jitter", math.inf, r"inf .*\[0, inf\)"),
        ("dropout", 1.5, r"1.5 .*\[0, 1\]"),
        ("dropout", -0.5, r"-0.5 .*\[0, 1\]"),
        ("lifetime_s", 0.0, r"0 .*\(0, inf\]"),
        ("hazard_growth", 0.0, r"0 .*\(0, inf\)"),
        ("hazard_growth", math.inf, r"inf .*\(0, inf\)"),
    ],
)
def test_impossible_devices_are_refused_by_client_and_limit(name, value, limits):
    names = ("anna", "ben", "cleo", "dan")
    with pytest.raises(BadInput, match=f"devices.{name} = .*client anna"):
        Devices(**{name: value}).build(1, population(4, names=names))
    devices = Devices(groups={"farm": {name: value}})
    with pytest.raises(BadInput, match=f"devices.{name} = {limits}") as caught:
        devices.build(1, population(4, names=names))
    assert "client ben " in str(caught.value)
    with pytest.raises(BadInput, match="client 1 "):
        devices.build(1, population(4))


@pytest.mark.parametrize("name", ["up_mbps", "down_mbps", "lifetime_s"])
def test_a_network_may_be_infinitely_fast_and_a_device_immortal(name):
    fleet = Devices(**{name: math.inf}).build(1, population(2))
    assert getattr(fleet, name).tolist() == [math.inf] * 2


@pytest.mark.parametrize(
    ("value", "spread"),
    [
        ("inf", {"dist": "pareto", "minimum": 1.0, "shape": 1e-4}),
        ("inf", {"dist": "lognormal", "median": 1.0, "sigma": 1e4}),
        ("nan", {"dist": "uniform", "low": -math.inf, "high": math.inf}),
    ],
)
def test_a_distribution_beyond_all_numbers_is_refused(value, spread):
    with pytest.raises(BadInput, match=rf"devices\.sample_s = {value} for client"):
        Devices(sample_s=spread).build(1, population())


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_the_cost_of_an_evaluation_is_finite(bad):
    with pytest.raises(ValidationError, match="eval_fraction"):
        Devices(eval_fraction=bad)


# Availability


def test_always_is_always():
    calendar = Always().build(1, population(3))
    k = np.arange(3)
    assert Always().reliable
    assert calendar.online(k, 1e9).all()
    assert np.isinf(calendar.until(k, np.zeros(3), np.full(3, 1e9))).all()
    assert calendar.next_online(5.0) == 5.0


def starts(block_s, first, n):
    """The moments at which blocks begin, and those just before and after."""
    at = np.arange(first, first + n) * block_s
    return sorted({*at, *np.nextafter(at, np.inf), *np.nextafter(at, 0), *(at + 0.3 * block_s)})


BLOCK_S = st.sampled_from([0.1, 0.3, 1 / 3, 1.0, 3600.0, math.pi]) | st.floats(1e-3, 1e6)
FIRST = st.integers(0, 50) | st.integers(0, 10**9)


@given(BLOCK_S, FIRST, st.integers(0, 10**6), st.sampled_from([0.0, 0.2, 0.7, 1.0]))
@examples(100)
def test_until_is_the_first_moment_offline(block_s, first, seed, offline):
    calendar = Blocks(block_s=block_s, offline=offline).build(seed, population(4))
    k, moments = np.arange(4), starts(block_s, first, 8)
    online = np.array([calendar.online(k, t) for t in moments])  # (moments, clients)
    horizon = moments[-1]
    for i, t in enumerate(moments[:-4:3]):
        found = calendar.until(k, np.full(4, t), np.full(4, horizon))
        for client in range(4):
            gone = [
                s for s, on in zip(moments, online[:, client], strict=True) if s >= t and not on
            ]
            expected = gone[0] if gone and gone[0] < horizon else math.inf
            assert found[client] == expected, (i, client)


@given(BLOCK_S, FIRST, st.integers(0, 10**6))
@examples(60)
def test_until_looks_at_each_client_from_its_own_moment_to_its_own_horizon(block_s, first, seed):
    calendar = Blocks(block_s=block_s, offline=0.5).build(seed, population(6))
    k, start = np.array([5, 0, 3]), first * block_s
    t = start + np.array([0.0, 1.4, 3.7]) * block_s
    horizon = t + np.array([4.0, 0.0, 2.5]) * block_s
    together = calendar.until(k, t, horizon)
    alone = [calendar.until(k[i : i + 1], t[i : i + 1], horizon[i : i + 1])[0] for i in range(3)]
    assert together.tolist() == alone
    lost = np.isfinite(together)
    assert (together[lost] >= t[lost]).all()
    assert ((together < horizon) | (together == t) | ~lost).all()


@given(BLOCK_S, FIRST, st.integers(0, 10**6), st.sampled_from([0.0, 0.7, 0.95]))
@examples(100)
def test_next_online_is_the_first_moment_at_which_somebody_is(block_s, first, seed, offline):
    calendar = Blocks(block_s=block_s, offline=offline).build(seed, population(3))
    k = np.arange(3)
    moments = starts(block_s, first, 8)
    for t in moments[::3]:
        when = calendar.next_online(t)
        assert when >= t
        assert calendar.online(k, when).any()
        assert not any(calendar.online(k, s).any() for s in moments if t <= s < when)


@given(BLOCK_S, FIRST, st.integers(0, 10**6))
@examples(60)
def test_a_client_stays_as_it_is_throughout_a_block(block_s, first, seed):
    calendar = Blocks(block_s=block_s, offline=0.5).build(seed, population(40))
    k = np.arange(40)
    for block in range(first, first + 4):
        begin, end = block * block_s, (block + 1) * block_s
        inside = [begin, (begin + end) / 2, np.nextafter(end, 0)]
        states = {calendar.online(k, t).tobytes() for t in inside}
        assert len(states) == 1
        assert calendar.online(k, end).tobytes() not in states  # 2^-40 by chance


def test_clients_are_offline_as_often_as_their_group_says():
    calendar = Blocks(block_s=10.0, offline=0.1, groups={"farm": 0.75}).build(1, population(20))
    k, blocks = np.arange(20), 500
    off = np.array([~calendar.online(k, 10.0 * b + 5.0) for b in range(blocks)])
    for group, q in ((0, 0.1), (1, 0.75)):
        n = off[:, group::2].size
        assert abs(off[:, group::2].sum() - q * n) < Z * math.sqrt(q * (1 - q) * n)
    both = off[1:] & off[:-1]  # blocks are independent of each other
    n = both[:, 1::2].size
    assert abs(both[:, 1::2].sum() - 0.75**2 * n) < 2 * Z * math.sqrt(0.75**2 * n)


def test_a_population_that_is_never_online_again_is_known_as_such():
    blocks = Blocks(offline=1.0).build(1, population(200_000))
    assert math.isinf(blocks.next_online(0.0))
    only_one = Blocks(offline=1.0, groups={"farm": 0.9}).build(1, population(2))
    assert only_one.online(np.array([1]), only_one.next_online(0.0)).all()


@pytest.mark.parametrize(
    "bad",
    [
        {"block_s": 0.0},
        {"block_s": math.inf},
        {"block_s": math.nan},
        {"offline": -0.1},
        {"offline": 1.1},
        {"offline": math.nan},
    ],
    ids=str,
)
def test_impossible_calendars_are_refused(bad):
    with pytest.raises(ValidationError, match=next(iter(bad))):
        Availability.model_validate({"kind": "blocks", **bad})


@pytest.mark.parametrize("bad", [-0.1, 1.1])
def test_impossible_probabilities_of_groups_are_refused(bad):
    with pytest.raises(BadInput, match=r"availability.groups.farm = .* outside \[0, 1\]"):
        Blocks(groups={"farm": bad}).build(1, population(4))
