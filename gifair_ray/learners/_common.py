"""What learners share: the check for divergence, and a bounded cache of prepared data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from gifair_ray.errors import Diverged
from gifair_ray.protocol import TrainJob, TrainJobs
from gifair_ray.replies import Params

Value = TypeVar("Value")
CACHE_BYTES = 192 << 20
"""Prepared data that a learner keeps, at most."""


def check_finite(
    results: npt.NDArray[np.floating], jobs: Sequence[TrainJob], last_rate: Callable[[int], float]
) -> None:
    """Raise Diverged for the first job with a NaN or an infinite value in its row.

    `last_rate` tells η of a job's last step.
    """
    finite = np.isfinite(results)
    if finite.all():
        return
    finite = finite.reshape(len(jobs), -1).all(axis=1)
    for bad in np.flatnonzero(~finite).tolist():
        job = jobs[bad]
        raise Diverged(
            f"client {job.client} diverged to NaN or infinity in its dispatch {job.ordinal} "
            f"(model version {job.message.version}, learning rate {last_rate(bad):.4g}, "
            f"multiplier {1 + job.message.tilt:.4g}); lower work.schedule.lr or do fewer steps"
        )


def placed(models: Params, out: Params | None) -> Params:
    """The models, in the rows of `out` if there are any."""
    if out is None:
        return models
    out[:] = models
    return out


def own_models(jobs: TrainJobs, initial: Params) -> Params:
    """The model v_k of each job's client, a row per job: the initial one where it has none yet."""
    return np.stack([jobs.own.get(place, initial) for place in range(len(jobs))])


class BoundedCache(Generic[Value]):
    """Values made on first use; the least recently used go when the bytes exceed the limit."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit, self._used = limit_bytes, 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], tuple[Value, int]]) -> Value:
        """The value of a key, from `make() -> (value, bytes)` if it is not there."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key][0]
        value, size = make()
        self._entries[key] = value, size
        self._used += size
        while self._used > self._limit and len(self._entries) > 1:
            _, (_, freed) = self._entries.popitem(last=False)
            self._used -= freed
        return value
