"""Where a data file is: a relative path is looked for in the current folder, then in GIFAIR_DATA.

The scenario keeps the path as it was written, so that it means the same on another machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gifair_ray.errors import BadInput

DATA_DIR = "GIFAIR_DATA"


def find(path: str) -> Path:
    """The absolute place of a path. One that is nowhere is looked for in the current folder."""
    wanted = Path(os.path.expanduser(path))
    here = wanted.absolute()
    if (folder := os.environ.get(DATA_DIR)) and not wanted.is_absolute() and not _exists(here):
        there = Path(os.path.expanduser(folder)).absolute() / wanted
        return there if _exists(there) else here
    return here


def _exists(place: Path) -> bool:
    try:
        return place.exists()
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False


def looked_for(path: str) -> str:
    """Where `find` looked, for a message."""
    places = [str(Path(os.path.expanduser(path)).absolute())]
    if (folder := os.environ.get(DATA_DIR)) and not Path(os.path.expanduser(path)).is_absolute():
        places.append(str(Path(os.path.expanduser(folder)).absolute() / path))
    return " nor ".join(places)


@contextlib.contextmanager
def data_in(folder: str | None) -> Iterator[None]:
    """Look for data in this folder as well, in this process and in those that it starts."""
    before = os.environ.get(DATA_DIR)
    if folder is not None:
        place = Path(os.path.expanduser(folder)).absolute()
        if not place.is_dir():
            raise BadInput(f"--data-dir {folder!r}: there is no folder {place}")
        os.environ[DATA_DIR] = str(place)
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop(DATA_DIR)
            if before is not None:
                os.environ[DATA_DIR] = before
