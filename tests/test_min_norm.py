"""The min-norm problem of FedMGDA+, and sums that do not depend on the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from profiles import examples

from gifair_ray.min_norm import duality_gap, min_norm_weights, project
from gifair_ray.sums import dot, gram, squared_norms


@st.composite
def directions(draw, most: int = 60) -> np.ndarray:
    """Vectors of length 1, or 0: at random, nearly the same, opposite, repeated, few dimensions."""
    m, n = draw(st.integers(1, most)), draw(st.sampled_from([1, 2, 5, 40, 200]))
    g = np.random.default_rng(draw(st.integers(0, 2**32)))
    G = g.standard_normal((m, n))
    kind = draw(st.sampled_from(["random", "nearly", "opposite", "repeated", "coarse", "zeros"]))
    if kind == "nearly":
        G = g.standard_normal(n) + 10.0 ** draw(st.integers(-9, -1)) * G
    elif kind == "opposite":
        G[::2] = -G[: (m + 1) // 2]
    elif kind == "repeated":
        G = G[g.integers(0, m, m)]
    elif kind == "coarse":
        G = np.round(G)
    elif kind == "zeros":
        G[g.random(m) < 0.3] = 0.0
    norms = np.linalg.norm(G, axis=1, keepdims=True)
    return G / np.where(norms > 0, norms, 1.0)


@st.composite
def boxes(draw, m: int) -> tuple[np.ndarray, np.ndarray]:
    """λ⁰ − ε and λ⁰ + ε, within [0, 1]."""
    g = np.random.default_rng(draw(st.integers(0, 2**32)))
    prior = np.full(m, 1 / m) if draw(st.booleans()) else g.dirichlet(np.ones(m))
    epsilon = draw(st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5, 1.0]))
    return np.maximum(prior - epsilon, 0.0), np.minimum(prior + epsilon, 1.0)


def inside(lam: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> bool:
    return bool(((lam >= lower) & (lam <= upper)).all() and abs(lam.sum() - 1) < 1e-12)


@examples(120)
@given(st.data())
def test_the_solution_is_feasible_and_its_duality_gap_certifies_it(data):
    G = data.draw(directions())
    lower, upper = data.draw(boxes(len(G)))
    M = gram(list(G), [np.zeros(G.shape[1])] * len(G))
    lam = min_norm_weights(M, lower, upper)
    assert inside(lam, lower, upper)
    # The gap anew, by its definition: the best λ' puts what it may where the slope is smallest.
    slope = G @ (lam @ G)
    least, room = lower.copy(), 1 - lower.sum()
    for k in np.argsort(slope):
        more = min(room, upper[k] - lower[k])
        least[k] += more
        room -= more
    assert slope @ (lam - least) <= 1.01e-10
    assert duality_gap(M, lam, lower, upper) <= 1e-10


@examples(25)
@given(st.data())
def test_no_point_of_a_grid_is_better(data):
    G = data.draw(directions(most=4))
    lower, upper = data.draw(boxes(len(G)))
    M, m = G @ G.T, len(G)
    lam = min_norm_weights(M, lower, upper)
    value = np.sum((lam @ G) ** 2)
    ticks = np.linspace(0, 1, 6)
    for point in np.stack(np.meshgrid(*[ticks] * m), axis=-1).reshape(-1, m):
        other = project(point, lower, upper)
        assert value <= np.sum((other @ G) ** 2) + 2e-10


@examples(100)
@given(st.data())
def test_the_projection_is_the_nearest_point_of_the_box(data):
    m = data.draw(st.integers(1, 12))
    lower, upper = data.draw(boxes(m))
    g = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scale = 10.0 ** data.draw(st.integers(-3, 12))
    v = scale * g.standard_normal(m)
    x = project(v, lower, upper)
    assert inside(x, lower, upper)
    for _ in range(10):  # ⟨v − x, y − x⟩ ≤ 0 for all other points y
        y = project(g.standard_normal(m), lower, upper)
        assert (v - x) @ (y - x) <= 1e-12 * max(1.0, scale)


@pytest.mark.parametrize("m", [1, 2, 7])
def test_vectors_that_are_all_zero_leave_the_middle(m):
    lam = min_norm_weights(np.zeros((m, m)), np.zeros(m), np.ones(m))
    assert_allclose(lam, np.full(m, 1 / m))


# Sums


def test_sums_are_what_they_say():
    g = np.random.default_rng(0)
    rows = [g.standard_normal(40_000).astype(np.float32) for _ in range(3)]
    bases = [g.standard_normal(40_000).astype(np.float32) for _ in range(3)]
    changes = np.array(rows, dtype=np.float64) - np.array(bases, dtype=np.float64)
    assert_allclose(gram(rows, bases), changes @ changes.T, rtol=1e-12, atol=1e-9)
    assert_allclose(squared_norms(rows, bases), (changes**2).sum(axis=1), rtol=1e-12)
    assert dot(rows[0], bases[0]) == pytest.approx(np.float64(rows[0]) @ np.float64(bases[0]))
    assert_array_equal(gram(rows, bases), gram(rows, bases).T)


HASHES = """
import hashlib
import numpy as np
from gifair_ray.min_norm import min_norm_weights
from gifair_ray.sums import dot, gram, squared_norms
g = np.random.default_rng(0)
rows = list(g.standard_normal((200, 3000)) + 0.2)
zeros = [np.zeros(3000)] * 200
M = gram(rows, zeros)
long = g.standard_normal(1_000_000)
lam = min_norm_weights(M / M.max(), np.zeros(200), np.full(200, 0.1))
results = [M, squared_norms(rows, zeros), np.array(dot(long, long)), lam]
print(*(hashlib.md5(r.tobytes()).hexdigest() for r in results))
"""


def test_the_number_of_threads_of_a_blas_does_not_matter():
    found = []
    for n in ("1", "2"):
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), n)
        command = [sys.executable, "-c", HASHES]
        done = subprocess.run(command, env=os.environ | threads, capture_output=True, check=True)
        found.append(done.stdout.split())
    assert len(found[0]) == 4
    assert found[0] == found[1]
