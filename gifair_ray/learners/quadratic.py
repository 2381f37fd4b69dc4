"""Gradient descent on quadratic clients, all clients of a batch at once.

Everything is elementwise over clients, with explicit loops over the few coordinates, so that a
client's bits do not depend on who shares its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gifair_ray import draws
from gifair_ray.data.quadratic import QuadraticFederation
from gifair_ray.errors import BadInput
from gifair_ray.federation import Split
from gifair_ray.learners._common import check_finite, own_models, placed
from gifair_ray.protocol import Layout, Report, TrainJob, TrainJobs
from gifair_ray.replies import Evaluated, Params, Trained
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

if TYPE_CHECKING:
    from gifair_ray.models.quadratic import Quadratic

Floats = npt.NDArray[np.floating]


class QuadraticLearner:
    """See `gifair_ray.protocol.Learner`. Every step uses the whole gradient A(y − b) + noise."""

    def __init__(
        self,
        model: Quadratic,
        federation: QuadraticFederation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> None:
        self._reports = reports
        self._dtype = np.dtype(model.dtype)
        self._A = federation.A.astype(self._dtype)
        self._b = federation.b.astype(self._dtype)
        self._noise, self._work, self._solver, self._seed = federation.noise, work, solver, seed
        if work.batch_size is not None:
            raise BadInput("quadratic clients have no batches: leave work.batch_size out")
        start = np.atleast_1d(np.asarray(model.init, dtype=self._dtype))
        dim = self._b.shape[1]
        if len(start) not in (1, dim):
            raise BadInput(f"model.init has {len(start)} entries, θ has {dim}")
        self._initial = np.broadcast_to(start, dim).copy()
        self.layout = Layout(("theta",), ((dim,),), dim, model.dtype)

    def initial(self) -> Params:
        return self._initial.copy()

    def _gradient(self, y: Floats, clients: npt.NDArray[np.int64]) -> Floats:
        A, away = self._A[clients], y - self._b[clients]
        g = A[:, :, 0] * away[:, 0:1]
        for j in range(1, away.shape[1]):
            g += A[:, :, j] * away[:, j : j + 1]
        return g

    def _losses(self, y: Floats, clients: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        g, away = self._gradient(y, clients), y - self._b[clients]
        total = g[:, 0] * away[:, 0]
        for j in range(1, away.shape[1]):
            total += g[:, j] * away[:, j]
        return np.asarray(0.5 * total, dtype=np.float64)

    def train(self, theta: Params, jobs: Sequence[TrainJob], out: Params | None = None) -> Trained:
        jobs = TrainJobs.of(jobs)
        clients = jobs.clients
        everywhere = np.tile(theta, (len(jobs), 1))
        y, last_rates = self._descend(everywhere, theta, jobs, jobs.tilts, self._solver.pull)
        personal = None
        if (pull := self._solver.personal_pull) is not None:
            v = own_models(jobs, self._initial)
            personal, _ = self._descend(v, theta, jobs, np.zeros(len(jobs)), pull)
        local = received = np.full(len(jobs), np.nan)
        if "local" in self._reports:
            local = self._losses(y, clients)
            check_finite(local, jobs, last_rates.__getitem__)
        if "received" in self._reports:
            received = self._losses(everywhere, clients)
            check_finite(received, jobs, last_rates.__getitem__)
        return Trained(placed(y, out), local, received, personal)

    def _descend(
        self, start: Params, theta: Params, jobs: TrainJobs, tilt: Floats, mu: float
    ) -> tuple[Params, npt.NDArray[np.float64]]:
        """y ← y − η ((1 + tilt) g(y) + μ (y − θ)) from a start for each job; and the last η."""
        clients, ordinals = jobs.clients, jobs.ordinals
        steps = int(self._work.step_counts(np.ones(1, dtype=np.int64))[0])
        clocks, which = np.unique(jobs.clocks, return_inverse=True)
        rates = np.array([self._work.schedule.rates(c, steps) for c in clocks.tolist()])[which]
        rates[np.arange(steps) >= jobs.limits[:, None]] = 0.0
        scale = (rates * (1.0 + tilt)[:, None]).astype(self._dtype)[:, :, None]  # η m_k
        pull = (rates * mu).astype(self._dtype)[:, :, None]  # η μ
        y = start.copy()
        coordinates = np.arange(y.shape[1])
        for i in range(steps):
            g = self._gradient(y, clients)
            if self._noise:
                z = draws.normal(
                    self._seed, "gradient", clients[:, None], ordinals[:, None], i, coordinates
                )
                g += (self._noise * z).astype(self._dtype)
            step = scale[:, i] * g
            if mu:
                step += pull[:, i] * (y - theta)
            y -= step
        check_finite(y, jobs, rates[:, -1].__getitem__)
        return y, rates[:, -1]

    def evaluate(self, models: Params, clients: npt.NDArray[np.int64], split: Split) -> Evaluated:
        y = np.broadcast_to(models, (len(clients), self._b.shape[1]))
        return Evaluated(self._losses(y, clients), np.full(len(clients), -1, dtype=np.int64))
