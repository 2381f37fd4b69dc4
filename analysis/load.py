"""Open runs for analysis: from a folder, or from tables in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from gifair_ray.errors import BadInput
from gifair_ray.results import (
    MANIFEST,
    MANIFEST_FORMAT,
    check_manifest,
    conform,
    known,
    read_manifest,
    read_table,
)
from gifair_ray.tables import TABLES


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
        check_manifest(told, "the manifest")
        checked = {
            name: conform(table, known(name), f"table {name!r}") for name, table in tables.items()
        }
        return cls(None, told, checked)

    def table(self, name: str) -> pa.Table:
        """The table as it is now, with the columns of `gifair_ray.tables`; memory-mapped.

        A column that was added after the run was written is null.
        """
        if self.tables is not None:
            return self.tables.get(name, TABLES[known(name)].empty_table())
        assert self.folder is not None
        return read_table(self.folder, name)


def load(path: str | os.PathLike[str]) -> RunTables:
    """Open the run in this folder. Its tables are read when they are asked for."""
    folder = Path(path)
    return RunTables(folder, read_manifest(folder))


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
