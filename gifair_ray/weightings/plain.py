"""FedAvg (McMahan et al. 2017): clients weigh p_k, and nothing else."""

from __future__ import annotations

from typing import Literal

from gifair_ray.weightings import Weighting


class Plain(Weighting):
    """Every multiplier is 1."""

    kind: Literal["plain"] = "plain"
