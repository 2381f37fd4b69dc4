"""Before a run starts: how many workers fit on a cluster, and how much memory the run will need.

The estimate counts what grows with the problem (models and data); the rest is a fixed amount for
each process. It is meant to refuse what cannot fit, not to be exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gifair_ray.errors import BadInput
from gifair_ray.protocol import Layout
from gifair_ray.scenario import Scenario

PROCESS = 300 << 20  # bytes of a process that computes nothing yet, torch included


@dataclass(frozen=True)
class Node:
    """What a machine of a cluster has to offer."""

    name: str
    cpus: float
    gpus: float = 0.0
    memory: float = math.inf
    """In bytes, for actors and tasks."""


def places(nodes: Sequence[Node], cpus: float, gpus: float = 0.0) -> list[int]:
    """How many client actors with so many CPUs and GPUs each node has room for."""
    found = []
    for node in nodes:
        by_cpu = math.floor(node.cpus / cpus + 1e-9) if cpus else math.inf
        by_gpu = math.floor(node.gpus / gpus + 1e-9) if gpus else math.inf
        found.append(min(by_cpu, by_gpu))
    return [0 if math.isinf(n) else int(n) for n in found]


def check_places(nodes: Sequence[Node], actors: int, cpus: float, gpus: float = 0.0) -> None:
    """Refuse more actors than there is room for: Ray would wait for it for ever."""
    room = places(nodes, cpus, gpus)
    if actors <= sum(room) or (not cpus and not gpus):
        return
    each = f"{cpus:g} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
    where = ", ".join(
        f"{node.name}: {n} ({node.cpus:g} CPUs, {node.gpus:g} GPUs)"
        for node, n in zip(nodes, room, strict=True)
    )
    raise BadInput(
        f"{actors} client actors with {each} each do not fit: there is room for {sum(room)} "
        f"({where}); take fewer workers, or less for each"
    )


@dataclass(frozen=True)
class Needs:
    """Bytes that a run will hold at a time."""

    server: int
    worker: int
    """Each of them."""
    store: int
    """In the object store: models on their way."""

    @staticmethod
    def of(scenario: Scenario, layout: Layout, samples: int, width: int, K: int) -> Needs:
        """For K clients with so many samples in all, of so many values each."""
        model = layout.nbytes
        replies = max(scenario.sampling.slots(K), int(getattr(scenario.policy, "concurrency", 0)))
        tracks = scenario.solver.tracks
        personal = K if scenario.solver.keep else 0
        wide = layout.size * 8  # sums over clients are in float64
        return Needs(
            server=PROCESS + model * (2 + replies * tracks + personal) + 3 * wide,
            # The model and its gradients, the optimizer's copies; the replies of its share.
            worker=PROCESS + samples * (width + 1) * 8 + model * (6 + replies) * tracks,
            store=model * (2 + 2 * replies * tracks),
        )

    def text(self, workers: int) -> str:
        """In words."""
        total = self.server + workers * self.worker + self.store
        return (
            f"about {_size(total)} of memory: {_size(self.server)} for the server, "
            f"{_size(self.worker)} for each of {workers} workers, {_size(self.store)} on the way"
        )

    def check(self, nodes: Sequence[Node], workers: int) -> None:
        """Refuse a run that the cluster has no memory for."""
        have = sum(node.memory for node in nodes)
        if self.server + workers * self.worker > have:
            raise BadInput(
                f"the run needs {self.text(workers)}, and the cluster has {_size(have)}: take "
                "fewer workers, a smaller model or fewer clients at a time"
            )
        largest = max((node.memory for node in nodes), default=math.inf)
        if max(self.server, self.worker) > largest:
            raise BadInput(
                f"the run needs {self.text(workers)}, and the largest machine has {_size(largest)}"
            )


def _size(amount: float) -> str:
    return f"{amount / 2**30:.1f} GB" if amount >= 2**30 else f"{amount / 2**20:.0f} MB"
