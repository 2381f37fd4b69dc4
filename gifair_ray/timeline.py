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
from gifair_ray.tables import OUTCOMES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

COMPLETED, OFFLINE, DROPPED, LATE, SURPLUS, TOO_STALE, UNFINISHED = range(len(OUTCOMES))
"""How work ends, as positions in `tables.OUTCOMES`."""


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
    code: npt.NDArray[np.int8]
    """How it ended: COMPLETED, …"""
    uploaded: Bools
    """Whether the reply was on its way (and its bytes spent) when the client stopped."""
    steps: Ints | None = None
    """Steps that were done, where clients may return part of their work."""

    @property
    def completed(self) -> Bools:
        """Which of them came back in time."""
        return np.asarray(self.code == COMPLETED)

    @property
    def outcome(self) -> npt.NDArray[np.str_]:
        """How it ended, in words."""
        return np.array(OUTCOMES)[self.code]

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
    if fleet.jittery and (sigma := fleet.jitter[clients]).any():
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
    lost = np.full(len(clients), np.inf)
    if purpose == "train" and fleet.mortal:
        lost = _dropped(fleet, seed, clients, ordinals, start, compute)
    over = np.minimum(arrival, lost)
    sent = np.zeros(len(clients)) + send
    offline = calendar.until(clients, sent, np.minimum(over, deadline))
    code = np.zeros(len(clients), dtype=np.int8)  # COMPLETED
    if timeout_s == np.inf and (np.minimum(lost, offline) == np.inf).all():
        return Timeline(start, end, arrival, arrival, code, code == COMPLETED, done)

    code[np.isfinite(lost)] = DROPPED
    gone = offline < over
    lost, code[gone] = np.where(gone, offline, lost), OFFLINE
    late = np.minimum(arrival, lost) > deadline  # told to stop before anything else happened
    code[late] = LATE

    completed = code == COMPLETED
    known = lost + latency if notice == "disconnect" else deadline
    stop = np.minimum(np.minimum(end, lost), deadline)
    return Timeline(
        start=np.minimum(start, stop),
        end=stop,
        arrival=np.where(completed, arrival, np.inf),
        notice=np.where(completed, arrival, np.minimum(known, deadline)),
        code=code,
        uploaded=(end < lost) & (end <= deadline),
        steps=done,
    )


def _dropped(
    fleet: Fleet, seed: int, clients: Ints, ordinals: Ints, start: Floats, compute: Floats
) -> Floats:
    """When each client drops out of its computation; ∞ if it does not."""
    lost = np.full(len(clients), np.inf)
    if (risk := fleet.dropout[clients]).any():
        drops = draws.uniform(seed, "dropout", clients, ordinals) < risk
        when = draws.uniform(seed, "dropout/when", clients, ordinals)
        lost = np.where(drops, start + when * compute, lost)
    if np.isfinite(life := fleet.lifetime_s[clients]).any():
        u = draws.uniform(seed, "lifetime", clients, ordinals)
        survives = life * (-np.log1p(-u)) ** (1.0 / fleet.hazard_growth[clients])
        lost = np.minimum(lost, np.where(survives < compute, start + survives, np.inf))
    return lost


def _steps_in_time(steps: Ints, training: Floats, time_left: Floats) -> Ints:
    """How many steps fit; all of them where not even one does (such a client is late)."""
    per_step = training / steps
    fit = np.floor(np.where(per_step > 0, time_left / np.maximum(per_step, 1e-300), np.inf))
    fits = np.clip(fit, 0, steps).astype(np.int64)
    return np.where(fits > 0, fits, steps)
