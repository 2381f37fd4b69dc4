"""Sums over clients and parameters: the same bits, however many threads there are."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from gifair_ray import aggregators, sums
from gifair_ray.aggregators import weighted_sum


def models(m, n, seed=0):
    return np.random.default_rng(seed).standard_normal((m, n)).astype(np.float32)


def one_by_one(weights, rows, base):
    """Σ_k ω_k (row_k − base), and that onto the base: a client after the other."""
    total = np.zeros(rows.shape[1])
    for weight, row in zip(weights, rows, strict=True):
        total += weight * (row.astype(np.float64) - base)
    return (base + total).astype(base.dtype)


SMALL = {"TOGETHER": 60}  # blocks of 3 numbers by 20 clients
LARGE = {"LONG": 1, "BLOCK": 3}


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [5, 24, 25, 127])  # the last block is full, or has one number
@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small models", "large models"])
def test_threads_do_not_change_a_sum_of_clients(monkeypatch, sizes, n, threads):
    for name, value in sizes.items():
        monkeypatch.setattr(aggregators, name, value)
    monkeypatch.setattr(sums, "LONG", 1)
    monkeypatch.setattr(sums, "THREADS", threads)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    weights, rows, base = np.linspace(0.1, 1.3, 20), models(20, n), models(1, n, seed=1)[0]
    expected = one_by_one(weights, rows, base)
    for given in (rows, list(rows)):
        found = weighted_sum(weights, given, [base] * 20, onto=base)
        assert found.tobytes() == expected.tobytes()


def test_a_long_sum_is_shared_between_threads_and_a_short_one_is_not(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    done: dict[str, int] = {}

    def work(blocks):
        done[threading.current_thread().name] = len(blocks)

    sums.share_blocks(work, range(0, 100, 10), 2 * sums.LONG)
    assert sorted(done.values()) == [5, 5]
    done.clear()
    sums.share_blocks(work, range(0, 100, 10), 2 * sums.LONG - 1)
    assert done == {threading.current_thread().name: 10}


def test_what_fails_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)

    def work(blocks):
        if 10 in blocks:
            raise MemoryError

    with pytest.raises(MemoryError):
        sums.share_blocks(work, range(0, 100, 10), 2 * sums.LONG)


def test_threads_are_as_quiet_about_overflows_as_the_caller(monkeypatch):
    monkeypatch.setattr(sums, "LONG", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    rows = np.full((2, 300_000), 3e38, dtype=np.float32)  # more than a block
    with np.errstate(over="ignore"):
        found = weighted_sum(np.array([1.0, 1.0]), rows, [-rows[0]] * 2, onto=rows[0])
    assert np.isinf(found).all()


def test_squared_norms_are_those_of_the_differences_in_float64():
    rows, bases = models(3, sums.BLOCK + 7), models(3, sums.BLOCK + 7, seed=1)
    found = sums.squared_norms(list(rows), list(bases))
    differences = rows.astype(np.float64) - bases
    np.testing.assert_allclose(found, (differences**2).sum(axis=1), rtol=1e-13)
