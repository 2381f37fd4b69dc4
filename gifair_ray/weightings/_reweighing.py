"""What weightings share that change the weights in the server's sum."""

from __future__ import annotations

from gifair_ray.losses import Basis
from gifair_ray.protocol import Report
from gifair_ray.weightings import Weighting


class Reweighing(Weighting):
    """Base of weightings by the loss at the received model, which comes with every reply."""

    @property
    def reports(self) -> frozenset[Report]:
        return frozenset({"received"})

    @property
    def basis(self) -> Basis:
        return "received"

    @property
    def reweighs(self) -> bool:
        return True
