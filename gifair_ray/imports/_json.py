"""JSON of any size, read value by value: memory holds one value and a piece of the file.

The files of LEAF are objects of objects of long lists. The cursor walks through those, and hands
the short values within them to the standard library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn, TextIO

from gifair_ray.errors import BadInput

PIECE = 1 << 20  # characters
LARGEST = 1 << 26  # characters of a single value


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constants)


class Cursor:
    """A place in a JSON text."""

    def __init__(self, file: TextIO, name: str, piece: int = PIECE) -> None:
        self._file, self._name, self._piece = file, name, piece
        self._text, self._at, self._before, self._ended = "", 0, 0, False
        self.where = ""
        """What is being read, in the user's words; goes into messages."""

    @property
    def position(self) -> int:
        """Characters before this place."""
        return self._before + self._at

    def wrong(self, what: str, position: int | None = None) -> NoReturn:
        """Refuse the file."""
        at = (self.position if position is None else position) + 1
        within = f" ({self.where})" if self.where else ""
        raise BadInput(f"{self._name}, character {at}{within}: {what}")

    def _more(self) -> bool:
        """Read on; what has been passed is forgotten. False at the end of the file."""
        if self._ended:
            return False
        self._text = self._text[self._at :]
        self._before += self._at
        self._at = 0
        try:
            read = self._file.read(max(self._piece, len(self._text)))
        except UnicodeDecodeError as error:
            self.wrong(f"not UTF-8 text ({error.reason}); is the file damaged?")
        except OSError as error:
            self.wrong(f"cannot be read: {error.strerror or error}")
        self._ended = not read
        self._text += read
        return not self._ended

    def peek(self) -> str:
        """The next character that is no space; nothing at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\n\r":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, *wanted: str) -> str:
        """Pass one of these characters."""
        found = self.peek()
        if found not in wanted or not found:
            given = f"{found!r}" if found else "the end of the file: it is cut short"
            self.wrong(f"{' or '.join(map(repr, wanted))} is expected here, not {given}")
        self._at += 1
        return found

    def value(self) -> Any:
        """Pass a whole value, which has to fit in memory."""
        if not self.peek():
            self.wrong("a value is expected here, not the end of the file: it is cut short")
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                self._hope(error.msg, self._before + error.pos)
            except ValueError as error:
                self._hope(str(error), self.position)
            except RecursionError:
                self.wrong("nested too deeply; no value here is")
            else:
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
                self._more()  # a number that touches the end of the piece may go on in the next

    def _hope(self, why: str, position: int) -> None:
        """Read on: what is wrong may only be that the value goes on in the next piece."""
        if self._ended or len(self._text) - self._at > LARGEST:
            self.wrong(f"{why}; the file is damaged or cut short", position)
        self._more()

    def items(self) -> Iterator[int]:
        """The numbers of an array's values; the caller passes each value."""
        self.take("[")
        if self.peek() == "]":
            self.take("]")
            return
        number, after = 0, ","
        while after == ",":
            self.peek()  # the position is that of the value
            yield number
            number, after = number + 1, self.take(",", "]")

    def fields(self) -> Iterator[str]:
        """The keys of an object, none twice; the caller passes each value."""
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        seen, after = set(), ","
        while after == ",":
            if self.peek() != '"':
                self.take('"')
            start = self.position
            key = self.value()
            if key in seen:
                self.wrong(f"{key!r} is there twice", start)
            seen.add(key)
            self.take(":")
            self.peek()
            yield key
            after = self.take(",", "}")

    def end(self) -> None:
        """Nothing may follow."""
        if self.peek():
            self.wrong(f"{self._text[self._at]!r} follows the end of the JSON value")
