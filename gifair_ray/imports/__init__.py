"""Public data sets, checked and converted into tables that `data.source = "table"` reads.

Every reader goes through its file once, in pieces that fit in memory, and names the file and the
place of whatever is wrong. Nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Tell = Callable[[int, int], None]
"""Told of (what is done, all that there is) every now and then, in bytes or rows."""


@dataclass(frozen=True)
class Imported:
    """What came of an import."""

    path: str
    rows: int
    clients: int
    """0 where the data do not say whose samples they are."""
    left_out: int = 0
    """Users or roles with nothing to give."""
