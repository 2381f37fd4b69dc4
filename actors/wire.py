"""How jobs and results travel between actors.

Ray sends plain bytes in half the time of arrays, and a list of them as one message; large arrays
it sends without copying them. So what is small goes as bytes, and what is large as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gifair_ray.protocol import TrainJobs
from gifair_ray.replies import Params, Trained

SMALL = 512 << 10  # bytes of a stack that are sent as bytes

Sent = list[Any]
"""Values that Ray takes for plain: numbers, texts, bytes, None."""


def pack(jobs: TrainJobs, theta: Params | None = None) -> Sent:
    """Jobs, but for the clients' own models; and the model they start from, if it goes along."""
    whole = np.stack([jobs.ids, jobs.clients, jobs.ordinals, jobs.limits])
    real = np.stack([jobs.clocks, jobs.tilts])
    sent = [jobs.version, whole.tobytes(), real.tobytes()]
    return sent if theta is None else [*sent, theta.tobytes()]


def jobs_in(sent: Sent) -> int:
    """How many jobs were packed."""
    return len(sent[2]) // (2 * np.dtype(np.float64).itemsize)


def unpack(sent: Sent, own: dict[int, Params], dtype: str) -> tuple[TrainJobs, Params | None]:
    """The jobs and the model again."""
    version, whole, real, *theta = sent
    ids, clients, ordinals, limits = np.frombuffer(whole, dtype=np.int64).reshape(4, -1)
    clocks, tilts = np.frombuffer(real, dtype=np.float64).reshape(2, -1)
    jobs = TrainJobs(version, ids, clients, ordinals, clocks, tilts, limits, own)
    return jobs, np.frombuffer(theta[0], dtype=dtype) if theta else None


Result = tuple[Trained, float] | Sent
"""A stack of results, and the seconds that they took."""


def pack_results(trained: Trained, seconds: float) -> Result:
    """For the way back."""
    models, own = trained.models, trained.personal
    if models.nbytes > SMALL:
        return trained, seconds
    losses, _ = pack_losses(trained, seconds)
    return [models.tobytes(), losses, None if own is None else own.tobytes(), seconds]


def unpack_results(sent: Result, size: int, dtype: str) -> tuple[Trained, float]:
    """What was packed; of models so long."""
    if isinstance(sent, tuple):
        return sent
    models, losses, own, seconds = sent
    personal = None if own is None else np.frombuffer(own, dtype).reshape(-1, size)
    rows = np.frombuffer(models, dtype).reshape(-1, size)
    return unpack_losses((losses, seconds), rows, personal)


Losses = tuple[bytes, float]
"""Both losses of every job, and the seconds that they took: what is sent of results on a pad."""


def pack_losses(trained: Trained, seconds: float) -> Losses:
    """For the way back, where the models are already."""
    return np.stack([trained.loss_local, trained.loss_received]).tobytes(), seconds


def unpack_losses(
    sent: Losses, models: Params, personal: Params | None = None
) -> tuple[Trained, float]:
    """What was packed, with the models."""
    losses, seconds = sent
    local, received = np.frombuffer(losses, dtype=np.float64).reshape(2, -1)
    return Trained(models, local, received, personal), float(seconds)
