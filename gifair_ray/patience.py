"""Ctrl-C and polite kills that wait for a good moment."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ASKED = (signal.SIGINT, signal.SIGTERM)
SAID_S = 1.0  # after which a user is told why nothing has happened yet
WAITING = (
    "the run stops when its present event is over, and is saved then; once more stops it at once"
)


@contextlib.contextmanager
def patience() -> Iterator[Callable[[], bool]]:
    """Within the block, the first signal to stop is noted; the second does what it always did.

    Tells whether one has come. Signals that nobody handles, or that are another thread's to handle,
    are left alone.
    """
    asked = False
    said = threading.Timer(SAID_S, warnings.warn, [WAITING])
    said.daemon = True
    before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            before[number](number, frame)
        else:
            asked = True
            said.start()

    try:
        with contextlib.suppress(ValueError):  # not the main thread
            for number in ASKED:
                handler = signal.getsignal(number)
                if callable(handler):
                    before[number] = handler
                    signal.signal(number, note)
        yield lambda: asked
    finally:
        said.cancel()
        for changed, handler in before.items():
            with contextlib.suppress(ValueError):
                signal.signal(changed, handler)
