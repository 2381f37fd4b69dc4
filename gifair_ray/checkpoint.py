"""Checkpoints: the whole state of a run's server between two events, from which it can go on.

checkpoints/000007.json   a checksum in the first line, then the state as JSON
checkpoints/packs/        the arrays that it refers to

A checkpoint also says how many segments of each table belong to it: rows that were written later
are dropped when the run goes on, and written again. The last two are kept; if the last cannot be
read, the one before it serves.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gifair_ray.codec import decode, encode
from gifair_ray.errors import BadInput
from gifair_ray.packs import Pack, Packer, Reader, remove_others, write_pack
from gifair_ray.scenario import Scenario

FORMAT = 1
KEPT = 2


@dataclass(frozen=True)
class Snapshot:
    """A state that was taken at one moment, and is written at another."""

    state: Any
    pack: Pack
    referred: frozenset[int]


@dataclass(frozen=True)
class Restored:
    """A state that was read, and the segments of each table that belong to it."""

    state: Any
    segments: dict[str, int]


class Checkpoints:
    """The checkpoints of one run: taken by the event loop, written by the recorder's thread."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self._folder, self._scenario = folder / "checkpoints", scenario
        self._packer = Packer()
        self._number = 0
        self._names: dict[int, str] = {}  # packs by number
        self._written: list[tuple[Path, set[str]]] = []  # those that are kept, and their packs

    def take(self, state: Any) -> Snapshot:
        """The state as it is now. Read-only arrays are referred to, all others copied."""
        encoded = encode(state, self._packer.put)
        referred = frozenset(self._packer.referred)
        return Snapshot(encoded, self._packer.finish(), referred)

    def write(self, snapshot: Snapshot, segments: Mapping[str, int]) -> None:
        """Write a snapshot, now that so many segments of each table are complete."""
        packs = self._folder / "packs"
        self._names[snapshot.pack.number] = write_pack(packs, snapshot.pack)
        self._names = {n: name for n, name in self._names.items() if n in snapshot.referred}
        body = json.dumps(
            {
                "format": FORMAT,
                "scenario": self._scenario.digest(),
                "segments": dict(segments),
                "packs": self._names,
                "state": snapshot.state,
            }
        )
        path = self._folder / f"{self._number:06d}.json"
        partial = path.with_suffix(".partial")
        with open(partial, "w", encoding="utf-8") as file:
            file.write(f"{_checksum(body)}\n{body}")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        self._number += 1
        self._written = [*self._written, (path, set(self._names.values()))][-KEPT:]
        kept = {path for path, _ in self._written}
        for path in _files(self._folder):
            if path not in kept:
                path.unlink(missing_ok=True)
        remove_others(packs, set().union(*(names for _, names in self._written)))

    def restore(self) -> Restored | None:
        """The last good checkpoint, if there is one; later ones are removed."""
        problems = []
        for path in reversed(_files(self._folder)):
            try:
                restored = self._restore(path)
            except BadInput as error:
                problems.append(str(error))
                path.unlink(missing_ok=True)
                continue
            return restored
        if problems:
            raise BadInput(f"no checkpoint of this run can be read: {'; '.join(problems)}")
        return None

    def _restore(self, path: Path) -> Restored:
        content = _read(path)
        if content["scenario"] != self._scenario.digest():
            raise BadInput(f"{path} belongs to another scenario")
        names = {int(number): str(name) for number, name in content["packs"].items()}
        reader = Reader(self._folder / "packs", names)
        try:
            state = decode(content["state"], reader.get, _modules(self._scenario))
            segments = {str(table): int(n) for table, n in content["segments"].items()}
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"{path} is not a checkpoint of this gifair-ray: {error}") from error
        self._number = int(path.stem) + 1
        self._packer.go_on(max(names, default=-1))
        self._names, self._written = names, [(path, set(names.values()))]
        return Restored(state, segments)


def _read(path: Path) -> dict[str, Any]:
    try:
        checksum, _, body = path.read_text(encoding="utf-8").partition("\n")
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if checksum != _checksum(body):
        raise BadInput(f"{path} does not hold what was written to it")
    content: dict[str, Any] = json.loads(body)
    if content.get("format") != FORMAT:
        raise BadInput(
            f"{path} has format {content.get('format')}, and this gifair-ray reads {FORMAT}: use "
            "the gifair-ray that wrote it"
        )
    return content


def _checksum(body: str) -> str:
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.glob("*.json") if path.stem.isdigit())


def _modules(scenario: Scenario) -> set[str]:
    """Modules of the user's own parts, which may have a state of their own."""
    parts = (scenario.policy, scenario.weighting, scenario.aggregator, scenario.solver)
    return {type(part).__module__ for part in parts}
