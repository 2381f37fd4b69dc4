"""Your own data: one Parquet, Arrow (IPC, Feather) or CSV file with a row per sample.

    client   group   split   x           y
    anna     city    train   [0.1, 2.0]  cat
    anna     city    test    [0.3, 1.0]  dog
    ben      farm    train   [0.2, 4.0]  cat

`group` and `split` may be missing. Instead of lists in `x` there may be a column per feature, as
in CSV there has to be. Clients, groups and classes are numbered in the sorted order of their names
(as numbers, where all are whole numbers), so that the order of rows does not matter to them.
Messages count rows from 1, without the header of a CSV file.

`build` checks every value of the columns in use, in pieces that fit in memory. After that a
server knows who has how much; the inputs are read when a client's shard is first asked for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray.data._columns import TableFile, has_column
from gifair_ray.data._values import Blocks, Features, Flaw, key
from gifair_ray.errors import BadInput
from gifair_ray.federation import (
    SPLITS,
    TEST,
    VAL,
    DataSource,
    Ints,
    Population,
    Samples,
    Shard,
    Task,
    grouped,
    split_samples,
    split_sizes,
)


class Table(DataSource):
    """A file of your own with a row per sample: who has it, its input and its class."""

    source: Literal["table"] = "table"
    path: str = Field(
        min_length=1,
        description="a .parquet, .arrow, .feather, .ipc or .csv file, from the current folder",
    )
    client: str = Field("client", description="column: whose sample it is, number or text")
    x: str = Field(
        "x",
        description="column: the input, a list of numbers; if there is no 'x', every other column "
        "of numbers (or booleans) is a feature, in file order",
    )
    y: str = Field("y", description="column: the class, whole number or text")
    group: str = Field("group", description="column: the client's group; 'group' may be missing")
    split: str = Field(
        "split", description="column: train, val or test; if there is no 'split', one is drawn"
    )
    groups: Literal["auto", "each"] = Field(
        "auto",
        description="'auto': by the group column, if there is one; 'each': each client its own",
    )
    val: float = VAL
    test: float = TEST
    tokens: int = Field(
        0, ge=0, description="size of the alphabet if x holds numbers of characters; 0: x is real"
    )

    @model_validator(mode="after")
    def _roles_and_fractions(self) -> Table:
        if self.val + self.test >= 1:
            raise ValueError(f"val + test = {self.val + self.test} leaves nothing to train on")
        roles = [self.client, self.x, self.y, self.group, self.split]
        if twice := next((name for name in roles if roles.count(name) > 1), None):
            raise ValueError(f"column {twice!r} has two roles; client, x, y, group, split differ")
        return self

    def files(self) -> dict[str, Path]:
        return {"path": Path(os.path.expanduser(self.path)).absolute()}

    def build(self, seed: int) -> TableFederation:
        """Who has how much; every value in use has been checked, none of the inputs is kept."""
        file = TableFile.open(self.path)
        columns = [self.client, self.y]
        for option, name in (("client", self.client), ("y", self.y)):
            has_column(file, option, name)
        if has_column(file, "group", self.group, optional=self.group == "group"):
            columns += [self.group] * (self.groups == "auto")
        if has_column(file, "split", self.split, optional=self.split == "split"):
            columns.append(self.split)
        roles = (self.client, self.y, self.group, self.split)
        features = Features.find(file, self.x, roles, self.tokens)
        try:
            return self._checked(seed, file, columns, features)
        except Flaw as flaw:
            raise BadInput(f"{self.path}: {flaw}") from None

    def _checked(
        self, seed: int, file: TableFile, columns: list[str], features: Features
    ) -> TableFederation:
        table = file.read(columns, text=[name for name in columns if name != self.y])
        if not len(table):
            raise BadInput(f"{self.path} has columns but no rows; every client needs some")
        owner, names = key(table, self.client)
        y, labels = key(table, self.y, label=True)
        if len(labels) < 2:
            raise BadInput(
                f"{self.path}: column {self.y!r} has only the class {labels[0]!r}; "
                "two or more are needed to learn anything"
            )
        if self.group in columns:
            groups, group_names = self._client_groups(owner, names, *key(table, self.group))
        else:
            groups, group_names = grouped(len(names), "each")[0], names
        split = self._split(*key(table, self.split)) if self.split in columns else None
        samples = np.bincount(owner, minlength=len(names))
        if split is None:
            sizes = split_sizes(samples, self.val, self.test)
        else:
            train, val, test = (
                np.bincount(owner[split == i], minlength=len(names)) for i in range(3)
            )
            sizes = train, val, test
        if len(idle := np.flatnonzero(sizes[0] == 0)):
            raise BadInput(
                f"{self.path}: client {names[idle[0]]!r} has no rows to train on "
                f"({len(idle)} of {len(names)} clients); give it some or leave it out"
            )
        try:
            width = features.check(len(table))
        except Flaw as flaw:
            whose = "" if flaw.row is None else f"client {names[owner[flaw.row]]!r}: "
            raise Flaw(flaw.row, flaw.column, whose + flaw.what) from None
        task = Task((width,), len(labels), self.tokens)
        population = Population(groups, group_names, *sizes, names)
        return TableFederation(self, seed, population, task, features, owner, y, split)

    def _client_groups(
        self, owner: Ints, names: tuple[str, ...], of_row: Ints, group_names: tuple[str, ...]
    ) -> tuple[Ints, tuple[str, ...]]:
        groups = np.zeros(len(names), dtype=np.int64)
        groups[owner] = of_row
        if (torn := groups[owner] != of_row).any():
            row = int(torn.argmax())
            first, second = group_names[of_row[row]], group_names[groups[owner[row]]]
            raise BadInput(
                f"{self.path}: client {names[owner[row]]!r} is in two groups, {first!r} and "
                f"{second!r} (column {self.group!r}); give it one, or set data.groups = 'each'"
            )
        return groups, group_names

    def _split(self, of_row: Ints, found: tuple[str, ...]) -> Ints:
        number = np.array([SPLITS.index(s) if s in SPLITS else -1 for s in found], dtype=np.int64)
        split = number[of_row]
        if (unknown := split < 0).any():
            row = int(unknown.argmax())
            raise Flaw(row, self.split, f"{found[of_row[row]]!r} is none of {', '.join(SPLITS)}")
        return split


@dataclass(frozen=True)
class TableFederation:
    """Takes a client's rows out of the file; `owner`, `y` and `split` have an entry per row."""

    source: Table
    seed: int
    population: Population
    task: Task
    features: Features
    owner: Ints
    y: Ints
    split: Ints | None

    @cached_property
    def _x(self) -> Blocks:
        try:
            return self.features.load(len(self.y))
        except Flaw as flaw:
            raise BadInput(f"{self.source.path}: {flaw}") from None

    @cached_property
    def _rows(self) -> tuple[Ints, Ints]:
        """Rows ordered by client (then as in the file), and where each client's end."""
        return np.argsort(self.owner, kind="stable"), np.cumsum(np.bincount(self.owner))

    def shard(self, client: int) -> Shard:
        self.features.file.unchanged()
        order, ends = self._rows
        rows = order[ends[client - 1] if client else 0 : ends[client]]
        x, y = self._x.take(rows), self.y[rows]
        if self.split is None:
            return split_samples(self.seed, client, x, y, self.source.val, self.source.test)
        parts = (np.flatnonzero(self.split[rows] == i) for i in range(len(SPLITS)))
        return Shard(*(Samples(x[part], y[part]) for part in parts))
