"""Which rows each step of each client trains on, with which learning rate: in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gifair_ray.protocol import TrainJob
from gifair_ray.work import Work

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def bucket(rows: Ints) -> Ints:
    """Rows rounded up, by at most a quarter: few distinct shapes, each a function of n_k only."""
    bits = np.frexp(rows.astype(np.float64))[1]
    grain = np.maximum(8, 1 << np.maximum(bits - 3, 0).astype(np.int64))
    return np.asarray(-(-rows // grain) * grain)


@dataclass(frozen=True)
class Plan:
    """Steps of clients that train as one stack; those with most steps come first.

    `members` are their places among the jobs. `index` (steps, clients, rows) says which rows of
    all data a step uses, 0 where a batch is short; it has one step where all use the same rows.
    `weight` is 1/rows of a batch there, and 0 where it is short. `steps` counts each client's.
    """

    members: Ints
    index: Ints
    weight: Floats
    rates: Floats
    steps: Ints

    @property
    def last_rates(self) -> Floats:
        """η of each client's last step."""
        return np.asarray(self.rates[self.steps - 1, np.arange(len(self.steps))])


@dataclass(frozen=True)
class Columns:
    """Jobs as columns."""

    clients: Ints
    ordinals: Ints
    clocks: Floats
    tilts: Floats
    limits: Ints

    @staticmethod
    def of(jobs: Sequence[TrainJob]) -> Columns:
        """Jobs without a limit have a very large one."""
        return Columns(
            np.array([job.client for job in jobs]),
            np.array([job.ordinal for job in jobs]),
            np.array([job.message.clock for job in jobs]),
            np.array([job.message.tilt for job in jobs]),
            np.array([1 << 62 if job.steps is None else job.steps for job in jobs]),
        )


def plans(
    work: Work, seed: int, jobs: Columns, samples: Ints, starts: Ints, most: int
) -> Iterator[Plan]:
    """The jobs in stacks of at most `most`, each with one number of rows in a batch."""
    # A stack of one client with one row goes another way through torch than a taller one.
    batch = max(2, work.batch_size or 0)
    rows = bucket(samples) if work.batch_size is None else np.full(len(samples), batch)
    totals = work.step_counts(samples)
    steps = np.minimum(totals, jobs.limits)
    for n in np.unique(rows).tolist():
        members = np.flatnonzero(rows == n)
        members = members[np.argsort(-steps[members], kind="stable")]
        for at in range(0, len(members), most):
            some = members[at : at + most]
            order = _order(work, seed, jobs, samples, some, n, int(steps[some[0]]))
            yield _plan(work, jobs, some, order, starts[some], steps[some], totals[some])


def _order(
    work: Work, seed: int, jobs: Columns, samples: Ints, members: Ints, rows: int, width: int
) -> Ints:
    """(clients, steps, rows) of the clients' own row numbers; −1 where there is none."""
    if work.batch_size is None:
        column = np.arange(rows)
        return np.where(column < samples[members, None], column, -1)[:, None]
    batches = work.batches(samples[members])
    out = np.full((len(members), width, rows), -1, dtype=np.int64)
    for n in np.unique(batches).tolist():
        alike = np.flatnonzero(batches == n)
        chosen = members[alike]
        order = work.orders(seed, jobs.clients[chosen], jobs.ordinals[chosen], samples[chosen])
        order = order[:, :width]
        if len(alike) == len(members) and order.shape == out.shape:
            return order
        out[alike, : order.shape[1], : order.shape[2]] = order
    return out


def _plan(
    work: Work, jobs: Columns, members: Ints, order: Ints, starts: Ints, steps: Ints, totals: Ints
) -> Plan:
    order = np.ascontiguousarray(order.transpose(1, 0, 2))
    real = order >= 0
    counts = np.count_nonzero(real, axis=2)[:, :, None]
    weight = real / np.maximum(counts, 1)
    index = np.where(real, order + starts[:, None], 0)
    width = int(steps[0])
    rates = np.zeros((width, len(members)))
    clocks = jobs.clocks[members]
    for clock, total in set(zip(clocks.tolist(), totals.tolist(), strict=True)):
        alike = (clocks == clock) & (totals == total)
        found = work.schedule.rates(clock, total)[:width]
        rates[: len(found), alike] = found[:, None]
    return Plan(members, index, weight, rates, steps)
