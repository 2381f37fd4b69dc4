"""A line: a socket between the server and a client actor on the same machine.

A call through Ray passes four threads of two processes and takes about a millisecond; short work
would wait for it most of the time. A line carries calls as bytes; models lie on a pad, which both
ends see. It knows nothing of failures: whatever does not come back over it is asked for again
through Ray, which says why.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from gifair_ray.actors.pad import Pad
from gifair_ray.actors.wire import Losses, Sent, jobs_in

Places = tuple[int, int]
"""On a pad: the row of the model that work starts from, and the first row for its results."""
Answer = Callable[[str, Sent, mmap.mmap, Places], Losses]
QUEUED = 32  # calls that wait at the other end
QUEUED_JOBS = 2048  # and all their jobs
_CALL = struct.Struct("<q3q2q")  # version; lengths of run and of both kinds of columns; places
_REPLY = struct.Struct("<dq")  # seconds; length of the losses
_USER = struct.Struct("3i")  # process, user, group
_FAILED = -1  # in place of a length
_PAD = -1  # in place of a version: no call, but a pad for those to come


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
        with self._socket:  # nobody shall wait for one who does not listen
            while True:
                line, _ = self._socket.accept()
                if _user(line) == os.getuid():
                    threading.Thread(target=self._serve, args=(line,), daemon=True).start()
                else:
                    line.close()

    def _serve(self, line: socket.socket) -> None:
        memory: mmap.mmap | None = None
        with line, contextlib.suppress(OSError):  # whoever called has gone
            while True:
                header, descriptors = _header(line)
                version, *lengths, start, first = _CALL.unpack(header)
                if version == _PAD:
                    if not descriptors:
                        raise ConnectionError("a pad could not be passed on")
                    try:
                        memory = mmap.mmap(descriptors[0], 0)
                    finally:
                        os.close(descriptors[0])
                    continue
                if memory is None:
                    raise ConnectionError("a call before its pad")
                run, *sent = (_exactly(line, n) for n in lengths)
                try:
                    called = str(run, "utf-8")
                    answer = self._answer(called, [version, *sent], memory, (start, first))
                    losses, seconds = answer
                except Exception:  # it is asked for again, and raised then
                    line.sendall(_REPLY.pack(0.0, _FAILED))
                    continue
                _send(line, [_REPLY.pack(seconds, len(losses)), losses])


class Call:
    """A call that was made over a line."""

    def __init__(self, line: Line, jobs: int, places: Places) -> None:
        self._line, self.jobs, self.places = line, jobs, places
        self.answered, self.answer = False, None  # type: tuple[bool, Losses | None]

    def reply(self) -> Losses | None:
        """What it came to; None if nothing came."""
        while not self.answered:
            self._line.receive()
        return self.answer


class Line:
    """The server's end. Calls are answered in their order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._waiting: deque[Call] = deque()
        self.gone = False
        """Whether nobody answers any more."""
        self._shared: Pad | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(name)
        except OSError:
            self._socket.close()
            raise

    def takes(self, jobs: int) -> bool:
        """Whether a call for so many jobs can be made now.

        Nobody reads replies while a call is being written, so those that may come meanwhile must
        fit into the socket: else each end would wait for the other. Calls that wait must fit as
        well, or the server would wait with them.
        """
        if self.gone or not self._waiting:
            return not self.gone
        queued = sum(call.jobs for call in self._waiting)
        return len(self._waiting) < QUEUED and queued + jobs <= QUEUED_JOBS

    def share(self, pad: Pad) -> None:
        """Show the other end a pad, which calls may refer to from now on."""
        if self._shared is not pad:
            message = _CALL.pack(_PAD, *[0] * 5)
            try:
                sent = socket.send_fds(self._socket, [message], [pad.descriptor])
                self._socket.sendall(message[sent:])
            except OSError:  # no replies will come to what is called from now on
                self.gone = True
            self._shared = pad

    def call(self, run: str, sent: Sent, places: Places) -> Call:
        """Begin a call, if the line `takes` its jobs and the other end has been shown the pad."""
        version, *parts = sent
        parts = [run.encode(), *parts]
        call = Call(self, jobs_in(sent), places)
        self._waiting.append(call)
        try:
            _send(self._socket, [_CALL.pack(version, *map(len, parts), *places), *parts])
        except OSError:  # the reply will not come
            self.gone = True
        return call

    def receive(self) -> None:
        """Wait for the next reply."""
        try:
            seconds, length = _REPLY.unpack(_exactly(self._socket, _REPLY.size))
            answer: Losses | None = None
            if length != _FAILED:
                answer = bytes(_exactly(self._socket, length)), seconds
        except OSError:  # there is nobody at the other end
            self.gone = True
            while self._waiting:
                self._waiting.popleft().answered = True
            return
        call = self._waiting.popleft()
        call.answered, call.answer = True, answer

    def close(self) -> None:
        """Hang up. Calls that wait at the other end are not begun any more."""
        self.gone = True
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
    # To join them is quicker than to call for every part.
    line.sendall(b"".join(parts))


def _header(line: socket.socket) -> tuple[bytes, list[int]]:
    """The first bytes of a call, and the descriptor that may come with them."""
    first, descriptors, _, _ = socket.recv_fds(line, _CALL.size, 1, socket.MSG_CMSG_CLOEXEC)
    if not first:
        raise ConnectionError("the other end of the line has gone")
    return bytes(first) + _exactly(line, _CALL.size - len(first)), descriptors


def _exactly(line: socket.socket, n: int) -> bytearray:
    """So many bytes; raises ConnectionError if the other end has gone before."""
    out = bytearray(n)
    left = memoryview(out)
    while len(left):
        got = line.recv_into(left)
        if not got:
            raise ConnectionError("the other end of the line has gone")
        left = left[got:]
    return out
