"""Arms without Ray: the engine in process, its event loop alone, and the limits.

Run as `python -m gifair_ray.bench.here` by `gifair_ray.bench.run`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gifair_ray.backend import Backend, Description, LocalBackend
from gifair_ray.bench.window import given, measure
from gifair_ray.federation import Population
from gifair_ray.learners import _common
from gifair_ray.protocol import EvaluateJob, Job, Layout
from gifair_ray.replies import Evaluated, Found, Params, Reply, Results
from gifair_ray.scenario import parse
from gifair_ray.session import Session

STEP_S = 0.1


class _Same(Results):
    """Every training job came to the same reply."""

    def __init__(self, found: Found, reply: Reply) -> None:
        super().__init__(found)
        self._reply = reply

    def __getitem__(self, job: int) -> Any:
        return self._found.get(job, self._reply)


class NoOp:
    """A backend whose clients return at once: what is left is the event loop and the record."""

    def __init__(self, clients: int) -> None:
        columns = np.zeros(clients, dtype=np.int64)
        self._population = Population(columns, ("all",), columns + 64, columns, columns)
        self._reply = Reply(np.zeros(4), float("nan"), float("nan"))
        self._sizes: dict[int, int] = {}

    def describe(self) -> Description:
        return Description(self._population, Layout(("theta",), ((4,),), 4, "float64"), np.zeros(4))

    def publish(self, version: int, theta: Params) -> None:
        pass

    def retire(self, version: int) -> None:
        pass

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            if isinstance(job, EvaluateJob):
                self._sizes[job.id] = len(job.clients)

    def collect(self, ids: Sequence[int]) -> Results:
        return _Same({i: self._evaluated(i) for i in ids if i in self._sizes}, self._reply)

    def _evaluated(self, job: int) -> Evaluated:
        n = self._sizes.pop(job)
        return Evaluated(np.zeros(n), np.zeros(n, dtype=np.int64))

    def close(self) -> None:
        pass


def _engine(arm: dict[str, Any], backend: Backend) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(parse(arm["scenario"]), backend, Path(folder))
        measure(arm, lambda: session.advance(STEP_S if arm["turns"] else 0.0).rounds)
        session.abort()


def main() -> None:
    """Be the arm that is described on the standard input."""
    arm = given()
    if arm["kind"] == "no-op":
        _engine(arm, NoOp(arm["scenario"]["data"]["clients"]))
    elif arm["kind"] in ("engine", "uncached"):
        if arm["kind"] == "uncached":  # every client's data are derived anew
            _common.CACHE_BYTES = 0
        with LocalBackend(parse(arm["scenario"])) as backend:
            _engine(arm, backend)
    else:
        _limit(arm)


def _limit(arm: dict[str, Any]) -> None:
    from gifair_ray.bench.processes import rounds

    done = 0
    with rounds(arm["scenario"], arm["kind"], arm["workers"]) as limit:

        def one() -> int:
            nonlocal done
            limit.round()
            done += 1
            return done

        measure(arm, one, lambda: limit.moved)


if __name__ == "__main__":
    main()
