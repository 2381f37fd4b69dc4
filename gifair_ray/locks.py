"""Who is writing to a run's folder.

The file `lock` names the process that the run belongs to. The process that writes, which may be an
actor on its behalf, holds the file `writer` locked by the operating system: that lock goes when
the process does, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gifair_ray.errors import BadInput

WRITER_S = 30.0  # that a process has to stop writing after its driver died
_OWNED: set[Path] = set()  # the folders that belong to this process
_HELD: dict[Path, IO[str]] = {}  # the files whose locks this process holds


def exists(folder: Path) -> bool:
    """Whether the folder says that it belongs to a process, dead or alive."""
    return (folder / "lock").exists()


def unlock(folder: Path) -> None:
    """The folder belongs to nobody any more, even if the disk does not let us say so."""
    _OWNED.discard(folder.resolve())
    (folder / "lock").unlink(missing_ok=True)


def user(path: Path) -> str | None:
    """The process that has a folder in use, in words; None if nobody has, or it has died.

    One that cannot be told is taken to be alive, elsewhere.
    """
    try:
        owner = json.loads((path / "lock").read_text(encoding="utf-8"))
        pid, host, born = int(owner["pid"]), str(owner["host"]), owner.get("born")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return f"an unknown process (if there is none, remove {path / 'lock'})"
    if host != socket.gethostname():
        return f"process {pid} on {host} (if that has ended, remove {path / 'lock'})"
    if not _alive(pid) or born not in (None, _born(pid)):
        return None
    if pid == os.getpid() and born is not None and path.resolve() not in _OWNED:
        return None  # we have given it up, and could not say so on disk
    return f"process {pid} on {host}"


def _born(pid: int) -> int | None:
    """When a process started, in ticks since the machine did: another one may get its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def lock(path: Path, since: str, way_out: str = "choose another --out") -> None:
    """The folder belongs to this process, unless one that lives has it already."""
    pid = os.getpid()
    owner = {"pid": pid, "born": _born(pid), "host": socket.gethostname(), "since": since}
    with _alone(path):
        if other := user(path):
            raise BadInput(f"{path} is in use by {other}; {way_out}")
        partial = path / "lock.partial"
        partial.write_text(json.dumps(owner), encoding="utf-8")
        partial.replace(path / "lock")
        _OWNED.add(path.resolve())


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of several processes that find a stale lock, one after the other looks at it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def hold(folder: Path) -> None:
    """This process will write to the folder, until it ends; waits for another that does.

    The process that the lock names may have died, and one of its actors still be writing.
    """
    folder = folder.resolve()
    if folder in _HELD:
        return
    until = time.monotonic() + WRITER_S
    while True:
        file = open(folder / "writer", "a")  # noqa: SIM115 (held as long as the process)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(folder / "writer")):
                _HELD[folder] = file
                return
        except FileNotFoundError:
            pass  # who had it has just removed it: this file is nobody's
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                raise BadInput(f"another process is still writing to {folder}") from None
            time.sleep(0.1)
        file.close()


def let_go(folder: Path) -> None:
    """This process will not write to the folder any more."""
    folder = folder.resolve()
    if (file := _HELD.pop(folder, None)) is not None:
        with contextlib.suppress(OSError):  # a disk that has become read-only
            (folder / "writer").unlink(missing_ok=True)
        file.close()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return pid > 0
