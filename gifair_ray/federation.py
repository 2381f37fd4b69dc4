"""A federation: who the clients are, and the data that each of them holds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.errors import BadInput
from gifair_ray.parts import Part

Ints = npt.NDArray[np.int64]
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@dataclass(frozen=True)
class Samples:
    """Inputs and labels of one split of one client."""

    x: npt.NDArray[np.float64] | npt.NDArray[np.float32] | Ints
    y: Ints

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Shard:
    """All that one client holds."""

    train: Samples
    val: Samples
    test: Samples


@dataclass(frozen=True)
class Task:
    """What is to be learned: the shape of one input, and how many classes there are.

    `tokens` is the size of the alphabet where inputs are sequences of numbers of characters;
    0 where they are real vectors.
    """

    input_shape: tuple[int, ...]
    classes: int
    tokens: int = 0


@dataclass(frozen=True)
class Population:
    """The clients as columns: what the server knows of each, before any data is touched."""

    groups: Ints
    group_names: tuple[str, ...]
    train: Ints
    val: Ints
    test: Ints
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        members = np.bincount(self.groups, minlength=len(self.group_names))
        if len(empty := np.flatnonzero(members == 0)):
            raise BadInput(
                f"group {self.group_names[empty[0]]!r} has no clients; leave it out or assign some"
            )
        if len(empty := np.flatnonzero(self.train <= 0)):
            raise BadInput(
                f"client {self.name(int(empty[0]))} has no training data "
                f"({len(empty)} of {len(self)} clients); leave it out, p_k = 0 has no meaning here"
            )

    def __len__(self) -> int:
        return len(self.train)

    @property
    def d(self) -> int:
        """How many groups there are."""
        return len(self.group_names)

    def name(self, client: int) -> str:
        """The client's name in the data, or its number."""
        return self.names[client] if self.names else str(client)

    def sizes(self, split: Split) -> Ints:
        """Samples of each client in a split."""
        return {"train": self.train, "val": self.val, "test": self.test}[split]

    def fingerprint(self) -> str:
        """A hash of everything here, by which a worker shows that it has the same data."""
        h = hashlib.blake2b(digest_size=16)
        for column in (self.groups, self.train, self.val, self.test):
            h.update(np.ascontiguousarray(column).tobytes())
        h.update(repr((self.group_names, self.names)).encode())
        return h.hexdigest()


class Federation(Protocol):
    """What a data source builds: the population at once, a client's shard when it is needed."""

    @property
    def population(self) -> Population: ...

    @property
    def task(self) -> Task: ...

    def shard(self, client: int) -> Shard:
        """The client's data: a pure function of the scenario and the client's number."""
        ...


@runtime_checkable
class Pooling(Protocol):
    """A federation whose clients share samples, each as many, and differ in which they have."""

    @property
    def pool(self) -> Samples:
        """All samples that anybody has."""
        ...

    def held(self, clients: Ints, split: Split) -> Ints:
        """Which rows of the pool each of these clients has, (clients, samples)."""
        ...


class DataSource(Part):
    """Base of all data sources; a source is a frozen value that builds a federation."""

    family: ClassVar[str] = "gifair_ray.data"
    called: ClassVar[str] = "data source"
    key: ClassVar[str] = "source"

    source: str = Field(description="where the clients' data come from")

    def build(self, seed: int) -> Federation:
        """The federation. Checks what it can before any work starts."""
        raise NotImplementedError


Groups = Literal["each"] | int
"""How clients form groups: every client its own (individual fairness), or so many blocks."""


def grouped(clients: int, groups: Groups) -> tuple[Ints, tuple[str, ...]]:
    """Group numbers and names: each its own, or `groups` blocks of neighbouring clients."""
    d = clients if groups == "each" else groups
    if not 1 <= d <= clients:
        raise BadInput(f"data.groups = {d} is outside [1, {clients} clients]")
    return np.arange(clients) * d // clients, tuple(str(i) for i in range(d))


def split_sizes(samples: Ints, val: float, test: float) -> tuple[Ints, Ints, Ints]:
    """(train, val, test) sizes: val and test rounded down, the rest trains."""
    n_val = (samples * val + 1e-9).astype(np.int64)
    n_test = (samples * test + 1e-9).astype(np.int64)
    return samples - n_val - n_test, n_val, n_test


def split_samples(
    seed: int, client: int, x: npt.NDArray[np.generic], y: Ints, val: float, test: float
) -> Shard:
    """Cut one client's samples into its splits, in an order drawn by the client's number."""
    train_n, val_n, _ = (int(n[0]) for n in split_sizes(np.array([len(y)]), val, test))
    order = draws.permutations(seed, "data/split", len(y), client)[0]
    train, vals, tests = np.split(order, [train_n, train_n + val_n])
    return Shard(*(Samples(np.ascontiguousarray(x[i]), y[i]) for i in (train, vals, tests)))


VAL = Field(0.1, ge=0, lt=1, description="fraction of a client's samples for validation")
TEST = Field(0.2, ge=0, lt=1, description="fraction of a client's samples for testing")


def check_fractions(val: float, test: float) -> None:
    """Refuse, with a ValueError, fractions that leave no samples for training."""
    if val + test >= 1:
        raise ValueError(f"val + test = {val + test} leaves nothing to train on")


def check_named_groups(groups: object, clients: int | None) -> None:
    """Refuse, with a ValueError, a table of no groups, or one beside a number of clients."""
    if isinstance(groups, dict):
        if not groups:
            raise ValueError("data.groups names no group; leave it out for 'each'")
        if clients is not None:
            raise ValueError("named groups say how many clients there are: drop data.clients")
