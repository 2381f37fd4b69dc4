"""What there is to reach: the same training written by hand, with no engine around it.

`Loop` trains one client after the other, in as little Python as torch allows; `Batched` trains a
cohort of softmax regressions at once, in closed form. Both shuffle every epoch, and neither writes
a record, keeps a clock or cares whether its bits can be had again. What helps the engine's own
training, such as `keep_freed`, helps these too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gifair_ray import draws
from gifair_ray.federation import Federation
from gifair_ray.memory import keep_freed
from gifair_ray.scenario import Scenario


def _model(scenario: Scenario, federation: Federation) -> torch.nn.Module:
    if scenario.model.kind == "softmax":
        return torch.nn.Linear(federation.task.input_shape[0], federation.task.classes)
    module: torch.nn.Module = scenario.model.module(federation.task)  # type: ignore[attr-defined]
    return module


def _clients(federation: Federation) -> list[tuple[Tensor, Tensor]]:
    """All training data as tensors: built once, before anything is timed."""
    real = torch.int64 if federation.task.tokens else torch.float32
    shards = (federation.shard(k).train for k in range(len(federation.population)))
    return [(torch.tensor(s.x, dtype=real), torch.tensor(s.y)) for s in shards]


class Loop:
    """SGD, a client at a time, on parameters that are views into one vector."""

    def __init__(self, scenario: Scenario, federation: Federation, seed: int) -> None:
        torch.set_num_threads(1)
        keep_freed()
        self._data = _clients(federation)
        self._module = _model(scenario, federation).train()
        self._parameters = list(self._module.parameters())
        self.theta = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self._views, at = [], 0
        self._y = self.theta.clone()
        for p in self._parameters:
            p.data = self._y[at : at + p.numel()].view(p.shape)
            self._views.append(p.data)
            at += p.numel()
        self._rate = float(scenario.work.schedule.rates(0.0, 1)[0])
        self._epochs, self._batch = scenario.work.epochs or 1, scenario.work.batch_size or 1
        self._draws = draws.generator(seed, "bench/shuffle")

    def train(self, theta: Tensor, clients: list[int], out: Tensor) -> None:
        """Each client's local model from θ, into a row of `out`."""
        for client, row in zip(clients, out, strict=True):
            self._y.copy_(theta)
            x, labels = self._data[client]
            for _ in range(self._epochs):
                order = torch.from_numpy(self._draws.permutation(len(labels)))
                for rows in torch.split(order, self._batch):
                    scores = self._module(x.index_select(0, rows))
                    loss = cross_entropy(scores, labels.index_select(0, rows))
                    steps = torch.autograd.grad(loss, self._parameters)
                    torch._foreach_add_(self._views, steps, alpha=-self._rate)
            row.copy_(self._y)


class Batched:
    """Softmax regression: a cohort as one stack, padded so that every slice is aligned.

    A hand that does not know the trick leaves the padding out; `lanes` = 1 is that.
    """

    def __init__(
        self, scenario: Scenario, federation: Federation, seed: int, lanes: int = 16
    ) -> None:
        torch.set_num_threads(1)
        keep_freed()
        data = _clients(federation)
        features, self._classes = data[0][0].shape[1], federation.task.classes
        self._samples, self._in = len(data[0][1]), -(-(features + 1) // lanes) * lanes
        out = -(-self._classes // lanes) * lanes
        self._x = torch.zeros(len(data), self._samples, self._in)
        self._x[:, :, :features] = torch.stack([x for x, _ in data])
        self._x[:, :, features] = 1.0
        self._labels = torch.stack([y for _, y in data]).view(-1)
        self._mask = torch.zeros(out)
        self._mask[self._classes :] = -torch.inf
        self.theta = torch.zeros(self._in, out)
        self._rate = float(scenario.work.schedule.rates(0.0, 1)[0])
        self._epochs, self._batch = scenario.work.epochs or 1, scenario.work.batch_size or 1
        self._draws = draws.generator(seed, "bench/shuffle")

    def train(self, theta: Tensor, clients: list[int], out: Tensor) -> None:
        """Each client's local model from θ, into a row of `out`."""
        W = out.copy_(theta)
        m, n, batch = len(clients), self._samples, self._batch
        minus_one = torch.full((m, batch, 1), -1.0)
        for _ in range(self._epochs):
            shuffled = self._draws.random((m, n), dtype=np.float32).argsort(axis=1)
            rows = torch.from_numpy(np.array(clients)[:, None] * n + shuffled).view(-1)
            x_all = self._x.view(-1, self._in).index_select(0, rows).view(m, n, self._in)
            y_all = self._labels.index_select(0, rows).view(m, n, 1)
            for at in range(0, n, batch):
                x, y = x_all[:, at : at + batch], y_all[:, at : at + batch]
                P = torch.softmax(torch.bmm(x, W).add_(self._mask), dim=2)
                P.scatter_add_(2, y, minus_one[:, : y.shape[1]])
                W.baddbmm_(x.transpose(1, 2), P, alpha=-self._rate / y.shape[1])


Kernel = Loop | Batched
KERNELS: dict[str, Callable[[Scenario, Federation, int], Kernel]] = {
    "loop": Loop,
    "batched": Batched,
    "unaligned": partial(Batched, lanes=1),
}
