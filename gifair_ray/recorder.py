"""Rows into Arrow tables: kept in memory, or appended to a folder in complete segments.

The folder's writer is a thread of its own, off the path of the event loop. It is woken for a full
batch of records, not for every one: two threads that take turns would both be slow. A segment
appears under its name only when it is complete, so that tables can be read while the run goes on,
and after it was killed.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gifair_ray.arrays import array, coded
from gifair_ray.commands import Coded, Nullable
from gifair_ray.errors import RunFailed
from gifair_ray.results import Written, drop_segments, read_table, write_segment
from gifair_ray.tables import TABLES

FLUSH_ROWS = 100_000  # rows of a full batch
FLUSH_S = 2.0  # a batch that is not full is written after so long
QUEUED = 8  # full batches that may wait to be written


Columns = Mapping[str, Any]
Records = dict[str, tuple[list[Columns], list[int]]]
"""Records by table, and how many rows each has."""
After = Callable[[Mapping[str, Written]], None]
"""Told how much of each table is on disk."""

_NAMES = {name: frozenset(schema.names) for name, schema in TABLES.items()}


def rows_of(table: str, columns: Columns) -> int:
    """How many rows a record has; refused if they are not rows of that table."""
    if columns.keys() != _NAMES[table]:
        raise RunFailed(f"table {table}: columns {sorted(columns.keys() ^ _NAMES[table])}")
    lengths = {len(column) for column in columns.values() if column is not None}
    if len(lengths) == 1:
        return lengths.pop()
    by_length = {len(column): name for name, column in columns.items() if column is not None}
    told = ", ".join(f"{name!r} has {rows} rows" for rows, name in by_length.items())
    raise RunFailed(f"table {table}: columns of one length wanted; {told or 'all are None'}")


def to_table(name: str, records: Sequence[Columns]) -> pa.Table:
    """Records (columns of arrays, lists, `Nullable` or `Coded`; None: all null) as a table."""
    return _table(name, records, [rows_of(name, record) for record in records])


def _table(name: str, records: Sequence[Columns], lengths: Sequence[int]) -> pa.Table:
    """The same of records whose lengths are known."""
    schema = TABLES[name]
    columns = [
        _column([record[field.name] for record in records], lengths, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def _column(pieces: Sequence[Any], lengths: Sequence[int], kind: pa.DataType) -> pa.Array:
    kinds = set(map(type, pieces))
    if kinds == {Coded}:
        return coded(np.concatenate([piece.codes for piece in pieces]), pieces[0].words)
    if kinds == {np.ndarray}:
        return array(np.concatenate(pieces), kind)
    if kinds == {type(None)}:
        return pa.nulls(sum(lengths), kind)
    if not kinds & {Nullable, type(None)}:
        return array([value for piece in pieces for value in piece], kind)
    if kinds == {Nullable}:
        values = np.concatenate([piece.values for piece in pieces])
        null = ~np.isfinite(values)
    else:
        parts = [_floats(piece, rows) for piece, rows in zip(pieces, lengths, strict=True)]
        values, null = (np.concatenate(part) for part in zip(*parts, strict=True))
    if pa.types.is_integer(kind):
        values = np.where(null, 0, values).astype(np.int64)
    return array(values, kind, null)


def _floats(piece: Any, rows: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """A piece of a column as floats, and which of them are null."""
    if piece is None:
        return np.zeros(rows), np.ones(rows, dtype=np.bool_)
    if isinstance(piece, Nullable):
        return piece.values, ~np.isfinite(piece.values)
    null = np.array([value is None for value in piece], dtype=np.bool_)
    return np.array([0 if value is None else value for value in piece], dtype=np.float64), null


def _none() -> Records:
    return defaultdict(lambda: ([], []))


class Recorder:
    """Collects records in memory, by table."""

    def __init__(self) -> None:
        self._records: Records = _none()

    def add(self, table: str, columns: Columns) -> None:
        """Append rows, given as columns. What is not rows of that table is refused."""
        self._keep(table, columns, rows_of(table, columns))

    def _keep(self, table: str, columns: Columns, rows: int) -> None:
        records, lengths = self._records[table]
        records.append(columns)
        lengths.append(rows)

    def timing(self, wall_s: float, time_s: float, what: str, seconds: float) -> None:
        """A wall-clock measurement; outside the digest, and not kept in memory."""

    def close(self) -> None:
        """Nothing more will be added."""

    def tables(self) -> dict[str, pa.Table]:
        """All rows so far."""
        return {name: _table(name, *self._records[name]) for name in TABLES}


class FolderRecorder(Recorder):
    """Writes complete segments to a run's folder, in a thread."""

    def __init__(self, folder: Path, written: Mapping[str, Written] | None = None) -> None:
        """So much `written` of each table is there already; any that follows is removed."""
        super().__init__()
        self._folder = folder
        self._written: dict[str, Written] = defaultdict(Written, written or {})
        for table in TABLES:
            drop_segments(folder, table, self._written[table].segments)
        self._timings: list[tuple[float, float, str, float]] = []
        self._rows = 0
        self._full: deque[tuple[Records, After | None]] = deque()
        self._closed = False
        self._failure: BaseException | None = None
        self._changed = threading.Condition()  # guards all of these but the failure
        self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)
        self._thread.start()

    def add(self, table: str, columns: Columns) -> None:
        rows = rows_of(table, columns)
        self._check()
        with self._changed:
            self._keep(table, columns, rows)
            self._count(rows)

    def timing(self, wall_s: float, time_s: float, what: str, seconds: float) -> None:
        with self._changed:
            self._timings.append((wall_s, time_s, what, seconds))
            self._count(1)

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows >= FLUSH_ROWS:
            # Bounded: if writing falls behind, the event loop waits for it.
            self._changed.wait_for(lambda: len(self._full) < QUEUED)
            self._full.append((self._take(), None))
            self._changed.notify_all()

    def afterwards(self, do: After) -> None:
        """Once all that was added so far is on disk, let the thread do this too; not if closed."""
        self._check()
        with self._changed:
            self._changed.wait_for(lambda: len(self._full) < QUEUED)
            if self._closed:
                return
            self._full.append((self._take(), do))
            self._changed.notify_all()

    def _take(self) -> Records:
        """What was added since this was last asked."""
        if self._timings:
            columns = map(list, zip(*self._timings, strict=True))
            timings = dict(zip(TABLES["timings"].names, columns, strict=True))
            self._keep("timings", timings, len(self._timings))
            self._timings = []
        records, self._records, self._rows = self._records, _none(), 0
        return records

    def close(self) -> None:
        """Write what is left. Raises what has gone wrong in the thread."""
        with self._changed:
            if not self._closed:
                self._full.append((self._take(), None))
                self._closed = True
                self._changed.notify_all()
        self._thread.join()
        self._check()

    def tables(self) -> dict[str, pa.Table]:
        """What is on disk; everything, once closed."""
        return {name: read_table(self._folder, name) for name in TABLES}

    def _check(self) -> None:
        if self._failure is not None:
            raise RunFailed(
                f"cannot write results to {self._folder}: {self._failure}; what was written "
                f"before is complete: once that is mended, gifair resume {self._folder} goes on"
            ) from self._failure

    def _write(self) -> None:
        last = False
        while not last:
            with self._changed:
                self._changed.wait_for(lambda: self._full, FLUSH_S)
                records, do = self._full.popleft() if self._full else (self._take(), None)
                last = self._closed and not self._full
                self._changed.notify_all()
            if self._failure is not None:
                continue  # to its end, so that nobody waits for room
            try:
                self._flush(records)
                if do is not None:
                    do(dict(self._written))
            except BaseException as error:  # handed to the event loop, which raises it
                self._failure = error

    def _flush(self, records: Records) -> None:
        for name, some in records.items():
            rows = _table(name, *some)
            if len(rows):
                self._written[name] = write_segment(self._folder, name, self._written[name], rows)
