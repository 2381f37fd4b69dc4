"""The logical digest: one hash of everything a run found out, however it was computed.

It covers every table but the wall-clock timings, value by value (nulls, NaN and −0 in one form
each), and the models. Each table is a chain over blocks of rows, wherever its segments end, so
that the first difference between two runs can be located.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gifair_ray.arrays import values
from gifair_ray.replies import Params
from gifair_ray.tables import DIGESTED

BLOCK_ROWS = 4096


def _column_bytes(column: pa.ChunkedArray) -> Iterable[bytes]:
    valid = values(column.is_valid())
    yield np.packbits(valid).tobytes()
    if pa.types.is_string(column.type):
        for value in column.to_pylist():
            text = (value or "").encode()
            yield len(text).to_bytes(8, "little") + text
        return
    numbers = values(column)
    yield canonical(np.where(valid, numbers, numbers.dtype.type(0))).tobytes()


def canonical(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One bit pattern for NaN, and +0 for −0."""
    if not np.issubdtype(numbers.dtype, np.floating):
        return np.ascontiguousarray(numbers)
    out = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
    return np.ascontiguousarray(out + numbers.dtype.type(0))  # −0 + 0 is +0


def table_chain(table: pa.Table) -> list[str]:
    """The hash after each block of rows, every one resting on those before it."""
    chain, last = [], b""
    for at in range(0, table.num_rows, BLOCK_ROWS):
        h = hashlib.blake2b(last, digest_size=16)
        block = table.slice(at, BLOCK_ROWS)
        for name in block.column_names:
            h.update(name.encode() + b"\0")
            for piece in _column_bytes(block[name]):
                h.update(piece)
        last = h.digest()
        chain.append(last.hex())
    return chain


def model_hash(model: Params) -> str:
    """A hash of one flat model."""
    return hashlib.blake2b(canonical(model).tobytes(), digest_size=16).hexdigest()


def run_digest(
    tables: Mapping[str, pa.Table], theta: Params, personal: Mapping[int, Params]
) -> str:
    """The digest of a whole run."""
    h = hashlib.blake2b(digest_size=16)
    for name in DIGESTED:
        chain = table_chain(tables[name])
        h.update(f"{name} {tables[name].num_rows} {chain[-1] if chain else ''}\n".encode())
    h.update(f"global {model_hash(theta)}\n".encode())
    for client in sorted(personal):
        h.update(f"personal {client} {model_hash(personal[client])}\n".encode())
    return h.hexdigest()
