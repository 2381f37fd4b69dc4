"""What the server asks of clients.

The *message* is what the simulated protocol sends a client: it is charged in bytes and time, and
tells a client no more than the paper allows (its own scalar λ r_k/(p_k |A|), never the factors).
The *job* is what a worker needs to play that client; it costs nothing in the simulated world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gifair_ray.federation import Split
from gifair_ray.replies import Evaluated, Floats, Ints, Params, Trained

CPU = "cpu"
"""The torch device of every learner, unless it is asked for another."""
Report = Literal["local", "received"]
"""A loss that a client sends back with its update: at its local model, or at the received one."""


@dataclass(frozen=True, slots=True)
class Message:
    """To one client: train from this version of the model.

    `clock` is the schedule's clock (the same for everybody). `tilt` is λ r_k/(p_k |A_{s_k}|):
    the client multiplies its gradients by m_k = 1 + tilt.
    """

    version: int
    clock: float
    tilt: float

    SCALARS = 1
    """Scalars that travel beside the model: the tilt."""


@dataclass(frozen=True, slots=True)
class TrainJob:
    """Play one client for one dispatch. `ordinal` numbers the client's own dispatches.

    `steps`, if given, is how many of its local steps the client gets done before it must return.
    `personal` is the client's own model v_k, for solvers that train one beside the global model;
    None: it still has the initial one.
    """

    id: int
    client: int
    ordinal: int
    message: Message
    steps: int | None = None
    personal: Params | None = None


ALL_STEPS = 1 << 62
"""In place of a number of steps: all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainJobs(Sequence[TrainJob]):
    """Jobs that start from one version of the model: in columns, and one by one where asked for.

    `limits` is `TrainJob.steps` of each, or ALL_STEPS; `own` has the clients' own models, by place.
    """

    version: int
    ids: Ints
    clients: Ints
    ordinals: Ints
    clocks: Floats
    tilts: Floats
    limits: Ints
    own: Mapping[int, Params]

    COLUMNS = ("ids", "clients", "ordinals", "clocks", "tilts", "limits")

    @staticmethod
    def of(jobs: Sequence[TrainJob]) -> TrainJobs:
        """Jobs in columns."""
        if isinstance(jobs, TrainJobs):
            return jobs
        limits = [ALL_STEPS if job.steps is None else job.steps for job in jobs]
        return TrainJobs(
            jobs[0].message.version,
            np.array([job.id for job in jobs]),
            np.array([job.client for job in jobs]),
            np.array([job.ordinal for job in jobs]),
            np.array([job.message.clock for job in jobs]),
            np.array([job.message.tilt for job in jobs]),
            np.array(limits),
            {i: job.personal for i, job in enumerate(jobs) if job.personal is not None},
        )

    @staticmethod
    def joined(parts: Sequence[TrainJobs]) -> TrainJobs:
        """Jobs of one version, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = {n: np.concatenate([getattr(p, n) for p in parts]) for n in TrainJobs.COLUMNS}
        starts = np.cumsum([0, *map(len, parts)]).tolist()
        own = {at + i: v for at, p in zip(starts, parts, strict=False) for i, v in p.own.items()}
        return TrainJobs(parts[0].version, **columns, own=own)

    def take(self, places: npt.NDArray[np.integer]) -> TrainJobs:
        """Those in some places."""
        columns = {name: getattr(self, name)[places] for name in self.COLUMNS}
        own = self.own
        if own:
            own = {i: own[place] for i, place in enumerate(places.tolist()) if place in own}
        return TrainJobs(self.version, **columns, own=own)

    def job(self, number: int) -> TrainJob:
        """The one with this number. Numbers ascend."""
        found: TrainJob = self[int(np.searchsorted(self.ids, number))]
        return found

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        limit = int(self.limits[place])
        message = Message(self.version, float(self.clocks[place]), float(self.tilts[place]))
        return TrainJob(
            int(self.ids[place]),
            int(self.clients[place]),
            int(self.ordinals[place]),
            message,
            None if limit == ALL_STEPS else limit,
            self.own.get(int(place) % len(self)),
        )


@dataclass(frozen=True, slots=True)
class EvaluateJob:
    """Evaluate on one split of some clients: a version of the model, or `models`, one for each."""

    id: int
    clients: Ints
    split: Split
    version: int
    models: Params | None = None


Job = TrainJobs | EvaluateJob


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each named tensor lies in the flat vector: trained parameters first, then buffers."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    trainable: int
    dtype: str

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    @property
    def nbytes(self) -> int:
        """Bytes of the flat vector."""
        return self.size * np.dtype(self.dtype).itemsize

    def tensors(self, flat: Params) -> dict[str, Params]:
        """The named tensors of a flat vector (or of a stack of them), as views."""
        stack, out, at = flat.shape[:-1], {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            n = math.prod(shape)
            out[name] = flat[..., at : at + n].reshape((*stack, *shape))
            at += n
        return out


class Learner(Protocol):
    """Trains and evaluates one kind of model on the clients of a federation.

    Every result is, bit for bit, a function of the client's data and its job alone: whoever
    else is in the batch, in whichever process. Models are flat vectors.
    """

    @property
    def layout(self) -> Layout: ...

    def initial(self) -> Params:
        """θ at version 0, from the scenario's seed."""
        ...

    def train(self, theta: Params, jobs: Sequence[TrainJob], out: Params | None = None) -> Trained:
        """Local training of each job's client from θ; into the rows of `out`, if given."""
        ...

    def evaluate(self, models: Params, clients: Ints, split: Split) -> Evaluated:
        """One shared flat model, or a stack with a row per client."""
        ...


@runtime_checkable
class Movable(Protocol):
    """A learner that can compute elsewhere than on the CPU."""

    def move(self, device: str) -> None:
        """Compute on this torch device from now on; refuses one that is not there."""
        ...
