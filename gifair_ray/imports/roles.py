"""A Parquet file of speaking roles with their text and gender.

A row is a role: `role_id`, `text`, `gender`. Each role becomes a client, its gender the group, and
every place in its text with 80 characters before it a sample. Lines are joined by spaces, as LEAF
does: where an editor breaks a line cannot be learnt. Neighbouring windows share 79 characters, so
the split is by place: the first 70 % of a text train, then 10 % and 20 %, and no window lies across
a border. `split=False` leaves it to the scenario to draw windows at random, as the paper says it
did.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gifair_ray.data._places import find, looked_for
from gifair_ray.data._text import LETTERS, WINDOW, encode, first_odd, windows
from gifair_ray.errors import BadInput
from gifair_ray.imports import Imported, Tell
from gifair_ray.imports._write import TableWriter, new_table

TRAIN, VAL = 0.7, 0.1  # the paper's fractions; the rest is for testing
COLUMNS = ("role_id", "text", "gender")
STEP = 64  # roles read together


def import_roles(
    path: str, out: str, *, split: bool = True, stride: int = 1, tell: Tell | None = None
) -> Imported:
    """Convert the file; roles too short for a single sample to train on are left out."""
    if stride < 1:
        raise BadInput(f"--stride {stride}: at least 1")
    place = find(path)
    if place.is_dir():
        found = sorted(place.glob("*.parquet"))
        if len(found) != 1:
            raise BadInput(f"{path}: {len(found)} .parquet files in the folder; name one")
        place = found[0]
    elif not place.is_file():
        raise BadInput(f"{path}: there is neither {looked_for(path)}; check the path")
    others = ["client", "group", *(["split"] if split else [])]
    about = {b"tokens": str(len(LETTERS)).encode()}
    with new_table(out, WINDOW, about, others) as table:
        clients, left_out = 0, 0
        for row, total, role, text, gender in _roles(place):
            if _add(table, place, row, role, text, gender, split, stride):
                clients += 1
            else:
                left_out += 1
            if tell:
                tell(row + 1, total)
        return Imported(out, table.rows, clients, left_out)


def _roles(place: Path) -> Iterator[tuple[int, int, str, str, str]]:
    """(row, rows in all, role, text, gender) of every row, checked."""
    try:
        with pq.ParquetFile(place) as file:
            names = file.schema_arrow.names
            for name in COLUMNS:
                if names.count(name) != 1:
                    raise BadInput(
                        f"{place}: {names.count(name)} columns {name!r}, one is needed; "
                        f"it has {', '.join(names)}"
                    )
            total, row, seen = file.metadata.num_rows, 0, dict[str, int]()
            for batch in file.iter_batches(STEP, columns=list(COLUMNS)):
                batch.validate(full=True)
                for values in zip(
                    *(batch.column(name).to_pylist() for name in COLUMNS), strict=True
                ):
                    for name, value in zip(COLUMNS, values, strict=True):
                        if not isinstance(value, str) or (not value and name != "text"):
                            raise BadInput(
                                f"{place}, row {row + 1}: {name} = {value!r:.40}; text is needed"
                            )
                    if (twin := seen.setdefault(values[0], row)) != row:
                        raise BadInput(
                            f"{place}, row {row + 1}: role {values[0]!r} is in row {twin + 1} too"
                        )
                    yield row, total, *values
                    row += 1
            if row != total:
                raise BadInput(f"{place}: {row} rows, where the file says {total}; it is damaged")
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError) as e:
        why = (str(e).strip() or type(e).__name__).splitlines()[0][:300]
        raise BadInput(f"{place}: cannot be read as Parquet: {why}; is it damaged?") from e


def _add(
    table: TableWriter,
    place: Path,
    row: int,
    role: str,
    text: str,
    gender: str,
    split: bool,
    stride: int,
) -> bool:
    """Write a role's samples; False if it has none."""
    numbers = encode(text.replace("\n", " "))
    if (odd := first_odd(numbers)) is not None:
        raise BadInput(
            f"{place}, row {row + 1}, role {role!r}, character {odd + 1}: {text[odd]!r} is none of "
            f"the alphabet's {len(LETTERS)}; replace it"
        )
    n = len(numbers)
    first, second = int(n * TRAIN), int(n * (TRAIN + VAL))
    parts = {"train": (0, first), "val": (first, second), "test": (second, n)}
    if not split:
        parts = {"": (0, n)}
    wrote = False
    for name, (start, stop) in parts.items():
        x, y = windows(numbers, start, stop, stride)
        if not len(x):
            if name in ("", "train"):
                return False
            continue
        labels = [LETTERS[i] for i in y]
        columns = {"client": role, "group": gender} | ({"split": name} if split else {})
        table.add(x, labels, **columns)
        wrote = True
    return wrote
