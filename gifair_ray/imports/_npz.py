"""Arrays in an .npz file, read piece by piece, never unpickled.

The zip's checksum of an array is checked when it has been read to its end.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from gifair_ray.errors import BadInput

Array = npt.NDArray[Any]
_DAMAGE = (OSError, EOFError, ValueError, SyntaxError, zipfile.BadZipFile, zlib.error, RuntimeError)


class NpzFile:
    """An .npz file; `rows` goes through one of its arrays."""

    def __init__(self, place: Path) -> None:
        self.place = place
        try:
            self._zip = zipfile.ZipFile(place)
        except (*_DAMAGE, NotImplementedError) as error:
            raise BadInput(f"{place}: cannot be read as npz: {error}; is it damaged?") from error

    def close(self) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._zip.namelist()

    @property
    def names(self) -> list[str]:
        """The arrays in it."""
        return [name.removesuffix(".npy") for name in self._zip.namelist()]

    def shape(self, name: str) -> tuple[int, ...]:
        """An array's shape; refuses what is not of whole numbers or text."""
        return next(self._parts(name, 0))[1]

    def rows(self, name: str, step: int) -> Iterator[Array]:
        """At most `step` entries of the array at a time, to its very end."""
        parts = self._parts(name, step)
        next(parts)
        for block, _ in parts:
            yield block

    def whole(self, name: str) -> Array:
        """All of an array that fits in memory."""
        return np.concatenate(list(self.rows(name, 1 << 16)))

    def _parts(self, name: str, step: int) -> Iterator[tuple[Array, tuple[int, ...]]]:
        if name not in self:
            there = ", ".join(self.names) or "nothing"
            raise BadInput(f"{self.place} has no array {name!r}; it has {there}")
        where = f"{self.place}, array {name!r}"
        try:
            with self._zip.open(f"{name}.npy") as file:
                version = npy.read_magic(file)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"version {version} of the npy format")
                header = (
                    npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                )
                shape, fortran, dtype = header(file)
                if dtype.hasobject or dtype.kind not in "iuUb" or dtype.itemsize == 0:
                    raise BadInput(f"{where}: holds {dtype}, not whole numbers or text")
                if fortran and len(shape) > 1:
                    raise BadInput(f"{where}: is in Fortran order; save it in C order")
                if not shape or min(shape) <= 0 or math.prod(shape) > 1 << 48:
                    raise BadInput(f"{where}: shape {shape}; there is nothing in it")
                yield np.empty(0), shape
                width = math.prod(shape[1:]) * dtype.itemsize
                for start in range(0, shape[0], step):
                    n = min(step, shape[0] - start)
                    block = file.read(n * width)
                    if len(block) != n * width:
                        raise BadInput(
                            f"{where}, entry {start + len(block) // width + 1} of {shape[0]}: the "
                            "data end here; the file is cut short"
                        )
                    yield np.frombuffer(block, dtype=dtype).reshape(n, *shape[1:]), shape
                if file.read(1):
                    raise BadInput(f"{where}: more data than its shape {shape} says")
        except (*_DAMAGE, NotImplementedError) as error:
            raise BadInput(f"{where}: {error}; the file is damaged") from error
