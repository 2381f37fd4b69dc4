"""A table of samples that belong to nobody, dealt out to clients by rule.

Without any rule about classes a client's samples are a fair sample of the pool. With no sizes given
everything is dealt out. No sample is dealt twice, unless `shared`. Where the clients want more of a
class than there is, each of those that have it gets as much as the others, and takes more of its
other classes instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray import draws
from gifair_ray.data._columns import TableFile, has_column
from gifair_ray.data._partition import Deal, Partition
from gifair_ray.data._places import find
from gifair_ray.data._rows import Holdings, RowsFederation, split_numbers
from gifair_ray.data._values import Features, Flaw, key
from gifair_ray.distributions import constant
from gifair_ray.errors import BadInput
from gifair_ray.federation import Ints, Population, Task


class Pooled(Partition):
    """A file of your own whose samples are dealt out to clients: by class, at random, in groups."""

    source: Literal["pooled"] = "pooled"
    path: str = Field(
        min_length=1, description="a table with x and y, from the current folder or the data folder"
    )
    x: str = Field("x", description="column: the input; see the source `table`")
    y: str = Field("y", description="column: the class, whole number or text")
    split: str = Field(
        "split", description="column: train, val or test; if there is no 'split', one is drawn"
    )
    shared: bool = Field(
        False,
        description="several clients may hold the same sample (their test sets are then not "
        "independent of what others train on)",
    )
    tokens: int = Field(0, ge=0, description="size of the alphabet; see the source `table`")

    def files(self) -> dict[str, Path]:
        return {"path": find(self.path)}

    def build(self, seed: int) -> RowsFederation:
        """Who has what; every value in use has been checked, none of the inputs is kept."""
        file = TableFile.open(self.path)
        columns = [self.y]
        has_column(file, "y", self.y)
        if has_column(file, "split", self.split, optional=self.split == "split"):
            columns.append(self.split)
        others = (self.y, self.split, "client", "group")
        features = Features.find(file, self.x, others, self.tokens)
        try:
            return self._built(seed, file, columns, features)
        except Flaw as flaw:
            raise BadInput(f"{self.path}: {flaw}") from None

    def _built(
        self, seed: int, file: TableFile, columns: list[str], features: Features
    ) -> RowsFederation:
        table = file.read(columns, text=[self.split])
        if not len(table):
            raise BadInput(f"{self.path} has columns but no rows")
        y, labels = key(table, self.y, label=True)
        split = split_numbers(table, self.split) if self.split in columns else None
        everybody = constant(max(2, len(y) // self._count()))
        deal = self.deal(seed, labels, everybody, clients=1, frequency=np.bincount(y))
        holdings = deal_rows(deal, y, self.shared) if self._sized() else deal_all(deal, y)
        new = np.full(len(labels), -1, dtype=np.int64)
        new[deal.used] = np.arange(len(deal.used))
        sizes = holdings.split(split, (self.val, self.test))
        population = Population(deal.groups, deal.group_names, *sizes)
        task = Task((features.check(len(table)),), len(deal.used), features.tokens)
        fractions = self.val, self.test
        return RowsFederation(
            self.path, fractions, seed, population, task, features, holdings, new[y], split
        )

    def _sized(self) -> bool:
        """Whether anything is said about sizes; if not, everything is dealt out."""
        rules = self.groups.values() if isinstance(self.groups, dict) else ()
        return self.samples is not None or any(rule.samples is not None for rule in rules)

    def _count(self) -> int:
        if isinstance(self.groups, dict):
            return sum(rule.clients for rule in self.groups.values())
        return self.clients or 1


def deal_all(deal: Deal, y: Ints) -> Holdings:
    """Every row of a class that anybody has: each class in proportion to the clients' shares."""
    q = np.zeros((len(deal.sizes), int(y.max()) + 1))
    for k in range(len(q)):
        classes, shares = deal.shares(k)
        q[k, classes] = shares
    owner = np.full(len(y), -1, dtype=np.int64)
    for c in np.flatnonzero(q.sum(axis=0)).tolist():
        rows = np.flatnonzero(y == c)
        rows = rows[draws.permutations(deal.seed, "data/pooled", len(rows), c)[0]]
        ends = np.rint(np.cumsum(q[:, c]) / q[:, c].sum() * len(rows)).astype(np.int64)
        owner[rows] = np.repeat(np.arange(len(q)), np.diff(ends, prepend=0))
    if len(few := np.flatnonzero(np.bincount(owner[owner >= 0], minlength=len(q)) < 2)):
        raise BadInput(
            f"client {few[0]} would get fewer than 2 samples ({len(few)} of {len(q)} clients "
            "would); have fewer clients, or give data.samples"
        )
    return Holdings.of(owner, len(q))


