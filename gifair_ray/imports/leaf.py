"""LEAF's JSON files for FEMNIST and Shakespeare.

    {"users": [u, …], "num_samples": [n, …], "user_data": {u: {"x": […], "y": […]}, …}}

An x of FEMNIST is 784 grey levels n/255 (white paper is 1), its y a number from 0 to 61; an x of
Shakespeare is 80 characters, its y the next one. A folder may hold `train` and `test` with the same
users in both. LEAF leaves users without samples in `user_data` that it does not list; they are
passed over, and counted. `hierarchies` is not read: LEAF does not keep it in step with `users`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gifair_ray.data._places import find, looked_for
from gifair_ray.data._text import LETTERS, WINDOW, encode, first_odd
from gifair_ray.errors import BadInput
from gifair_ray.imports import Imported, Tell
from gifair_ray.imports._json import Cursor
from gifair_ray.imports._write import GREYS, TableWriter, new_table
from gifair_ray.imports.emnist import CHARACTERS, PIXELS

Kind = Literal["images", "text"]
ABOUT_TEXT = {b"tokens": str(len(LETTERS)).encode()}


def import_leaf(path: str, out: str, *, pool: bool = False, tell: Tell | None = None) -> Imported:
    """Convert a file, or all .json files of a folder and of its folders `train` and `test`.

    `pool` puts train and test together: a scenario then draws the split itself.
    """
    files = _files(path)
    kind = _kind(files[0][0])
    splits = {split for _, split in files}
    keep = splits == {"train", "test"} and not pool
    about = GREYS if kind == "images" else ABOUT_TEXT
    width = PIXELS if kind == "images" else WINDOW
    seen: dict[str, dict[str, str]] = {split: {} for split in splits}
    total, done, left_out = sum(file.stat().st_size for file, _ in files), 0, 0
    with new_table(out, width, about, ["client", "split"] if keep else ["client"]) as table:
        for file, split in files:
            with file.open(encoding="utf-8-sig") as text:
                cursor = Cursor(text, str(file))
                reader = _Reader(cursor, kind, table, split if keep else "", seen[split], file.name)
                reader.read(lambda at, before=done: tell and tell(before + at, total))
                left_out += reader.left_out
            done += file.stat().st_size
        if keep:
            _refuse_untrained(path, seen)
        clients = len({user for users in seen.values() for user in users})
        return Imported(out, table.rows, clients, left_out)


def _files(path: str) -> list[tuple[Path, str]]:
    """The files with the split that each belongs to ("" if that is not known)."""
    place = find(path)
    if place.is_file():
        return [(place, "")]
    if not place.is_dir():
        raise BadInput(f"{path}: there is neither {looked_for(path)}; check the path")
    if there := sorted(place.glob("*.json")):
        return [(file, place.name if place.name in ("train", "test") else "") for file in there]
    files = [(f, s) for s in ("train", "test") for f in sorted((place / s).glob("*.json"))]
    if not files:
        raise BadInput(f"{path}: no .json files in the folder, nor in its folders train and test")
    return files


def _kind(file: Path) -> Kind:
    """By the first x: a text or a list."""
    with file.open(encoding="utf-8-sig") as text:
        cursor = Cursor(text, str(file))
        for key in cursor.fields():
            if key != "user_data":
                cursor.value()
                continue
            for _ in cursor.fields():
                for part in cursor.fields():
                    if part != "x":
                        cursor.value()
                        continue
                    for _ in cursor.items():
                        return "text" if cursor.peek() == '"' else "images"
    raise BadInput(f"{file}: no user has an x in user_data; is this a file of LEAF?")


def _refuse_untrained(path: str, seen: dict[str, dict[str, str]]) -> None:
    for user, file in seen["test"].items():
        if user not in seen["train"]:
            raise BadInput(
                f"{path}: user {user!r} is in test/{file} but in no file of train: split by user, "
                "not by sample; --pool puts them together, for the scenario to split"
            )


class _Reader:
    """One file."""

    def __init__(
        self,
        cursor: Cursor,
        kind: Kind,
        table: TableWriter,
        split: str,
        seen: dict[str, str],
        name: str,
    ) -> None:
        self._cursor, self._kind, self._table = cursor, kind, table
        self._columns = {"split": split} if split else {}
        self._seen, self._name = seen, name
        self._counts: dict[str, int] = {}
        self.left_out = 0

    def read(self, tell: Any) -> None:
        cursor, lists = self._cursor, {}
        for key in cursor.fields():
            cursor.where = key
            if key == "user_data":
                for user in cursor.fields():
                    cursor.where = f"user {user!r}"
                    self._user(user)
                    tell(cursor.position)
                cursor.where = ""
            elif key in ("users", "num_samples"):
                lists[key] = cursor.value()
            else:
                cursor.value()
        cursor.where = ""
        cursor.end()
        self._compare(lists)

    def _user(self, user: str) -> None:
        cursor, start = self._cursor, self._cursor.position
        if any("\ud800" <= c <= "\udfff" for c in user):
            cursor.wrong("the name has half of a character in it", start)
        x: list[Any] = []
        y: list[str] = []
        found = set()
        for key in cursor.fields():
            found.add(key)
            if key not in ("x", "y"):
                cursor.value()
                continue
            for i in cursor.items():
                cursor.where = f"user {user!r}, {key} of sample {i + 1}"
                at, value = cursor.position, cursor.value()
                if key == "x":
                    x.append(self._image(value, at) if self._kind == "images" else value)
                    self._text(value, at)
                else:
                    y.append(self._label(value, at))
            cursor.where = f"user {user!r}"
        if missing := {"x", "y"} - found:
            cursor.wrong(f"there is no {min(missing)!r}", start)
        if len(x) != len(y):
            cursor.wrong(f"{len(x)} inputs x, but {len(y)} labels y", start)
        self._counts[user] = len(y)
        if not y:
            return
        if (other := self._seen.setdefault(user, self._name)) != self._name:
            cursor.wrong(f"this user is in {other} as well", start)
        if self._kind == "images":
            rows: npt.NDArray[np.uint8] = np.stack(x)
        else:
            rows = encode("".join(x)).reshape(len(x), WINDOW)
        self._table.add(rows, y, client=user, **self._columns)

    def _image(self, value: Any, at: int) -> npt.NDArray[np.uint8]:
        if not isinstance(value, list) or len(value) != PIXELS:
            given = f"{len(value)} values" if isinstance(value, list) else f"{value!r:.40}"
            self._cursor.wrong(f"an image of FEMNIST has {PIXELS} numbers, not {given}", at)
        if not all(type(v) in (int, float) for v in value):
            odd = next(v for v in value if type(v) not in (int, float))
            self._cursor.wrong(f"{odd!r:.40} is no number", at)
        # A whole number that is too large for a float is none of the levels either.
        in_range = [v if -1 <= v <= 2 else np.inf for v in value]
        levels = np.array(in_range, dtype=np.float64) * 255
        grey = np.rint(np.minimum(levels, 512))
        bad = (np.abs(levels - grey) > 1e-3) | (grey < 0) | (grey > 255)
        if bad.any():
            i = int(bad.argmax())
            self._cursor.wrong(
                f"pixel {i + 1} is {value[i]!r:.40}, no grey level n/255 in [0, 1]", at
            )
        return grey.astype(np.uint8)

    def _text(self, value: Any, at: int) -> None:
        if self._kind == "images":
            return
        if not isinstance(value, str) or len(value) != WINDOW:
            given = f"{len(value)} characters" if isinstance(value, str) else f"{value!r:.40}"
            self._cursor.wrong(f"an x of Shakespeare is {WINDOW} characters, not {given}", at)
        if (odd := first_odd(encode(value))) is not None:
            self._odd_character(value[odd], at)

    def _odd_character(self, character: str, at: int) -> None:
        self._cursor.wrong(
            f"character {character!r} is none of the alphabet's {len(LETTERS)}; replace it", at
        )

    def _label(self, value: Any, at: int) -> str:
        if self._kind == "images":
            if type(value) is not int or not 0 <= value < len(CHARACTERS):
                self._cursor.wrong(
                    f"label {value!r:.40} is no whole number from 0 to {len(CHARACTERS) - 1}", at
                )
            return CHARACTERS[value]
        if not isinstance(value, str) or len(value) != 1:
            self._cursor.wrong(f"label {value!r:.40} is not one character", at)
        if first_odd(encode(value)) is not None:
            self._odd_character(value, at)
        return value

    def _compare(self, lists: dict[str, Any]) -> None:
        """What the file says of itself, and what it holds."""
        users, counts = self._list(lists, "users", str), self._list(lists, "num_samples", int)
        if len(users) != len(counts):
            self._cursor.wrong(f"{len(users)} users, but {len(counts)} entries of num_samples", 0)
        listed = set()
        for user, count in zip(users, counts, strict=True):
            if user in listed:
                self._cursor.wrong(f"user {user!r} is listed twice", 0)
            listed.add(user)
            if user not in self._counts:
                self._cursor.wrong(f"user {user!r} is listed, but is not in user_data", 0)
            if self._counts[user] != count:
                self._cursor.wrong(
                    f"user {user!r} has {self._counts[user]} samples, where num_samples says "
                    f"{count}",
                    0,
                )
            if not count:
                self._cursor.wrong(f"user {user!r} is listed but has no samples; leave it out", 0)
        for user in self._counts.keys() - listed:
            if self._counts[user]:
                self._cursor.wrong(f"user {user!r} has samples but is not listed in users", 0)
            self.left_out += 1

    def _list(self, lists: dict[str, Any], key: str, kind: type) -> list[Any]:
        found = lists.get(key)
        if key not in lists:
            self._cursor.wrong(f"there is no {key!r}; is this a file of LEAF?", 0)
        if not isinstance(found, list) or any(type(v) is not kind for v in found):
            what = "names" if kind is str else "whole numbers"
            self._cursor.wrong(f"{key!r} is no list of {what}", 0)
        return found
