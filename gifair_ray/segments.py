"""Tables on disk: Arrow files `<folder>/<table>/NNNNNN.arrow`, complete or not there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pyarrow as pa

from gifair_ray.errors import BadInput
from gifair_ray.tables import SCHEMA_VERSION, TABLES

_NAME = re.compile(r"\d{6}\.arrow")


def write_segment(folder: Path, table: str, number: int, rows: pa.Table) -> None:
    """A complete segment under its name, or none: written beside it, synced, renamed."""
    path = folder / table / f"{number:06d}.arrow"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with open(partial, "wb") as file:
        with pa.ipc.new_file(file, rows.schema) as writer:
            writer.write_table(rows)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_table(folder: Path, table: str) -> pa.Table:
    """All complete segments of a table, in order, memory-mapped; no rows if there are none."""
    if table not in TABLES:
        raise BadInput(f"there is no table {table!r}; there are {', '.join(TABLES)}")
    files = sorted(f for f in (folder / table).glob("*.arrow") if _NAME.fullmatch(f.name))
    parts = [_read(file, table) for file in files]
    return pa.concat_tables(parts) if parts else TABLES[table].empty_table()


def _read(file: Path, table: str) -> pa.Table:
    try:
        with pa.memory_map(str(file)) as source:
            rows = pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"{file} is damaged or no Arrow file: {error}") from error
    metadata = rows.schema.metadata or {}
    version = metadata.get(b"version", b"?").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise BadInput(
            f"{file} has version {version} of its table's schema; this release reads "
            f"{SCHEMA_VERSION}. Read it with the release that wrote it"
        )
    if not rows.schema.equals(TABLES[table]):
        raise BadInput(f"{file} does not have the columns of table {table!r}")
    return rows
