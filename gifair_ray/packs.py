"""Arrays on disk, in packs: files that are written once and named by a hash of what they hold.

A save writes one pack, with the arrays that no earlier pack has. Arrays that are read-only never
change, so they are recognised and not written again, however large they are; the others are
copied. Packs that no save refers to any more are removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gifair_ray.codec import KINDS, Array, Reference
from gifair_ray.errors import BadInput
from gifair_ray.files import writing

SLACK_BYTES = 64 << 20  # dead arrays in old packs that are not worth rewriting the others for
ALIGNED = 64


@dataclass(frozen=True)
class Pack:
    """Arrays that are about to be written, as parts of one file."""

    number: int
    parts: list[bytes | memoryview]


class Packer:
    """Places arrays of one save after the other; knows what earlier packs hold."""

    def __init__(self) -> None:
        self._number = 0
        self._kept: dict[int, tuple[Array, Reference]] = {}  # read-only arrays of the last save
        self._used: dict[int, tuple[Array, Reference]] = {}
        self._parts: list[bytes | memoryview] = []
        self._size = 0
        self._sizes: dict[int, int] = {}
        self.referred: set[int] = set()
        """Numbers of the packs that the save refers to."""

    def put(self, array: Array) -> Reference:
        """Keep an array; the reference [pack, offset, bytes, dtype, shape, read-only]."""
        fixed = not array.flags.writeable
        if fixed and (known := self._used.get(id(array)) or self._kept.get(id(array))):
            self._used[id(array)] = known
            self.referred.add(known[1][0])
            return known[1]
        whole = np.ascontiguousarray(array)
        shared = fixed and whole is array
        data: bytes | memoryview = whole.reshape(-1).view(np.uint8).data if shared else b""
        data = data if shared else whole.tobytes()
        place = [self._number, self._size, whole.nbytes, whole.dtype.str, list(array.shape), fixed]
        self._parts += [data, bytes(-whole.nbytes % ALIGNED)]
        self._size += whole.nbytes + -whole.nbytes % ALIGNED
        if fixed:
            self._used[id(array)] = (array, place)
        self.referred.add(self._number)
        return place

    def finish(self) -> Pack:
        """The pack of this save; what follows belongs to the next."""
        pack = Pack(self._number, self._parts)
        self._sizes[self._number] = self._size
        self._sizes = {n: size for n, size in self._sizes.items() if n in self.referred}
        live = sum(place[2] for _, place in self._used.values())
        wasteful = sum(self._sizes.values()) - self._size > 2 * live + SLACK_BYTES
        self._kept = {} if wasteful else self._used  # all is written anew next time
        self._used, self._parts, self._size = {}, [], 0
        self._number += 1
        self.referred = set()
        return pack

    def go_on(self, number: int) -> None:
        """Packs up to this number exist already."""
        self._number = max(self._number, number + 1)


def write_pack(folder: Path, pack: Pack) -> str:
    """Write a pack; its name, which is its hash."""
    folder.mkdir(parents=True, exist_ok=True)
    h = hashlib.blake2b(digest_size=16)
    for part in pack.parts:
        h.update(part)
    name = h.hexdigest()
    with writing(folder / _file(name)) as file:
        for part in pack.parts:
            file.write(part)
    return name


def remove_others(folder: Path, names: Collection[str]) -> None:
    """Remove all packs but these."""
    wanted = {_file(name) for name in names}
    for path in _packs(folder):
        if path.name not in wanted:
            path.unlink(missing_ok=True)


class Reader:
    """Reads arrays from packs, whose hashes are checked first."""

    def __init__(self, folder: Path, names: Mapping[int, str]) -> None:
        self._data: dict[int, Array] = {}
        for number, name in names.items():
            path = folder / _file(name)
            try:
                data = np.fromfile(path, dtype=np.uint8)
            except OSError as error:
                raise BadInput(f"{path} cannot be read: {error}") from error
            if hashlib.blake2b(data.data, digest_size=16).hexdigest() != name:
                raise BadInput(f"{path} does not hold what was written to it")
            self._data[number] = data

    def get(self, place: Reference) -> Array:
        """The array of a reference, as a copy."""
        try:
            number, offset, nbytes, kind, shape, fixed = place
            dtype = np.dtype(kind)
            if dtype.kind not in KINDS:
                raise ValueError(f"an array of {dtype}")
            data = self._data[number][offset : offset + nbytes]
            array = data.view(dtype).reshape(shape).copy()
            array.setflags(write=not fixed)
            return array
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"a saved array is not where it should be: {error}") from error


def _file(name: str) -> str:
    if not (isinstance(name, str) and len(name) == 32 and set(name) <= set("0123456789abcdef")):
        raise BadInput(f"{str(name)[:40]!r} is not the name of a pack")
    return f"{name}.pack"


def _packs(folder: Path) -> Iterator[Path]:
    yield from folder.glob("*.pack") if folder.is_dir() else ()
