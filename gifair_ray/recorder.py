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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gifair_ray.errors import RunFailed
from gifair_ray.results import read_table, write_segment
from gifair_ray.tables import TABLES

FLUSH_ROWS = 100_000
FLUSH_S = 2.0


def to_batch(table: str, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Columns (arrays, masked arrays, lists; None: all null) as one batch of a table."""
    schema = TABLES[table]
    if set(columns) != set(schema.names):
        raise RunFailed(f"table {table}: columns {sorted(set(columns) ^ set(schema.names))}")
    rows = max(len(column) for column in columns.values() if column is not None)
    return pa.record_batch(
        [_array(columns[field.name], field.type, rows) for field in schema], schema=schema
    )


def _array(column: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if column is None:
        return pa.nulls(rows, kind)
    if isinstance(column, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(column)
        data = np.where(mask, 0, column.data)
        if pa.types.is_integer(kind):
            data = data.astype(np.int64)
        return pa.array(data, kind, mask=mask)
    return pa.array(column, kind)


class Recorder:
    """Collects batches in memory, by table."""

    def __init__(self) -> None:
        self._batches: dict[str, list[pa.RecordBatch]] = defaultdict(list)

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows, given as columns."""
        self._batches[table].append(to_batch(table, columns))

    def timing(self, wall_s: float, time_s: float, what: str, seconds: float) -> None:
        """A wall-clock measurement; outside the digest, and not kept in memory."""

    def close(self) -> None:
        """Nothing more will be added."""

    def tables(self) -> dict[str, pa.Table]:
        """All rows so far."""
        return {
            name: pa.Table.from_batches(self._batches.get(name, []), schema)
            for name, schema in TABLES.items()
        }


class FolderRecorder(Recorder):
    """Writes complete segments to a run's folder, in a thread."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._segments: dict[str, int] = defaultdict(int)
        self._timings: list[tuple[float, float, str, float]] = []
        self._queue: queue.SimpleQueue[tuple[str, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)
        self._thread.start()

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        self._check()
        self._queue.put((table, columns))

    def timing(self, wall_s: float, time_s: float, what: str, seconds: float) -> None:
        self._timings.append((wall_s, time_s, what, seconds))
        if len(self._timings) >= 10_000:
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
        try:
            rows, flushed = 0, time.monotonic()
            while True:
                try:
                    item = self._queue.get(timeout=FLUSH_S)
                except queue.Empty:
                    item = ("", {})
                if item is None:
                    break
                if item[0]:
                    batch = to_batch(*item)
                    self._batches[item[0]].append(batch)
                    rows += batch.num_rows
                if rows >= FLUSH_ROWS or (rows and time.monotonic() - flushed >= FLUSH_S):
                    self._flush()
                    rows, flushed = 0, time.monotonic()
            self._flush()
        except BaseException as error:  # handed to the event loop, which raises it
            self._failure = error

    def _flush(self) -> None:
        for table, batches in self._batches.items():
            if batches:
                rows = pa.Table.from_batches(batches).combine_chunks()
                write_segment(self._folder, table, self._segments[table], rows)
                self._segments[table] += 1
                batches.clear()
