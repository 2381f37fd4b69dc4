"""Text as numbers: the alphabet of 80 characters, and windows of a text with what comes next."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""In the order of their codes; the alphabet that LEAF uses for Shakespeare."""
WINDOW = 80  # characters that a model reads before it guesses the next

Bytes = npt.NDArray[np.uint8]
_NOT_A_LETTER = 255
_NUMBER = np.full(129, _NOT_A_LETTER, dtype=np.uint8)
_NUMBER[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))


def encode(text: str) -> Bytes:
    """The number of each character in the alphabet; 255 for one that is not in it."""
    # A lone surrogate, which JSON can hold, is a character like any other here.
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.asarray(_NUMBER[np.minimum(codes, len(_NUMBER) - 1)])


def first_odd(numbers: Bytes) -> int | None:
    """Where the first character is that the alphabet lacks."""
    odd = numbers == _NOT_A_LETTER
    return int(odd.argmax()) if odd.any() else None


def windows(numbers: Bytes, start: int, stop: int, stride: int = 1) -> tuple[Bytes, Bytes]:
    """(x, y): every `stride`-th window that lies in [start, stop) with the character after it."""
    piece = numbers[start:stop]
    if len(piece) <= WINDOW:
        return np.empty((0, WINDOW), dtype=np.uint8), np.empty(0, dtype=np.uint8)
    x = np.lib.stride_tricks.sliding_window_view(piece, WINDOW)[:-1][::stride]
    return x, piece[WINDOW:][::stride]
