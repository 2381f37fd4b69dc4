"""Small scenarios that a part is tried in, and runs of them under changed circumstances.

What a run must not depend on is changed here, one thing at a time: who else is computed with a
client, in which order and by which learner; which objects hold the rules; whether the state was
stored and read back between two events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gifair_ray import draws
from gifair_ray.backend import LocalBackend, build_learner
from gifair_ray.digest import run_digest
from gifair_ray.engine import Engine
from gifair_ray.errors import BadInput
from gifair_ray.federation import Split
from gifair_ray.learners._common import placed
from gifair_ray.protocol import Learner, TrainJob
from gifair_ray.recorder import Recorder
from gifair_ray.replies import Evaluated, Params, Trained
from gifair_ray.scenario import Scenario, merge, parse
from gifair_ray.tables import DIGESTED
from gifair_ray.world import World

Table = Mapping[str, Any]

QUADRATIC: Table = {
    "data": {
        "source": "quadratic", "problem": "random",
        "clients": 7, "dim": 3, "random_groups": 3, "noise": 0.1,
    },
    "model": {"kind": "quadratic"},
    "work": {"steps": 3, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "uniform", "cohort": 4},
    "devices": {
        "sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 1.0}, "jitter": 0.3,
        "dropout": 0.2,
    },
    "stop": {"rounds": 5},
    "evaluation": {"every": 0, "splits": ["train", "test"]},
    "audit": {"every": 4},
}  # fmt: skip
SAMPLES: Table = {
    **QUADRATIC,
    "data": {
        "source": "synthetic", "clients": 6, "samples": 24, "features": 5, "classes": 3,
        "groups": 2,
    },
    "model": {"kind": "softmax"},
    "work": {"epochs": 1, "batch_size": 7, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "p-replace", "cohort": 4},
}  # fmt: skip
BUFFER: Table = {
    "policy": {"kind": "fedbuff", "concurrency": 5, "buffer": 3},
    "availability": {"kind": "markov", "on_s": 60.0, "off_s": 10.0},
}
TRIALS: Mapping[str, Table] = {
    "rounds": QUADRATIC,
    "buffer": merge(QUADRATIC, BUFFER),
    "samples": SAMPLES,
    "one client": merge(QUADRATIC, {"data": {"clients": 1, "random_groups": 1}}),
    "few answer": merge(QUADRATIC, {"devices": {"dropout": 0.8}, "stop": {"rounds": 3}}),
}


def scenarios(changes: Table) -> tuple[dict[str, Scenario], str]:
    """The trials, with these changes, that accept them; and why the last of the others does not."""
    accepted: dict[str, Scenario] = {}
    refusal = ""
    for name, table in TRIALS.items():
        try:
            scenario = parse(merge(table, changes))
            check_fits(scenario)
        except BadInput as error:
            refusal = str(error)
            continue
        if scenario not in accepted.values():
            accepted[name] = scenario
    return accepted, refusal


def check_fits(scenario: Scenario) -> None:
    """Refuse what only shows when the parts meet the population; nothing is trained.

    What goes wrong otherwise is for the checks to find.
    """
    try:
        fresh = anew(scenario)
        with LocalBackend(fresh) as backend:
            Engine(fresh, backend, Recorder()).begin()
    except BadInput:
        raise
    except Exception:
        return


@dataclass(frozen=True)
class Result:
    """What a run found out."""

    digest: str
    tables: dict[str, pa.Table]
    theta: Params


def play(
    scenario: Scenario,
    backend: type[LocalBackend] = LocalBackend,
    between: Callable[[Engine], None] = lambda engine: None,
) -> Result:
    """Run a scenario to its end; `between` may act after the start and after every event."""
    with backend(scenario) as computing:
        recorder = Recorder()
        engine = Engine(scenario, computing, recorder)
        between(engine)
        engine.begin()
        while not engine.advance(0.0).finished:
            between(engine)
        theta, personal = engine.models()
        tables = recorder.tables()
    return Result(run_digest(tables, theta, personal), tables, theta)


def anew(scenario: Scenario) -> Scenario:
    """The same scenario, of parts that have just been made."""
    return parse(scenario.table())


def rebuild(engine: Engine) -> None:
    """Put newly made parts into the world; the state of the server stays."""
    world = engine.world
    engine.world = World.build(anew(world.scenario), world.population, world.layout)


class Alone(LocalBackend):
    """Computes every job alone, in a shuffled order, with data and a learner built for it."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self._learner = _AloneLearner(scenario, self._learner)


class _AloneLearner:
    def __init__(self, scenario: Scenario, first: Learner) -> None:
        self._scenario, self.layout, self._first = scenario, first.layout, first

    def initial(self) -> Params:
        return self._first.initial()

    def _fresh(self) -> Learner:
        return build_learner(anew(self._scenario))[1]

    def train(self, theta: Params, jobs: Sequence[TrainJob], out: Params | None = None) -> Trained:
        done: dict[int, Trained] = {}
        for i in _shuffled(len(jobs), jobs[0].id):
            done[i] = self._fresh().train(theta.copy(), [jobs[i]])
        rows = [done[i] for i in range(len(jobs))]
        personal = [row.personal for row in rows if row.personal is not None]
        return Trained(
            placed(np.concatenate([row.models for row in rows]), out),
            np.concatenate([row.loss_local for row in rows]),
            np.concatenate([row.loss_received for row in rows]),
            np.concatenate(personal) if personal else None,
        )

    def evaluate(self, models: Params, clients: npt.NDArray[np.int64], split: Split) -> Evaluated:
        loss, correct = np.zeros(len(clients)), np.zeros(len(clients), dtype=np.int64)
        for i in _shuffled(len(clients), 0):
            model = models if models.ndim == 1 else models[i : i + 1]
            one = self._fresh().evaluate(model.copy(), clients[i : i + 1], split)
            loss[i], correct[i] = one.loss[0], one.correct[0]
        return Evaluated(loss, correct)


def _shuffled(n: int, key: int) -> list[int]:
    order: list[int] = draws.permutations(0, "conformance/order", n, key)[0].tolist()
    return order


def first_difference(one: Result, other: Result) -> str:
    """Where two runs first differ; empty if they do not."""
    if one.digest == other.digest:
        return ""
    for name in sorted(DIGESTED, key=lambda name: name != "dispatches"):
        a, b = one.tables[name], other.tables[name]
        for row in range(min(len(a), len(b))):
            for column in a.column_names:
                x, y = a[column][row].as_py(), b[column][row].as_py()
                if x != y and not (x != x and y != y):
                    at = f"row {row} of {name}, column {column}"
                    return f"first difference in {at}: {_short(x)} or {_short(y)}"
        if len(a) != len(b):
            return f"{name} has {len(a)} rows or {len(b)}"
    return "the models differ"


def _short(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)
