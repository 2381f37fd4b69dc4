"""Softmax regression and multi-layer perceptrons in closed form, many clients at once.

    H₀ = X,  H_l = max(0, H_{l−1}A_l),  P = softmax(H_{L−1}A_L)
    G_L = (P − Y)/rows,  ∇A_l = H_{l−1}ᵀG_l,  G_{l−1} = G_l A_lᵀ where H_{l−1} > 0

on stacks: one A_l per client, `bmm` over the clients of a stack; a bias is the weight of a
constant input. So that a client's bits do not depend on who shares its stack, widths are padded
until every slice starts on a 64-byte boundary, and the number of rows of a slice follows from the
client's own data and the scenario, never from the stack: a batch that is short of rows is filled
up, unless all clients of the population have it equally short. Clients of a stack are ordered by
their number of steps: those that are done fall off its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, repeat

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gifair_ray.federation import Federation, Split
from gifair_ray.learners._common import check_finite, own_models, placed
from gifair_ray.learners._plan import Plan, evaluations, heights, in_places, last_rate, plans
from gifair_ray.learners._rows import Rows
from gifair_ray.protocol import Layout, Report, TrainJob, TrainJobs
from gifair_ray.replies import Evaluated, Params, Trained
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
LANES = 16  # 16 float32 are 64 bytes
STACK_BYTES = 64 << 20  # inputs in one stack of an evaluation
INPUT_BYTES = 4 << 20  # inputs of some steps of training, gathered at once
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
        # Classes that only pad have a bias that gives them probability 0, and no gradient.
        self._never = -float(np.finfo(self._dtype).max) / 4
        self.rows = Rows(federation, self._dtype, widths[0], padded[0])
        shapes: list[tuple[int, ...]] = []
        for n, m in self._sizes:
            shapes += [(m, n) if transposed else (n, m), (m,)]
        self.layout = Layout(names, tuple(shapes), len(initial), self._dtype.name)
        model_bytes = sum(n * m for n, m in self._shapes) * self._dtype.itemsize
        self._most = max(1, MODEL_BYTES // model_bytes)
        self._heights = heights(work, federation.population.train)
        self._scratch: list[Tensor] = []
        self._inputs = torch.empty(0)
        self._minus_one = torch.empty(0, 0, 1)

    def initial(self) -> Params:
        return self._initial.copy()

    # Between flat vectors and stacks

    def _pieces(self, flat: Params) -> Iterator[tuple[int, slice, Params]]:
        """Views (models, inputs, outputs) of layers, or parts of them, and of which inputs."""
        at = 0
        for layer, (n, m) in enumerate(self._sizes):
            weight, bias = slice(at, at + n * m), slice(at + n * m, at + n * m + m)
            at = bias.stop
            if self._transposed:
                yield layer, slice(n), flat[:, weight].reshape(-1, m, n).transpose(0, 2, 1)
                yield layer, slice(n, n + 1), flat[:, None, bias]
            else:  # a bias is the weight of one more input
                yield layer, slice(n + 1), flat[:, weight.start : at].reshape(-1, n + 1, m)

    def _stack(self, models: Params) -> list[Tensor]:
        """A padded stack for each layer, of one flat model or of many."""
        flat = models if models.ndim == 2 else models[None]
        out = [torch.zeros(len(flat), *shape, dtype=self._torch_dtype) for shape in self._shapes]
        for layer, inputs, piece in self._pieces(flat):
            out[layer].numpy()[:, inputs, : piece.shape[2]] = piece
        n, m = self._sizes[-1]
        out[-1].numpy()[:, n, m:] = self._never
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

    def _gathered(self, rows: Ints) -> Tensor:
        """Inputs, in memory that is used again."""
        if len(self._inputs) < len(rows):
            self._inputs = torch.empty(len(rows), self._shapes[0][0], dtype=self._torch_dtype)
        X = self._inputs[: len(rows)]
        np.take(self.rows.x.numpy(), rows, axis=0, out=X.numpy(), mode="clip")  # torch is slower
        return X

    def _flatten(self, stack: Sequence[Tensor], out: Params) -> None:
        for layer, inputs, piece in self._pieces(out):
            torch.from_numpy(piece).copy_(stack[layer][:, inputs, : piece.shape[2]])

    # Training

    @torch.inference_mode()  # a few microseconds less for every call of torch
    def train(self, theta: Params, jobs: Sequence[TrainJob], out: Params | None = None) -> Trained:
        jobs = TrainJobs.of(jobs)
        sizes = self.rows.sizes(jobs.clients, "train")
        starts = self.rows.starts(jobs.clients, "train")
        models = np.empty((len(jobs), self.layout.size), dtype=self._dtype)
        pull = self._solver.personal_pull
        own = None if pull is None else own_models(jobs, self._initial)
        personal = None if own is None else np.empty_like(models)
        made = []
        at = 0
        for plan in plans(self._work, self._seed, jobs, sizes, starts, self._most, self._heights):
            who = plan.members
            here = slice(at, at + len(who))
            made.append(plan.outline)
            at = here.stop
            tilts = jobs.tilts[who]
            self._descend(theta, theta, plan, tilts, self._solver.pull, models[here])
            if personal is not None and own is not None and pull is not None:
                self._descend(own[who], theta, plan, 0.0 * tilts, pull, personal[here])
        order, eta = [members for members, _, _ in made], partial(last_rate, made)
        models = in_places(models, order)
        personal = None if personal is None else in_places(personal, order)
        for results in (models,) if personal is None else (models, personal):
            check_finite(results, jobs, eta)
        local = received = np.full(len(jobs), np.nan)
        if "local" in self._reports:
            local = self.evaluate(models, jobs.clients, "train").loss
            check_finite(local, jobs, eta)
        if "received" in self._reports:
            received = self.evaluate(theta, jobs.clients, "train").loss
            check_finite(received, jobs, eta)
        return Trained(placed(models, out), local, received, personal)

    def _descend(
        self, start: Params, theta: Params, plan: Plan, tilts: Floats, mu: float, out: Params
    ) -> None:
        """y ← y − η ((1 + tilt) g(y) + μ (y − θ)), from one start or one for each client."""
        clients, width = len(plan.members), plan.rates.shape[1]
        whole = stack = self._copies(self._stack(start), clients)
        alphas, factors = plan.strengths(tilts)
        scales: Sequence[Tensor] | None = None
        if factors is not None:
            factors = factors.astype(self._dtype)
            if self._widths and plan.absent is not None:
                factors = factors * ~plan.absent  # an absent row is 0, but not a hidden layer's
            scales = torch.from_numpy(factors)[:, :, :, None].expand(-1, width, -1, -1).unbind(1)
        rows = max(plan.heights)
        if self._minus_one.shape[0] < clients or self._minus_one.shape[1] < rows:
            self._minus_one = torch.full((clients, rows, 1), -1.0, dtype=self._torch_dtype)
        active = [clients] * width  # how many do a step
        if plan.steps[-1] < width:
            active = np.searchsorted(-plan.steps, -np.arange(width)).tolist()
        anchor = self._stack(theta) if mu else []
        pulls = None
        if mu:
            pulls = torch.from_numpy((plan.rates * mu).astype(self._dtype))  # η μ
            pulls = pulls[:, :, None, None].expand(clients, width, 1, 1)
        for i, a, alpha, (X, y) in zip(
            range(width), active, alphas, self._batches(plan, active), strict=True
        ):
            if a < clients:  # some are done
                clients, stack = a, [A[:a] for A in stack]
            if a < len(plan.steps):
                X, y = X[:a], y[:a]
            H, Z = self._forward(X, stack) if self._widths else ([X], [torch.bmm(X, stack[0])])
            G = torch.softmax(Z[-1], 2).scatter_add_(2, y, self._minus_one)
            if scales is not None:
                G.mul_(scales[i][:a])
            if pulls is None and not self._widths:  # softmax regression: no layer to go back to
                stack[0].baddbmm_(X.transpose(1, 2), G, alpha=alpha)
                continue
            pull = [] if pulls is None else [(theta_l, pulls[:a, i]) for theta_l in anchor]
            self._step(stack, H, Z, G, alpha, pull)
        self._flatten(whole, out)

    def _batches(self, plan: Plan, active: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of every step, of at least those clients that do it."""
        heights, wide = plan.heights, self._shapes[0][0]
        one = len(plan.index) * max(heights) * wide * self._dtype.itemsize
        together = max(1, INPUT_BYTES // one)
        index, labels, row = self.rows.rows(plan.index), self.rows.y.numpy(), 0
        for at in range(0, len(heights), together):  # client by client: theirs lie together
            a, some = active[at], heights[at : at + together]
            chosen = index[:a, row : row + sum(some)].reshape(-1)
            row += sum(some)
            X = self._gathered(chosen).view(a, -1, wide).split_with_sizes(some, 1)
            y = torch.from_numpy(labels[chosen]).view(a, -1, 1).split_with_sizes(some, 1)
            yield from (
                zip(X, y, strict=True) if len(heights) > 1 else repeat((X[0], y[0]), len(active))
            )

    def _forward(self, X: Tensor, stack: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Each layer's inputs, and its outputs before the rectifier; scores come last."""
        H, Z = [X], []
        for A, width in zip(stack, self._widths, strict=False):
            Z.append(torch.bmm(H[-1], A))
            H.append(torch.relu(Z[-1]))
            H[-1][:, :, width] = 1.0
        Z.append(torch.bmm(H[-1], stack[-1]))
        return H, Z

    @staticmethod
    def _step(
        stack: Sequence[Tensor],
        H: Sequence[Tensor],
        Z: Sequence[Tensor],
        G: Tensor,
        alpha: float,
        pulls: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        """Backward from G, the gradient of the scores, with every layer's step by α on the way.

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
            A.baddbmm_(H[layer].transpose(1, 2), G, alpha=alpha)
            G = below

    # Evaluation

    def evaluate(self, models: Params, clients: Ints, split: Split) -> Evaluated:
        loss = np.full(len(clients), np.nan)
        correct = np.zeros(len(clients), dtype=np.int64)
        sizes = self.rows.sizes(clients, split)
        shared = [A.squeeze(0) for A in self._stack(models)] if models.ndim == 1 else None
        row_bytes = self._shapes[0][0] * self._dtype.itemsize
        for rows, members in evaluations(sizes, STACK_BYTES // row_bytes):
            column, n = np.arange(rows), sizes[members, None]
            starts = self.rows.starts(clients[members], split)[:, None]
            samples = np.where(column < n, starts + column, 0)
            index = torch.from_numpy(self.rows.rows(samples)).view(-1)
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
