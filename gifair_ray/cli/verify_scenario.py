"""`gifair verify SCENARIO`: whether your own scenario has one answer, however it is computed.

The run is made in process, on one and on two Ray workers, with interruptions after which it is
resumed, and with client actors that die in the middle. Each must have the same digest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gifair_ray.errors import RunFailed

if TYPE_CHECKING:
    from gifair_ray.runner import Watch
    from gifair_ray.scenario import Scenario

Check = tuple[str, Callable[[], str]]


def verify_scenario(source: str, sets: Sequence[str] = (), seed: int | None = None) -> None:
    """Print the digests of every way to run a scenario, side by side; an error if two differ.

    Of a study, its first run is taken.
    """
    from gifair_ray.scenarios.load import load

    label, scenario = load(source, sets, seed).runs[0]
    print(f"{label}, seed {scenario.seed}")
    digests: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gifair-verify-") as folder:
        for name, compute in _ways(scenario, Path(folder)):
            digests.append(compute())
            mark = "✓" if digests[-1] == digests[0] else "✗"
            print(f"{mark} {name:<42} {digests[-1]}", flush=True)
    if len(set(digests)) > 1:
        raise RunFailed(
            f"{len(set(digests))} different digests: a part of this scenario does not follow from "
            "its seed alone, or depends on who else is computed with it"
        )


def _ways(scenario: Scenario, folder: Path) -> Iterator[Check]:
    from gifair_ray import api

    table = scenario.table()
    yield "in process", lambda: api.run(table, backend="local").digest
    yield "in process, interrupted and resumed", lambda: _resumed(scenario, folder / "resumed")
    for workers in (1, 2):
        yield f"Ray, {_workers(workers)}", partial(_on_ray, scenario, workers)
    yield "Ray, 2 workers that are killed", lambda: _with_a_death(scenario, folder / "plan")


def _on_ray(scenario: Scenario, workers: int) -> str:
    from gifair_ray import api

    return api.run(scenario.table(), workers=workers).digest


def _workers(n: int) -> str:
    return f"{n} worker" + "s" * (n > 1)


class _Stop(KeyboardInterrupt):
    """The interruption that was asked for."""


def _resumed(scenario: Scenario, folder: Path) -> str:
    """Stopped after its first event, and again half-way if there is time to."""
    from gifair_ray import api
    from gifair_ray.engine import Progress

    def stop_at(fraction: float) -> Watch:
        def watch(label: str, scenario: Scenario, progress: Progress) -> None:
            if progress.fraction >= fraction and not progress.finished:
                raise _Stop

        return watch

    try:
        watch = stop_at(0.0)
        return api.run(scenario.table(), out=folder, backend="local", watch=watch).digest
    except _Stop:
        pass
    try:
        return api.resume(folder, backend="local", watch=stop_at(0.5)).digest
    except _Stop:
        return api.resume(folder, backend="local").digest


def _with_a_death(scenario: Scenario, folder: Path) -> str:
    """Whoever is the first to train dies while it does, and another while it sends a result."""
    from gifair_ray.actors import faults
    from gifair_ray.actors.cluster import cluster

    plan = faults.plan(folder, [faults.anybody("train", m) for m in ("within", "sending")])
    with cluster(workers=2) as actors:
        session = actors.start(scenario, None, faults=plan)
        while not session.advance(0.25).finished:
            pass
        return session.finish().digest
