"""Files that are there whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name, and stays there, once the block has ended well.

    It is written beside it, brought to the disk, and renamed; what a failure leaves is removed.
    """
    partial = path.with_suffix(".partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)  # on a full disk, it is in the way of what follows
        raise
    _sync_names(path.parent)


def write_text(path: Path, text: str) -> None:
    """The whole text, or what was there before."""
    # A command line may hold bytes that are no text; as escapes, they are valid JSON.
    with writing(path) as file:
        file.write(text.encode("utf-8", errors="backslashreplace"))


def _sync_names(folder: Path) -> None:
    """Bring a folder's list of files to the disk: a power cut must not undo a rename."""
    with contextlib.suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
