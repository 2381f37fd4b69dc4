"""Columns of numpy, or lists, as Arrow's, and back.

pyarrow has that too (`array`, `to_numpy`, `empty_table`), but there it imports pandas wherever that
is installed: a fifth of a second and 40 MB for every process that records something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]


def array(
    values: npt.NDArray[Any] | Sequence[Any], kind: pa.DataType, null: Bools | None = None
) -> pa.Array:
    """Whole numbers, reals, truths or texts; null where it is said, or for None in a list.

    An array that need not be changed for that is not copied.
    """
    if not isinstance(values, np.ndarray):
        null = np.array([value is None for value in values], dtype=np.bool_)
        if pa.types.is_string(kind):
            return _texts(values, null)
        values = np.array([0 if value is None else value for value in values])
    if pa.types.is_boolean(kind):
        data = np.packbits(values.astype(np.bool_), bitorder="little")
    else:
        dtype = np.int64 if pa.types.is_integer(kind) else np.float64
        data = values.astype(dtype, "C", "same_kind" if len(values) else "unsafe", copy=False)
    return pa.Array.from_buffers(kind, len(values), [_valid(null), pa.py_buffer(data)])


def _texts(values: Sequence[str | None], null: Bools) -> pa.Array:
    texts = [(value or "").encode() for value in values]
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    buffers = [_valid(null), pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    return pa.Array.from_buffers(pa.string(), len(texts), buffers)


def coded(codes: npt.NDArray[np.integer], words: Sequence[str]) -> pa.Array:
    """The words in these places of a list."""
    # Not `take`: pyarrow would import all that it can compute with, which is slow too.
    texts = [word.encode() for word in words]
    lengths = np.array([len(text) for text in texts])
    column = np.arange(lengths.max())
    letters = np.frombuffer(b"".join(text.ljust(len(column)) for text in texts), np.uint8)
    data = letters.reshape(len(texts), -1)[codes][column < lengths[codes, None]]
    ends = np.cumsum(np.concatenate([[0], lengths[codes]])).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(codes), buffers)


def _valid(null: Bools | None) -> pa.Buffer | None:
    if null is None or not null.any():
        return None
    return pa.py_buffer(np.packbits(~null, bitorder="little"))


def empty(schema: pa.Schema) -> pa.Table:
    """A table without rows."""
    return pa.table([array([], field.type) for field in schema], schema=schema)


def values(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Whole numbers, reals or truths; anything where it is null."""
    parts = [_part(chunk) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0)


def _part(chunk: pa.Array) -> npt.NDArray[Any]:
    here, data = slice(chunk.offset, chunk.offset + len(chunk)), chunk.buffers()[1]
    if pa.types.is_boolean(chunk.type):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[here].astype(np.bool_)
    return np.frombuffer(data, chunk.type.to_pandas_dtype())[here]
