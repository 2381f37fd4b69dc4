"""What passes between server and clients.

The *message* is what the simulated protocol sends a client: it is charged in bytes and time, and
tells a client no more than the paper allows (its own scalar λ r_k/(p_k |A|), never the factors).
The *job* is what a worker needs to play that client; it costs nothing in the simulated world.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from gifair_ray.federation import Split

Params = npt.NDArray[np.floating]
Floats = npt.NDArray[np.float64]
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

    @property
    def starts_from(self) -> int:
        """The version of the model that it needs."""
        return self.message.version


@dataclass(frozen=True, slots=True)
class EvaluateJob:
    """Evaluate on one split of some clients: a version of the model, or `models`, one for each."""

    id: int
    clients: npt.NDArray[np.int64]
    split: Split
    version: int
    models: Params | None = None

    @property
    def starts_from(self) -> int:
        """The version of the model that it needs."""
        return self.version


Job = TrainJob | EvaluateJob


@dataclass(frozen=True, slots=True)
class Trained:
    """A stack of replies, a row per job. Losses that were not asked for are NaN."""

    models: Params
    loss_local: Floats
    loss_received: Floats
    personal: Params | None = None
    """The clients' own models, where the solver trains those too."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One client's result: its local model, and the losses it was told to report (else NaN).

    `personal` is what the client keeps for itself, if it trains that apart from the local model.
    """

    model: Params
    loss_local: float
    loss_received: float
    personal: Params | None = None

    @property
    def kept(self) -> Params:
        """The client's personal model: its own track's, or else its last local model."""
        return self.model if self.personal is None else self.personal


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A column per measure, a row per client; `correct` is −1 where there are no classes."""

    loss: Floats
    correct: npt.NDArray[np.int64]


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

    def train(self, theta: Params, jobs: Sequence[TrainJob]) -> Trained:
        """Local training of each job's client from θ."""
        ...

    def evaluate(self, models: Params, clients: npt.NDArray[np.int64], split: Split) -> Evaluated:
        """One shared flat model, or a stack with a row per client."""
        ...


@runtime_checkable
class Movable(Protocol):
    """A learner that can compute elsewhere than on the CPU."""

    def move(self, device: str) -> None:
        """Compute on this torch device from now on; refuses one that is not there."""
        ...
