"""What is measured: the workloads, and the arms that each of them has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gifair_ray import draws
from gifair_ray.errors import BadInput

Table = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """One way to do a workload's work, in a process tree of its own.

    `runs` is the module that does it, as `python -m`, with the rest of this on its input; after
    `warm` rounds it has so many `turns` of so many `seconds`. `per_round` is how many updates a
    round has. What is `weighed` runs once more, alone, for its memory.
    """

    workload: str
    name: str
    runs: str
    kind: str
    scenario: Table
    per_round: int = 1
    workers: int = 1
    warm: int = 1
    turns: int = 0
    seconds: float = 0.0
    weighed: bool = False
    command: tuple[str, ...] = ()


HERE, ON_RAY, COMMAND = "gifair_ray.bench.here", "gifair_ray.actors.bench", "gifair_ray"
NAMES = ("S", "W1", "W2", "W3", "W4", "W5")
QUIET: Table = {"evaluation": {"every": 0, "splits": []}, "audit": {"every": 0}}
"""Steady rounds are timed: nothing is evaluated in them."""
FOREVER: Table = {"stop": {"rounds": 10**9}}
SHORT: Table = {"turns": 12, "seconds": 0.25}
LONG: Table = {"turns": 4, "seconds": 3.0}


def _softmax(clients: int, cohort: int, source: str = "synthetic") -> Table:
    data = {"source": source, "clients": clients, "samples": 64, "groups": 2}
    return {
        "data": data | {"features": 60, "classes": 10, "val": 0.0, "test": 0.0},
        "model": {"kind": "softmax"},
        "work": {"epochs": 1, "batch_size": 10, "schedule": {"lr": 0.01}},
        "sampling": {"scheme": "uniform", "cohort": cohort},
        **QUIET,
        **FOREVER,
    }


def _cnn(clients: int, cohort: int) -> Table:
    data = {"source": "synthetic", "clients": clients, "samples": 100, "groups": 2}
    return {
        "data": data | {"features": 784, "classes": 62, "val": 0.0, "test": 0.0},
        "model": {"kind": "cnn"},
        "work": {"epochs": 2, "batch_size": 32, "schedule": {"lr": 0.01}},
        "sampling": {"scheme": "uniform", "cohort": cohort},
        **QUIET,
        **FOREVER,
    }


def _lstm(file: Path, cohort: int) -> Table:
    return {
        "data": {"source": "table", "path": str(file), "tokens": 80, "val": 0.0, "test": 0.0},
        "model": {"kind": "lstm"},
        "work": {"epochs": 1, "batch_size": 10, "schedule": {"lr": 0.1}},
        "sampling": {"scheme": "uniform", "cohort": cohort},
        **QUIET,
        **FOREVER,
    }


def _stream(clients: int, concurrency: int) -> Table:
    return _softmax(clients, 10) | {
        "algorithm": "fedbuff",
        "policy": {"kind": "fedbuff", "concurrency": concurrency, "buffer": 10},
        "devices": {"sample_s": {"dist": "lognormal", "median": 0.05, "sigma": 0.5}},
    }


def write_characters(folder: Path, clients: int, sequences: int) -> Path:
    """A table of random text: 80 characters, and the one that follows."""
    n, length = clients * sequences, 80
    g = draws.generator(0, "bench/characters")
    text = g.integers(0, 80, (n, length))
    x = pa.ListArray.from_arrays(np.arange(0, n * length + 1, length), text.reshape(-1))
    # Every character is some sequence's next one, so that all 80 are classes.
    y = (text[:, -1] + g.integers(0, 3, n)) % 80
    y[:80] = np.arange(80)
    file = folder / "characters.parquet"
    client = np.repeat(np.arange(clients), sequences)
    pq.write_table(pa.table({"client": client, "x": x, "y": y}), file)
    return file


def arms(names: list[str], folder: Path, small: bool = False) -> list[Arm]:
    """The arms of some workloads, in the order of a repetition; `folder` is for their data.

    `small` has few and little of everything, to see that all works.
    """
    if unknown := [name for name in names if name not in NAMES]:
        raise BadInput(f"there is no workload {unknown[0]!r}: {', '.join(NAMES)}")
    found: list[Arm] = []
    for name in NAMES:
        if name in names:
            found += _MAKERS[name](folder, small)
    if any(arm.runs == ON_RAY and arm.kind == "engine" for arm in found):
        found.append(Arm("pool", "bare pool", ON_RAY, "pool", {}, workers=2))
    if small:
        found = [replace(arm, turns=min(arm.turns, 2), seconds=0.1) for arm in found]
    return found


def _start_up(folder: Path, small: bool) -> list[Arm]:
    first: Table = {"scenario": _softmax(100, 10), "per_round": 10}
    return [
        Arm("S", "gifair --help", COMMAND, "command", {}, command=("--help",)),
        Arm("S", "gifair list", COMMAND, "command", {}, command=("list",)),
        Arm("S", "local", HERE, "engine", **first),
        Arm("S", "ray ×2", ON_RAY, "engine", workers=2, **first),
    ]


def _w1(folder: Path, small: bool) -> list[Arm]:
    clients, cohort = (40, 10) if small else (1000, 100)
    one: Table = {"scenario": _softmax(clients, cohort), "per_round": cohort, **SHORT}
    all_: Table = {"scenario": _softmax(clients, clients), "per_round": clients, **SHORT}
    warm = 3 if small else 100  # until both workers have met everybody
    return [
        # What is set beside each other runs one after the other.
        Arm("W1", "loop ×2", HERE, "loop", workers=2, warm=1, **one),
        Arm("W1", "ray ×2", ON_RAY, "engine", workers=2, warm=warm, weighed=True, **one),
        Arm("W1", "batched", HERE, "batched", warm=5, **one),
        Arm("W1", "local", HERE, "engine", warm=warm, **one),
        Arm("W1", "batched, unaligned", HERE, "unaligned", warm=5, **one),
        Arm("W1", "batched, all per round", HERE, "batched", warm=2, **all_),
        Arm("W1", "ray ×2, all per round", ON_RAY, "engine", workers=2, warm=6, **all_),
    ]


def _pairs(workload: str, scenario: Table, cohort: int, warm: int) -> list[Arm]:
    one: Table = {"scenario": scenario, "per_round": cohort, **LONG}
    return [
        Arm(workload, "loop ×1", HERE, "loop", warm=2, **one),
        Arm(workload, "ray ×1", ON_RAY, "engine", warm=warm, **one),
        Arm(workload, "loop ×2", HERE, "loop", workers=2, warm=2, **one),
        Arm(workload, "ray ×2", ON_RAY, "engine", workers=2, warm=warm, weighed=True, **one),
    ]


def _w2(folder: Path, small: bool) -> list[Arm]:
    scenario, cohort = (_cnn(8, 2), 2) if small else (_cnn(100, 10), 10)
    devices = {"sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 0.5}}
    policy = {"kind": "fedbuff", "concurrency": 4 if small else 32, "buffer": cohort}
    ahead = scenario | {"algorithm": "fedbuff", "policy": policy, "devices": devices}
    # The loops have everybody's data before they start; the engine makes them at first use.
    found = _pairs("W2", scenario, cohort, warm=2 if small else 20)
    return [*found, replace(found[-1], name="fedbuff ray ×2", scenario=ahead, weighed=False)]


def _w3(folder: Path, small: bool) -> list[Arm]:
    file = write_characters(folder, *((4, 30) if small else (31, 200)))
    cohort = 2 if small else 10
    return _pairs("W3", _lstm(file, cohort), cohort, warm=2)


def _w4(folder: Path, small: bool) -> list[Arm]:
    scenario = _stream(200, 50) if small else _stream(100_000, 1000)
    return [
        Arm(
            "W4",
            "no-op learner",
            HERE,
            "no-op",
            scenario,
            per_round=10,
            warm=200,
            weighed=True,
            **SHORT,
        )
    ]


def _w5(folder: Path, small: bool) -> list[Arm]:
    sizes: Mapping[int, str] = {10**3: "10³", 10**4: "10⁴", 10**5: "10⁵", 10**6: "10⁶"}
    one: Table = {"per_round": 100, "warm": 60, **SHORT}
    found = []
    for clients, written in list(sizes.items())[: 2 if small else None]:
        crowd, own = (_softmax(clients, 100, source) for source in ("crowd", "synthetic"))
        found.append(Arm("W5", f"{written} clients", HERE, "engine", crowd, weighed=True, **one))
        # With samples of their own, all of them made anew: what a cache of few clients would hide.
        found.append(Arm("W5", f"{written} clients, own data", HERE, "uncached", own, **one))
    return found


_MAKERS = {"S": _start_up, "W1": _w1, "W2": _w2, "W3": _w3, "W4": _w4, "W5": _w5}
