"""Handwriting without a download: 62 characters, each client a writer with a style of its own.

A character is drawn from a font's distance field D (see `_letters`) as

    ink(u) = clip(½ + D(M⁻¹(u − shift) + e(u)) + weight + noise(u), 0, 1)

The writer has its fonts (a main one, and another for some characters), slant, rotation, scale and
weight of the stroke, and bends every character in its own way (part of e). Each image adds a little
of everything. White ink on black, 28 × 28, as in EMNIST; a character's longer side is about 20
pixels, so that c and C, o, O and 0 differ little, as they do there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.data._letters import CHARACTERS, FONTS, SIDE, fields
from gifair_ray.data._partition import Deal, Partition
from gifair_ray.distributions import constant
from gifair_ray.federation import Population, Shard, Task, split_samples, split_sizes

Floats = npt.NDArray[np.float32]

PIXELS = 28
ZOOM = 2.0  # pixels of a field in a pixel of an image
KNOTS = 5  # per side, of the grid that bends a character
CHUNK = 256  # images drawn together


class Glyphs(Partition):
    """The characters 0–9, A–Z, a–z from fonts, in the hand of the client."""

    source: Literal["glyphs"] = "glyphs"
    style: float = Field(
        1.0, ge=0, le=3, description="how much writers differ; 0: they all write alike"
    )
    wobble: float = Field(
        1.0, ge=0, le=3, description="how much a writer's own images of a character differ"
    )

    def build(self, seed: int) -> GlyphsFederation:
        """Sizes, groups and classes now; a client's images when they are first asked for."""
        deal = self.deal(seed, tuple(CHARACTERS), constant(100), clients=100)
        sizes = split_sizes(deal.sizes, self.val, self.test)
        population = Population(deal.groups, deal.group_names, *sizes)
        return GlyphsFederation(self, seed, population, deal)


@dataclass(frozen=True)
class GlyphsFederation:
    """Draws a client's images from its number."""

    source: Glyphs
    seed: int
    population: Population
    deal: Deal

    @property
    def task(self) -> Task:
        return Task((PIXELS, PIXELS), len(self.deal.used))

    def shard(self, client: int) -> Shard:
        source = self.source
        character = np.repeat(*self.deal.counts(client))
        writer = Writer.of(self.seed, client, source.style)
        x = writer.write(character, source.wobble)
        y = np.searchsorted(self.deal.used, character)
        return split_samples(self.seed, client, x, y, source.val, source.test)


@dataclass(frozen=True)
class Writer:
    """A style, and the stream that this writer's images are drawn from."""

    g: np.random.Generator
    font: npt.NDArray[np.int64]
    """For each character."""
    slant: float
    angle: float
    scale: Floats
    weight: float
    bend: Floats
    """(62, KNOTS², 2): how the writer bends each character, in pixels."""

    @staticmethod
    def of(seed: int, client: int, style: float) -> Writer:
        """The writer with this number."""
        g = draws.generator(seed, "data/glyphs", client)
        main, other = g.integers(0, len(FONTS), 2) if style else (0, 0)
        z = g.standard_normal(5) * style
        return Writer(
            g,
            np.where(g.random(len(CHARACTERS)) < 0.7, main, other),
            slant=float(0.2 * z[0]),
            angle=float(0.08 * z[1]),
            scale=np.exp(0.1 * z[2:4]).astype(np.float32),
            weight=max(-0.2, float(0.3 + 0.3 * z[4])),  # a stroke must not vanish
            bend=0.8 * style * _normal(g, len(CHARACTERS), KNOTS**2, 2),
        )

    def write(self, character: npt.NDArray[np.int64], wobble: float) -> Floats:
        """An image of each of these characters."""
        parts = np.split(character, range(CHUNK, len(character), CHUNK))
        return np.concatenate([self._write(part, wobble) for part in parts])

    def _write(self, character: npt.NDArray[np.int64], wobble: float) -> Floats:
        g, n = self.g, len(character)
        up, across = _knots()
        jitter = wobble * _normal(g, n, 6)
        turn = self.angle + 0.06 * jitter[:, 0]
        lean = self.slant + 0.08 * jitter[:, 1]
        sx, sy = (self.scale[i] * np.exp(0.06 * jitter[:, 2 + i]) for i in range(2))
        cos, sin = np.cos(turn), np.sin(turn)
        # M = rotation · shear · scale; M⁻¹ takes a pixel back to where it was in the font.
        back = np.empty((n, 2, 2), dtype=np.float32)
        back[:, 0, 0] = (cos + lean * sin) / sx
        back[:, 0, 1] = (sin - lean * cos) / sx
        back[:, 1, 0] = -sin / sy
        back[:, 1, 1] = cos / sy
        # The wobble of the stroke's width rides on the same coarse grid as that of its course.
        grid = wobble * _normal(g, n, KNOTS**2, 3) * np.array([0.6, 0.6, 0.2], dtype=np.float32)
        grid[:, :, :2] += self.bend[character]
        bent = (up @ grid.reshape(n, KNOTS**2, 3)).reshape(n, -1, 3)
        at = (across - jitter[:, None, 4:] * 0.7) @ back.transpose(0, 2, 1) + bent[:, :, :2]
        distance = _sample(self._fields(), character, at.astype(np.float32))
        ink = np.float32(0.5 + self.weight) + distance / np.float32(ZOOM) + bent[:, :, 2]
        return np.asarray(np.clip(ink, 0, 1).reshape(n, PIXELS, PIXELS))

    def _fields(self) -> Floats:
        return np.stack([fields(font)[i] for i, font in enumerate(self.font.tolist())])


def _normal(g: np.random.Generator, *shape: int) -> Floats:
    return g.standard_normal(shape, dtype=np.float32)


@lru_cache(maxsize=1)
def _knots() -> tuple[Floats, Floats]:
    """(784, KNOTS²) weights that spread a coarse grid over the pixels; and (784, 2) pixels, x y."""
    side = np.arange(PIXELS, dtype=np.float64)
    knot = np.linspace(0, PIXELS - 1, KNOTS)
    near = np.maximum(0, 1 - np.abs(side[:, None] - knot) / (knot[1] - knot[0]))  # (28, KNOTS)
    near = near * near * (3 - 2 * near)  # smooth at the knots; weights still sum to 1
    up = np.einsum("ia,jb->ijab", near, near).reshape(PIXELS**2, KNOTS**2)
    y, x = np.meshgrid(side, side, indexing="ij")
    centred = np.stack([x.ravel(), y.ravel()], axis=1) - (PIXELS - 1) / 2
    return up.astype(np.float32), centred.astype(np.float32)


def _sample(field: Floats, which: npt.NDArray[np.int64], at: Floats) -> Floats:
    """The fields `which` at places (n, pixels, 2) in image pixels from the centre; bilinear."""
    place = np.clip(at * np.float32(ZOOM) + np.float32((SIDE - 1) / 2), 0, SIDE - 1.001)
    cell = place.astype(np.int32)
    fx, fy = np.moveaxis(place - cell.astype(np.float32), 2, 0)
    first = which[:, None] * (SIDE * SIDE) + cell[:, :, 1] * SIDE + cell[:, :, 0]
    flat = field.ravel()
    above = flat.take(first) * (1 - fx) + flat.take(first + 1) * fx
    below = flat.take(first + SIDE) * (1 - fx) + flat.take(first + SIDE + 1) * fx
    return np.asarray(above * (1 - fy) + below * fy)
