"""What weightings share that change the weights in the server's sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gifair_ray.losses import Basis
from gifair_ray.protocol import Report
from gifair_ray.weightings import Weighting

if TYPE_CHECKING:
    from gifair_ray.scenario import Scenario


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

    def check(self, scenario: Scenario) -> None:
        if scenario.aggregator.kind == "mixing":
            raise ValueError(
                f"weighting.kind = {self.kind!r} weighs replies against each other; "
                "aggregator.kind = 'mixing' takes one at a time (try algorithm = 'fedbuff')"
            )
        if scenario.aggregator.kind == "paper-literal":
            raise ValueError(
                f"aggregator.kind = 'paper-literal' sums models; with weighting.kind = "
                f"{self.kind!r} that would rescale the model: use 'mean'"
            )
