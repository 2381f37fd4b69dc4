"""Softmax regression and multi-layer perceptrons in closed form, many clients at once.

    H₀ = X,  H_l = max(0, H_{l−1}A_l),  P = softmax(H_{L−1}A_L)
    G_L = (P − Y)/rows,  ∇A_l = H_{l−1}ᵀG_l,  G_{l−1} = G_l A_lᵀ where H_{l−1} > 0

on stacks: one A_l per client, `bmm` over the clients of a stack; a bias is the weight of a
constant input. So that a client's bits do not depend on who shares its stack, widths are padded
until every slice starts on a 64-byte boundary, and the number of rows of a slice follows from the
client's own data and the scenario, never from the stack. Clients of a stack are ordered by their
number of steps: those that are done fall off its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gifair_ray.federation import Federation, Split
from gifair_ray.learners._common import check_finite, own_models
from gifair_ray.learners._plan import Columns, Plan, bucket, plans
from gifair_ray.learners._rows import Rows
from gifair_ray.protocol import Evaluated, Layout, Params, Report, Trained, TrainJob
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LANES = 16  # 16 float32 are 64 bytes
STACK_BYTES = 64 << 20  # inputs in one stack of an evaluation
MODEL_BYTES = 1 << 20  # models in one stack of training: they stay in the processor's cache


def _padded(n: int) -> int:
    return -(-n // LANES) * LANES


class DenseLearner:
    """See `gifair_ray.protocol.Learner`. Dense layers of these widths, rectifiers between them.

    In the flat vector a layer's weight comes before its bias. With `transposed` a weight is
    (outputs, inputs), as torch's own layers have it; else (inputs, outputs).
    """

    def __init__(
        self,
        widths: Sequence[int],
        names: tuple[str, ...],
        initial: Params,
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        reports: frozenset[Report],
        *,
        transposed: bool,
    ) -> None:
        self._work, self._solver, self._seed, self._reports = work, solver, seed, reports
        self._initial, self._transposed = initial, transposed
        self._dtype = initial.dtype
        self._torch_dtype = getattr(torch, self._dtype.name)
        self._sizes = list(pairwise(widths))
        self._widths = list(widths[1:-1])
        classes = widths[-1]
        # A hidden layer has a constant output beside its own, for the next layer's bias.
        padded = [_padded(n + 1) for n in widths[:-1]] + [_padded(classes)]
        self._shapes = list(pairwise(padded))
        self._mask = torch.zeros(padded[-1], dtype=self._torch_dtype)
        self._mask[classes:] = -torch.inf  # classes that only pad have probability 0
        self.rows = Rows(federation, self._dtype, widths[0], padded[0])
        shapes: list[tuple[int, ...]] = []
        for n, m in self._sizes:
            shapes += [(m, n) if transposed else (n, m), (m,)]
        self.layout = Layout(names, tuple(shapes), len(initial), self._dtype.name)
        model_bytes = sum(n * m for n, m in self._shapes) * self._dtype.itemsize
        self._most = max(1, MODEL_BYTES // model_bytes)
        self._scratch: list[Tensor] = []

    def initial(self) -> Params:
        return self._initial.copy()

    # Between flat vectors and stacks

    def _pieces(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Views of each layer's weight, (models, inputs, outputs), and bias."""
        at = 0
        for n, m in self._sizes:
            weight, bias = flat[:, at : at + n * m], flat[:, at + n * m : at + n * m + m]
            at += n * m + m
            if self._transposed:
                yield weight.view(-1, m, n).transpose(1, 2), bias
            else:
                yield weight.view(-1, n, m), bias

    def _stack(self, models: Params) -> list[Tensor]:
        """A padded stack for each layer, of one flat model or of many."""
        flat = torch.from_numpy(np.array(np.atleast_2d(models), dtype=self._dtype))
        out = []
        for shape, (n, m), (weight, bias) in zip(
            self._shapes, self._sizes, self._pieces(flat), strict=True
        ):
            A = torch.zeros(len(flat), *shape, dtype=self._torch_dtype)
            A[:, :n, :m], A[:, n, :m] = weight, bias
            out.append(A)
        return out

    def _copies(self, start: Sequence[Tensor], clients: int) -> list[Tensor]:
        """A stack of so many clients, in memory that is used again for the next one."""
        if len(self._scratch) == 0 or len(self._scratch[0]) < clients:
            self._scratch = [
                torch.empty(clients, *shape, dtype=self._torch_dtype) for shape in self._shapes
            ]
        stack = [A[:clients] for A in self._scratch]
        for A, start_l in zip(stack, start, strict=True):
            A.copy_(start_l.expand_as(A))
        return stack

    def _flat(self, stack: Sequence[Tensor]) -> Params:
        flat = torch.empty(len(stack[0]), self.layout.size, dtype=self._torch_dtype)
        for A, (n, m), (weight, bias) in zip(stack, self._sizes, self._pieces(flat), strict=True):
            weight.copy_(A[:, :n, :m])
            bias.copy_(A[:, n, :m])
        return flat.numpy()

    # Training

    def train(self, theta: Params, jobs: Sequence[TrainJob]) -> Trained:
        columns = Columns.of(jobs)
        sizes = self.rows.sizes(columns.clients, "train")
        starts = self.rows.starts(columns.clients, "train")
        models = np.empty((len(jobs), self.layout.size), dtype=self._dtype)
        pull = self._solver.personal_pull
        personal = None if pull is None else own_models(jobs, self._initial)
        last_rates = np.empty(len(jobs))
        for plan in plans(self._work, self._seed, columns, sizes, starts, self._most):
            who = plan.members
            last_rates[who] = plan.last_rates
            tilts = columns.tilts[who]
            models[who] = self._descend(theta, theta, plan, tilts, self._solver.pull)
            if personal is not None and pull is not None:
                personal[who] = self._descend(personal[who], theta, plan, 0.0 * tilts, pull)
        for results in (models,) if personal is None else (models, personal):
            check_finite(results, jobs, last_rates)
        local = received = np.full(len(jobs), np.nan)
        if "local" in self._reports:
            local = self.evaluate(models, columns.clients, "train").loss
            check_finite(local, jobs, last_rates)
        if "received" in self._reports:
            received = self.evaluate(theta, columns.clients, "train").loss
            check_finite(received, jobs, last_rates)
        return Trained(models, local, received, personal)

    def _descend(
        self, start: Params, theta: Params, plan: Plan, tilts: Floats, mu: float
    ) -> Params:
        """y ← y − η ((1 + tilt) g(y) + μ (y − θ)), from one start or one for each client."""
        width, clients = plan.rates.shape
        rows = plan.index.shape[2]
        stack = self._copies(self._stack(start), clients)
        anchor = self._stack(theta) if mu else []
        index = torch.from_numpy(plan.index)
        scale = plan.weight * (plan.rates * (1.0 + tilts))[:, :, None]  # η m_k/rows
        scales = torch.from_numpy(scale.astype(self._dtype))[:, :, :, None]
        pulls = torch.from_numpy((plan.rates * mu).astype(self._dtype))[:, :, None, None]  # η μ
        minus_one = torch.full((clients, rows, 1), -1.0, dtype=self._torch_dtype)
        active = np.count_nonzero(plan.steps > np.arange(width)[:, None], axis=1).tolist()
        X = y = torch.empty(0)
        for i, a in enumerate(active):
            if i < len(index):  # else the same rows as before
                chosen = index[i, :a].reshape(-1)
                X = torch.index_select(self.rows.x, 0, chosen).view(a, rows, -1)
                y = torch.index_select(self.rows.y, 0, chosen).view(a, rows, 1)
            stack_i, X_i, y_i = stack, X, y
            if a < clients:
                stack_i, X_i, y_i = [A[:a] for A in stack], X[:a], y[:a]
            H, Z = self._forward(X_i, stack_i)
            G = torch.softmax(Z[-1], dim=2)
            G.scatter_add_(2, y_i, minus_one[:a]).mul_(scales[i, :a])
            self._step(stack_i, H, Z, G, [(theta_l, pulls[i, :a]) for theta_l in anchor])
        return self._flat(stack)

    def _forward(self, X: Tensor, stack: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Each layer's inputs, and its outputs before the rectifier; scores come last."""
        H, Z = [X], []
        for A, width in zip(stack, self._widths, strict=False):
            Z.append(torch.bmm(H[-1], A))
            H.append(torch.relu(Z[-1]))
            H[-1][:, :, width] = 1.0
        Z.append(torch.bmm(H[-1], stack[-1]).add_(self._mask))
        return H, Z

    @staticmethod
    def _step(
        stack: Sequence[Tensor],
        H: Sequence[Tensor],
        Z: Sequence[Tensor],
        G: Tensor,
        pulls: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        """Backward from G, the scaled gradient of the scores, with every layer's step on the way.

        The constant output of a hidden layer is 0 before it is set, so no gradient passes it.
        """
        for layer in reversed(range(len(stack))):
            A, below = stack[layer], G
            if layer:
                below = torch.bmm(G, A.transpose(1, 2))
                below = torch.ops.aten.threshold_backward(below, Z[layer - 1], 0.0)
            if pulls:
                theta, strength = pulls[layer]
                A.lerp_(theta.expand_as(A), strength)
            A.baddbmm_(H[layer].transpose(1, 2), G, alpha=-1.0)
            G = below

    # Evaluation

    def _stacks(self, clients: Ints, sizes: Ints) -> Iterator[tuple[int, Ints]]:
        """Positions of clients that are evaluated together, by padded rows and within bounds."""
        rows = np.where(sizes > 0, bucket(sizes), 0)
        for n in np.unique(rows[rows > 0]).tolist():
            members = np.flatnonzero(rows == n)
            most = max(1, STACK_BYTES // (n * self._shapes[0][0] * self._dtype.itemsize))
            for at in range(0, len(members), most):
                yield n, members[at : at + most]

    def evaluate(self, models: Params, clients: Ints, split: Split) -> Evaluated:
        loss = np.full(len(clients), np.nan)
        correct = np.zeros(len(clients), dtype=np.int64)
        sizes = self.rows.sizes(clients, split)
        shared = [A.squeeze(0) for A in self._stack(models)] if models.ndim == 1 else None
        for rows, members in self._stacks(clients, sizes):
            column, n = np.arange(rows), sizes[members, None]
            starts = self.rows.starts(clients[members], split)[:, None]
            index = torch.from_numpy(np.where(column < n, starts + column, 0)).view(-1)
            real = torch.from_numpy(column < n)
            X = self.rows.x.index_select(0, index).view(len(members), rows, -1)
            Y = self.rows.y.index_select(0, index).view(len(members), rows)
            if shared is None:
                stack = self._stack(models[members])
            else:
                stack = [A.expand(len(members), -1, -1) for A in shared]
            Z = self._forward(X, stack)[1][-1]
            losses = -torch.log_softmax(Z, dim=2).gather(2, Y[:, :, None])[:, :, 0].double()
            # Summed about the first, so that n equal losses have exactly that mean, whatever n.
            first = losses[:, :1].nan_to_num(nan=0.0, posinf=0.0)
            sums = torch.where(real, losses - first, 0.0).numpy().sum(axis=1)
            loss[members] = first[:, 0].numpy() + sums / n[:, 0]
            correct[members] = ((Z.argmax(dim=2) == Y) & real).sum(dim=1).numpy()
        return Evaluated(loss, correct)
