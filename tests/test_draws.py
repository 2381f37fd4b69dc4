"""Randomness by name: a draw is a function of its name, and looks random.

The statistical tests have fixed seeds, so they cannot fail by chance from one day to the next. Each
states how often a perfect generator would have failed it: ALARM, for every single check.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from gifair_ray import draws

ALARM = 1e-7
Z = NormalDist().inv_cdf(1 - ALARM / 2)  # as many standard deviations are beyond that, two-sided
KS = math.sqrt(-math.log(ALARM / 2) / 2)  # the same for √n · sup |F_n − F|, Kolmogorov's bound

SEEDS = st.integers(0, 2**63 - 1)
PURPOSES = st.sampled_from(["", "dropout", "dropout/when", "1:dropout", "größe"])
KEYS = st.integers(-(2**63), 2**64 - 1) | st.integers(-3, 3)


def by_hand(seed, purpose, *keys):
    """The hash in Python's own integers: splitmix64 over the keys, one after the other."""

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    name = f"{seed}:{purpose}".encode()
    h = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
    for key in keys:
        h = mix((h + (key + 1) * gamma) % 2**64)
    return mix((h + gamma) % 2**64)


@given(SEEDS, PURPOSES, st.lists(KEYS, max_size=4))
@examples(60)
def test_a_draw_is_the_hash_of_its_name(seed, purpose, keys):
    assert draws.bits(seed, purpose, *keys).tolist() == [by_hand(seed, purpose, *keys)]


@given(SEEDS, PURPOSES, st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), KEYS), min_size=1))
@examples(60)
def test_many_draws_at_once_are_the_same_as_one_by_one(seed, purpose, rows):
    a = np.array([row[0] for row in rows])
    b = np.array([row[1] % 2**64 for row in rows], dtype=np.uint64)
    for draw in (draws.bits, draws.uniform, draws.normal):
        together = draw(seed, purpose, a, b)
        alone = np.concatenate([draw(seed, purpose, *row) for row in rows])
        assert together.tobytes() == alone.tobytes()


def test_normals_do_not_depend_on_their_place_in_a_long_column():
    keys = np.arange(1003)
    together = draws.normal(1, "n", keys)
    for start, stop in itertools.pairwise((0, 1, 3, 8, 21, 150, 1003)):
        assert together[start:stop].tobytes() == draws.normal(1, "n", keys[start:stop]).tobytes()
    by_stride = draws.normal(1, "n", keys[::-7])
    assert by_stride.tobytes() == together[::-7].tobytes()


def test_keys_broadcast():
    a, b = np.arange(4), np.arange(-2, 3)
    table = draws.bits(7, "x", a[:, None], b, 9)
    assert table.shape == (4, 5)
    for i, j in np.ndindex(4, 5):
        assert table[i, j] == draws.bits(7, "x", int(a[i]), int(b[j]), 9)[0]


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_the_type_of_a_key_does_not_matter(kind):
    keys = [-128, -1, 0, 127]
    expected = [by_hand(1, "x", key) for key in keys]
    assert draws.bits(1, "x", np.array(keys, dtype=kind)).tolist() == expected


def test_a_key_that_does_not_fit_in_64_bits_is_refused():
    with pytest.raises(OverflowError):
        draws.bits(1, "x", 2**64)


def test_no_keys_and_no_rows():
    assert draws.uniform(1, "x").shape == (1,)
    none = np.array([], dtype=np.int64)
    for draw in (draws.bits, draws.uniform, draws.normal):
        assert draw(1, "x", none, 3).shape == (0,)


@given(SEEDS, PURPOSES, KEYS, KEYS)
@examples(60)
def test_every_part_of_a_name_counts(seed, purpose, a, b):
    names = [
        (seed, purpose),
        (seed, purpose, a),
        (seed, purpose, a, b),
        (seed, purpose, a, b, 0),
        (seed, purpose, a, b + 1 if b < 0 else b - 1),
        (seed + 1, purpose, a, b),
        (seed, purpose + " ", a, b),
    ]
    if (a - b) % 2**64:
        names += [(seed, purpose, b, a), (seed, purpose, b)]
    found = {int(draws.bits(*name)[0]) for name in names}
    assert len(found) == len(names)


