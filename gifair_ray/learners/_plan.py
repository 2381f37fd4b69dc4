"""Which rows each step of each client trains on, with which learning rate: in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gifair_ray.protocol import TrainJobs
from gifair_ray.replies import Params
from gifair_ray.work import Work

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def bucket(rows: Ints) -> Ints:
    """Rows rounded up, by at most a quarter: few distinct shapes, each a function of n_k only."""
    bits = np.frexp(rows.astype(np.float64))[1]
    grain = np.maximum(8, 1 << np.maximum(bits - 3, 0).astype(np.int64))
    return np.asarray(-(-rows // grain) * grain)


def heights(work: Work, samples: Ints) -> list[int] | None:
    """Rows of the batches of a pass, where these are everybody's."""
    if work.batch_size is None or _differ(samples):
        return None
    full, rest = divmod(int(samples[0]), work.batch_size)
    found = [work.batch_size] * full + [rest] * (rest > 0)
    # A stack of one client with one row goes another way through torch.
    return None if 1 in found else found


class Outline(NamedTuple):
    """What there is to know of a plan when its steps are done."""

    members: Ints
    rates: Floats
    steps: Ints


@dataclass(frozen=True)
class Plan:
    """Steps of clients that train as one stack; those with most steps come first.

    `members` are their places among the jobs. `index` (clients, rows) says which rows of all data
    the steps use, one step's after the other's, and `heights` how many each has; there is one step
    where all use the same rows. A batch that is short of rows is filled up with row 0, and `absent`
    (clients, steps, rows) says where; None: nowhere. `counts` (clients, steps) says how many rows a
    batch has by itself, and `rates` with which learning rate; where all are alike there is one row
    for them, as there always is where nothing is absent. `steps` counts each client's.
    """

    members: Ints
    index: Ints
    heights: list[int]
    absent: npt.NDArray[np.bool_] | None
    counts: Ints
    rates: Floats
    steps: Ints

    @property
    def outline(self) -> Outline:
        """Without the rows, which take much room."""
        return Outline(self.members, self.rates, self.steps)

    def strengths(self, tilts: Floats) -> tuple[list[float], npt.NDArray[np.floating] | None]:
        """−η m_k/rows: a factor of every step for all clients, and one (clients, steps or 1, 1)
        for each; None: 1.

        Which of the two has η/rows follows from the scenario alone: the bits depend on it.
        """
        m = (1.0 + tilts)[:, None, None]
        if self.absent is None:
            return (-self.rates / self.counts)[0].tolist(), m if tilts.any() else None
        return [-1.0] * self.rates.shape[1], self.rates[:, :, None] * m / self.counts[:, :, None]


def last_rate(plans: Sequence[Outline], place: int) -> float:
    """η of the last step of a job, in one of these plans."""
    for members, rates, steps in plans:
        for at in np.flatnonzero(members == place).tolist():
            return float(rates[at if len(rates) > 1 else 0, steps[at] - 1])
    raise KeyError(place)


def plans(
    work: Work,
    seed: int,
    jobs: TrainJobs,
    samples: Ints,
    starts: Ints,
    most: int,
    in_a_pass: list[int] | None,
) -> Iterator[Plan]:
    """The jobs in stacks of at most `most`; each client's batches are filled up to one height,
    unless all clients of the population have batches of the same heights `in_a_pass`: then all of a
    stack have one learning rate, too.
    """
    totals = work.step_counts(samples)
    steps = np.minimum(totals, jobs.limits)
    together = _by_rows(work, samples) if in_a_pass is None else _by_clock(jobs.clocks)
    for n, members in together:
        if _differ(steps[members]):
            members = members[np.argsort(-steps[members], kind="stable")]
        for at in range(0, len(members), most):
            some = members[at : at + most]
            width = int(steps[some[0]])
            rates = _rates(work, jobs.clocks[some], totals[some], width)
            first = starts[some]
            if in_a_pass is not None:
                order = work.shuffles(seed, jobs.clients[some], jobs.ordinals[some], samples[some])
                rows = (in_a_pass * order.shape[1])[:width]
                order += first[:, None, None]
                index = order.reshape(len(some), -1)[:, : sum(rows)]
                yield Plan(some, index, rows, None, np.array([rows]), rates, steps[some])
                continue
            order = _order(work, seed, jobs, samples, some, n, width)
            absent = order < 0
            order += first[:, None, None]
            np.copyto(order, 0, where=absent)
            counts = np.maximum(n - np.add.reduce(absent, axis=2), 1)
            index, rows = order.reshape(len(some), -1), [n] * order.shape[1]
            yield Plan(some, index, rows, absent, counts, rates, steps[some])


