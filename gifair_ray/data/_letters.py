"""The 62 characters as shapes: signed distances to their outlines, from matplotlib's fonts.

A distance field can be sampled anywhere, so that one field per character and font gives every size,
slant and distortion; and adding to it makes the stroke heavier.
"""

from __future__ import annotations

import importlib.util
import string
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gifair_ray.errors import RunFailed

Floats = npt.NDArray[np.float32]

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
FONTS = (
    "DejaVuSans",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralItalic",
    "cmmi10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)
SIDE = 64  # of a field, in its own pixels
SHAPE = 40  # the longer side of a character in it
_SIZE = 96  # of the type that is drawn, before it is cut out and scaled


@lru_cache(maxsize=len(FONTS))
def fields(font: int) -> Floats:
    """(62, 64, 64): distances in pixels of the field, positive in the ink."""
    from PIL import Image, ImageDraw, ImageFont

    face = ImageFont.truetype(_file(FONTS[font]), _SIZE)
    out = np.empty((len(CHARACTERS), SIDE, SIDE), dtype=np.float32)
    for i, character in enumerate(CHARACTERS):
        drawn = Image.new("L", (3 * _SIZE, 3 * _SIZE))
        ImageDraw.Draw(drawn).text((_SIZE, _SIZE), character, font=face, fill=255)
        ink = drawn.crop(drawn.getbbox())
        scale = SHAPE / max(ink.size)
        width, height = (max(1, round(side * scale)) for side in ink.size)
        canvas = Image.new("L", (SIDE, SIDE))
        shape = ink.resize((width, height), Image.Resampling.BOX)
        canvas.paste(shape, ((SIDE - width) // 2, (SIDE - height) // 2))
        out[i] = signed_distances(np.asarray(canvas) >= 128)
    return out


def _file(font: str) -> str:
    # Found without importing matplotlib, which would take half a second.
    spec = importlib.util.find_spec("matplotlib")
    for root in (spec and spec.submodule_search_locations) or ():
        file = Path(root) / "mpl-data" / "fonts" / "ttf" / f"{font}.ttf"
        if file.is_file():
            return str(file)
    raise RunFailed(f"matplotlib's font {font}.ttf is missing; install matplotlib again")


def signed_distances(ink: npt.NDArray[np.bool_]) -> Floats:
    """Each pixel's Euclidean distance to the nearest of the other kind, positive in the ink."""
    return np.where(ink, _distances(~ink) - 0.5, 0.5 - _distances(ink)).astype(np.float32)


def _distances(to: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Exact, one dimension after the other: √ min over rows of (row² + min over columns²)."""
    side = np.arange(len(to), dtype=np.float64)
    apart = (side[:, None] - side[None, :]) ** 2
    along = np.where(to[:, None, :], apart[None, :, :], np.inf).min(axis=2)  # (row, column)
    return np.asarray(np.sqrt((along[None, :, :] + apart[:, :, None]).min(axis=1)))
