"""What a step of training frees is kept for the next step."""

from __future__ import annotations

import ctypes
import os
import sys

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
