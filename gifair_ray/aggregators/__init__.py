"""Aggregators: how the server turns the clients' local models into the next global one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.parts import Part
from gifair_ray.replies import Models, Params
from gifair_ray.sums import THREADS, share_blocks

if TYPE_CHECKING:
    from gifair_ray.scenario import Scenario

Floats = npt.NDArray[np.float64]
Block = Callable[[slice, Floats], None]
TOGETHER = 1 << 18  # numbers of many small models that are added at a time
LONG = 1 << 14  # numbers of a model that are worth a call for every client
BLOCK = 1 << 17  # numbers of such a model that are added at a time: shorter ones are more calls


def weighted_sum(
    weights: Floats, rows: Models, bases: Sequence[Params], onto: Params | None = None
) -> Params:
    """Σ_k ω_k (row_k − base_k) in float64, one client after the other, in the order given.

    The one place where clients are summed: callers pass them in the order of their numbers, so
    that no scheduling can change the order of a sum. With `onto` the result is onto + Σ, rounded to
    the type of that: a large model never lies in memory in float64.
    """
    m, n = len(rows), len(rows[0])
    total = np.empty(n, dtype=np.float64 if onto is None else onto.dtype)
    alike = len(set(map(id, bases))) == 1
    # Short enough for every thread to have one.
    block = min(BLOCK, max(LONG, -(-n // THREADS))) if n >= LONG else max(1, min(n, TOGETHER // m))
    summed = _one_by_one if n >= LONG else _at_once

    def add(blocks: range) -> None:
        add_block = summed(weights, rows, bases, alike, block)
        sums = np.empty(block, dtype=np.float64)
        for at in blocks:
            part = slice(at, min(n, at + block))
            here = sums[: part.stop - at]
            add_block(part, here)
            if onto is not None:
                here += onto[part]
            total[part] = here

    share_blocks(add, range(0, n, block), m * n)
    return total


# Both copy first: numpy subtracts in another type than the operands' by small pieces.


def _at_once(
    weights: Floats, rows: Models, bases: Sequence[Params], alike: bool, block: int
) -> Block:
    """Small models: all clients in one call."""
    buffer, m = np.empty(len(rows) * block, dtype=np.float64), len(rows)

    def add(part: slice, out: Floats) -> None:
        flat = buffer[: m * len(out)]
        changes = flat.reshape(m, -1)
        if isinstance(rows, np.ndarray):
            changes[:] = rows[:, part]
        else:
            np.concatenate([row[part] for row in rows], out=flat)
        if alike:
            changes -= bases[0][part].astype(np.float64)
        else:
            changes -= np.array([base[part] for base in bases], dtype=np.float64)
        changes *= weights[:, None]
        np.add.reduce(changes, axis=0, out=out)

    return add


def _one_by_one(
    weights: Floats, rows: Models, bases: Sequence[Params], alike: bool, block: int
) -> Block:
    """Large models: what lies in memory is one client's."""
    changes, starts = np.empty(block, dtype=np.float64), np.empty(block, dtype=np.float64)
    omegas = weights.tolist()

    def add(part: slice, out: Floats) -> None:
        change, start = changes[: len(out)], starts[: len(out)]
        for k, (row, base, omega) in enumerate(zip(rows, bases, omegas, strict=True)):
            change[:] = row[part]
            if k == 0 or not alike:
                start[:] = base[part]
            change -= start
            if k == 0:
                np.multiply(change, omega, out=out)
            else:
                change *= omega
                out += change

    return add


class Aggregator(Part):
    """Base of all aggregators."""

    family: ClassVar[str] = "gifair_ray.aggregators"
    called: ClassVar[str] = "aggregator"

    kind: str = Field(description="how local models become the next global one")

    @property
    def caution(self) -> str | None:
        """What a user of this aggregator must be warned of."""
        return None

    def check(self, scenario: Scenario) -> None:
        """Refuse, with a ValueError, a scenario in which this aggregator makes no sense."""

    def combine(
        self,
        theta: Params,
        models: Models,
        bases: Sequence[Params],
        weights: Floats,
        decay: float,
    ) -> Params:
        """The next θ, from the local models in client order and their weights ω_k; in float64, or
        rounded once to θ's type.

        `bases` are the models that each of them started from. `decay` is by how much the
        learning rate has fallen so far, for steps whose length does not follow from it.
        """
        raise NotImplementedError

    def buffer_weights(self, weights: Floats) -> Floats:
        """Weights for what is not trained: a mean, whatever the ω_k sum to.

        A buffer such as a variance must stay within the clients' values.
        """
        total = weights.sum()
        return weights / total if total > 0 else np.zeros_like(weights)

    def __call__(
        self,
        theta: Params,
        models: Models,
        bases: Sequence[Params],
        weights: Floats,
        trainable: int,
        decay: float = 1.0,
    ) -> Params:
        """The next flat vector: parameters combined, and the buffers behind them averaged."""
        if not len(models):
            return np.array(theta, copy=True)
        if trainable == len(theta):
            found = self.combine(theta, models, bases, weights, decay)
            return found.astype(theta.dtype, copy=False)
        new = np.empty_like(theta)
        new[:trainable] = self.combine(
            theta[:trainable],
            [model[:trainable] for model in models],
            [base[:trainable] for base in bases],
            weights,
            decay,
        )
        old = theta[trainable:]
        buffers = [model[trainable:] for model in models]
        mean = self.buffer_weights(weights)
        new[trainable:] = weighted_sum(mean, buffers, [old] * len(models), onto=old)
        return new
