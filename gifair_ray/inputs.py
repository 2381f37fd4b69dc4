"""The files that a scenario reads: which they are, and what tells them apart from others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from gifair_ray.errors import BadInput
from gifair_ray.parts import Part
from gifair_ray.scenario import Scenario

BLOCK = 1 << 20


def inputs(scenario: Scenario) -> dict[str, str]:
    """Fingerprints of the files that decide the results, by key: {"data.path": "5f0c…"}."""
    return {
        f"{part}.{field}": fingerprint(path)
        for part, field, path in files(scenario)
        if path.is_file()  # others are refused when they are opened
    }


def files(scenario: Scenario) -> Iterator[tuple[str, str, Path]]:
    """(part, field, where it is) of every file that a part of the scenario reads."""
    for name in type(scenario).model_fields:
        part = getattr(scenario, name)
        if isinstance(part, Part):
            yield from ((name, field, path) for field, path in part.files().items())


def fingerprint(path: Path) -> str:
    """A hash of what a file holds."""
    try:
        found = path.stat()
        return _fingerprint(path, found.st_size, found.st_mtime_ns, found.st_ino)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error}") from error


@lru_cache(maxsize=64)
def _fingerprint(path: Path, *stamp: int) -> str:
    h = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            h.update(block)
    return h.hexdigest()


def with_files(table: Mapping[str, Any], places: Mapping[tuple[str, str], Path]) -> dict[str, Any]:
    """A scenario's table that reads files from other places."""
    out = dict(table)
    for (part, field), path in places.items():
        out[part] = out[part] | {field: str(path)}
    return out
