"""A client actor's main thread, laid to rest while calls come over its line.

When that thread has nothing to do Ray looks there for signals, a hundred times a second, and each
time takes the interpreter from the thread that trains: a hundredth of the time of both.
"""

from __future__ import annotations

import contextlib
import socket
import time
import uuid
from typing import Any

LASTS_S = 5.0  # so long, others who call the actor would wait for it


class Rest:
    """A call to the actor, which returns at the `end`, with this process, or when it is `over`."""

    def __init__(self, actor: Any) -> None:
        self._until = time.monotonic() + LASTS_S
        name = f"\0gifair-{uuid.uuid4().hex}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(name)
        self._socket.listen()  # nobody is let in: who waits at the door sees it close
        self._call = actor.rest.remote(name)

    @property
    def over(self) -> bool:
        """Whether it has lasted so long that another may follow."""
        return time.monotonic() > self._until

    def end(self) -> None:
        """Let the actor answer Ray's calls again. It may not even have come to rest yet."""
        self._socket.close()


def rest(name: str) -> None:
    """Wait until the rest of that name ends."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(LASTS_S)
        door.connect(name)
        door.recv(1)
