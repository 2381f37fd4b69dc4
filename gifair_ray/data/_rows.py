"""Clients as rows of a table: who holds which, in which split, and the shards made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from gifair_ray import draws
from gifair_ray.data._values import Blocks, Features, Flaw, key
from gifair_ray.errors import BadInput
from gifair_ray.federation import (
    SPLITS,
    Ints,
    Population,
    Samples,
    Shard,
    Task,
    split_samples,
    split_sizes,
)


@dataclass(frozen=True)
class Holdings:
    """Rows of a table by client: client k holds rows[ends[k − 1] : ends[k]], in ascending order."""

    rows: Ints
    ends: Ints

    @classmethod
    def of(cls, owner: Ints, clients: int) -> Holdings:
        """From each row's client; −1 is nobody's."""
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner[owner >= 0], minlength=clients)
        return cls(order[len(owner) - int(sizes.sum()) :], np.cumsum(sizes))

    def __getitem__(self, client: int) -> Ints:
        return self.rows[self.ends[client - 1] if client else 0 : self.ends[client]]

    @property
    def sizes(self) -> Ints:
        """Rows of each client."""
        return np.diff(self.ends, prepend=0)

    def split(self, split: Ints | None, fractions: tuple[float, float]) -> tuple[Ints, Ints, Ints]:
        """Train, val and test sizes of each client."""
        if split is None:
            return split_sizes(self.sizes, *fractions)
        holder = np.repeat(np.arange(len(self.ends)), self.sizes)
        train, val, test = (
            np.bincount(holder[split[self.rows] == i], minlength=len(self.ends)) for i in range(3)
        )
        return train, val, test


def split_numbers(table: pa.Table, column: str) -> Ints:
    """0, 1 or 2 for each row: train, val or test."""
    of_row, found = key(table, column)
    number = np.array([SPLITS.index(s) if s in SPLITS else -1 for s in found], dtype=np.int64)
    split = number[of_row]
    if (unknown := split < 0).any():
        row = int(unknown.argmax())
        raise Flaw(row, column, f"{found[of_row[row]]!r} is none of {', '.join(SPLITS)}")
    return split


def capped(seed: int, owner: Ints, clients: int, split: Ints | None, most: int) -> Ints:
    """The owners of rows when nobody keeps more than `most`, in the same proportion of splits.

    Which rows are kept is drawn by their numbers; −1 is nobody's.
    """
    rows = np.flatnonzero(owner >= 0)
    parts = 1 if split is None else len(SPLITS)
    cell = owner[rows] * parts + (0 if split is None else split[rows])
    in_cell = np.bincount(cell, minlength=clients * parts)
    held = in_cell.reshape(clients, parts).sum(axis=1).repeat(parts)
    quota = np.where(held > most, in_cell * most // np.maximum(held, 1), in_cell)
    order = np.lexsort((draws.bits(seed, "data/at-most", rows), cell))
    rank = np.arange(len(order)) - (np.cumsum(in_cell) - in_cell)[cell[order]]
    kept = rows[order[rank < quota[cell[order]]]]
    out = np.full_like(owner, -1)
    out[kept] = owner[kept]
    return out


@dataclass(frozen=True)
class RowsFederation:
    """Takes a client's rows out of the file; `y` and `split` have an entry per row of it."""

    path: str
    fractions: tuple[float, float]
    seed: int
    population: Population
    task: Task
    features: Features
    holdings: Holdings
    y: Ints
    split: Ints | None

    @cached_property
    def _x(self) -> Blocks:
        try:
            return self.features.load(len(self.y))
        except Flaw as flaw:
            raise BadInput(f"{self.path}: {flaw}") from None

    def shard(self, client: int) -> Shard:
        self.features.file.unchanged()
        rows = self.holdings[client]
        x, y = self._x.take(rows), self.y[rows]
        if self.split is None:
            return split_samples(self.seed, client, x, y, *self.fractions)
        parts = (np.flatnonzero(self.split[rows] == i) for i in range(len(SPLITS)))
        return Shard(*(Samples(x[part], y[part]) for part in parts))