def deal_rows(deal: Deal, y: Ints, shared: bool) -> Holdings:
    """Rows for every client: of its classes, as many as it wants."""
    clients, classes = len(deal.sizes), int(y.max()) + 1
    supply = np.bincount(y, minlength=classes)
    wanted = np.zeros((clients, classes), dtype=np.int64)
    holds = np.zeros((clients, classes), dtype=bool)
    for k in range(clients):
        own, counts = deal.counts(k)
        wanted[k, own], holds[k, own] = counts, True
    if shared:
        given = _within(wanted, holds, np.broadcast_to(supply, wanted.shape))
    else:
        given = _fair(wanted, holds, supply)
    short = given.sum(axis=1) < deal.sizes
    if short.any():
        k = int(short.argmax())
        raise BadInput(
            f"data.samples: client {k} wants {deal.sizes[k]} samples of its "
            f"{int(holds[k].sum())} classes, {given[k].sum()} can be given ({short.sum()} of "
            f"{clients} clients go short); lower data.samples"
            + ("" if shared else ", or set data.shared = true")
        )
    by_class = np.argsort(y, kind="stable")
    start = np.cumsum(supply) - supply
    taken = np.zeros(classes, dtype=np.int64)
    order = {}
    rows = []
    for k in range(clients):
        mine = []
        for c in np.flatnonzero(given[k]).tolist():
            n = int(given[k, c])
            of_class = by_class[start[c] : start[c] + supply[c]]
            if shared:
                drawn = draws.permutations(deal.seed, "data/shared", len(of_class), k, c)[0][:n]
            else:
                if c not in order:
                    order[c] = draws.permutations(deal.seed, "data/pooled", len(of_class), c)[0]
                drawn = order[c][taken[c] : taken[c] + n]
                taken[c] += n
            mine.append(of_class[drawn])
        rows.append(np.sort(np.concatenate(mine)))
    return Holdings(np.concatenate(rows), np.cumsum([len(r) for r in rows]))


def _within(wanted: Ints, holds: Ints, cap: Ints) -> Ints:
    """As much as is wanted of each class up to a cap; what is missing is taken from the others."""
    given = np.minimum(wanted, cap * holds)
    target = wanted.sum(axis=1)
    while True:
        missing = target - given.sum(axis=1)
        room = (cap - given) * holds
        weight = np.where(room > 0, wanted, 0)
        none = weight.sum(axis=1) == 0  # of what they want there is no more: anything they hold
        weight[none] = room[none] > 0
        total = np.maximum(weight.sum(axis=1), 1)
        more = np.minimum(room, missing[:, None] * weight // total[:, None])
        rest = missing - more.sum(axis=1)
        one = (weight > 0) & (more < room)
        more = more + (one & (np.cumsum(one, axis=1) <= rest[:, None]))
        if not more.any():
            return np.asarray(given)
        given = given + more


def _fair(wanted: Ints, holds: Ints, supply: Ints) -> Ints:
    """The same when a class's supply is all there is for everybody.

    A class of which more is wanted than there is is rationed: nobody gets more than a cap. Those
    who go short ask for more of their other classes, until nothing changes.
    """
    classes = len(supply)
    cap = np.full(classes, supply.max(initial=0))
    while True:
        given = _within(wanted, holds, np.broadcast_to(cap, wanted.shape))
        over = np.flatnonzero(given.sum(axis=0) > supply)
        if not len(over):
            return _with_the_rest(given, wanted.sum(axis=1), holds, supply)
        for c in over:
            cap[c] = min(cap[c] - 1, _ration(given[:, c], int(supply[c])))


def _with_the_rest(given: Ints, target: Ints, holds: Ints, supply: Ints) -> Ints:
    """What a cap leaves over, less than one for each client, to those who are still short."""
    rest = supply - given.sum(axis=0)
    for k in np.flatnonzero(given.sum(axis=1) < target).tolist():
        for c in np.argsort(-rest * holds[k], kind="stable").tolist():
            n = min(int(rest[c] * holds[k, c]), int(target[k] - given[k].sum()))
            given[k, c] += n
            rest[c] -= n
    return given


def _ration(given: Ints, supply: int) -> int:
    """The largest cap under which these sum to no more than the supply."""
    low, high = 0, int(given.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if np.minimum(given, middle).sum() <= supply else (low, middle - 1)
        )
    return low
