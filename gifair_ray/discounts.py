"""Staleness discounts s(lag): how much less an update counts the older its starting point.

constant      1
polynomial    (1 + lag)^−a         FedAsync; a = ½ is FedBuff's 1/√(1 + lag)
hinge         1 if lag ≤ b, else 1/(a(lag − b) + 1)
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.config import Frozen


class Discount(Frozen):
    """s(lag); the lag is counted in versions of the model."""

    kind: Literal["constant", "polynomial", "hinge"] = Field(
        "polynomial", description="constant: 1; polynomial: (1+lag)^-a; hinge: see a and b"
    )
    a: float = Field(0.5, ge=0, allow_inf_nan=False, description="polynomial: power; hinge: slope")
    b: int = Field(4, ge=0, description="hinge: lags up to b are not discounted")

    def s(self, lag: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """The discount of each lag, in (0, 1]."""
        x = lag.astype(np.float64)
        if self.kind == "polynomial":
            return np.asarray((1.0 + x) ** -self.a)
        if self.kind == "hinge":
            return np.where(x <= self.b, 1.0, 1.0 / (self.a * np.maximum(x - self.b, 0.0) + 1.0))
        return np.ones(len(x))
