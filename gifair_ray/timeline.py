"""What happens to work that is sent to clients, in virtual time.

    send → (latency, download) → start → (compute) → end → (latency, upload) → arrival

A client may drop out in the middle of its computation, or go offline anywhere on the way. The
simulator knows that beforehand; the simulated server notices when a connection breaks, or at the
timeout, and until then the slot stays occupied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gifair_ray import draws
from gifair_ray.availability import Calendar
from gifair_ray.devices import Fleet

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

COMPLETED, OFFLINE, DROPPED, LATE = "completed", "offline", "dropped", "late"


@dataclass(frozen=True)
class Timeline:
    """Columns over the clients that were sent something; times in virtual seconds.

    `arrival` is ∞ where nothing ever arrives. `end` is where the client stopped: done, lost, or
    told to stop at the timeout.
    """

    start: Floats
    end: Floats
    arrival: Floats
    notice: Floats
    outcome: npt.NDArray[np.str_]
    uploaded: Bools
    """Whether the reply was on its way (and its bytes spent) when the client stopped."""
    steps: Ints | None = None
    """Steps that were done, where clients may return part of their work."""

    @property
    def completed(self) -> Bools:
        """Which of them came back in time."""
        return np.asarray(self.outcome == COMPLETED)

    @property
    def busy(self) -> Floats:
        """Compute time that was spent, whatever for."""
        return np.maximum(self.end - self.start, 0.0)


def transfer_s(nbytes: Ints | int, mbps: Floats) -> Floats:
    """Seconds to move so many bytes."""
    return np.asarray(nbytes * 8 / (mbps * 1e6))


def timeline(
    fleet: Fleet,
    calendar: Calendar,
    seed: int,
    purpose: Literal["train", "ask"],
    clients: Ints,
    ordinals: Ints,
    send: Floats | float,
    down_bytes: Ints,
    up_bytes: Ints,
    passes: Floats,
    timeout_s: float,
    notice: Literal["timeout", "disconnect"],
    *,
    after: Floats | float = 0.0,
    steps: Ints | None = None,
    wait: Floats | float = 0.0,
) -> Timeline:
    """The fate of work. `passes` counts samples forward and backward, `after` more at the end.

    `ordinals` number each client's own pieces of work of this purpose: all draws are named by
    (purpose, client, ordinal). With `steps`, a client that would be late stops after as many
    of them as let it arrive in time, if that is at least one. `wait` is how long each is busy
    with something else first.
    """
    latency = fleet.latency_s[clients]
    start = send + latency + transfer_s(down_bytes, fleet.down_mbps[clients])
    pace = fleet.sample_s[clients]
    if (sigma := fleet.jitter[clients]).any():
        pace = pace * np.exp(sigma * draws.normal(seed, f"jitter/{purpose}", clients, ordinals))
    upload = latency + transfer_s(up_bytes, fleet.up_mbps[clients])
    deadline = send + timeout_s
    training, finishing = passes * pace, after * pace
    done = steps
    if steps is not None:
        done = _steps_in_time(steps, training, deadline - start - finishing - upload)
        training = training * (done / steps)
    compute = wait + training + finishing
    end = start + compute
    arrival = end + upload
    if steps is not None:  # rounding must not make late who has stopped in time
        arrival = np.where(done != steps, np.minimum(arrival, deadline), arrival)
    outcome = np.full(len(clients), COMPLETED, dtype="U9")
    lost = np.full(len(clients), np.inf)

    if purpose == "train" and (risk := fleet.dropout[clients]).any():
        drops = draws.uniform(seed, "dropout", clients, ordinals) < risk
        when = draws.uniform(seed, "dropout/when", clients, ordinals)
        lost = np.where(drops, start + when * compute, lost)
    if purpose == "train" and np.isfinite(life := fleet.lifetime_s[clients]).any():
        u = draws.uniform(seed, "lifetime", clients, ordinals)
        survives = life * (-np.log1p(-u)) ** (1.0 / fleet.hazard_growth[clients])
        lost = np.minimum(lost, np.where(survives < compute, start + survives, np.inf))
    outcome[np.isfinite(lost)] = DROPPED
    over = np.minimum(arrival, lost)
    sent = np.broadcast_to(np.asarray(send, dtype=np.float64), len(clients))
    offline = calendar.until(clients, sent, np.minimum(over, deadline))
    gone = offline < over
    lost, outcome[gone] = np.where(gone, offline, lost), OFFLINE
    late = np.minimum(arrival, lost) > deadline  # told to stop before anything else happened
    outcome[late] = LATE

    completed = outcome == COMPLETED
    known = lost + latency if notice == "disconnect" else deadline
    stop = np.minimum(np.minimum(end, lost), deadline)
    return Timeline(
        start=np.minimum(start, stop),
        end=stop,
        arrival=np.where(completed, arrival, np.inf),
        notice=np.where(completed, arrival, np.minimum(known, deadline)),
        outcome=outcome,
        uploaded=(end < lost) & (end <= deadline),
        steps=done,
    )


def _steps_in_time(steps: Ints, training: Floats, time_left: Floats) -> Ints:
    """How many steps fit; all of them where not even one does (such a client is late)."""
    per_step = training / steps
    fit = np.floor(np.where(per_step > 0, time_left / np.maximum(per_step, 1e-300), np.inf))
    fits = np.clip(fit, 0, steps).astype(np.int64)
    return np.where(fits > 0, fits, steps)