def _differ(values: npt.NDArray[Any]) -> bool:
    return bool((values != values[0]).any())


def _by_rows(work: Work, samples: Ints) -> Iterator[tuple[int, Ints]]:
    """Who has so many rows in a batch."""
    if work.batch_size is not None:
        # A stack of one client with one row goes another way through torch than a taller one.
        yield max(2, work.batch_size), np.arange(len(samples))
        return
    rows = bucket(samples)
    for n in np.unique(rows).tolist():
        yield n, np.flatnonzero(rows == n)


def _by_clock(clocks: Floats) -> Iterator[tuple[int, Ints]]:
    """Who has the same learning rates; their rows are known."""
    if not _differ(clocks):
        yield 0, np.arange(len(clocks))
        return
    for clock in np.unique(clocks):
        yield 0, np.flatnonzero(clocks == clock)


def _order(
    work: Work, seed: int, jobs: TrainJobs, samples: Ints, members: Ints, rows: int, width: int
) -> Ints:
    """(clients, steps, rows) of the clients' own row numbers; −1 where there is none."""
    sizes = samples[members]
    if work.batch_size is None:
        column = np.arange(rows)
        return np.where(column < sizes[:, None], column, -1)[:, None]
    clients, ordinals = jobs.clients[members], jobs.ordinals[members]
    batches = work.batches(sizes)
    if rows == work.batch_size and not _differ(batches):
        return work.orders(seed, clients, ordinals, sizes)[:, :width]
    out = np.full((len(members), width, rows), -1, dtype=np.int64)
    for n in np.unique(batches).tolist():
        alike = np.flatnonzero(batches == n)
        order = work.orders(seed, clients[alike], ordinals[alike], sizes[alike])[:, :width]
        out[alike, : order.shape[1], : order.shape[2]] = order
    return out


def _rates(work: Work, clocks: Floats, totals: Ints, width: int) -> Floats:
    """η of the first steps; one row for all if that is everybody's."""
    if not _differ(clocks) and not _differ(totals):
        return work.schedule.rates(float(clocks[0]), int(totals[0]))[None, :width]
    rates = np.zeros((len(clocks), width))
    for clock, total in set(zip(clocks.tolist(), totals.tolist(), strict=True)):
        alike = (clocks == clock) & (totals == total)
        found = work.schedule.rates(clock, total)[:width]
        rates[alike, : len(found)] = found
    return rates


def in_places(rows: Params, order: Sequence[Ints]) -> Params:
    """Rows that came in some order, each in its place."""
    places = order[0] if len(order) == 1 else np.concatenate(order)
    if (places[1:] > places[:-1]).all():
        return rows
    out = np.empty_like(rows)
    out[places] = rows
    return out


def evaluations(sizes: Ints, most_rows: int) -> Iterator[tuple[int, Ints]]:
    """(padded rows, places) of clients that are evaluated as one stack, of so many rows at most."""
    rows = np.where(sizes > 0, bucket(sizes), 0)
    for n in np.unique(rows[rows > 0]).tolist():
        members = np.flatnonzero(rows == n)
        together = max(1, most_rows // n)
        for at in range(0, len(members), together):
            yield n, members[at : at + together]