# Ways to vary a name, each of which must look random by itself.
N = 20_000
I = np.arange(N)  # noqa: E741
COLUMNS = {
    "the only key": lambda draw: draw(11, "a", I),
    "the first key": lambda draw: draw(11, "b", I, 5),
    "the last key": lambda draw: draw(11, "c", 5, I),
    "large steps": lambda draw: draw(11, "d", I * 2**40),
    "downwards": lambda draw: draw(11, "e", -I),
    "a grid": lambda draw: draw(11, "f", (I // 200), I % 200),
    "a diagonal": lambda draw: draw(11, "g", I, I),
    "the seed": lambda draw: np.concatenate([draw(int(s), "h", 1) for s in I[:4000]]),
    "the purpose": lambda draw: np.concatenate([draw(11, f"i{s}", 1) for s in I[:4000]]),
}


def kolmogorov(values, cdf):
    """√n · sup |F_n − F|."""
    n = len(values)
    F = cdf(np.sort(values))
    above, below = np.arange(1, n + 1) / n - F, F - np.arange(n) / n
    return math.sqrt(n) * max(above.max(), below.max())


def phi(x):
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])


@pytest.mark.parametrize("vary", COLUMNS)
def test_uniform_is_uniform_and_its_neighbours_independent(vary):
    u = COLUMNS[vary](draws.uniform)
    n = len(u)
    assert u.min() >= 0
    assert u.max() < 1
    assert kolmogorov(u, lambda x: x) < KS
    assert abs(u.mean() - 1 / 2) < Z * math.sqrt(1 / 12 / n)
    assert abs(u.var() - 1 / 12) < Z * math.sqrt(1 / 180 / n)
    centred = u - 1 / 2
    for lag in (1, 2, 200):
        products = centred[lag:] * centred[:-lag]
        assert abs(products.mean()) < Z / 12 / math.sqrt(len(products))


@pytest.mark.parametrize("vary", COLUMNS)
def test_normal_is_normal_and_its_neighbours_independent(vary):
    z = COLUMNS[vary](draws.normal)
    n = len(z)
    assert kolmogorov(z, phi) < KS
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        spread = math.sqrt(math.prod(range(1, 2 * power, 2)) - moment**2)  # E z^2p − (E z^p)²
        assert abs((z**power).mean() - moment) < Z * spread / math.sqrt(n)
    for lag in (1, 2, 200):
        assert abs((z[lag:] * z[:-lag]).mean()) < Z / math.sqrt(n - lag)


def test_every_one_of_the_64_bits_is_a_fair_coin():
    column = draws.bits(3, "coin", I)
    ones = np.unpackbits(column.view(np.uint8)).reshape(N, 64).sum(axis=0)
    assert np.abs(ones - N / 2).max() < Z * math.sqrt(N / 4)


def test_draws_of_different_purposes_are_independent():
    u, v = (draws.uniform(3, purpose, I) - 1 / 2 for purpose in ("dropout", "dropout/when"))
    assert abs((u * v).mean()) < Z / 12 / math.sqrt(N)


@given(SEEDS, st.integers(0, 40), st.lists(st.integers(-5, 2**40), min_size=1, max_size=5))
@examples(60)
def test_permutations_are_permutations_each_named_by_its_row(seed, length, keys):
    found = draws.permutations(seed, "shuffle", length, 4, np.array(keys))
    assert found.shape == (len(keys), length)
    for row, key in zip(found, keys, strict=True):
        assert sorted(row.tolist()) == list(range(length))
        assert row.tolist() == draws.permutations(seed, "shuffle", length, 4, key)[0].tolist()


def test_a_permutation_without_keys_is_one_row():
    found = draws.permutations(1, "shuffle", 30)
    assert found.shape == (1, 30)
    assert sorted(found[0].tolist()) == list(range(30))
    assert found[0].tolist() != draws.permutations(2, "shuffle", 30)[0].tolist()


def test_all_permutations_are_equally_frequent():
    rows = draws.permutations(5, "shuffle", 4, I)
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    p = 1 / 24
    assert np.abs(counts - N * p).max() < Z * math.sqrt(N * p * (1 - p))


def test_a_generator_is_named_like_a_draw():
    stream = draws.generator(1, "data", 2).standard_normal(8).tolist()
    assert draws.generator(1, "data", 2).standard_normal(8).tolist() == stream
    for other in ((2, "data", 2), (1, "date", 2), (1, "data", 3), (1, "data", 2, 0)):
        assert draws.generator(*other).standard_normal(8).tolist() != stream
