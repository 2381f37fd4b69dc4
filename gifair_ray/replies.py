"""What clients answer: in stacks, as workers compute them, and one by one where asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Params = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Models = Params | Sequence[Params]
"""Flat models: rows of an array, or a list of them."""

COPIED = 1 << 20  # numbers of models that are put together rather than kept in their places


@dataclass(frozen=True, slots=True)
class Trained:
    """A stack of replies, a row per job. Losses that were not asked for are NaN."""

    models: Params
    loss_local: Floats
    loss_received: Floats
    personal: Params | None = None
    """The clients' own models, where the solver trains those too."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One client's result: its local model, and the losses it was told to report (else NaN).

    `personal` is what the client keeps for itself, if it trains that apart from the local model.
    """

    model: Params
    loss_local: float
    loss_received: float
    personal: Params | None = None

    @property
    def kept(self) -> Params:
        """The client's personal model: its own track's, or else its last local model."""
        return self.model if self.personal is None else self.personal


@dataclass(frozen=True, slots=True)
class Replies:
    """Some clients' results in columns."""

    models: Models
    loss_local: Floats
    loss_received: Floats
    personal: Models | None = None

    @staticmethod
    def of(replies: Sequence[Reply]) -> Replies:
        """Results in columns."""
        own = [reply.personal for reply in replies if reply.personal is not None]
        return Replies(
            [reply.model for reply in replies],
            np.array([reply.loss_local for reply in replies]),
            np.array([reply.loss_received for reply in replies]),
            own or None,
        )

    def __len__(self) -> int:
        return len(self.loss_local)

    @property
    def kept(self) -> Models:
        """The clients' personal models: see `Reply.kept`."""
        return self.models if self.personal is None else self.personal

    def take(self, order: Ints) -> Replies:
        """Those in some places."""
        if len(order) == len(self) and (order[1:] > order[:-1]).all():
            return self
        models = _rows(self.models, order)
        own = None if self.personal is None else _rows(self.personal, order)
        return Replies(models, self.loss_local[order], self.loss_received[order], own)


def _rows(models: Models, order: Ints) -> Models:
    if isinstance(models, np.ndarray) and models.size <= COPIED:
        return models[order]
    return [models[i] for i in order.tolist()]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A column per measure, a row per client; `correct` is −1 where there are no classes."""

    loss: Floats
    correct: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """The replies of some jobs, whose numbers ascend."""

    jobs: Ints
    trained: Trained

    def reply(self, job: int) -> Reply:
        """One of them."""
        i, trained = int(np.searchsorted(self.jobs, job)), self.trained
        own = None if trained.personal is None else trained.personal[i]
        losses = float(trained.loss_local[i]), float(trained.loss_received[i])
        return Reply(trained.models[i], *losses, own)


Found = dict[int, Stack | Evaluated]
"""Results by job: with others of its stack, or an evaluation."""


class Results(Mapping[int, Any]):
    """What jobs came to, by their numbers: a Reply for training, or an Evaluated."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def __getitem__(self, job: int) -> Any:
        found = self._found[job]
        return found.reply(job) if isinstance(found, Stack) else found

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def replies(self, jobs: Ints) -> Replies:
        """The replies of training jobs, in their order."""
        stacks: list[Any] = list(dict.fromkeys(map(self._found.__getitem__, jobs.tolist())))
        if not stacks:
            return Replies.of([])
        if len(stacks) == 1 and np.array_equal(stacks[0].jobs, jobs):
            return _joined([stacks[0].trained])
        numbers = np.concatenate([stack.jobs for stack in stacks])
        order = np.argsort(numbers, kind="stable")
        places = order[np.searchsorted(numbers, jobs, sorter=order)]
        return _joined([stack.trained for stack in stacks]).take(places)


def _joined(stacks: Sequence[Trained]) -> Replies:
    """All rows of some stacks: small models in one array, large ones where they are."""
    if len(stacks) == 1:
        (one,) = stacks
        return Replies(one.models, one.loss_local, one.loss_received, one.personal)
    own = [stack.personal for stack in stacks if stack.personal is not None]
    return Replies(
        _together([stack.models for stack in stacks]),
        np.concatenate([stack.loss_local for stack in stacks]),
        np.concatenate([stack.loss_received for stack in stacks]),
        _together(own) if own else None,
    )


def _together(stacks: Sequence[Params]) -> Models:
    if sum(stack.size for stack in stacks) <= COPIED:
        return np.concatenate(stacks)
    return [row for stack in stacks for row in stack]
