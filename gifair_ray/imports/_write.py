"""The table that an import writes: there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gifair_ray.errors import BadInput

GREYS = {b"divisor": b"255"}  # of a byte that stands for a number from 0 to 1
ROWS = 16384  # in a piece of the file


class TableWriter:
    """Collects rows and writes them in pieces of a good size."""

    def __init__(self, writer: Any, schema: pa.Schema) -> None:
        self._writer, self._schema = writer, schema
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self.rows = 0

    def add(
        self, x: npt.NDArray[np.uint8], y: Sequence[str], **constant: str | Sequence[str]
    ) -> None:
        """Rows of bytes with their labels; other columns are one value for all, or a list."""
        columns: dict[str, pa.Array] = {
            "x": pa.FixedSizeListArray.from_arrays(
                pa.array(np.ascontiguousarray(x).reshape(-1)), x.shape[1]
            ),
            "y": pa.array(y, pa.string()),
        }
        for name, value in constant.items():
            values = [value] * len(x) if isinstance(value, str) else value
            columns[name] = pa.array(values, pa.string())
        arrays = [columns[name] for name in self._schema.names]
        self._waiting.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._count += len(x)
        self.rows += len(x)
        if self._count >= ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._count:
            table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
            self._writer.write_table(table, max_chunksize=ROWS)
        self._waiting, self._count = [], 0


@contextlib.contextmanager
def new_table(
    path: str, width: int, about_x: dict[bytes, bytes], others: Sequence[str]
) -> Iterator[TableWriter]:
    """A new Arrow file with columns x, y and the others; it appears when the block ends well."""
    place = Path(os.path.expanduser(path)).absolute()
    if place.suffix.lower() not in (".arrow", ".feather", ".ipc"):
        raise BadInput(f"-o {path}: the table is written as Arrow; let the name end in .arrow")
    if place.exists():
        raise BadInput(f"-o {path}: there is such a file already; remove it or choose another name")
    if not place.parent.is_dir():
        raise BadInput(f"-o {path}: there is no folder {place.parent}; make it first")
    x = pa.field("x", pa.list_(pa.uint8(), width), metadata=about_x)
    schema = pa.schema([x, ("y", pa.string()), *((name, pa.string()) for name in others)])
    part = place.with_name(f".{place.name}.part-{os.getpid()}")
    try:
        with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            table = TableWriter(writer, schema)
            yield table
            table.flush()
        if not table.rows:
            raise BadInput(f"-o {path}: there were no samples to write")
        part.replace(place)
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"-o {path}: cannot be written: {why}; choose another place") from error
    finally:
        part.unlink(missing_ok=True)
