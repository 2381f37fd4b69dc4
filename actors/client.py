"""The client actor: a process that plays whichever client it is handed."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import ray

from gifair_ray import draws
from gifair_ray.actors.faults import struck_evaluation, struck_training
from gifair_ray.actors.handshake import Credentials, Hello
from gifair_ray.actors.line import Listener, Places, listener
from gifair_ray.actors.pad import Rows
from gifair_ray.actors.rest import rest
from gifair_ray.actors.shipping import Shipment, unpacked
from gifair_ray.actors.wire import Losses, Result, Sent, jobs_in, pack_losses, pack_results, unpack
from gifair_ray.backend import build_learner, one_torch_thread
from gifair_ray.data._places import DATA_DIR
from gifair_ray.federation import Federation
from gifair_ray.protocol import CPU, EvaluateJob, Learner, TrainJob
from gifair_ray.replies import Evaluated, Params, Trained
from gifair_ray.scenario import parse

R = TypeVar("R")


@dataclass(frozen=True)
class RunSpec:
    """What any worker needs to take part in a run."""

    run: str
    scenario: dict[str, object]
    folder: str
    """The driver's current folder."""
    data: str | None = None
    """Where data files may be as well."""
    files: Shipment = field(default_factory=dict)
    """Data files, for workers that have no others."""
    delay_s: float = 0.0
    """Longest random delay before a reply: for tests that results do not depend on timing."""
    faults: str | None = None
    """Folder of faults that shall happen: for tests that results do not depend on those."""
    device: str = CPU
    """Of torch."""


class ClientActor:
    """Pure functions of (run, job). A run is told to every actor before anything else of it."""

    RUNS = 2  # built runs that are kept: the one going on, and the one that comes next

    def __init__(self) -> None:
        self._runs: dict[str, tuple[RunSpec, Federation, Learner]] = {}
        self._calls = 0
        self._one_at_a_time = threading.Lock()  # calls come through Ray and over lines
        self._listener: Listener | None = None

    def ready(self) -> int:
        """The process that this actor is."""
        return os.getpid()

    def rest(self, name: str) -> None:
        """Answer calls over lines alone, until that rest ends."""
        rest(name)

    def _build(self, spec: RunSpec) -> None:
        with contextlib.suppress(OSError):  # on another machine there is no such folder
            os.chdir(spec.folder)  # relative paths in the scenario are the driver's
        if spec.data is not None:
            os.environ[DATA_DIR] = spec.data
        if spec.folder not in sys.path:  # and so are the user's own modules
            sys.path.insert(0, spec.folder)
        scenario = parse(unpacked(spec.scenario, spec.files))
        while len(self._runs) >= self.RUNS:
            del self._runs[next(iter(self._runs))]
        self._runs[spec.run] = (spec, *build_learner(scenario, spec.device))
        one_torch_thread()
        gc.freeze()  # what is there now stays: looking through it again and again takes long

    def hello(self, spec: RunSpec) -> Hello:
        """The population and the model's layout; and what this worker is."""
        with self._one_at_a_time:  # work that was given up may still be under way
            if spec.run not in self._runs:
                self._build(spec)
            _, federation, learner = self._runs[spec.run]
        width = int(np.prod(federation.task.input_shape))
        mine = Credentials.mine(federation.population.fingerprint(), spec.device)
        self._listener = self._listener or listener(self._over_a_line)
        line = None if self._listener is None else self._listener.name
        node = ray.get_runtime_context().get_node_id()
        return Hello(federation.population, learner.layout, width, mine, node, line)

    def initial(self, run: str, parts: int) -> Params | list[Params]:
        """The model that a run starts from; if in several parts, then as so many results."""
        with self._one_at_a_time:
            model = self._runs[run][2].initial()
        return model if parts == 1 else np.array_split(model, parts)

    def train(
        self,
        run: str,
        sent: Sent,
        theta: Params | None = None,
        own: dict[int, Params] | None = None,
    ) -> Result:
        """Local training of some clients from one version of the model."""
        return self._train(run, sent, theta, own or {}, None, pack_results)

    @np.errstate(over="ignore", invalid="ignore")  # what diverges is named by the learner
    def _train(
        self,
        run: str,
        sent: Sent,
        theta: Params | None,
        own: dict[int, Params],
        out: Params | None,
        pack: Callable[[Trained, float], R],
    ) -> R:
        began = time.perf_counter()
        spec, _, learner = self._runs[run]
        self._dawdle(spec)
        jobs, small = unpack(sent, own, learner.layout.dtype)
        model = small if theta is None else theta
        assert model is not None

        def train(jobs: Sequence[TrainJob]) -> R:
            there = None if out is None else out[: len(jobs)]
            trained = learner.train(model, jobs, there)
            if there is not None and trained.models is not there:  # a learner of the user's own
                there[:] = trained.models
            return pack(trained, time.perf_counter() - began)

        with self._one_at_a_time:
            if spec.faults is None:
                return train(jobs)
            trained: R = struck_training(spec.faults, jobs, train)
            return trained

    def _over_a_line(self, run: str, sent: Sent, memory: mmap.mmap, places: Places) -> Losses:
        """The same for whoever shares a pad, where the models go."""
        one_torch_thread()  # of every thread that computes
        rows, (start, first) = Rows(memory, self._runs[run][2].layout), places
        theta = rows.at(start, 1)[0]
        theta.setflags(write=False)
        out = rows.at(first, jobs_in(sent))
        return self._train(run, sent, theta, {}, out, pack_losses)

    def evaluate(self, run: str, models: Params, job: EvaluateJob) -> Evaluated:
        """One model on some clients, or each client's own."""
        spec, _, learner = self._runs[run]
        self._dawdle(spec)

        def evaluate(job: EvaluateJob) -> Evaluated:
            return learner.evaluate(models, job.clients, job.split)

        with self._one_at_a_time:
            if spec.faults is None:
                return evaluate(job)
            evaluated: Evaluated = struck_evaluation(spec.faults, job, evaluate)
            return evaluated

    def _dawdle(self, spec: RunSpec) -> None:
        self._calls += 1
        if spec.delay_s:
            time.sleep(spec.delay_s * draws.uniform(os.getpid(), "delay", self._calls)[0])
