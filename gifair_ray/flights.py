"""Work that is under way: one row per dispatch, as columns that are reused.

A row is taken when work goes out and given back when its outcome has been recorded, so that
memory follows what is in flight at once, not what has happened so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

COLUMNS: dict[str, type] = {
    "dispatch": np.int64,
    "round": np.int64,
    "client": np.int64,
    "ordinal": np.int64,
    "version": np.int64,
    "slots": np.int64,
    "send": np.float64,
    "start": np.float64,
    "end": np.float64,
    "arrival": np.float64,
    "notice": np.float64,
    "outcome": np.int8,
    "steps": np.int64,
    "tilt": np.float64,
    "rank": np.float64,
    "bytes_down": np.int64,
    "bytes_up": np.int64,
    "job": np.int64,
    "clock": np.float64,
}


@dataclass
class Flights:
    """Columns over rows; `rows` of the functions below are positions in them."""

    columns: dict[str, npt.NDArray[Any]] = field(
        default_factory=lambda: {name: np.zeros(0, dtype=kind) for name, kind in COLUMNS.items()}
    )
    free: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.columns["client"]) - len(self.free)

    def add(self, n: int, **values: Any) -> Ints:
        """Take n rows for new dispatches; the rows, in the order of the values."""
        if len(self.free) < n:
            self._grow(n)
        rows = np.array(self.free[: -n - 1 : -1], dtype=np.int64)
        del self.free[len(self.free) - n :]
        for name, column in self.columns.items():
            column[rows] = values[name]
        return rows

    def _grow(self, n: int) -> None:
        old = len(self.columns["client"])
        new = max(2 * old, old + n, 64)
        for name, column in self.columns.items():
            grown = np.zeros(new, dtype=column.dtype)
            grown[:old] = column
            self.columns[name] = grown
        self.free += range(new - 1, old - 1, -1)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.columns[name]

    def in_use(self) -> Ints:
        """The rows that are taken."""
        taken = np.ones(len(self.columns["client"]), dtype=np.bool_)
        taken[self.free] = False
        return np.flatnonzero(taken)

    def release(self, rows: Ints) -> None:
        """Give rows back."""
        self.free += rows.tolist()
