"""The values of a table's columns, checked and handed on as numpy arrays.

A bad value leaves here as `Flaw`, which knows its row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gifair_ray.data._columns import TableFile, has_column, listed
from gifair_ray.errors import BadInput
from gifair_ray.federation import Ints

Array = npt.NDArray[Any]
_MISSING = "missing value; fill it in or leave the row out"
_INTEGER = re.compile("0|-?[1-9][0-9]{0,99}")


class Flaw(Exception):
    """What is wrong in which row (from 0; None: in all) of which column."""

    def __init__(self, row: int | None, column: str, what: str) -> None:
        place = "" if row is None else f", row {row + 1}"
        super().__init__(f"column {column!r}{place}: {what}")
        self.row, self.column, self.what = row, column, what


def _plain_type(kind: pa.DataType) -> pa.DataType:
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _plain(column: pa.Array) -> pa.Array:
    """The same values without dictionaries, run lengths or extension types."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        elif types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        else:
            return column


# A column of nothing counts as numbers: they are refused as missing then, not passed over.
_NUMBERS = (
    types.is_integer,
    types.is_floating,
    types.is_decimal,
    types.is_boolean,
    types.is_null,
)
_TEXTS = (types.is_string, types.is_large_string, types.is_string_view, types.is_boolean)
_LISTS = (
    types.is_list,
    types.is_large_list,
    types.is_fixed_size_list,
    types.is_list_view,
    types.is_large_list_view,
)


def _one_of(kinds: tuple[Any, ...], kind: pa.DataType) -> bool:
    return any(is_kind(_plain_type(kind)) for is_kind in kinds)


def _first(bad: Array) -> int:
    return int(np.argmax(bad))


def key(table: pa.Table, name: str, *, label: bool = False) -> tuple[Ints, tuple[str, ...]]:
    """Each row's place among the column's distinct values, sorted; and these values' names.

    Integers sort as numbers, and so does text if all of it is integers; other text sorts by
    character codes. So a table means the same in all three formats. Floats pass only for a
    `label`, and only if they are whole.
    """
    chunks = [_plain(chunk) for chunk in table.column(name).chunks]
    column = pa.chunked_array(chunks, type=_plain_type(table.schema.field(name).type))
    if label and types.is_decimal(column.type):
        column = column.cast(pa.float64())
    if (nulls := np.asarray(column.is_null(nan_is_null=True))).any():
        raise Flaw(_first(nulls), name, _MISSING)
    real = label and types.is_floating(column.type)
    if real or types.is_integer(column.type):
        values, codes = np.unique(column.to_numpy(), return_inverse=True)
        if real and (odd := ~np.isfinite(values) | (np.floor(values) != values)).any():
            row = _first(odd[codes])
            what = f"label {values[codes[row]]} is no class: regression is not supported, "
            raise Flaw(row, name, what + "labels are whole numbers or text")
        return codes.astype(np.int64), tuple(map(str, values.tolist()))
    if not _one_of(_TEXTS, column.type):
        raise Flaw(None, name, f"holds {column.type}; whole numbers or text are needed")
    encoded = column.cast(pa.large_string()).dictionary_encode().combine_chunks()
    names = encoded.dictionary.to_pylist()
    numbers = all(map(_INTEGER.fullmatch, names))
    order = sorted(range(len(names)), key=lambda i: int(names[i]) if numbers else names[i])
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return rank[encoded.indices.to_numpy()], tuple(names[i] for i in order)


def _index_columns(schema: pa.Schema) -> list[str]:
    """The columns that pandas wrote for its row index and a CSV's without a name: no features."""
    try:
        names = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (ValueError, KeyError, TypeError):
        names = []
    return ["", *(name for name in names if isinstance(name, str))]


