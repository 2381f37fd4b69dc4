"""A table on disk: its format, its schema, its columns in pieces that fit in memory.

What pyarrow raises on a damaged file leaves here as `BadInput`.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from pyarrow import types

from gifair_ray.data._places import find, looked_for
from gifair_ray.errors import BadInput, RunFailed

Format = Literal["Parquet", "Arrow", "CSV"]
FORMATS: dict[str, Format] = {
    ".parquet": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
    ".csv": "CSV",
}
STEP = 16384  # rows looked at together: bounds memory while a file is checked
_CSV_BLOCK = 1 << 24  # bytes; no row may be longer, and numbers are told from the first block


@contextmanager
def _reading(path: str, kind: Format, columns: Sequence[str] = ()) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError) as e:
        why = (str(e).strip() or type(e).__name__).splitlines()[0].rstrip(".")[:300]
        way_out = "if it is damaged or of another format, write it again"
        if columns and (at := re.match(r"In CSV column #(\d+): (?:Row #\d+: )?", why)):
            why = f"column {columns[int(at[1])]!r}: {why[at.end() :]}"
            way_out = "correct the value or drop the column"
        raise BadInput(f"{path}: cannot be read as {kind}: {why}; {way_out}") from e


@dataclass(frozen=True)
class TableFile:
    """A file with its format and schema; every read opens it anew."""

    path: str
    place: Path
    kind: Format
    schema: pa.Schema
    stamp: tuple[int, ...]

    @classmethod
    def open(cls, path: str) -> TableFile:
        """Look at the file's schema; refuses what is no table, or names a column twice."""
        place = find(path)
        kind = FORMATS.get(place.suffix.lower())
        if kind is None:
            raise BadInput(
                f"data.path = {path!r}: unknown extension {place.suffix!r}; "
                f"a table ends in {', '.join(FORMATS)}"
            )
        with _reading(path, kind):
            if not place.exists():
                raise BadInput(
                    f"data.path = {path!r}: there is no file {looked_for(path)}; "
                    "check the path, or say with --data-dir where data are"
                )
            if not place.is_file():
                raise BadInput(f"data.path = {path!r} is no file; name a single table file")
            stamp = _stamp(place)
            if place.stat().st_size == 0:
                raise BadInput(f"{path} is an empty file; it needs columns and rows")
            schema = _schema(place, kind)
            name, times = Counter(schema.names).most_common(1)[0] if schema.names else ("", 0)
        if times > 1:
            raise BadInput(f"{path}: column {name!r} is there {times} times; rename or drop some")
        return cls(path, place, kind, schema, stamp)

    def unchanged(self) -> None:
        """Refuses to go on with a file that was written to since: what is mapped changes along."""
        if _stamp(self.place) != self.stamp:
            raise RunFailed(f"{self.path} was changed or removed after the start; start again")

    def read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        """Whole columns; those in `text` are read from CSV as they are written, not as numbers."""
        if self.kind == "CSV":
            with _reading(self.path, self.kind, self.schema.names):
                options = _csv_options(columns, {name: pa.string() for name in text})
                return pcsv.read_csv(self.place, **options)
        batches = list(self.batches(columns))
        return pa.Table.from_batches(batches) if batches else self.schema.empty_table()

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """These columns in order, at most `STEP` rows at a time; numbers in CSV as float64."""
        with _reading(self.path, self.kind, self.schema.names):
            for batch in self._raw_batches(columns):
                batch = batch.select(columns)
                batch.validate(full=True)  # a damaged file may point outside its own buffers
                for start in range(0, len(batch), STEP):
                    yield batch.slice(start, STEP)

    def _raw_batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        if self.kind == "Parquet":
            # Not mapped, pyarrow would hold whole column chunks in memory.
            with pq.ParquetFile(self.place, memory_map=True, pre_buffer=False) as file:
                yield from file.iter_batches(STEP, columns=columns)
        elif self.kind == "Arrow":
            # No projection here: pyarrow's would copy, and a column left alone is never paged in.
            with pa.memory_map(str(self.place)) as file:
                reader = _ipc(file)
                if isinstance(reader, pa.RecordBatchFileReader):
                    yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
                else:
                    yield from reader
        else:
            read_as = {
                name: kind if types.is_boolean(kind) else pa.float64()
                for name, kind in ((name, self.schema.field(name).type) for name in columns)
            }
            with pcsv.open_csv(self.place, **_csv_options(columns, read_as)) as reader:
                yield from reader


def _stamp(place: Path) -> tuple[int, ...]:
    try:
        stat = place.stat()
    except OSError:
        return ()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev


def _schema(place: Path, kind: Format) -> pa.Schema:
    if kind == "Parquet":
        return pq.read_schema(place)
    if kind == "Arrow":
        with pa.memory_map(str(place)) as file:
            return _ipc(file).schema
    with pcsv.open_csv(place, **_csv_options()) as reader:
        return reader.schema


def _ipc(file: pa.MemoryMappedFile) -> Any:
    """The reader for a file, or for a stream that was written into one."""
    magic = file.read(6)
    file.seek(0)
    if magic[:4] == b"FEA1":
        raise ValueError("this is version 1 of Feather, which is not Arrow yet")
    return pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file)


def _csv_options(
    columns: list[str] | None = None, read_as: dict[str, pa.DataType] | None = None
) -> dict[str, Any]:
    return {
        "read_options": pcsv.ReadOptions(block_size=_CSV_BLOCK),
        "parse_options": pcsv.ParseOptions(newlines_in_values=True),
        "convert_options": pcsv.ConvertOptions(
            include_columns=columns,
            column_types=read_as,
            strings_can_be_null=True,  # NA is a missing value, "NA" in quotes is text
            quoted_strings_can_be_null=False,
        ),
    }


def listed(names: Collection[str], most: int = 12) -> str:
    """The names, or the first of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, list(names)[:most])) + more


def has_column(file: TableFile, option: str, name: str, *, optional: bool = False) -> bool:
    """Whether the column is there; one that has to be and is not, is refused."""
    names = file.schema.names
    if name in names or optional:
        return name in names
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"set data.{option} to the one that is meant"
    if option == "client":
        hint += "; samples that belong to nobody are for data.source = 'pooled'"
    there = listed(names) or "none"
    raise BadInput(f"{file.path} has no column {name!r} (data.{option}); it has {there}: {hint}")
