"""Learning rates η over a run.

`c` is the schedule's clock: client updates committed so far, divided by the size of a cohort
(so that ".99 per round" means the same whatever the participation policy). `t = cE + i` is the
index of local step i of E, as the paper counts steps.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.config import Frozen


class Schedule(Frozen):
    """How the learning rate falls."""

    kind: Literal["constant", "geometric", "inverse", "inverse-sqrt"] = Field(
        "constant",
        description="constant: η0; geometric: η0·decay^c; inverse: β/(t+γ); "
        "inverse-sqrt: η0/√(t+1)",
    )
    lr: float = Field(0.1, gt=0, description="η0 (constant, geometric, inverse-sqrt)")
    decay: float = Field(0.99, gt=0, le=1, description="factor per unit of the clock (geometric)")
    beta: float = Field(2.0, gt=0, description="β (inverse)")
    gamma: float = Field(16.0, gt=0, description="γ (inverse)")
    clock: Literal["updates", "rounds"] = Field(
        "updates",
        description="what c counts: client updates / cohort size, or server updates",
    )

    def decay_by(self, c: float, steps: int) -> float:
        """η of a dispatch made at clock c, as a fraction of η at the start."""
        if self.kind == "constant":
            return 1.0
        if self.kind == "geometric":
            return float(self.decay**c)
        return float(self.rates(c, steps)[0] / self.rates(0.0, steps)[0])

    def rates(self, c: float, steps: int) -> npt.NDArray[np.float64]:
        """η of each of the `steps` local steps of a dispatch made at clock c."""
        t = c * steps + np.arange(steps, dtype=np.float64)
        if self.kind == "inverse":
            return self.beta / (t + self.gamma)
        if self.kind == "inverse-sqrt":
            return np.asarray(self.lr / np.sqrt(t + 1.0))
        if self.kind == "geometric":
            return np.full(steps, self.lr * self.decay**c)
        return np.full(steps, self.lr)
