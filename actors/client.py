"""The client actor: a process that plays whichever client it is handed."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from gifair_ray import draws
from gifair_ray.backend import Description, build_learner
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
    delay_s: float = 0.0
    """Longest random delay before a reply: for tests that results do not depend on timing."""

    def packed(self) -> Packed:
        """As two texts, of which the second is only read by who does not know the run."""
        return self.run, json.dumps(asdict(self))


Packed = tuple[str, str]


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
        import torch

        torch.set_num_threads(1)
        self._runs: dict[str, tuple[RunSpec, Federation, Learner]] = {}
        self._calls = 0

    def ready(self) -> int:
        """The process that this actor is."""
        return os.getpid()

    def _built(self, packed: Packed) -> tuple[RunSpec, Federation, Learner]:
        run, text = packed
        if run not in self._runs:
            spec = RunSpec(**json.loads(text))
            os.chdir(spec.folder)  # relative paths in the scenario are the driver's
            if spec.data is not None:
                os.environ[DATA_DIR] = spec.data
            if spec.folder not in sys.path:  # and so are the user's own modules
                sys.path.insert(0, spec.folder)
            while len(self._runs) >= self.RUNS:
                del self._runs[next(iter(self._runs))]
            self._runs[run] = (spec, *build_learner(parse(spec.scenario)))
            gc.freeze()  # what is there now stays: looking through it again and again takes long
        return self._runs[run]

    def describe(self, spec: Packed) -> Description:
        """The population, the model's layout and the initial model."""
        _, federation, learner = self._built(spec)
        return Description(federation.population, learner.layout, learner.initial())

    @np.errstate(over="ignore", invalid="ignore")  # what diverges is named by the learner
    def train(self, packed: Packed, theta: Params, sent: Sent) -> Trained:
        """Local training of some clients from one version of the model."""
        spec, _, learner = self._built(packed)
        self._dawdle(spec)
        return learner.train(theta, unpack(sent))

    def evaluate(self, packed: Packed, models: Params, job: EvaluateJob) -> Evaluated:
        """One model on some clients, or each client's own."""
        spec, _, learner = self._built(packed)
        self._dawdle(spec)
        return learner.evaluate(models, job.clients, job.split)

    def _dawdle(self, spec: RunSpec) -> None:
        self._calls += 1
        if spec.delay_s:
            time.sleep(spec.delay_s * draws.uniform(os.getpid(), "delay", self._calls)[0])
