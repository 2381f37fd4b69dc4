"""What the server knows of the clients' losses, and how old that knowledge is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from gifair_ray import objective

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Basis = Literal["local", "received", "global"]
"""At which model a loss was taken. One table holds one basis: they must not be compared."""


@dataclass
class LossTable:
    """The last known loss of every client (NaN: never seen) and the version it belongs to."""

    groups: Ints
    d: int
    loss: Floats
    version: Ints

    @staticmethod
    def empty(groups: Ints, d: int) -> LossTable:
        """Nothing is known yet."""
        K = len(groups)
        return LossTable(groups, d, np.full(K, np.nan), np.full(K, -1, dtype=np.int64))

    def learn(self, clients: Ints, losses: Floats, versions: Ints) -> None:
        """These clients had these losses, each at a version of the model."""
        self.loss[clients] = losses
        self.version[clients] = versions

    def ages(self, version: int) -> Floats:
        """Versions since each entry; NaN where nothing is known."""
        return np.where(np.isnan(self.loss), np.nan, version - self.version)

    def group_losses(self) -> Floats:
        """L_i over the known members; NaN for a group of which nothing is known."""
        return objective.group_losses(self.loss, self.groups, self.d)

    def ranks(self) -> Ints:
        """r_i of every group, from what is known."""
        return objective.group_ranks(self.group_losses())
