"""Memory, where it costs time: what a step of training frees is kept for the next step, and
Python's search for garbage is rare while a run goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading

TRIM_BYTES = 256 << 20
MMAP_BYTES = 32 << 20
"""Freed memory that a process keeps; and what is larger than this goes back at once."""

_OPTIONS = {"MALLOC_TRIM_THRESHOLD_": (-1, TRIM_BYTES), "MALLOC_MMAP_THRESHOLD_": (-3, MMAP_BYTES)}


def keep_freed() -> None:
    """Tell the C library, where it is GNU's, unless the user's environment tells it something.

    By itself it gives large pieces back to the system, or not, as chance has it: to get them anew,
    page by page, takes a third of an LSTM's time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for name, (option, value) in _OPTIONS.items():
            if name not in os.environ:
                mallopt(option, value)


COLLECTED = 50_000
"""Objects that are made, and still there, before Python looks for cycles among them."""


class _RareCollections(contextlib.ContextDecorator):
    """While such a block lasts in any thread. The event loop makes no cycles, but records by the
    thousand, which stay: to look through these every 700 objects takes a seventh of its time.
    """

    def __init__(self) -> None:
        self._lock, self._blocks = threading.Lock(), 0
        self._usual = gc.get_threshold()

    def __enter__(self) -> None:
        with self._lock:
            if not self._blocks:
                self._usual = young, *older = gc.get_threshold()
                if young:  # else the user has turned it off
                    gc.set_threshold(max(young, COLLECTED), *older)
            self._blocks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if not self._blocks:
                gc.set_threshold(*self._usual)


rare_collections = _RareCollections()
