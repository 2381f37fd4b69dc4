"""What a run's folder holds, for whoever reads it: the manifest and the Arrow tables.

A table is a folder of complete segments, `tables/<name>/000000.arrow`, `000001.arrow`, …, so that
a run can be read while it goes on and after it was killed. Anything else in those folders, such
as a segment that is still being written, is ignored.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from gifair_ray.arrays import empty
from gifair_ray.errors import BadInput
from gifair_ray.files import writing
from gifair_ray.tables import SCHEMA_VERSION, TABLES

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
STATUSES = ("running", "done", "interrupted", "failed")

_SEGMENT = re.compile(r"([0-9]{6}|[1-9][0-9]{6,})\.arrow")
_TEXTS = ("name", "label", "algorithm", "status")


def read_manifest(folder: Path) -> dict[str, Any]:
    """What ran in this folder, and how it ended."""
    file = folder / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{folder} is not the folder of a run: it has no {MANIFEST}. "
            "Give the folder that the run wrote"
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read ({error}): restore it or run again") from error
    check_manifest(manifest, str(file))
    return manifest


def check_manifest(manifest: Any, source: str) -> None:
    """Refuse what is not a manifest that this release can read; `source` is named."""
    if not isinstance(manifest, Mapping) or manifest.get("format") != MANIFEST_FORMAT:
        version = manifest.get("format") if isinstance(manifest, Mapping) else None
        raise BadInput(
            f"{source} has format {version}, and this gifair-ray reads {MANIFEST_FORMAT}: "
            "use the gifair-ray that wrote it"
        )
    bad = [key for key in _TEXTS if not isinstance(manifest.get(key), str)]
    if type(manifest.get("seed")) is not int:
        bad.append("seed")
    if bad:
        raise BadInput(f"{source} lacks a valid {', '.join(bad)}: restore it, or run again")
    if manifest["status"] not in STATUSES:
        raise BadInput(
            f"{source} has status {manifest['status']!r}, which is none of {', '.join(STATUSES)}"
        )


@dataclass(frozen=True)
class Written:
    """How much of a table is on disk: so many segments, and a checksum over all their bytes."""

    segments: int = 0
    checksum: str = ""

    def hash(self) -> Any:
        """Of what is there, for another segment to be added."""
        return hashlib.blake2b(self.checksum.encode(), digest_size=16)

    def then(self, data: Any) -> Written:
        """With one more segment."""
        h = self.hash()
        h.update(data)
        return self.added(h)

    def added(self, h: Any) -> Written:
        """With one more segment, of which the hash was taken."""
        return Written(self.segments + 1, h.hexdigest())


class _Checked(io.RawIOBase):
    """A file that is written column by column, and its checksum with it: never all in memory."""

    def __init__(self, file: IO[bytes], before: Written) -> None:
        self._file, self._before, self._hash = file, before, before.hash()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return self._file.write(data)

    @property
    def written(self) -> Written:
        """What is on disk with this segment."""
        return self._before.added(self._hash)


def write_segment(folder: Path, name: str, written: Written, rows: pa.Table) -> Written:
    """Add a segment to a table: complete under its name, or not there."""
    path = _segment(folder, name, written.segments)
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        sink = _Checked(file, written)
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
    return sink.written


def check_segments(folder: Path, name: str, written: Written) -> None:
    """Refuse a table that does not hold what was written to it."""
    found = Written()
    for number in range(written.segments):
        path = _segment(folder, name, number)
        try:
            found = found.then(path.read_bytes())
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error}") from error
    if found != written:
        where = folder / "tables" / name
        raise BadInput(f"{where} does not hold what was written to it")


def drop_segments(folder: Path, name: str, keep: int) -> None:
    """Remove the segments of a table but the first so many."""
    for path in _segments(folder / "tables" / name):
        if int(path.stem) >= keep:
            path.unlink()


def _segment(folder: Path, name: str, number: int) -> Path:
    return folder / "tables" / name / f"{number:06d}.arrow"


def read_table(folder: Path, name: str) -> pa.Table:
    """A table of the run in this folder as it is now, memory-mapped.

    It has the columns of `gifair_ray.tables`; one that was added after the run was written is
    null.
    """
    parts = list(read_parts(folder, name))
    return pa.concat_tables(parts) if parts else empty(TABLES[name])


def read_parts(folder: Path, name: str) -> Iterator[pa.Table]:
    """The same, segment by segment: for tables that are larger than what may stay in memory."""
    for path in _segments(folder / "tables" / known(name)):
        yield _read(path, name)


def _segments(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name))
    return sorted(found, key=lambda path: int(path.stem))


def _read(path: Path, name: str) -> pa.Table:
    try:
        with pa.memory_map(os.fsencode(path)) as source:  # a name need not be text
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(
            f"{path} is corrupt or cut short ({error}): restore it from a copy, or run again"
        ) from error
    return conform(table, name, str(path))


def known(name: str) -> str:
    """The name of a table, if there is such a one."""
    if name not in TABLES:
        raise BadInput(f"there is no table {name!r}: the tables are {', '.join(TABLES)}")
    return name


def conform(table: pa.Table, name: str, source: str) -> pa.Table:
    """The table with exactly the columns of its schema: a newer one's left out, missing ones null.

    Columns may be added without a new version; any other difference is refused.
    """
    schema, told = TABLES[name], table.schema.metadata or {}
    version = told.get(b"version", b"none").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise BadInput(
            f"{source} has schema version {version}, and this gifair-ray reads {SCHEMA_VERSION}: "
            "use the gifair-ray that wrote it (the run's manifest may name it)"
        )
    if (kind := told.get(b"table", b"none").decode(errors="replace")) != name:
        raise BadInput(f"{source} holds table {kind!r}, not {name!r}: it is in the wrong place")
    columns = []
    for field in schema:
        where = table.schema.get_all_field_indices(field.name)
        if len(where) > 1 or (where and table.schema.field(where[0]).type != field.type):
            raise BadInput(
                f"{source}: column {field.name!r} is not one column of {field.type}: "
                "it was not written by gifair-ray; restore it, or run again"
            )
        columns.append(table.column(where[0]) if where else pa.nulls(len(table), field.type))
    return pa.table(columns, schema=schema)