@dataclass(frozen=True)
class Features:
    """Which columns are the inputs: one column of lists, or one column of numbers for each."""

    file: TableFile
    columns: list[str]
    tokens: int
    divisor: float = 1.0

    @classmethod
    def find(cls, file: TableFile, x: str, others: Collection[str], tokens: int) -> Features:
        """The column `x`; without it, all columns of numbers but the others and the row index."""
        schema = file.schema
        unused = {*others, *_index_columns(schema)}
        numeric = [f.name for f in schema if _one_of(_NUMBERS, f.type) and f.name not in unused]
        if x not in schema.names:
            if x != "x" or not numeric:
                has_column(file, "x", x)
            return cls(file, numeric, tokens)
        kind = _plain_type(schema.field(x).type)
        if _one_of(_LISTS, kind) and _one_of(_NUMBERS, kind.value_type):
            tokens = tokens or int(_told(file, x, "tokens", 0))
            return cls(file, [x], tokens, 1.0 if tokens else _told(file, x, "divisor", 1))
        if not _one_of(_NUMBERS, kind):
            way_out = (
                "a CSV file needs a column per feature" if file.kind == "CSV" else "convert it"
            )
            raise BadInput(
                f"{file.path}: column {x!r} (data.x) holds {kind}, not lists of numbers; {way_out}"
            )
        if rest := [name for name in numeric if name != x]:
            raise BadInput(
                f"{file.path}: column {x!r} (data.x) is one number, and there are other columns of "
                f"numbers, {listed(rest)}; drop them to learn from {x!r} alone, or rename {x!r} "
                "to learn from all"
            )
        return cls(file, [x], tokens)

    def check(self, rows: int) -> int:
        """The width of all rows, once every value has been looked at."""
        width = 0
        for start, values in self._pieces(rows):
            width, real = values.shape[1], values.dtype.kind == "f"
            if real:
                self._refuse(start, values, ~np.isfinite(values), "is not finite; replace it")
            if self.tokens:
                values = values.astype(np.float64) if real else values
                bad = (values < 0) | (values >= self.tokens)
                if real:
                    bad |= np.floor(values) != values
                what = f"is no character number in [0, {self.tokens}); see data.tokens"
                self._refuse(start, values, bad, what)
        return width

    def _refuse(self, start: int, values: Array, bad: Array, what: str) -> None:
        if bad.any():
            row, i = divmod(_first(bad), values.shape[1])
            name = self.columns[i if len(self.columns) > 1 else 0]
            raise Flaw(start + row, name, f"{values[row, i]} {what}")

    def load(self, rows: int) -> Blocks:
        """All rows; views into the mapped file where it is Arrow with lists of plain numbers."""
        blocks = [values for _, values in self._pieces(rows)]
        return Blocks(blocks, self.tokens > 0, self.divisor)

    def _pieces(self, rows: int) -> Iterator[tuple[int, Array]]:
        end, width = 0, None
        for batch in self.file.batches(self.columns):
            start, end = end, end + len(batch)
            if end > rows:
                break
            values = _matrix(batch, start, width)
            yield start, values
            width = values.shape[1]
        if end != rows:
            what = f"does not have the {rows} rows of the other columns; write the file again"
            raise Flaw(None, self.columns[0], what)


def _told(file: TableFile, column: str, what: str, default: int) -> float:
    """What an import wrote beside a column: its alphabet, or what its numbers are divided by."""
    written = (file.schema.field(column).metadata or {}).get(what.encode())
    if written is None:
        return default
    if not re.fullmatch(rb"[1-9][0-9]{0,8}", written):
        raise BadInput(f"{file.path}: column {column!r} says {what} = {written!r:.40}, no number")
    return int(written)


def _matrix(batch: pa.RecordBatch, start: int, width: int | None) -> Array:
    """The batch, from row `start` of the file on, as (rows, width); a view where it can be."""
    names, columns = batch.schema.names, [_plain(column) for column in batch.columns]
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            raise Flaw(start + _first(np.asarray(column.is_null())), name, _MISSING)
    if not _one_of(_LISTS, columns[0].type):
        return np.column_stack([_numbers(column) for column in columns])
    lengths = np.asarray(pc.list_value_length(columns[0]))
    width = int(lengths[0]) if width is None else width
    if width == 0:
        raise Flaw(start, names[0], "an empty list; at least one feature is needed")
    if (wrong := lengths != width).any():
        what = (
            f"{lengths[_first(wrong)]} numbers, where the first row has {width}; all need as many"
        )
        raise Flaw(start + _first(wrong), names[0], what)
    flat = _plain(pc.list_flatten(columns[0]))
    if flat.null_count:
        raise Flaw(start + _first(np.asarray(flat.is_null())) // width, names[0], _MISSING)
    return _numbers(flat).reshape(-1, width)


def _numbers(column: pa.Array) -> Array:
    if types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False))


class Blocks:
    """A matrix in the pieces that the file holds it in, of the file's own number type."""

    def __init__(self, blocks: list[Array], tokens: bool, divisor: float = 1.0) -> None:
        self._blocks, self._divisor = blocks, divisor
        self._width = int(blocks[0].shape[1])
        self._starts = np.cumsum([0, *map(len, blocks)])
        self._dtype = np.int64 if tokens else np.result_type(np.float32, *(b.dtype for b in blocks))

    def take(self, rows: Ints) -> Array:
        """Ascending rows, copied: int64 for tokens, else float32 where exact, else float64."""
        taken = np.empty((len(rows), self._width), dtype=self._dtype)
        of_row = np.searchsorted(self._starts, rows, side="right") - 1
        blocks, first = np.unique(of_row, return_index=True)
        for block, a, b in zip(blocks, first, [*first[1:], len(rows)], strict=True):
            taken[a:b] = self._blocks[block][rows[a:b] - self._starts[block]]
        if self._divisor != 1.0:
            taken /= self._divisor
        return taken
