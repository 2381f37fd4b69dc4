"""Arms of `gifair bench` on Ray: the engine on its actors, and a bare pool to set beside them.

Run as `python -m gifair_ray.actors.bench` by `gifair_ray.bench.run`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray

from gifair_ray.actors.calls import wait
from gifair_ray.actors.cluster import cluster
from gifair_ray.bench.window import given, measure, say
from gifair_ray.scenario import parse

STEP_S = 0.25


class _Idle:
    """An actor with torch and nothing else."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._sum = torch.ones(64, 64) @ torch.ones(64, 64)

    def ready(self) -> float:
        return float(self._sum[0, 0])


def _engine(arm: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder, cluster(workers=arm["workers"]) as actors:
        session = actors.start(parse(arm["scenario"]), Path(folder))
        step = STEP_S if arm["turns"] else 0.0
        measure(arm, lambda: session.advance(step).rounds, session.bytes_moved)
        session.abort()


def _pool(arm: dict[str, Any]) -> None:
    # As Ray itself starts, with nothing of ours.
    ray.init(
        address="local", num_cpus=arm["workers"], log_to_driver=False, logging_level=logging.ERROR
    )
    idle: Any = ray.remote(_Idle)
    actors = [idle.options(num_cpus=1).remote() for _ in range(arm["workers"])]
    wait([actor.ready.remote() for actor in actors])
    say(ready=time.monotonic())
    sys.stdin.readline()
    ray.shutdown()


if __name__ == "__main__":
    described = given()
    (_pool if described["kind"] == "pool" else _engine)(described)
