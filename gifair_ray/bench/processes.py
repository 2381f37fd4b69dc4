"""Rounds of federated averaging on a kernel, in this process or shared out over several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch

from gifair_ray import draws
from gifair_ray.bench.limits import KERNELS
from gifair_ray.scenario import parse


class Rounds(Protocol):
    """One round after another; `moved` counts the bytes that go between processes."""

    moved: int

    def round(self) -> None: ...


class _Averaging:
    """Draws a cohort, has it trained, and takes the mean of the local models."""

    moved = 0

    def __init__(self, theta: torch.Tensor, population: int, cohort: int) -> None:
        self._population, self._cohort = population, cohort
        self._theta = theta
        self._out = torch.empty(cohort, *theta.shape)
        self._draws = draws.generator(0, "bench/cohorts")

    def round(self) -> None:
        chosen = self._draws.permutation(self._population)[: self._cohort].tolist()
        self._train(chosen)
        torch.mean(self._out, dim=0, out=self._theta)

    def _train(self, clients: list[int]) -> None:
        raise NotImplementedError


class _Here(_Averaging):
    def __init__(self, table: dict[str, Any], kernel: str) -> None:
        scenario = parse(table)
        federation = scenario.data.build(scenario.seed)
        self._kernel = KERNELS[kernel](scenario, federation, 0)
        cohort = scenario.sampling.slots(len(federation.population))
        super().__init__(self._kernel.theta, len(federation.population), cohort)

    def _train(self, clients: list[int]) -> None:
        self._kernel.train(self._theta, clients, self._out)


class _Shared(_Averaging):
    """θ and the results lie in memory that all processes see; who trains whom goes by pipe."""

    def __init__(self, table: dict[str, Any], pipes: list[Connection]) -> None:
        scenario = parse(table)
        population = len(scenario.data.build(scenario.seed).population)
        self._pipes = pipes
        starts = [pipe.recv() for pipe in pipes]  # all are ready when each has sent its own
        theta: torch.Tensor = starts[0].clone().share_memory_()
        super().__init__(theta, population, scenario.sampling.slots(population))
        self._out.share_memory_()  # type: ignore[no-untyped-call]
        for pipe in pipes:
            pipe.send((self._theta, self._out))

    def _train(self, clients: list[int]) -> None:
        n, share = len(self._pipes), -(-len(clients) // len(self._pipes))
        for i, pipe in enumerate(self._pipes):
            pipe.send((i * share, clients[i * share : (i + 1) * share]))
        for pipe in self._pipes:
            pipe.recv()
        self.moved += n * self._theta.nbytes + self._out.nbytes


def _worker(table: dict[str, Any], kernel: str, number: int, pipe: Connection) -> None:
    torch.set_num_threads(1)
    scenario = parse(table)
    trainer = KERNELS[kernel](scenario, scenario.data.build(scenario.seed), number)
    pipe.send(trainer.theta)
    theta, out = pipe.recv()
    while (order := pipe.recv()) is not None:
        at, clients = order
        trainer.train(theta, clients, out[at : at + len(clients)])
        pipe.send(None)


@contextlib.contextmanager
def rounds(table: dict[str, Any], kernel: str, processes: int) -> Iterator[Rounds]:
    """A kernel on the clients of a scenario, ready to go."""
    if processes == 1:
        yield _Here(table, kernel)
        return
    context = get_context("spawn")
    pairs = [context.Pipe() for _ in range(processes)]
    workers = [
        context.Process(target=_worker, args=(table, kernel, i, theirs), daemon=True)
        for i, (_, theirs) in enumerate(pairs)
    ]
    for worker in workers:
        worker.start()
    ours: list[Connection] = [mine for mine, _ in pairs]
    yield _Shared(table, ours)
    for pipe, worker in zip(ours, workers, strict=True):
        pipe.send(None)
        worker.join()
