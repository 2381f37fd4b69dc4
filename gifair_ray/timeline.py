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
    send: float,
    down_bytes: Ints,
    up_bytes: Ints,
    passes: Floats,
    timeout_s: float,
    notice: Literal["timeout", "disconnect"],
) -> Timeline:
    """The fate of work sent at one moment. `passes` counts samples forward and backward.

    `ordinals` number each client's own pieces of work of this purpose: all draws are named by
    (purpose, client, ordinal).
    """
    latency = fleet.latency_s[clients]
    start = send + latency + transfer_s(down_bytes, fleet.down_mbps[clients])
    compute = passes * fleet.sample_s[clients]
    if (sigma := fleet.jitter[clients]).any():
        compute = compute * np.exp(
            sigma * draws.normal(seed, f"jitter/{purpose}", clients, ordinals)
        )
    end = start + compute
    arrival = end + latency + transfer_s(up_bytes, fleet.up_mbps[clients])
    deadline = send + timeout_s
    outcome = np.full(len(clients), COMPLETED, dtype="U9")
    lost = np.full(len(clients), np.inf)

    if purpose == "train" and (risk := fleet.dropout[clients]).any():
        drops = draws.uniform(seed, "dropout", clients, ordinals) < risk
        when = draws.uniform(seed, "dropout/when", clients, ordinals)
        lost = np.where(drops, start + when * compute, lost)
        outcome[drops] = DROPPED
    over = np.minimum(arrival, lost)
    offline = calendar.until(clients, np.full(len(clients), send), np.minimum(over, deadline))
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
    )
