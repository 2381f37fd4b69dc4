"""Local work: how many steps, on which samples, in which order.

Work is fixed at dispatch, in steps or epochs, with no stopping that depends on the data: virtual
time rests on it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from gifair_ray import draws
from gifair_ray.config import Frozen
from gifair_ray.schedules import Schedule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LAST = np.uint64(2**64 - 1)


class Work(Frozen):
    """What a client does with a model it was sent."""

    epochs: int | None = Field(None, ge=1, description="passes over the client's data; or steps")
    steps: int | None = Field(None, ge=1, description="E, gradient steps; or epochs")
    batch_size: int | None = Field(
        None, ge=1, description="samples in a gradient; without it all of the client's (full batch)"
    )
    schedule: Schedule = Field(Schedule(), description="learning rate")

    @model_validator(mode="after")
    def _one_of_steps_and_epochs(self) -> Work:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either work.steps or work.epochs")
        return self

    def batches(self, samples: Ints) -> Ints:
        """Batches in one pass over so many samples."""
        if self.batch_size is None:
            return np.ones_like(samples)
        return -(-samples // self.batch_size)

    def step_counts(self, samples: Ints) -> Ints:
        """Gradient steps of clients with so many training samples."""
        if self.steps is not None:
            return np.full_like(samples, self.steps)
        return self.batches(samples) * np.int64(self.epochs or 1)

    def sample_passes(self, samples: Ints) -> Ints:
        """Samples that pass forward and backward through the model, over all steps."""
        if self.epochs is not None:
            return samples * np.int64(self.epochs)
        batches = self.batches(samples)
        passes, rest = np.divmod(np.int64(self.steps or 0), batches)
        return np.asarray(passes * samples + rest * (self.batch_size or 0), dtype=np.int64)

    def plan(
        self, seed: int, client: int, ordinal: int, clock: float, samples: int, limit: int | None
    ) -> tuple[Ints, Floats]:
        """(rows, learning rate) of each step of a dispatch, of the first `limit` if there is one.

        The learning rates are those of the whole work: stopping early only leaves some out.
        """
        order = self.order(seed, client, ordinal, samples)
        return order[:limit], self.schedule.rates(clock, len(order))[:limit]

    def order(self, seed: int, client: int, ordinal: int, samples: int) -> Ints:
        """Rows for each step, (steps, rows); −1 fills a batch that is short of rows.

        Every pass shuffles anew, by the client, its dispatch's ordinal and the pass.
        """
        columns = (np.array([value]) for value in (client, ordinal, samples))
        return np.asarray(self.orders(seed, *columns)[0])

    def orders(self, seed: int, clients: Ints, ordinals: Ints, samples: Ints) -> Ints:
        """`order` of many dispatches, (dispatches, steps, rows); all have as many batches."""
        steps = int(self.step_counts(samples[:1])[0])
        if self.batch_size is None:  # a full batch needs no shuffling
            rows = np.arange(samples.max())
            order = np.where(rows < samples[:, None], rows, -1)
            return np.repeat(order[:, None], steps, axis=1)
        order = self.shuffles(seed, clients, ordinals, samples)
        width = int(self.batches(samples[:1])[0]) * self.batch_size
        if order.shape[2] < width:
            filled = np.full((*order.shape[:2], width), -1, dtype=np.int64)
            filled[:, :, : order.shape[2]] = order
            order = filled
        return order.reshape(len(clients), -1, self.batch_size)[:, :steps]

    def shuffles(self, seed: int, clients: Ints, ordinals: Ints, samples: Ints) -> Ints:
        """Rows in the order of every pass, (dispatches, passes, rows); −1 behind a client's last.

        All have as many batches, which have a size.
        """
        steps, per_pass = int(self.step_counts(samples[:1])[0]), int(self.batches(samples[:1])[0])
        most = int(samples.max())
        column = np.arange(most)
        passes = np.arange(-(-steps // per_pass))[:, None]
        who = (clients[:, None, None], ordinals[:, None, None])
        # The row's number takes the place of a priority's last bits: sorting such keys is several
        # times as quick as finding the order that would sort them.
        places = np.uint64((1 << (per_pass * (self.batch_size or 1)).bit_length()) - 1)
        keys = draws.bits(seed, "shuffle", *who, passes, column)
        keys &= ~places
        keys |= column.astype(np.uint64)
        ragged = bool((samples != most).any())
        if ragged:
            absent = column >= samples[:, None, None]
            np.copyto(keys, LAST, where=absent)  # what is not there comes last
        keys.sort(axis=2)
        keys &= places
        order = keys.view(np.int64)
        if ragged:
            np.copyto(order, -1, where=absent)
        return order
