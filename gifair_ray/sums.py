"""Sums that come out the same whatever the number of threads.

A BLAS may split a long dot product between threads, and then its last bits depend on how many
there are: not for anything that is recorded, or that decides a step. Here threads share blocks,
whose results do not depend on who computed them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import numpy as np
import numpy.typing as npt

from gifair_ray.replies import Models

Floats = npt.NDArray[np.float64]
Reals = npt.NDArray[np.floating]
BLOCK = 1 << 14  # numbers of a long vector that are taken at a time: they stay in the cache

THREADS = 4  # more would wait for the memory
LONG = 1 << 19  # numbers whose sum is worth a thread


def share_blocks(work: Callable[[range], None], blocks: range, numbers: int) -> None:
    """Do `work` for all blocks of so many numbers in total; by several threads if that is long."""
    threads = min(THREADS, numbers // LONG, len(blocks))
    if threads > 1:  # only then: to count processors takes longer than a short sum
        threads = min(threads, os.cpu_count() or 1)
    if threads <= 1:
        work(blocks)
        return
    mine, *others = (blocks[i::threads] for i in range(threads))
    with ThreadPoolExecutor(len(others)) as pool:
        # In the caller's context, which has numpy's answer to an overflow.
        done = [pool.submit(copy_context().run, work, some) for some in others]
        work(mine)
        for some in done:
            some.result()


def dot(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Σ a_i b_i in float64."""
    return float(np.add.reduce(np.multiply(a, b, dtype=np.float64)))


def gram(rows: Models, bases: Models) -> Floats:
    """The inner products ⟨row_i − base_i, row_j − base_j⟩ in float64, as a matrix."""
    m, n = len(rows), len(rows[0])
    out = np.zeros((m, m))
    for at in range(0, n, BLOCK):
        part = slice(at, at + BLOCK)
        changes = np.array([row[part] for row in rows], dtype=np.float64)
        changes -= np.array([base[part] for base in bases], dtype=np.float64)
        for i in range(m):
            out[i, i:] += np.add.reduce(changes[i:] * changes[i], axis=1)
    return np.triu(out) + np.triu(out, 1).T


def squared_norms(rows: Sequence[Reals], bases: Sequence[Reals]) -> Floats:
    """‖row_k − base_k‖² in float64."""
    out = np.zeros(len(rows))
    for k, (row, base) in enumerate(zip(rows, bases, strict=True)):
        for at in range(0, len(row), BLOCK):
            # Both in float64 first: numpy subtracts mixed types by small pieces.
            change = row[at : at + BLOCK].astype(np.float64)
            change -= base[at : at + BLOCK].astype(np.float64)
            out[k] += dot(change, change)
    return out
