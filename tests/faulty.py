"""Small runs of every policy, with algorithms that have a state, for faults to happen to."""

from __future__ import annotations

from functools import cache

import gifair_ray
from gifair_ray.scenarios.load import load

SMALL = {
    "data": {
        "source": "quadratic", "problem": "random", "clients": 6, "dim": 3, "random_groups": 2,
        "noise": 0.1,
    },
    "model": {"kind": "quadratic", "init": 1.0},
    "work": {"steps": 4, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "p-replace", "cohort": 4},
    "devices": {
        "sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 1.0},
        "jitter": 0.3,
        "dropout": 0.2,
    },
    "stop": {"rounds": 8},
    "evaluation": {"every": 3, "splits": ["train"]},
    "audit": {"every": 3},
}  # fmt: skip
POLICIES = {
    "sync": {"kind": "sync"},
    "deadline": {"kind": "deadline", "quantile": 0.5, "late": "carry"},
    "overselect": {"kind": "overselect", "factor": 1.5, "failures": "corrected"},
    "tiers": {"kind": "tiers", "tiers": 2},
    "fedbuff": {"kind": "fedbuff", "concurrency": 4, "buffer": 3, "rates": "empirical"},
    "fedasync": {"kind": "fedasync"},
}
ALGORITHMS = {
    "GIFAIR, exact": {
        "algorithm": "gifair-global", "weighting": {"lambda_fraction": 0.8, "ranks": "exact"},
    },
    "GIFAIR-Per": {"algorithm": "gifair-per", "weighting": {"lambda_fraction": 0.8}},
    "AFL": {"algorithm": "afl"},
    "q-FFL": {"algorithm": "q-ffl"},
    "FedMGDA+": {"algorithm": "fedmgda+"},
    "Ditto": {"algorithm": "ditto"},
    "GIFAIR, large model": {
        "algorithm": "gifair-per",
        "weighting": {"lambda_fraction": 0.8, "ranks": "received"},
        "data": {
            "source": "synthetic", "clients": 6, "samples": 12, "features": 3000, "classes": 6,
            "groups": 2,
        },
        "model": {"kind": "softmax"},
        "work": {"steps": 2, "batch_size": 4, "schedule": {"lr": 0.01}},
    },
}  # fmt: skip
ONE_AT_A_TIME = {"GIFAIR, exact", "GIFAIR-Per", "Ditto", "GIFAIR, large model"}
"""Those that make sense with fedasync, where there are no two replies to weigh."""
CASES = [
    (policy, algorithm)
    for policy in POLICIES
    for algorithm in ALGORITHMS
    if policy != "fedasync" or algorithm in ONE_AT_A_TIME
]


@cache
def scenario(policy, algorithm, rounds=8):
    table = SMALL | ALGORITHMS[algorithm] | {"policy": POLICIES[policy], "stop": {"rounds": rounds}}
    if policy == "fedasync":
        table = table | {"aggregator": {"kind": "mixing"}, "stop": {"rounds": 4 * rounds}}
    return load(table).runs[0][1]


@cache
def undisturbed(policy, algorithm, rounds=8):
    """The digest of the run, in process and in peace."""
    return gifair_ray.run(scenario(policy, algorithm, rounds).table(), backend="local").digest


def table_of(path):
    """A scenario on a table of its own, which is written to that path."""
    rows = [(k, i, (k + i) % 2, 0.1 * k + i) for k in range(4) for i in range(6)]
    lines = "".join(f"{k},{x},{x * i},{y}\n" for k, i, y, x in rows)
    path.write_text("client,a,b,y\n" + lines)
    return {
        "data": {"source": "table", "path": str(path), "groups": "each"},
        "model": {"kind": "softmax"},
        "work": {"steps": 2, "batch_size": 2, "schedule": {"lr": 0.01}},
        "sampling": {"scheme": "all"},
        "stop": {"rounds": 4},
    }
