"""FedBuff (Nguyen et al. 2022): updates go into a buffer; when it is full, the model changes.

    θ ← θ + (η_g/M) Σ_i (p_k/ρ_k) s(lag_i) Δ_i

over the M arrivals in the buffer, with s(lag) = 1/√(1 + lag).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gifair_ray.policies import Floats, Ints
from gifair_ray.policies._together import Together
from gifair_ray.weighing import Asynchronous, weights
from gifair_ray.world import State, World


class Fedbuff(Asynchronous, Together):
    """A buffer of M arrivals makes a server update."""

    kind: Literal["fedbuff"] = "fedbuff"
    buffer: int = Field(10, ge=1, description="M, arrivals in a full buffer")
    server_lr: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="η_g, a factor on the server's step"
    )

    def size(self) -> int:
        return self.buffer

    def weigh(self, world: World, state: State, rows: Ints, asked: int) -> Floats:
        return self.server_lr * weights(world, state, rows, asked)
