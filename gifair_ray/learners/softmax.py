"""Softmax regression in closed form, all clients of a batch at once.

    Z = XW,  P = softmax(Z),  ∇F = Xᵀ(P − Y)/rows

on stacks: one W per client, `bmm` over the clients of a chunk. So that a client's bits do not
depend on who shares its stack, features and classes are padded until every slice starts on a
64-byte boundary, and the number of rows of a slice follows from the client's own data and the
scenario, never from the chunk. Clients of a stack are ordered by their number of steps: those
that are done fall off its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from gifair_ray import draws
from gifair_ray.errors import BadInput
from gifair_ray.federation import Federation, Split
from gifair_ray.learners._common import BoundedCache, check_finite, own_models
from gifair_ray.protocol import Evaluated, Layout, Params, Report, Trained, TrainJob
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

if TYPE_CHECKING:
    from gifair_ray.models.softmax import Softmax

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LANES = 16  # 16 float32 are 64 bytes
STACK_BYTES = 64 << 20  # inputs in one stack of an evaluation


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES


def _bucket(rows: int) -> int:
    """Rows rounded up, by at most a quarter: few distinct shapes, each a function of n_k only."""
    grain = max(8, 1 << max(rows.bit_length() - 3, 0))
    return -(-rows // grain) * grain


class SoftmaxLearner:
    """See `gifair_ray.protocol.Learner`. The flat vector is W (features × classes), then bias."""

    def __init__(
        self,
        model: Softmax,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
    ) -> None:
        task = federation.task
        if task.tokens or task.classes < 2:
            raise BadInput("model.kind = 'softmax' needs real features and at least two classes")
        self._federation, self._work, self._solver = federation, work, solver
        self._seed, self._reports, self._random = seed, reports, model.init == "random"
        self._dtype = np.dtype(model.dtype)
        self._torch_dtype = getattr(torch, model.dtype)
        self._features, self._classes = int(np.prod(task.input_shape)), task.classes
        self._rows_in = _padded(self._features + 1)  # the bias is the weight of a constant input
        self._cols = _padded(task.classes)
        self._mask = torch.zeros(self._cols, dtype=self._torch_dtype)
        self._mask[task.classes :] = -torch.inf  # classes that only pad have probability 0
        self._cache: BoundedCache[tuple[torch.Tensor, torch.Tensor]] = BoundedCache()
        shapes = ((self._features, self._classes), (self._classes,))
        size = (self._features + 1) * self._classes
        self.layout = Layout(("weight", "bias"), shapes, size, model.dtype)

    def initial(self) -> Params:
        theta = np.zeros(self.layout.size, dtype=self._dtype)
        if self._random:
            n = self._features * self._classes
            z = draws.normal(self._seed, "model", np.arange(n))
            theta[:n] = z / np.sqrt(self._features)
        return theta

    def _stack(self, models: Params, clients: int) -> torch.Tensor:
        """Flat models, one shared or one each, as a padded stack (clients, features, classes)."""
        W = torch.zeros(clients, self._rows_in, self._cols, dtype=self._torch_dtype)
        flat = torch.from_numpy(np.array(models, dtype=self._dtype, copy=True))
        W[:, : self._features + 1, : self._classes] = flat.view(
            -1, self._features + 1, self._classes
        )
        return W

    def _flat(self, W: torch.Tensor) -> Params:
        real = W[:, : self._features + 1, : self._classes]
        return real.reshape(len(W), -1).numpy().copy()

    def _samples(self, client: int, split: Split) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (rows, padded features) with the constant input, and labels."""

        def make() -> tuple[tuple[torch.Tensor, torch.Tensor], int]:
            samples = getattr(self._federation.shard(client), split)
            x = torch.zeros(len(samples), self._rows_in, dtype=self._torch_dtype)
            flat = np.asarray(samples.x, dtype=self._dtype).reshape(-1, self._features)
            x[:, : self._features] = torch.from_numpy(np.ascontiguousarray(flat))
            x[:, self._features] = 1.0
            y = torch.from_numpy(np.ascontiguousarray(samples.y, dtype=np.int64))
            return (x, y), x.nbytes + y.nbytes

        return self._cache.get((client, split), make)

    # Training

    def train(self, theta: Params, jobs: Sequence[TrainJob]) -> Trained:
        tilt = np.array([job.message.tilt for job in jobs])
        models, last_rates = self._descend(theta, theta, jobs, tilt, self._solver.pull)
        personal = None
        if (pull := self._solver.personal_pull) is not None:
            v = own_models(jobs, self.initial())
            personal, _ = self._descend(v, theta, jobs, np.zeros(len(jobs)), pull)
        clients = np.array([job.client for job in jobs])
        local = received = np.full(len(jobs), np.nan)
        if "local" in self._reports:
            local = self.evaluate(models, clients, "train").loss
            check_finite(local, jobs, last_rates)
        if "received" in self._reports:
            received = self.evaluate(theta, clients, "train").loss
        return Trained(models, local, received, personal)

    def _descend(
        self, start: Params, theta: Params, jobs: Sequence[TrainJob], tilt: Floats, mu: float
    ) -> tuple[Params, Floats]:
        """Local models from one start, or one for each job; and the last learning rates."""
        sizes = [len(self._samples(job.client, "train")[1]) for job in jobs]
        models = np.empty((len(jobs), self.layout.size), dtype=self._dtype)
        last_rates = np.empty(len(jobs))
        buckets: dict[int, list[int]] = defaultdict(list)
        for i, n in enumerate(sizes):
            buckets[self._work.batch_size or _bucket(n)].append(i)
        for rows, members in buckets.items():
            chosen = [jobs[i] for i in members]
            starts = start if start.ndim == 1 else start[members]
            models[members], last_rates[members] = self._train_stack(
                starts, theta, chosen, tilt[members], mu, rows
            )
        check_finite(models, jobs, last_rates)
        return models, last_rates

    def _train_stack(
        self,
        start: Params,
        theta: Params,
        jobs: Sequence[TrainJob],
        tilt: Floats,
        mu: float,
        rows: int,
    ) -> tuple[Params, Floats]:
        """Train jobs whose gradients all have `rows` rows; (flat models, last learning rates).

        y ← y − η ((1 + tilt) g(y) + μ (y − θ)), from one start or one for each job.
        """
        data = [self._samples(job.client, "train") for job in jobs]
        plans = [
            self._work.plan(
                self._seed, job.client, job.ordinal, job.message.clock, len(y), job.steps
            )
            for job, (_, y) in zip(jobs, data, strict=True)
        ]
        orders = [order for order, _ in plans]
        steps = np.array([len(order) for order in orders])
        by_steps = np.argsort(-steps, kind="stable")
        width = int(steps.max())
        index, weight = self._gather_plan(data, orders, by_steps, rows, width)
        X_all = torch.cat(
            [torch.zeros(1, self._rows_in, dtype=self._torch_dtype)]
            + [data[j][0] for j in by_steps]
        )
        y_all = torch.cat([torch.zeros(1, dtype=torch.int64)] + [data[j][1] for j in by_steps])
        rates = np.zeros((len(jobs), width))
        for at, j in enumerate(by_steps):
            rates[at, : steps[j]] = plans[j][1]
        multiplier = (1.0 + tilt)[by_steps, None]
        scale = torch.from_numpy((rates * multiplier).astype(self._dtype))  # η m_k
        pull = torch.from_numpy((rates * mu).astype(self._dtype))  # η μ
        W = self._stack(start if start.ndim == 1 else start[by_steps], len(jobs))
        anchor = self._stack(theta, 1)
        minus_one = torch.full((len(jobs), rows, 1), -1.0, dtype=self._torch_dtype)
        active = (steps[by_steps][None, :] > np.arange(width)[:, None]).sum(axis=1)
        for i in range(width):
            a = int(active[i])
            rows_i = index[:a, i].reshape(-1)
            X = X_all.index_select(0, rows_i).view(a, rows, self._rows_in)
            y = y_all.index_select(0, rows_i).view(a, rows, 1)
            P = torch.softmax(torch.bmm(X, W[:a]).add_(self._mask), dim=2)
            P.scatter_add_(2, y, minus_one[:a]).mul_(weight[:a, i, :, None])  # (P − Y)/rows
            step = torch.bmm(X.transpose(1, 2), P).mul_(scale[:a, i, None, None])
            if mu:
                step += pull[:a, i, None, None] * (W[:a] - anchor)
            W[:a] -= step
        back = np.empty_like(by_steps)
        back[by_steps] = np.arange(len(jobs))
        return self._flat(W)[back], rates[np.arange(len(jobs)), steps[by_steps] - 1][back]

    def _gather_plan(
        self,
        data: Sequence[tuple[torch.Tensor, torch.Tensor]],
        orders: Sequence[Ints],
        by_steps: Ints,
        rows: int,
        width: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Which row of all data goes where, (jobs, steps, rows), and the weight of each there.

        Row 0 of all data is zero and fills what is missing, with weight 0.
        """
        index = np.zeros((len(data), width, rows), dtype=np.int64)
        weight = np.zeros((len(data), width, rows), dtype=self._dtype)
        start = 1
        for at, j in enumerate(by_steps):
            order = orders[j]
            real = order >= 0
            index[at, : len(order), : order.shape[1]] = np.where(real, order + start, 0)
            weight[at, : len(order), : order.shape[1]] = real / real.sum(axis=1, keepdims=True)
            start += len(data[j][1])
        return torch.from_numpy(index), torch.from_numpy(weight)

    # Evaluation

    def _stacks(self, clients: Ints, split: Split) -> Iterator[tuple[int, list[int]]]:
        """Positions of clients that are evaluated together, by padded rows and within bounds."""
        buckets: dict[int, list[int]] = defaultdict(list)
        for i, client in enumerate(clients.tolist()):
            if n := len(self._samples(client, split)[1]):
                buckets[_bucket(n)].append(i)
        for rows, members in buckets.items():
            most = max(1, STACK_BYTES // (rows * self._rows_in * self._dtype.itemsize))
            for at in range(0, len(members), most):
                yield rows, members[at : at + most]

    def evaluate(self, models: Params, clients: Ints, split: Split) -> Evaluated:
        loss = np.full(len(clients), np.nan)
        correct = np.zeros(len(clients), dtype=np.int64)
        for rows, members in self._stacks(clients, split):
            X = torch.zeros(len(members), rows, self._rows_in, dtype=self._torch_dtype)
            Y = torch.zeros(len(members), rows, dtype=torch.int64)
            real = torch.zeros(len(members), rows, dtype=torch.bool)
            for at, i in enumerate(members):
                x, y = self._samples(int(clients[i]), split)
                X[at, : len(y)], Y[at, : len(y)], real[at, : len(y)] = x, y, True
            W = self._stack(models if models.ndim == 1 else models[members], len(members))
            Z = torch.bmm(X, W).add_(self._mask)
            losses = -torch.log_softmax(Z, dim=2).gather(2, Y[:, :, None])[:, :, 0].double()
            # Summed about the first, so that n equal losses have exactly that mean, whatever n.
            first = losses[:, :1].nan_to_num(nan=0.0, posinf=0.0)
            sums = torch.where(real, losses - first, 0.0).numpy().sum(axis=1)
            loss[members] = first[:, 0].numpy() + sums / real.sum(dim=1).numpy()
            correct[members] = ((Z.argmax(dim=2) == Y) & real).sum(dim=1).numpy()
        return Evaluated(loss, correct)
