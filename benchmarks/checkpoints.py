"""What saving a run costs, on the CNN of workload W2 and with a personal model of every client.

    python benchmarks/checkpoints.py [PERSONAL]

runs W2 in process for twelve rounds, saved after every one, and times each checkpoint: the event
loop's part, and that of the thread that writes. Then the same with PERSONAL clients (500) who come
back ten at a time; in the second half of that run all of them have models of their own. Their
training is cut short, because only its results matter. A run is saved once a minute unless told
otherwise, so the cost of a checkpoint over 60 s is the share of a run that saving takes. Times are
of the CPU, so that others on the machine matter little.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gifair_ray
from gifair_ray.bench.workloads import arms
from gifair_ray.checkpoint import Checkpoints
from gifair_ray.session import Saving

EVERY_S = Saving().seconds


@dataclass
class Cost:
    """Of one checkpoint: CPU seconds in the event loop and in the writing thread, and bytes."""

    loop: float
    thread: float = 0.0
    written: int = 0


def timed_run(scenario: dict[str, Any]) -> tuple[list[Cost], float]:
    """The checkpoints of a run that is saved after every round, and the CPU seconds of it all."""
    costs: list[Cost] = []
    take, write = Checkpoints.take, Checkpoints.write

    def timed_take(self: Checkpoints, state: Any) -> Any:
        begun = time.thread_time()
        snapshot = take(self, state)
        costs.append(Cost(time.thread_time() - begun))
        return snapshot

    def timed_write(self: Checkpoints, snapshot: Any, written: Any) -> None:
        begun = time.thread_time()
        write(self, snapshot, written)
        number = snapshot.pack.number
        costs[number].thread = time.thread_time() - begun
        costs[number].written = sum(memoryview(part).nbytes for part in snapshot.pack.parts)

    Checkpoints.take, Checkpoints.write = timed_take, timed_write  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            begun = time.process_time()
            out = Path(folder) / "run"
            gifair_ray.run(scenario, out=out, backend="local", checkpoint_rounds=1)
            return costs, time.process_time() - begun
    finally:
        Checkpoints.take, Checkpoints.write = take, write  # type: ignore[method-assign]


def tell(name: str, cost: Cost) -> None:
    share = (cost.loop + cost.thread) / EVERY_S
    print(
        f"{name:<44} {cost.written / 1e6:8.1f} MB  {1000 * cost.loop:6.1f} ms of the event loop  "
        f"{cost.thread:6.3f} s of the thread  {100 * share:5.2f} % of a core, once a minute"
    )


def mean(costs: list[Cost]) -> Cost:
    n = len(costs)
    return Cost(
        sum(c.loop for c in costs) / n,
        sum(c.thread for c in costs) / n,
        sum(c.written for c in costs) // n,
    )


def main() -> None:
    personal = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    with tempfile.TemporaryDirectory() as folder:
        w2 = arms(["W2"], Path(folder))[0].scenario
    costs, total = timed_run(w2 | {"stop": {"rounds": 12}})
    tell("W2, each of its checkpoints", mean(costs))
    saving = sum(c.loop + c.thread for c in costs)
    print(f"  after every round: {saving:.2f} s of {total:.1f} s, {100 * saving / total:.1f} %")
    everybody = w2 | {
        "algorithm": "gifair-per",
        "weighting": {"lambda_fraction": 0.5},
        "data": w2["data"] | {"clients": personal, "samples": 4},
        "work": {"steps": 1, "batch_size": 4, "schedule": {"lr": 0.01}},
        "sampling": {"scheme": "uniform", "cohort": personal},
        "policy": {"kind": "fedbuff", "concurrency": personal, "buffer": 10},
        "devices": {"sample_s": 0.01, "jitter": 0.1},
        "stop": {"rounds": 2 * personal // 10},
    }
    costs, _ = timed_run(everybody)
    late = costs[len(costs) // 2 :]
    tell(f"{personal} personal models, each of the last half", mean(late))
    tell(f"{personal} personal models, the largest of those", max(late, key=lambda c: c.written))


if __name__ == "__main__":
    main()
