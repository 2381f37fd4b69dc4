"""The clients of the golden cases, and short ways to run scenarios in this process.

Three clients in two dimensions whose local models and losses after one step are given by the
specification: quadratic clients of our own have exactly those.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gifair_ray
from gifair_ray.scenario import merge

THETA = np.array([1.0, -1.0])
STEPS = np.array([[2.0, 0.0], [0.0, -3.0], [1.0, -1.0]])  # (θ − w_k)/η
LOSSES = (2.0, 0.5, 1.0)


def quadratics(A: Any, b: Any, init: Any, *, sizes: list[int] | None = None) -> dict[str, Any]:
    """Clients of the given matrices and centres, everybody in every round, one step of η = 0.1."""
    own = {"problem": "own", "A": np.array(A).tolist(), "b": np.array(b).tolist()}
    K = len(own["A"])
    return {
        "data": {"source": "quadratic", **own, "sizes": sizes or [1] * K, "groups": [0] * K},
        "model": {"kind": "quadratic", "init": init},
        "work": {"steps": 1, "schedule": {"lr": 0.1}},
        "sampling": {"scheme": "all"},
        "stop": {"rounds": 1},
        "evaluation": {"every": 0, "splits": ["train"]},
        "audit": {"every": 0},
    }


def golden(**options: Any) -> dict[str, Any]:
    """w = (.8,−1), (1,−.7), (.9,−.9) and F = (2, .5, 1) from θ = (1,−1), with A_k = a_k I."""
    a = (STEPS**2).sum(axis=1) / (2 * np.array(LOSSES))
    b = THETA - STEPS / a[:, None]
    return quadratics(a[:, None, None] * np.eye(2), b, THETA.tolist(), **options)


def run(*tables: dict[str, Any]) -> gifair_ray.Run:
    """A run of these tables, each on top of those before it."""
    scenario: dict[str, Any] = {}
    for table in tables:
        scenario = merge(scenario, table)
    return gifair_ray.run(scenario, backend="local")


def weights(done: gifair_ray.Run, round_: int = 1) -> list[float]:
    rows = done.table("dispatches").sort_by("client").to_pylist()
    return [row["weight"] for row in rows if row["round"] == round_]


def weighting(kind: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": kind, "weighting": options}


def fedmgda(**options: Any) -> dict[str, Any]:
    return {"algorithm": "fedmgda+", "aggregator": options}


NOISY: dict[str, Any] = {
    "data": {"source": "quadratic", "problem": "random", "clients": 9, "noise": 0.3},
    "model": {"kind": "quadratic", "init": 1.0},
    "work": {"steps": 2, "schedule": {"kind": "inverse"}},
    "stop": {"rounds": 4},
    "evaluation": {"every": 0, "splits": ["train"]},
    "audit": {"every": 0},
    # Neither evaluations nor a few more bytes take time.
    "devices": {
        "sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 1.0},
        "dropout": 0.2,
        "eval_fraction": 0.0,
        "up_mbps": 1e300,
        "down_mbps": 1e300,
    },
}
SOFTMAX: dict[str, Any] = {
    "data": {"source": "synthetic", "clients": 6, "features": 4, "classes": 3, "groups": 2},
    "model": {"kind": "softmax"},
    "work": {"epochs": 1, "batch_size": 10},
}
