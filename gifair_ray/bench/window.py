"""A process that is measured: it warms up, works for a while by the clock, and says what it did.

It speaks to whoever started it in lines of JSON: the phase it enters, and at the end the result.
Memory is read from outside, in every phase but the timed one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from gifair_ray.bench.meter import cpu_seconds

TAIL_S = 1.0  # work goes on for so long after the timed phase, for its memory to be read


def given() -> dict[str, Any]:
    """The arm that this process is to be."""
    arm: dict[str, Any] = json.loads(sys.stdin.readline())
    return arm


def say(**words: Any) -> None:
    """A line to whoever measures."""
    print(json.dumps(words), flush=True)


def measure(
    arm: dict[str, Any], advance: Callable[[], int], moved: Callable[[], int] = lambda: 0
) -> None:
    """Rounds per second of `advance`, which goes on a little and returns the rounds so far."""
    me, done = os.getpid(), advance()
    ready = time.monotonic()
    while done < arm["warm"]:
        done = advance()
    result = {"rounds": 0, "wall_s": 0.0, "cpu_s": 0.0, "moved_bytes": 0, "ready": ready}
    if arm["seconds"] > 0:
        say(phase="timed")
        cpu, bytes_, first, began = cpu_seconds(me), moved(), done, time.monotonic()
        while time.monotonic() < began + arm["seconds"] or done == first:
            done = advance()
        ended = time.monotonic()
        result["rounds"], result["wall_s"] = done - first, ended - began
        result["cpu_s"], result["moved_bytes"] = cpu_seconds(me) - cpu, moved() - bytes_
        say(phase="after")
        while time.monotonic() < ended + TAIL_S:
            advance()
    say(phase="end", **result)
