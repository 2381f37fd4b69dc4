"""A process that is measured: it warms up, works for a while whenever it is told to, and says what
it did.

It speaks to whoever started it in lines of JSON: when it is ready, and after every turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from gifair_ray.bench.meter import cpu_seconds, descendants


def given() -> dict[str, Any]:
    """The arm that this process is to be."""
    arm: dict[str, Any] = json.loads(sys.stdin.readline())
    return arm


def say(**words: Any) -> None:
    """A line to whoever measures."""
    print(json.dumps(words), flush=True)


def wait_for_turn() -> float | None:
    """The seconds that it shall work now; None if it is not needed any more.

    Until then the other processes of this arm stand still: other arms are at work, and idle actors
    would be in their way.
    """
    with _standing_still(descendants(os.getpid())):
        told = sys.stdin.readline()  # ends, too, when whoever measures has gone
    return float(told) if told else None


@contextlib.contextmanager
def _standing_still(processes: list[int]) -> Iterator[None]:
    _send(signal.SIGSTOP, processes)
    try:
        yield
    finally:
        _send(signal.SIGCONT, processes)


def _send(number: signal.Signals, processes: list[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def measure(
    arm: dict[str, Any], advance: Callable[[], int], moved: Callable[[], int] = lambda: 0
) -> None:
    """Rounds of `advance`, which goes on a little and returns the rounds so far."""
    me, done = os.getpid(), advance()
    ready = time.monotonic()
    while done < arm["warm"]:
        done = advance()
    say(ready=ready)
    while (seconds := wait_for_turn()) is not None:
        bytes_, first, cpu, began = moved(), done, cpu_seconds(me), time.monotonic()
        while time.monotonic() < began + seconds or done == first:
            done = advance()
        took, used = time.monotonic() - began, cpu_seconds(me) - cpu
        say(rounds=done - first, wall_s=took, cpu_s=used, moved_bytes=moved() - bytes_)
