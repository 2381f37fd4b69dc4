"""Rows into Arrow tables: kept in memory, or appended to a folder in complete segments.

The folder's writer is a thread of its own, off the path of the event loop. A segment appears
under its name only when it is complete, so that tables can be read while the run goes on, and
after it was killed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gifair_ray.commands import Nullable
from gifair_ray.errors import RunFailed
from gifair_ray.results import read_table, write_segment
from gifair_ray.tables import TABLES

FLUSH_ROWS = 100_000
FLUSH_S = 2.0
QUEUED = 10_000  # records that may wait to be written


Columns = Mapping[str, Any]


def to_table(name: str, records: Sequence[Columns]) -> pa.Table:
    """Records (columns of arrays, lists or `Nullable`; None: all null) as rows of a table."""
    schema = TABLES[name]
    for record in records:
        if record.keys() != set(schema.names):
            raise RunFailed(f"table {name}: columns {sorted(record.keys() ^ set(schema.names))}")
    lengths = [_rows(record) for record in records]
    columns = [
        _column([record[field.name] for record in records], lengths, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def _rows(record: Columns) -> int:
    return next(len(column) for column in record.values() if column is not None)


def _column(pieces: Sequence[Any], lengths: Sequence[int], kind: pa.DataType) -> pa.Array:
    if not any(isinstance(piece, Nullable) or piece is None for piece in pieces):
        if isinstance(pieces[0], np.ndarray):
            return pa.array(np.concatenate(pieces), kind)
        return pa.array([value for piece in pieces for value in piece], kind)
    if all(piece is None for piece in pieces):
        return pa.nulls(sum(lengths), kind)
    parts = [_floats(piece, rows) for piece, rows in zip(pieces, lengths, strict=True)]
    values, null = (np.concatenate(part) for part in zip(*parts, strict=True))
    if pa.types.is_integer(kind):
        return pa.array(np.where(null, 0, values).astype(np.int64), kind, mask=null)
    return pa.array(values, kind, mask=null)


def _floats(piece: Any, rows: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """A piece of a column as floats, and which of them are null."""
    if piece is None:
        return np.zeros(rows), np.ones(rows, dtype=np.bool_)
    if isinstance(piece, Nullable):
        return piece.values, ~np.isfinite(piece.values)
    null = np.array([value is None for value in piece], dtype=np.bool_)
    return np.array([0 if value is None else value for value in piece], dtype=np.float64), null


class Recorder:
    """Collects records in memory, by table."""

    def __init__(self) -> None:
        self._records: dict[str, list[Columns]] = defaultdict(list)

    def add(self, table: str, columns: Columns) -> None:
        """Append rows, given as columns."""
        self._records[table].append(columns)

    def timing(self, wall_s: float, time_s: float, what: str, seconds: float) -> None:
        """A wall-clock measurement; outside the digest, and not kept in memory."""

    def close(self) -> None:
        """Nothing more will be added."""

    def tables(self) -> dict[str, pa.Table]:
        """All rows so far."""
        return {
            name: to_table(name, records) if (records := self._records[name]) else empty
            for name, empty in ((name, schema.empty_table()) for name, schema in TABLES.items())
        }


class FolderRecorder(Recorder):
    """Writes complete segments to a run's folder, in a thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._segments: dict[str, int] = defaultdict(int)
        self._timings: list[tuple[float, float, str, float]] = []
        # Bounded: if writing falls behind, the event loop waits for it.
        self._queue: queue.Queue[tuple[str, Columns] | None] = queue.Queue(QUEUED)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)
        self._thread.start()

    def add(self, table: str, columns: Columns) -> None:
        self._check()
        self._queue.put((table, columns))

    def timing(self, wall_s: float, time_s: float, what: str, seconds: float) -> None:
        self._timings.append((wall_s, time_s, what, seconds))
        if len(self._timings) >= QUEUED:
            self._put_timings()

    def _put_timings(self) -> None:
        if self._timings:
            names = TABLES["timings"].names
            columns = zip(*self._timings, strict=True)
            self.add("timings", dict(zip(names, map(list, columns), strict=True)))
            self._timings = []

    def close(self) -> None:
        """Write what is left. Raises what has gone wrong in the thread."""
        if self._thread.is_alive():
            if self._failure is None:
                self._put_timings()
            self._queue.put(None)
            self._thread.join()
        self._check()

    def tables(self) -> dict[str, pa.Table]:
        """What is on disk; everything, once closed."""
        return {name: read_table(self._folder, name) for name in TABLES}

    def _check(self) -> None:
        if self._failure is not None:
            raise RunFailed(
                f"cannot write results to {self._folder}: {self._failure}; what was written "
                "before is complete"
            ) from self._failure

    def _write(self) -> None:
        rows, flushed = 0, time.monotonic()
        last = False
        while not last:
            item: tuple[str, Columns] | None = ("", {})
            with suppress(queue.Empty):
                item = self._queue.get(timeout=FLUSH_S)
            last = item is None
            if self._failure is not None:
                continue  # to its end, so that nobody waits for room in the queue
            try:
                if item is not None and item[0]:
                    self._records[item[0]].append(item[1])
                    rows += _rows(item[1])
                due = rows >= FLUSH_ROWS or time.monotonic() - flushed >= FLUSH_S
                if rows and (due or last):
                    self._flush()
                    rows, flushed = 0, time.monotonic()
            except BaseException as error:  # handed to the event loop, which raises it
                self._failure = error

    def _flush(self) -> None:
        for table, records in self._records.items():
            if records:
                write_segment(self._folder, table, self._segments[table], to_table(table, records))
                self._segments[table] += 1
                records.clear()
