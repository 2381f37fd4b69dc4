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

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.data._columns import TableFile, has_column
from gifair_ray.data._places import find
from gifair_ray.data._rows import Holdings, RowsFederation, capped, split_numbers
from gifair_ray.data._values import Features, Flaw, key
from gifair_ray.errors import BadInput
from gifair_ray.federation import (
    TEST,
    VAL,
    DataSource,
    Ints,
    Population,
    Task,
    check_fractions,
    grouped,
)
from gifair_ray.parts import nearest


class Table(DataSource):
    """A file of your own with a row per sample: who has it, its input and its class."""

    source: Literal["table"] = "table"
    path: str = Field(
        min_length=1,
        description="a .parquet, .arrow, .feather, .ipc or .csv file, from the current folder or "
        "the data folder",
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
    clients: Annotated[int, Field(ge=1)] | dict[str, Annotated[int, Field(ge=1)]] | None = Field(
        None,
        description="take only so many clients, drawn by the seed; or so many of each group named",
    )
    at_least: int = Field(1, ge=1, description="leave out clients with fewer samples than this")
    at_most: int | None = Field(
        None, ge=2, description="take at most so many samples of a client, drawn by the seed"
    )
    val: float = VAL
    test: float = TEST
    tokens: int = Field(
        0,
        ge=0,
        description="size of the alphabet if x holds numbers of characters; 0: x is real, "
        "unless the file was imported as text",
    )

    @model_validator(mode="after")
    def _roles_and_fractions(self) -> Table:
        check_fractions(self.val, self.test)
        roles = [self.client, self.x, self.y, self.group, self.split]
        if twice := next((name for name in roles if roles.count(name) > 1), None):
            raise ValueError(f"column {twice!r} has two roles; client, x, y, group, split differ")
        return self

    def files(self) -> dict[str, Path]:
        return {"path": find(self.path)}

    def build(self, seed: int) -> RowsFederation:
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
    ) -> RowsFederation:
        table = file.read(columns, text=[name for name in columns if name != self.y])
        if not len(table):
            raise BadInput(f"{self.path} has columns but no rows; every client needs some")
        owner, names = key(table, self.client)
        everybody = names
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
        split = split_numbers(table, self.split) if self.split in columns else None
        chosen = self._chosen(seed, owner, names, groups, group_names)
        names = tuple(names[k] for k in chosen)
        group_numbers, groups = np.unique(groups[chosen], return_inverse=True)
        group_names = tuple(group_names[g] for g in group_numbers)
        number = np.full(int(owner.max()) + 1, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        holder = number[owner]
        if self.at_most is not None:
            holder = capped(seed, holder, len(chosen), split, self.at_most)
        holdings = Holdings.of(holder, len(chosen))
        sizes = holdings.split(split, (self.val, self.test))
        if len(idle := np.flatnonzero(sizes[0] == 0)):
            raise BadInput(
                f"{self.path}: client {names[idle[0]]!r} has no rows to train on "
                f"({len(idle)} of {len(names)} clients); give it some or leave it out"
            )
        try:
            width = features.check(len(table))
        except Flaw as flaw:
            whose = "" if flaw.row is None else f"client {everybody[owner[flaw.row]]!r}: "
            raise Flaw(flaw.row, flaw.column, whose + flaw.what) from None
        task = Task((width,), len(labels), features.tokens)
        population = Population(groups, group_names, *sizes, names)
        fractions = self.val, self.test
        return RowsFederation(
            self.path, fractions, seed, population, task, features, holdings, y, split
        )

    def _chosen(
        self,
        seed: int,
        owner: Ints,
        names: tuple[str, ...],
        groups: Ints,
        group_names: tuple[str, ...],
    ) -> Ints:
        """The clients that take part, in ascending order."""
        samples = np.bincount(owner, minlength=len(names))
        enough = np.flatnonzero(samples >= self.at_least)
        if not len(enough):
            raise BadInput(
                f"data.at_least = {self.at_least}: no client of {self.path} has so many samples; "
                f"the largest has {samples.max()}"
            )
        if self.clients is None:
            return enough
        enough = enough[np.argsort(draws.bits(seed, "data/clients", enough), kind="stable")]
        if isinstance(self.clients, int):
            return _first(enough, self.clients, "data.clients", self.path)
        taken = []
        for name, wanted in self.clients.items():
            if name not in group_names:
                hint = nearest(name, group_names)
                raise BadInput(f"data.clients: {self.path} has no group {name!r}; {hint}")
            members = enough[groups[enough] == group_names.index(name)]
            taken.append(_first(members, wanted, f"data.clients.{name}", self.path))
        return np.sort(np.concatenate(taken))

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


def _first(drawn: Ints, wanted: int, option: str, path: str) -> Ints:
    if wanted > len(drawn):
        raise BadInput(
            f"{option} = {wanted}, but {path} has {len(drawn)} such clients with at least "
            "data.at_least samples"
        )
    return np.sort(drawn[:wanted])
