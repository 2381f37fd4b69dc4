"""Gradient descent on any torch module, one client after another.

The module is built once, with its tensors laid out as `gifair_ray.learners._flat` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gifair_ray.errors import BadInput
from gifair_ray.federation import SPLITS, Federation, Samples, Split
from gifair_ray.learners._common import CACHE_BYTES, BoundedCache, check_finite
from gifair_ray.learners._device import CPU, found, own_generators, seed_generators
from gifair_ray.learners._flat import Flat
from gifair_ray.protocol import Report, TrainJob
from gifair_ray.replies import Evaluated, Params, Trained
from gifair_ray.solvers import Solver
from gifair_ray.work import Work

EVALUATION_ROWS = 256
"""Rows of a batch in an evaluation. Bits depend on it, so it is not an option."""

Shard = dict[Split, tuple[Tensor, Tensor]]


def initial_tensors(factory: Callable[[], nn.Module], seed: int, dtype: str) -> dict[str, Params]:
    """The parameters that a fresh module starts with, by name."""
    with own_generators(CPU):
        seed_generators(CPU, seed, "model")
        module = factory().to("cpu", getattr(torch, dtype))
    return {name: p.detach().numpy().copy() for name, p in module.named_parameters()}


class ModuleLearner:
    """See `gifair_ray.protocol.Learner`. Cross-entropy, mean over the rows of a batch.

    `factory` makes a module from an input of the federation's task (int64 numbers of tokens, or
    reals of `dtype`) to a score per class; it draws its initial parameters from torch's generator,
    seeded by name. If it makes a `fresh` one every time the initial model is made anew when it is
    asked for, and not kept. Dropout draws from (seed, client, ordinal) alone, and the caller's
    generator is left as it was. Training is in train mode, every loss in eval mode. `reports`
    says which losses on the training split are worth their time; the others are NaN. `called`
    names the model in messages. The number of torch's threads is the caller's choice; bits may
    depend on it. Not to be shared between threads.
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        federation: Federation,
        work: Work,
        solver: Solver,
        seed: int,
        dtype: str,
        reports: frozenset[Report],
        *,
        called: str = "the model",
        fresh: bool = False,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._factory, self._dtype = factory, dtype
        self._federation, self._work, self._seed = federation, work, seed
        self._solver, self._reports, self._called = solver, reports, called
        self._device = CPU
        with own_generators(CPU):
            seed_generators(CPU, seed, "model")
            self._module = factory()
            self._flat = Flat(self._module, dtype, called)
            self._input_dtype = torch.int64 if federation.task.tokens else self._flat.y.dtype
            if not np.isfinite(self._flat.y.numpy()).all():
                raise BadInput(
                    f"{called} starts with values that are not finite; register constant buffers, "
                    "such as a mask, with persistent=False"
                )
            self._kept = None if fresh else self._flat.y.numpy().copy()
            self._try_out()
        self._shards: BoundedCache[Shard] = BoundedCache(cache_bytes)
        self.layout = self._flat.layout

    def move(self, device: str) -> None:
        """Compute on this torch device from now on; to be called before anything is computed."""
        self._device = found(device)
        self._flat.move(self._device)
        with own_generators(self._device):
            self._try_out()

    def _try_out(self) -> None:
        # One forward pass, in train mode and with the shortest batch that any client will have,
        # so that a model that cannot be trained is refused before a run starts.
        task, work, n = self._federation.task, self._work, self._federation.population.train
        called = self._called
        full = n if work.batch_size is None else np.minimum(n, work.batch_size)
        last = n - full * (work.batches(n) - 1)
        shortest = np.where(work.step_counts(n) >= work.batches(n), last, full).min()
        rows = min(int(shortest), 2)
        shape = (rows, *task.input_shape)
        inputs = torch.zeros(shape, dtype=self._input_dtype, device=self._device)
        try:
            scores = self._module.train()(inputs)
        except Exception as error:
            raise BadInput(
                f"{called} failed on a batch of {rows} inputs of shape {task.input_shape} "
                f"({type(error).__name__}: {error})"
            ) from error
        if not isinstance(scores, Tensor) or scores.shape != (rows, task.classes):
            given = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise BadInput(
                f"{called} turns {rows} inputs into {given}; "
                f"the data's {task.classes} classes need {(rows, task.classes)}"
            )
        if not scores.requires_grad:
            raise BadInput(f"{called} gives scores that do not depend on its trained parameters")

    def initial(self) -> Params:
        if self._kept is not None:
            return self._kept.copy()
        with own_generators(CPU):
            seed_generators(CPU, self._seed, "model")
            found: Params = Flat(self._factory(), self._dtype, self._called).y.numpy()
        return found

    @cached_property
    def _initial(self) -> Params:
        """For solvers whose clients start from it; kept once, if at all."""
        return self.initial() if self._kept is None else self._kept

    def train(self, theta: Params, jobs: Sequence[TrainJob], out: Params | None = None) -> Trained:
        models = out
        if models is None:
            models = np.empty((len(jobs), self.layout.size), dtype=self.layout.dtype)
        pull = self._solver.personal_pull
        personal = None if pull is None else np.empty_like(models)
        local, received = np.full(len(jobs), math.nan), np.full(len(jobs), math.nan)
        with own_generators(self._device):
            for i, job in enumerate(jobs):
                reported = []
                if "received" in self._reports:
                    received[i], _ = self._measure(theta, job.client, "train")
                    reported.append(received[i])
                m = 1.0 + job.message.tilt
                models[i], last_rate = self._descend(theta, theta, job, m, self._solver.pull)
                if personal is not None and pull is not None:
                    v = self._initial if job.personal is None else job.personal
                    personal[i], _ = self._descend(v, theta, job, 1.0, pull)
                    check_finite(personal[i], [job], [last_rate].__getitem__)
                if "local" in self._reports:
                    local[i], _ = self._measure(models[i], job.client, "train")
                    reported.append(local[i])
                for values in (models[i], np.array(reported)):
                    check_finite(values, [job], [last_rate].__getitem__)
        return Trained(models, local, received, personal)

    def evaluate(self, models: Params, clients: npt.NDArray[np.int64], split: Split) -> Evaluated:
        loss = np.empty(len(clients), dtype=np.float64)
        correct = np.empty(len(clients), dtype=np.int64)
        rows = np.broadcast_to(models, (len(clients), self.layout.size))
        with own_generators(self._device):
            for i, client in enumerate(clients.tolist()):
                loss[i], correct[i] = self._measure(rows[i], client, split)
        return Evaluated(loss, correct)

    def _samples(self, client: int, split: Split) -> tuple[Tensor, Tensor]:
        """Inputs and labels."""
        return self._shards.get(client, lambda: self._shard(client))[split]

    def _shard(self, client: int) -> tuple[Shard, int]:
        raw, shard = self._federation.shard(client), Shard()
        for split in SPLITS:
            samples: Samples = getattr(raw, split)
            # torch.tensor copies into memory aligned by torch: bits may depend on the alignment.
            x = torch.tensor(samples.x, dtype=self._input_dtype, device=self._device)
            shard[split] = x, torch.tensor(samples.y, dtype=torch.int64, device=self._device)
        return shard, sum(t.nbytes for pair in shard.values() for t in pair)

    def _descend(
        self, start: Params, theta: Params, job: TrainJob, m: float, mu: float
    ) -> tuple[Params, float]:
        """y ← y − η (m g + μ (y − θ)) from the start for all steps; also η of the last step."""
        x, labels = self._samples(job.client, "train")
        order, all_rates = self._work.plan(
            self._seed, job.client, job.ordinal, job.message.clock, len(labels), job.steps
        )
        rates = all_rates.tolist()
        module, flat = self._module.train(), self._flat
        flat.load(start)
        y = flat.y[: self.layout.trainable]
        anchor = torch.tensor(theta[: len(y)], device=self._device) if mu else y
        away = torch.empty_like(y) if mu else y
        seed_generators(self._device, self._seed, "torch", job.client, job.ordinal)
        steps = torch.from_numpy(order).to(self._device)
        heights = np.count_nonzero(order >= 0, axis=1).tolist()  # what is missing comes last
        for step, n, eta in zip(steps, heights, rates, strict=True):
            rows = step[:n]
            scores = module(x.index_select(0, rows))
            loss = cross_entropy(scores, labels.index_select(0, rows))
            # Gradients as autograd made them: adding them up in a vector first would take a
            # twentieth of a CNN's step.
            found = torch.autograd.grad(loss, flat.trained, allow_unused=True)
            views = flat.views
            if any(g is None for g in found):  # of parameters that this pass did not use
                used = [(view, g) for view, g in zip(views, found, strict=True) if g is not None]
                views, found = zip(*used, strict=True)
            if mu:
                torch.sub(y, anchor, out=away)
                y.add_(away, alpha=-eta * mu)
            torch._foreach_add_(views, found, alpha=-eta * m)
        return flat.collect(), rates[-1]

    def _measure(self, model: Params, client: int, split: Split) -> tuple[float, int]:
        """Mean loss and number of right answers; NaN and 0 where there are no samples."""
        x, labels = self._samples(client, split)
        if len(labels) == 0:
            return math.nan, 0
        module, first, total, correct = self._module.eval(), 0.0, 0.0, 0
        self._flat.load(model)
        seed_generators(self._device, self._seed, "torch/evaluation", client)
        with torch.inference_mode():
            for at in range(0, len(labels), EVALUATION_ROWS):
                scores = module(x[at : at + EVALUATION_ROWS])
                answers = labels[at : at + EVALUATION_ROWS]
                losses = cross_entropy(scores, answers, reduction="none").double()
                if at == 0 and math.isfinite(losses[0]):
                    first = float(losses[0])
                # About the first, so that n equal losses have exactly that mean, whatever n.
                total += float((losses - first).sum())
                correct += int((scores.argmax(dim=1) == answers).sum())
        return first + total / len(labels), correct
