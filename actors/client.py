"""The client actor: a process that plays whichever client it is handed."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np

from gifair_ray import draws
from gifair_ray.actors.faults import struck_evaluation, struck_training
from gifair_ray.actors.handshake import Credentials, Hello
from gifair_ray.actors.shipping import Shipment, unpacked
from gifair_ray.backend import Description, build_learner, one_torch_thread
from gifair_ray.data._places import DATA_DIR
from gifair_ray.federation import Federation
from gifair_ray.protocol import Evaluated, EvaluateJob, Learner, Message, Params, Trained, TrainJob
from gifair_ray.scenario import parse


@dataclass(frozen=True)
class RunSpec:
    """What any worker needs to take part in a run; sent with every call."""

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
    device: str = "cpu"
    """Of torch."""

    def packed(self) -> Packed:
        """Its name, and the rest, which is only read by who does not know the run.

        As text: that is quicker to send with every call than a reference.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "files"}
        return self.run, json.dumps(values), self.files


Packed = tuple[str, str, Shipment]


Sent = tuple[bytes, bytes, int, dict[int, Params]]


def pack(jobs: Sequence[TrainJob]) -> Sent:
    """Training jobs of one dispatch, in columns: much quicker to send than a list of them.

    (id, client, ordinal and steps (−1: all) of each; clock and tilt of each; the version that they
    have in common; the clients' own models, by place, of those who have one.)
    """
    rows = [(j.id, j.client, j.ordinal, -1 if j.steps is None else j.steps) for j in jobs]
    own = {i: job.personal for i, job in enumerate(jobs) if job.personal is not None}
    scalars = np.array([(job.message.clock, job.message.tilt) for job in jobs], dtype=np.float64)
    columns = np.array(rows, dtype=np.int64)
    return columns.tobytes(), scalars.tobytes(), jobs[0].message.version, own


def unpack(sent: Sent) -> list[TrainJob]:
    """The jobs again."""
    columns, scalars, version, own = sent
    rows = np.frombuffer(columns, dtype=np.int64).reshape(-1, 4).tolist()
    pairs = np.frombuffer(scalars, dtype=np.float64).reshape(-1, 2).tolist()
    messages = [Message(version, clock, tilt) for clock, tilt in pairs]
    return [
        TrainJob(name, client, ordinal, message, None if steps < 0 else steps, own.get(place))
        for place, ((name, client, ordinal, steps), message) in enumerate(
            zip(rows, messages, strict=True)
        )
    ]


class ClientActor:
    """Pure functions of (run, job), with a cache of what they were built from.

    A call carries all it needs, so an actor that died and was started again simply goes on.
    """

    RUNS = 2  # built runs that are kept: the one going on, and the one that comes next

    def __init__(self) -> None:
        self._runs: dict[str, tuple[RunSpec, Federation, Learner]] = {}
        self._calls = 0

    def ready(self) -> int:
        """The process that this actor is."""
        return os.getpid()

    def _built(self, packed: Packed) -> tuple[RunSpec, Federation, Learner]:
        run, text, files = packed
        if run not in self._runs:
            spec = RunSpec(**json.loads(text), files=files)
            with contextlib.suppress(OSError):  # on another machine there is no such folder
                os.chdir(spec.folder)  # relative paths in the scenario are the driver's
            if spec.data is not None:
                os.environ[DATA_DIR] = spec.data
            if spec.folder not in sys.path:  # and so are the user's own modules
                sys.path.insert(0, spec.folder)
            scenario = parse(unpacked(spec.scenario, spec.files))
            while len(self._runs) >= self.RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[run] = (spec, *build_learner(scenario, spec.device))
            one_torch_thread()
            gc.freeze()  # what is there now stays: looking through it again and again takes long
        return self._runs[run]

    def hello(self, spec: Packed) -> Hello:
        """The population, the model's layout and the initial model; and what this worker is."""
        about, federation, learner = self._built(spec)
        described = Description(federation.population, learner.layout, learner.initial())
        width = int(np.prod(federation.task.input_shape))
        mine = Credentials.mine(federation.population.fingerprint(), about.device)
        return Hello(described, width, mine)

    @np.errstate(over="ignore", invalid="ignore")  # what diverges is named by the learner
    def train(self, packed: Packed, theta: Params, sent: Sent) -> Trained:
        """Local training of some clients from one version of the model."""
        spec, _, learner = self._built(packed)
        self._dawdle(spec)
        jobs = unpack(sent)
        if spec.faults is None:
            return learner.train(theta, jobs)
        trained: Trained = struck_training(spec.faults, jobs, partial(learner.train, theta))
        return trained

    def evaluate(self, packed: Packed, models: Params, job: EvaluateJob) -> Evaluated:
        """One model on some clients, or each client's own."""
        spec, _, learner = self._built(packed)
        self._dawdle(spec)

        def evaluate(job: EvaluateJob) -> Evaluated:
            return learner.evaluate(models, job.clients, job.split)

        if spec.faults is None:
            return evaluate(job)
        evaluated: Evaluated = struck_evaluation(spec.faults, job, evaluate)
        return evaluated

    def _dawdle(self, spec: RunSpec) -> None:
        self._calls += 1
        if spec.delay_s:
            time.sleep(spec.delay_s * draws.uniform(os.getpid(), "delay", self._calls)[0])
