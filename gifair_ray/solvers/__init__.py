"""Local solvers: what a client does with its gradients."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gifair_ray.parts import Part


class Solver(Part):
    """A local step is y ← y − η (m_k g + μ (y − θ)), from the received model θ."""

    family: ClassVar[str] = "gifair_ray.solvers"
    called: ClassVar[str] = "solver"

    kind: str = Field(description="what a client does with its gradients")
    keep: bool = Field(
        False, description="keep each client's last local model θ_k as its personal model"
    )

    @property
    def pull(self) -> float:
        """μ, the pull back towards the received model; 0 is plain gradient descent."""
        return 0.0

    @property
    def personal_pull(self) -> float | None:
        """λ of a second track of training, on a model that the client keeps; None: there is none.

        That track makes the same steps on the same samples, v ← v − η (g(v) + λ (v − θ)).
        """
        return None

    @property
    def tracks(self) -> int:
        """How many models a client trains in a dispatch."""
        return 1 if self.personal_pull is None else 2
