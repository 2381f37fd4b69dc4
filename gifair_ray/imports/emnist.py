"""EMNIST, split `byclass`: idx files as NIST gives them (stored transposed), or an npz.

An npz has `images` (n, 28, 28) of bytes and `labels` (n) from 0 to 61 for 0–9, A–Z, a–z; images
upright. If it has `writer` (n) as well, each writer is a client.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.data._places import find, looked_for
from gifair_ray.errors import BadInput
from gifair_ray.imports import Imported, Tell
from gifair_ray.imports._idx import IdxFile
from gifair_ray.imports._npz import NpzFile
from gifair_ray.imports._write import GREYS, ROWS, new_table

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes, in the order of EMNIST byclass and of FEMNIST."""
SIDE = 28
PIXELS = SIDE * SIDE
_NAMES = np.array(list(CHARACTERS))
_IMAGES, _LABELS = "-images-idx3-ubyte", "-labels-idx1-ubyte"


def import_emnist(path: str, out: str, *, tell: Tell | None = None) -> Imported:
    """Convert an .npz file, a file of images in idx with its labels beside it, or a folder."""
    place = find(path)
    if place.is_dir():
        files = _in_folder(path, place)
    elif place.is_file():
        files = [place]
    else:
        raise BadInput(f"{path}: there is neither {looked_for(path)}; check the path")
    if files[0].suffix == ".npz":
        return _import_npz(files[0], out, tell)
    pairs = [(images, _labels_of(images)) for images in files]
    total, done = sum(images.stat().st_size for images, _ in pairs), 0
    with new_table(out, PIXELS, GREYS, ()) as table:
        for images, labels in pairs:
            for x, y in _pairs(images, labels, lambda n, at=done: tell and tell(at + n, total)):
                table.add(x, y)
            done += images.stat().st_size
        return Imported(out, table.rows, 0)


def _in_folder(path: str, folder: Path) -> list[Path]:
    found = sorted(f for f in folder.iterdir() if _IMAGES in f.name)
    # NIST's archive holds six sets; the labels of the others mean other things.
    chosen = [f for f in found if "byclass" in f.name] or (found if len(found) == 1 else [])
    if twice := [f for f in chosen if f.suffix == ".gz" and f.with_suffix("") in chosen]:
        raise BadInput(f"{path}: {twice[0].name} is there unpacked as well; name one file")
    if not chosen:
        chosen = sorted(folder.glob("*.npz"))
    if not chosen or (chosen[0].suffix == ".npz" and len(chosen) > 1):
        raise BadInput(
            f"{path}: neither emnist-byclass-…{_IMAGES}(.gz) nor a single .npz in the folder; "
            "name the file"
        )
    return chosen


def _labels_of(images: Path) -> Path:
    if _IMAGES not in images.name:
        raise BadInput(f"{images}: neither .npz nor …{_IMAGES}(.gz); rename it, or name another")
    stem = images.name.removesuffix(".gz").replace(_IMAGES, _LABELS)
    for name in (stem, f"{stem}.gz"):
        if (labels := images.with_name(name)).is_file():
            return labels
    raise BadInput(f"{images}: its labels, {stem}(.gz), are not beside it")


def _pairs(
    images: Path, labels: Path, told: Any
) -> Iterator[tuple[npt.NDArray[np.uint8], list[str]]]:
    pixels = IdxFile(images, 3)
    try:
        classes = IdxFile(labels, 1)
    except BaseException:
        pixels.close()
        raise
    try:
        if pixels.shape[1:] != (SIDE, SIDE):
            raise BadInput(f"{images}, byte 9: images of {pixels.shape[1:]}, not {SIDE} × {SIDE}")
        if pixels.shape[0] != classes.shape[0]:
            raise BadInput(
                f"{images} has {pixels.shape[0]} images, {labels} {classes.shape[0]} labels: these "
                "files do not belong together, or one of them is damaged"
            )
        start = 0
        both = zip(pixels.rows(ROWS, told), classes.rows(ROWS, lambda n: None), strict=True)
        for x, y in both:
            upright = x.transpose(0, 2, 1).reshape(len(x), PIXELS)
            yield upright, _characters(y, f"{labels}, label", start)
            start += len(x)
    finally:
        pixels.close()
        classes.close()


def _characters(y: npt.NDArray[Any], where: str, start: int) -> list[str]:
    if (bad := (y < 0) | (y >= len(CHARACTERS))).any():
        i = int(bad.argmax())
        raise BadInput(
            f"{where} {start + i + 1}: {y[i]} is outside [0, {len(CHARACTERS) - 1}], the classes "
            "of EMNIST byclass"
        )
    names: list[str] = _NAMES[y].tolist()
    return names


def _import_npz(place: Path, out: str, tell: Tell | None) -> Imported:
    file = NpzFile(place)
    try:
        count = file.shape("images")[0]
        columns = ["labels", *(["writer"] if "writer" in file else [])]
        if (shape := file.shape("images")) not in ((count, SIDE, SIDE), (count, PIXELS)):
            raise BadInput(f"{place}: array 'images' is {shape}, not (n, {SIDE}, {SIDE})")
        for name in columns:
            if (shape := file.shape(name)) != (count,):
                raise BadInput(f"{place}: {count} images, but array {name!r} has shape {shape}")
        labels, *writers = (file.whole(name) for name in columns)
        if labels.dtype.kind not in "iu":
            raise BadInput(f"{place}: array 'labels' holds {labels.dtype}, not whole numbers")
        names = [_characters(labels, f"{place}, label", 0)]
        names += [[str(w) for w in writer.tolist()] for writer in writers]
        start = 0
        with new_table(out, PIXELS, GREYS, ["client"] * len(writers)) as table:
            for x in file.rows("images", ROWS):
                if (
                    x.dtype.kind not in "iu"
                    or (x.dtype != np.uint8 and (x.min() < 0))
                    or x.max() > 255
                ):
                    raise BadInput(f"{place}: array 'images' holds {x.dtype} outside 0 to 255")
                y, *clients = (column[start : start + len(x)] for column in names)
                flat = x.reshape(len(x), PIXELS).astype(np.uint8)
                table.add(flat, y, **({"client": clients[0]} if clients else {}))
                start += len(x)
                if tell:
                    tell(start, count)
            return Imported(out, table.rows, len(set(names[1])) if writers else 0)
    finally:
        file.close()
