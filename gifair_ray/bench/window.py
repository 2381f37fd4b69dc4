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
    """Rounds of `advance`, which goes on a little and returns the rounds so far.

    Between its turns the other processes of this arm stand still: other arms are at work, and idle
    actors would be in their way. Whatever they do is within a turn, and so it is counted: actors
    begin the next round while the last one is being told of.
    """
    me, done = os.getpid(), advance()
    ready = time.monotonic()
    while done < arm["warm"]:
        done = advance()
    carried, others = moved(), descendants(me)
    say(ready=ready)
    did: dict[str, Any] | None = None
    cpu = 0.0
    while True:
        with _standing_still(others):
            if did is not None:
                say(**did, cpu_s=cpu_seconds(me) - cpu)
            others = descendants(me)
            told = sys.stdin.readline()  # ends, too, when whoever measures has gone
            cpu = cpu_seconds(me)
        if not told:
            return
        began, first, before = time.monotonic(), done, carried
        while time.monotonic() < began + float(told) or done == first:
            done = advance()
        carried = moved()
        took = time.monotonic() - began
        did = {"rounds": done - first, "wall_s": took, "moved_bytes": carried - before}
