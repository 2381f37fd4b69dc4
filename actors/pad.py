"""A pad: rows of memory that a server and the client actors of its machine share.

Models go over it: the server writes a version once, an actor writes a result once, and neither is
sent. The memory has no name and no file, and ends with the last process that has it, however that
ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref

import numpy as np

from gifair_ray.protocol import Layout
from gifair_ray.replies import Params

PAD_BYTES = 512 << 20  # of a pad; pages that were never written take no memory
MOST = 1 << 16  # rows of one: as many results as may be under way on a machine
FEWEST = 4  # rows that make a pad worth having
ALIGNED = 64
_FREE = b"\1"


class Rows:
    """Flat models of one layout, one after the other in shared memory."""

    def __init__(self, memory: mmap.mmap, layout: Layout) -> None:
        self._memory, self._layout = memory, layout

    def at(self, first: int, n: int) -> Params:
        """So many rows from the first on, as they are in the memory."""
        dtype, stride = np.dtype(self._layout.dtype), _stride(self._layout)
        return np.ndarray(
            (n, self._layout.size),
            dtype,
            self._memory,
            first * stride,
            (stride, dtype.itemsize),
        )


class Pad(Rows):
    """The server's end, which says who writes where."""

    def __init__(self, layout: Layout) -> None:
        rows, stride = _rows(layout), _stride(layout)
        self.descriptor = os.memfd_create("gifair-pad")
        try:
            os.ftruncate(self.descriptor, rows * stride)
            super().__init__(mmap.mmap(self.descriptor, rows * stride), layout)
        except OSError:
            os.close(self.descriptor)
            raise
        self._free = bytearray(_FREE * rows)

    def take(self, n: int) -> int | None:
        """The first of n rows that nobody else has from now on; None if there are not so many."""
        first = self._free.find(_FREE * n)
        if first < 0:
            return None
        self._free[first : first + n] = bytes(n)
        return first

    def lent(self, first: int, n: int) -> Params:
        """Rows that were taken, and are given back when nobody has this array any more."""
        rows = self.at(first, n)
        weakref.finalize(rows, self._give_back, first, n).atexit = False
        return rows

    def _give_back(self, first: int, n: int) -> None:
        self._free[first : first + n] = _FREE * n

    def close(self) -> None:
        """Nobody else will be shown it; arrays of it stay good."""
        os.close(self.descriptor)


def pad_for(layout: Layout) -> Pad | None:
    """A pad, where there is such memory (Linux) and models are not too large for it."""
    if hasattr(os, "memfd_create") and _rows(layout) >= FEWEST:
        with contextlib.suppress(OSError):  # no such memory for us: Ray's store will do
            return Pad(layout)
    return None


def _stride(layout: Layout) -> int:
    return -(-layout.nbytes // ALIGNED) * ALIGNED


def _rows(layout: Layout) -> int:
    return min(MOST, PAD_BYTES // _stride(layout))
