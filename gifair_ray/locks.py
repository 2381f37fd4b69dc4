"""Who is writing to a run's folder.

The file `lock` names the process that the run belongs to. The process that writes, which may be an
actor on its behalf, holds the file `writer` locked by the operating system: that lock goes when
the process does, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import IO

from gifair_ray.errors import BadInput

WRITER_S = 30.0  # that a process has to stop writing after its driver died
_HELD: dict[Path, IO[str]] = {}  # the files whose locks this process holds


def exists(folder: Path) -> bool:
    """Whether the folder says that it belongs to a process, dead or alive."""
    return (folder / "lock").exists()


def unlock(folder: Path) -> None:
    """The folder belongs to nobody any more."""
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
    except (OSError, ValueError, KeyError, TypeError):
        return "process 0 on an unknown machine"
    if host == socket.gethostname() and (not _alive(pid) or born not in (None, _born(pid))):
        return None
    return f"process {pid} on {host}"


def _born(pid: int) -> int | None:
    """When a process started, in ticks since the machine did: another one may get its number."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def lock(path: Path, since: str) -> None:
    pid = os.getpid()
    owner = {"pid": pid, "born": _born(pid), "host": socket.gethostname(), "since": since}
    try:
        with open(path / "lock", "x", encoding="utf-8") as file:
            json.dump(owner, file)
    except FileExistsError as error:
        raise BadInput(f"{path} is in use by another process; choose another --out") from error


def hold(folder: Path) -> None:
    """This process will write to the folder, until it ends; waits for another that does.

    The process that the lock names may have died, and one of its actors still be writing.
    """
    folder = folder.resolve()
    if folder in _HELD:
        return
    file = open(folder / "writer", "w")  # noqa: SIM115 (held as long as the run)
    until = time.monotonic() + WRITER_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                raise BadInput(f"another process is still writing to {folder}") from None
            time.sleep(0.1)
        else:
            _HELD[folder] = file
            return


def let_go(folder: Path) -> None:
    """This process will not write to the folder any more."""
    folder = folder.resolve()
    if (file := _HELD.pop(folder, None)) is not None:
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
