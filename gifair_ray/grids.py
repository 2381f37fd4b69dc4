"""What is tuned of each algorithm, and over which values: the grids of the paper.

Where the paper states none (AFL's γ, FedMGDA+'s ε), they are those of the algorithm's own
publication or code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gifair_ray.algorithms import ALGORITHMS
from gifair_ray.errors import BadInput
from gifair_ray.parts import nearest

BASELINE = "fedavg"

GRIDS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "fedprox": ("solver.mu", (0.001, 0.01, 0.1, 0.5, 1.0)),
    "q-ffl": ("weighting.q", (0.0, 0.001, 0.01, 0.1, 1.0, 2.0, 5.0, 10.0)),
    "term": ("weighting.t", (1.0, 2.0, 5.0)),
    "fedmgda+": ("aggregator.epsilon", (0.0, 0.1, 0.5, 1.0)),
    "afl": ("weighting.gamma", (0.01, 0.1)),
    "ditto": ("solver.lambda_value", (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0)),
    "gifair-global": ("weighting.lambda_fraction", tuple(i / 10 for i in range(10))),
    "gifair-per": ("weighting.lambda_fraction", tuple(i / 10 for i in range(10))),
}


COARSE: Mapping[str, tuple[float, ...]] = {
    "fedprox": (0.01, 1.0),
    "q-ffl": (0.1, 1.0),
    "term": (1.0, 5.0),
    "fedmgda+": (0.1, 1.0),
    "afl": (0.01, 0.1),
    "ditto": (0.1, 1.0),
    "gifair-global": (0.5, 0.9),
    "gifair-per": (0.5, 0.9),
}
"""Two of each grid, a weak and a strong one, where there is no time for all."""


def candidates(algorithm: str, coarse: bool = False) -> list[dict[str, Any]]:
    """The changes to a scenario, as tables, that make up an algorithm's grid."""
    if algorithm not in ALGORITHMS:
        raise BadInput(f"unknown algorithm {algorithm!r}; {nearest(algorithm, list(ALGORITHMS))}")
    if algorithm not in GRIDS:
        return [{"algorithm": algorithm}]
    key, values = GRIDS[algorithm]
    values = COARSE[algorithm] if coarse else values
    part, _, option = key.partition(".")
    return [{"algorithm": algorithm, part: {option: value}} for value in values]


def setting(changes: Mapping[str, Any]) -> str:
    """A candidate in words: `q = 0.1`; empty where there is nothing to set."""
    options = [table for table in changes.values() if isinstance(table, Mapping)]
    return ", ".join(f"{key} = {value:g}" for table in options for key, value in table.items())
