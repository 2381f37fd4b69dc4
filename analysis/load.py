"""Open runs for analysis: from a folder, or from tables in memory."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
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
    read_parts,
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

    @property
    def scenario(self) -> str:
        """The resolved scenario as TOML; empty for tables in memory."""
        file = self.folder / "scenario.toml" if self.folder is not None else None
        return file.read_text(encoding="utf-8") if file is not None and file.is_file() else ""

    @cached_property
    def settings(self) -> dict[str, str]:
        """Every key of the scenario, dotted, with its value; but for its name and seed."""
        try:
            flat = dict(_flat(tomllib.loads(self.scenario)))
        except ValueError as error:
            raise BadInput(f"{self.folder}/scenario.toml is not valid TOML: {error}") from error
        return {key: value for key, value in flat.items() if key not in ("name", "seed")}

    def table(self, name: str) -> pa.Table:
        """The table as it is now, with the columns of `gifair_ray.tables`; memory-mapped.

        A column that was added after the run was written is null.
        """
        if self.tables is not None:
            return self.tables.get(name, TABLES[known(name)].empty_table())
        assert self.folder is not None
        return read_table(self.folder, name)

    def parts(self, name: str) -> Iterator[pa.Table]:
        """The same, part by part: for tables that are larger than what may stay in memory."""
        if self.tables is not None:
            yield self.table(name)
        else:
            assert self.folder is not None
            yield from read_parts(self.folder, name)


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", str(inner)


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


def natural(name: str) -> list[tuple[float, str]]:
    """A key that sorts names as a person would: 5 before 15, and 0.05 before 0.1."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [(float(part), "") if i % 2 else (-1.0, part) for i, part in enumerate(parts)]


def open_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> list[RunTables]:
    """All runs among and below the given folders, with labels that tell settings apart."""
    return distinct([load(folder) for folder in find_runs(paths)])


def distinct(runs: Iterable[RunTables]) -> list[RunTables]:
    """The runs, with what differs added to a label that stands for several settings.

    A setting is a run's scenario without its name and seed.
    """
    runs = list(runs)
    values: dict[str, dict[str, set[str | None]]] = {}  # label -> key -> its values
    for run in runs:
        seen = values.setdefault(run.manifest["label"], {})
        for key in run.settings.keys() - seen.keys():
            seen[key] = set()
    for run in runs:
        for key, found in values[run.manifest["label"]].items():
            found.add(run.settings.get(key))
    out = []
    for run in runs:
        label = run.manifest["label"]
        keys = sorted(key for key, found in values[label].items() if len(found) > 1)
        told = "".join(f", {key}={run.settings.get(key, 'not set')}" for key in keys)
        out.append(replace(run, manifest={**run.manifest, "label": label + told}))
    return out


def _runs_below(path: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(path):
        inner.sort(key=natural)
        if MANIFEST in files:
            inner.clear()  # there is no run within a run
            yield Path(folder)
