"""A line: a socket between the server and a client actor on the same machine.

A call through Ray passes four threads of two processes and takes about a millisecond; short work
would wait for it most of the time. A line carries one call at a time, as bytes. It knows nothing of
failures: whatever does not come back over it is asked for again through Ray, which says why.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.actors.wire import Sent

Bytes = npt.NDArray[np.uint8]
Answer = Callable[[str, Sent], Any]
_CALL = struct.Struct("<q4q")  # version; lengths of run, whole, real, theta
_REPLY = struct.Struct("<d3q")  # seconds; lengths of models, losses, personal models (−1: none)
_USER = struct.Struct("3i")  # process, user, group
_FAILED = -2  # in place of a length


class Listener:
    """The client actor's end: answers calls, of any number of servers, in threads."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.name = f"\0gifair-{uuid.uuid4().hex}"  # of no file, so that none is left behind
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.name)
        self._socket.listen()
        threading.Thread(target=self._accept, name="lines", daemon=True).start()

    def _accept(self) -> None:
        while True:
            line, _ = self._socket.accept()
            if _user(line) == os.getuid():
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()
            else:
                line.close()

    def _serve(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):  # whoever called has gone
            while True:
                version, *lengths = _CALL.unpack(_exactly(line, _CALL.size))
                run, whole, real, theta = (_exactly(line, n) for n in lengths)
                try:
                    reply = self._answer(str(run, "utf-8"), [version, whole, real, theta])
                    models, losses, own, seconds = reply
                except Exception:  # it is asked for again, and raised then
                    line.sendall(_REPLY.pack(0.0, _FAILED, 0, 0))
                    continue
                sizes = len(models), len(losses), -1 if own is None else len(own)
                _send(line, [_REPLY.pack(seconds, *sizes), models, losses, own or b""])


class Line:
    """The server's end."""

    def __init__(self, name: str) -> None:
        self.name, self.busy = name, False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(name)

    def call(self, run: str, sent: Sent) -> None:
        """Begin a call; nobody else may until its reply has come."""
        version, whole, real, theta = sent
        parts = [run.encode(), whole, real, theta]
        self.busy = True
        with contextlib.suppress(OSError):  # the reply will not come
            _send(self._socket, [_CALL.pack(version, *map(len, parts)), *parts])

    def reply(self) -> Sent | None:
        """What the call came to; None if nothing came."""
        try:
            seconds, *lengths = _REPLY.unpack(_exactly(self._socket, _REPLY.size))
            if lengths[0] == _FAILED:
                self.busy = False
                return None
            models, losses, own = (None if n < 0 else _exactly(self._socket, n) for n in lengths)
        except OSError:
            return None  # and it stays busy: there is nobody at the other end
        self.busy = False
        return [models, losses, own, seconds]

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


def connected(name: str | None) -> Line | None:
    """A line to this listener, if it can be had."""
    if name is not None:
        with contextlib.suppress(OSError):
            return Line(name)
    return None


def listener(answer: Answer) -> Listener | None:
    """A listener, where there are such sockets (Linux)."""
    return Listener(answer) if hasattr(socket, "SO_PEERCRED") else None


def _user(line: socket.socket) -> int:
    told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _USER.size)
    return int(_USER.unpack(told)[1])


def _send(line: socket.socket, parts: Iterable[Any]) -> None:
    # One message of a few hundred kilobytes: to join it is quicker than to call for every part.
    line.sendall(b"".join(parts))


def _exactly(line: socket.socket, n: int) -> Bytes:
    """So many bytes; raises ConnectionError if the other end has gone before."""
    out = np.empty(n, dtype=np.uint8)
    left = memoryview(out)
    while len(left):
        got = line.recv_into(left)
        if not got:
            raise ConnectionError("the other end of the line has gone")
        left = left[got:]
    return out
