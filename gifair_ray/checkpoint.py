"""Checkpoints: the whole state of a run's server between two events, from which it can go on.

checkpoints/000007.json   a checksum in the first line, then the state as JSON
checkpoints/packs/        the arrays that it refers to

A checkpoint also says which segments of each table belong to it: rows that were written later are
dropped when the run goes on, and written again. The last two are kept; if the last is damaged, or
what it rests on is, the one before it serves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gifair_ray.codec import decode, encode
from gifair_ray.errors import BadInput
from gifair_ray.files import write_text
from gifair_ray.packs import Pack, Packer, Reader, remove_others, write_pack
from gifair_ray.results import Written, check_segments
from gifair_ray.scenario import Scenario
from gifair_ray.tables import TABLES

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
    """A state that was read, and how much of each table belongs to it."""

    state: Any
    written: dict[str, Written]


class Checkpoints:
    """The checkpoints of one run: taken by the event loop, written by the recorder's thread."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self._run, self._folder, self._scenario = folder, folder / "checkpoints", scenario
        self._packer = Packer()
        self._number = 0
        self._names: dict[int, str] = {}  # packs by number
        self._written: list[tuple[Path, set[str]]] = []  # those that are kept, and their packs

    def take(self, state: Any) -> Snapshot:
        """The state as it is now. Read-only arrays are referred to, all others copied."""
        encoded = encode(state, self._packer.put)
        referred = frozenset(self._packer.referred)
        return Snapshot(encoded, self._packer.finish(), referred)

    def write(self, snapshot: Snapshot, written: Mapping[str, Written]) -> None:
        """Write a snapshot, now that so much of each table is on disk."""
        packs = self._folder / "packs"
        self._names[snapshot.pack.number] = write_pack(packs, snapshot.pack)
        self._names = {n: name for n, name in self._names.items() if n in snapshot.referred}
        body = json.dumps(
            {
                "format": FORMAT,
                "scenario": self._scenario.digest(),
                "tables": {name: [w.segments, w.checksum] for name, w in written.items()},
                "packs": self._names,
                "state": snapshot.state,
            }
        )
        path = self._folder / f"{self._number:06d}.json"
        write_text(path, f"{_checksum(body)}\n{body}")
        self._number += 1
        self._written = [*self._written, (path, set(self._names.values()))][-KEPT:]
        kept = {path for path, _ in self._written}
        for path in _files(self._folder):
            if path not in kept:
                path.unlink(missing_ok=True)
        remove_others(packs, set().union(*(names for _, names in self._written)))

    def restore(self) -> Restored | None:
        """The last good checkpoint, if there is one. Later ones go when the next is written."""
        problems = []
        for path in reversed(_files(self._folder)):
            try:
                return self._restore(path)
            except BadInput as error:
                problems.append(str(error))
        if problems:
            raise BadInput(
                f"no checkpoint of {self._run} can be used: {'; '.join(problems)}. Restore what is "
                "damaged from a copy, or run it again in another folder"
            )
        return None

    def _restore(self, path: Path) -> Restored:
        try:
            content = _read(path)
            if content["scenario"] != self._scenario.digest():
                raise BadInput(f"{path} belongs to another scenario")
            names = {int(number): str(name) for number, name in content["packs"].items()}
            reader = Reader(self._folder / "packs", names)
            state = decode(content["state"], reader.get, _modules(self._scenario))
            written = {name: Written(*content["tables"].get(name, ())) for name in TABLES}
            for name, those in written.items():
                check_segments(self._run, name, those)
        except (LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"{path} is not a checkpoint of this gifair-ray: {error}") from error
        self._number = int(path.stem) + 1
        self._packer.go_on(max(names, default=-1))
        self._names, self._written = names, [(path, set(names.values()))]
        return Restored(state, written)


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
