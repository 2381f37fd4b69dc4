"""The idx format of MNIST and EMNIST: a magic number, the dimensions, bytes; plain or gzipped."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from gifair_ray.errors import BadInput

Bytes = npt.NDArray[np.uint8]


class IdxFile:
    """An open idx file of bytes; read it to its end, so that its checksum is checked."""

    def __init__(self, place: Path, dimensions: int) -> None:
        self.place = place
        self._raw = place.open("rb")
        zipped = self._raw.read(2) == b"\x1f\x8b"
        self._raw.seek(0)
        self._file: BinaryIO = gzip.GzipFile(fileobj=self._raw) if zipped else self._raw  # type: ignore[assignment]
        try:
            self.shape = self._header(dimensions, zipped)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def _header(self, dimensions: int, zipped: bool) -> tuple[int, ...]:
        magic = self._read(4, 0)
        wanted = bytes([0, 0, 8, dimensions])
        if magic != wanted:
            raise BadInput(
                f"{self.place}, byte 1: magic number {magic.hex()} instead of {wanted.hex()}; this "
                f"is no idx file of bytes with {dimensions} dimension(s)"
            )
        sizes = np.frombuffer(self._read(4 * dimensions, 4), dtype=">u4")
        shape = tuple(int(n) for n in sizes)
        if 0 in shape:
            raise BadInput(f"{self.place}, byte 5: dimensions {shape}; there is nothing in it")
        if not zipped:
            there, told = os.fstat(self._raw.fileno()).st_size, math.prod(shape)
            if there != told + 4 + 4 * dimensions:
                raise BadInput(
                    f"{self.place}, byte 5: dimensions {shape} need {told} bytes of data, "
                    f"{there - 4 - 4 * dimensions} are there; the file is damaged or cut short"
                )
        return shape

    def _read(self, size: int, at: int) -> bytes:
        try:
            found = self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(
                f"{self.place}, about byte {at + 1} of the content: {error}; the file is damaged"
            ) from error
        if len(found) != size:
            raise BadInput(
                f"{self.place}, byte {at + len(found) + 1} of the content: the file ends, "
                f"{size - len(found)} more bytes are needed; it is cut short"
            )
        return found

    def rows(self, step: int, told: Callable[[int], None]) -> Iterator[Bytes]:
        """(at most `step`, …) entries along the first dimension at a time, to the very end."""
        count, width = self.shape[0], math.prod(self.shape[1:])
        at = 4 + 4 * len(self.shape)
        for start in range(0, count, step):
            n = min(step, count - start)
            block = self._read(n * width, at)
            at += n * width
            yield np.frombuffer(block, dtype=np.uint8).reshape(n, *self.shape[1:])
            told(self._raw.tell())
        try:
            rest = self._file.read(1)  # a gzipped file checks its sum here
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"{self.place}, at its end: {error}; the file is damaged") from error
        if rest:
            raise BadInput(
                f"{self.place}, byte {at + 1} of the content: more follows than the dimensions "
                f"{self.shape} say"
            )
