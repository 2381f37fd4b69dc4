"""Named algorithms: combinations of a weighting, a local solver and an aggregator.

A scenario that names one may still change any option of its parts, or any part.
"""

from __future__ import annotations

from typing import Any

ALGORITHMS: dict[str, dict[str, Any]] = {
    # McMahan et al. 2017
    "fedavg": {
        "weighting": {"kind": "plain"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "mean"},
    },
    # Li et al. 2020
    "fedprox": {
        "weighting": {"kind": "plain"},
        "solver": {"kind": "proximal"},
        "aggregator": {"kind": "mean"},
    },
    # Xie et al. 2019
    "fedasync": {
        "weighting": {"kind": "plain"},
        "solver": {"kind": "proximal", "mu": 0.005},
        "aggregator": {"kind": "mixing"},
        "policy": {"kind": "fedasync"},
    },
    # Nguyen et al. 2022
    "fedbuff": {
        "weighting": {"kind": "plain"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "mean"},
        "policy": {"kind": "fedbuff"},
    },
    # Li et al. 2020 (q-FedAvg)
    "q-ffl": {
        "weighting": {"kind": "q-ffl"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "mean"},
    },
    # Li et al. 2021 (Tilted empirical risk minimization), tilted over clients
    "term": {
        "weighting": {"kind": "term"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "mean"},
    },
    # Mohri et al. 2019, with FedAvg's local training
    "afl": {
        "weighting": {"kind": "afl"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "mean"},
    },
    # Hu et al. 2022
    "fedmgda+": {
        "weighting": {"kind": "plain"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "fedmgda"},
    },
    # Li et al. 2021 (Ditto)
    "ditto": {
        "weighting": {"kind": "plain"},
        "solver": {"kind": "ditto"},
        "aggregator": {"kind": "mean"},
    },
    # The paper's Algorithm 1
    "gifair-global": {
        "weighting": {"kind": "gifair"},
        "solver": {"kind": "sgd"},
        "aggregator": {"kind": "mean"},
    },
    # The paper's Algorithm 2: the same recursion, and every client keeps its own model
    "gifair-per": {
        "weighting": {"kind": "gifair", "ranks": "estimated"},
        "solver": {"kind": "sgd", "keep": True},
        "aggregator": {"kind": "mean"},
    },
}
