"""Read what a run wrote: its manifest and its Arrow tables, from a folder or from memory.

A run's folder holds `manifest.json` and `tables/<name>/000000.arrow`, `000001.arrow`, …: complete
segments, so that a run can be read while it goes on and after it was killed. Anything else in
those folders, such as a segment that is still being written, is ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gifair_ray.errors import BadInput
from gifair_ray.tables import SCHEMA_VERSION, TABLES

MANIFEST = "manifest.json"
MANIFEST_FORMAT = 1
STATUSES = ("running", "done", "interrupted", "failed")

_SEGMENT = re.compile(r"[0-9]{6}\.arrow")
_TEXTS = ("name", "label", "algorithm", "status")


@dataclass(frozen=True, eq=False)
class RunTables:
    """One run: its manifest and its tables. Made by `load` or `RunTables.of`."""

    folder: Path | None  # None: the tables are in memory
    manifest: Mapping[str, Any]
    tables: Mapping[str, pa.Table] | None = None  # None: they are in the folder

    @classmethod
    def of(
        cls, tables: Mapping[str, pa.Table], manifest: Mapping[str, Any] | None = None
    ) -> RunTables:
        """A run from tables in memory; tables that are not given are empty.

        What the manifest does not say is a finished run called "run" with seed 0.
        """
        told = {
            "format": MANIFEST_FORMAT,
            "name": "run",
            "label": "run",
            "algorithm": "unknown",
            "seed": 0,
            "status": "done",
            "digest": None,
        } | dict(manifest or {})
        _check_manifest(told, "the manifest")
        checked = {
            name: _conform(table, _known(name), f"table {name!r}") for name, table in tables.items()
        }
        return cls(None, told, checked)

    def table(self, name: str) -> pa.Table:
        """The table as it is now, with the columns of `gifair_ray.tables`; memory-mapped.

        A column that was added after the run was written is null.
        """
        schema = TABLES[_known(name)]
        if self.tables is not None:
            return self.tables.get(name, schema.empty_table())
        assert self.folder is not None
        parts = [_read(path, name) for path in _segments(self.folder / "tables" / name)]
        return pa.concat_tables(parts) if parts else schema.empty_table()


def load(path: str | os.PathLike[str]) -> RunTables:
    """Open the run in this folder. Its tables are read when they are asked for."""
    folder = Path(path)
    file = folder / MANIFEST
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{folder} is not the folder of a run: it has no {MANIFEST}. "
            "Give the folder that the run wrote, or use find_runs for a folder of several"
        ) from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read ({error}): restore it or run again") from error
    _check_manifest(manifest, str(file))
    return RunTables(folder, manifest)


def find_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[Path]:
    """All run folders among and below the given folders, each once; sorted below each of them."""
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: dict[Path, Path] = {}
    for path in map(Path, given):
        if not path.is_dir():
            raise BadInput(f"{path} is not a folder: give the folder of a run or of several runs")
        runs = list(_runs_below(path))
        if not runs:
            raise BadInput(f"no run in {path}: no folder in it has a {MANIFEST}")
        for run in runs:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def _runs_below(path: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(path):
        inner.sort()
        if MANIFEST in files:
            inner.clear()  # there is no run within a run
            yield Path(folder)


def _segments(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if _SEGMENT.fullmatch(path.name))


def _read(path: Path, name: str) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInput(
            f"{path} is corrupt or cut short ({error}): restore it from a copy, or run again"
        ) from error
    return _conform(table, name, str(path))


def _known(name: str) -> str:
    if name not in TABLES:
        raise BadInput(f"there is no table {name!r}: the tables are {', '.join(TABLES)}")
    return name


def _conform(table: pa.Table, name: str, source: str) -> pa.Table:
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


def _check_manifest(manifest: Any, source: str) -> None:
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
