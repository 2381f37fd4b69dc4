"""How long and how much memory `gifair compare` and `gifair report` take for many dispatches.

    python benchmarks/dispatches.py FOLDER [ROWS]

writes a synthetic run of ROWS dispatches (10 million) to FOLDER, unless it is there, and times both
commands on it. Peak memory is the process's resident set, memory-mapped pages of the tables
included.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from gifair_ray.results import Written, write_segment
from gifair_ray.tables import OUTCOMES, TABLES

CLIENTS, GROUPS, SEGMENT, COHORT = 1000, 10, 100_000, 100


def write_run(folder: Path, rows: int) -> None:
    draw = np.random.default_rng(0)
    k = np.arange(CLIENTS)
    people = {
        "client": k,
        "name": [str(i) for i in k],
        "group": k % GROUPS,
        "group_name": [f"group {i % GROUPS}" for i in k],
        "p": np.full(CLIENTS, 1 / CLIENTS),
    }
    write_segment(folder, "clients", Written(), _table("clients", people, CLIENTS))
    outcomes = np.array(OUTCOMES)
    for number, start in enumerate(range(0, rows, SEGMENT)):
        n = min(SEGMENT, rows - start)
        serial = np.arange(start, start + n)
        send = serial * 0.01
        ended = outcomes[draw.choice(len(outcomes), n, p=[0.7] + [0.05] * 6)]
        done = ended == "completed"
        columns = {
            "dispatch": serial,
            "round": serial // COHORT + 1,
            "client": draw.integers(0, CLIENTS, n),
            "ordinal": serial // CLIENTS,
            "version": serial // COHORT,
            "slots": np.ones(n, np.int64),
            "send_s": send,
            "start_s": send + 0.1,
            "end_s": send + draw.lognormal(0, 1, n),
            "arrival_s": pa.array(send + 9.0, mask=~done),
            "notice_s": send + 9.0,
            "outcome": ended,
            "staleness": pa.array(draw.integers(0, 9, n), mask=~done),
            "steps": np.full(n, 5),
            "tilt": draw.uniform(-0.5, 0.5, n),
            "rank": draw.integers(-9, 10, n),
            "loss_local": pa.array(draw.uniform(0, 2, n), mask=~done),
            "loss_received": pa.array(draw.uniform(0, 2, n), mask=~done),
            "bytes_down": np.full(n, 10_000),
            "bytes_up": np.where(done, 10_000, 0),
            "weight": pa.array(np.full(n, 1 / COHORT), mask=~done),
        }
        write_segment(folder, "dispatches", Written(number), _table("dispatches", columns, n))
    version = rows // COHORT
    counted = {
        name: np.full(CLIENTS, rows // CLIENTS if name == "selected" else 1)
        for name in TABLES["participation"].names
    }
    counted |= {"client": k, "version": np.full(CLIENTS, version)}
    write_segment(folder, "participation", Written(), _table("participation", counted, CLIENTS))
    rounds = {
        "round": np.arange(1, version + 1),
        "time_s": np.arange(1, version + 1) * 1.0,
        "bytes_down": np.arange(1, version + 1) * 10**6,
        "bytes_up": np.arange(1, version + 1) * 10**6,
    }
    write_segment(folder, "rounds", Written(), _table("rounds", rounds, version))
    moments = np.repeat([0, version // 2, version], CLIENTS)
    results = {
        "evaluation": np.repeat([0, 1, 2], CLIENTS),
        "version": moments,
        "time_s": moments * 1.0,
        "client": np.tile(k, 3),
        "split": ["test"] * 3 * CLIENTS,
        "model": ["global"] * 3 * CLIENTS,
        "loss": draw.uniform(0, 2, 3 * CLIENTS),
        "samples": np.full(3 * CLIENTS, 50),
        "correct": draw.integers(0, 51, 3 * CLIENTS),
        "selected_ever": [True] * 3 * CLIENTS,
    }
    write_segment(folder, "evaluations", Written(), _table("evaluations", results, 3 * CLIENTS))
    about = {"format": 1, "name": "many", "label": "many", "algorithm": "fedavg", "seed": 0}
    text = json.dumps(about | {"status": "done", "digest": None})
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def _table(name: str, columns: dict[str, object], rows: int) -> pa.Table:
    arrays = [
        pa.array(columns[field.name], field.type)
        if field.name in columns
        else pa.nulls(rows, field.type)
        for field in TABLES[name]
    ]
    return pa.table(arrays, schema=TABLES[name])


def timed(*arguments: str) -> None:
    before = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "gifair_ray", *arguments], check=True, stdout=-3)
    wall = time.monotonic() - before
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    print(f"{arguments[0]:8} {wall:6.1f} s wall, {cpu:6.1f} s CPU, "
          f"peak {after.ru_maxrss / 2**20:.2f} GiB so far")  # fmt: skip


if __name__ == "__main__":
    where, rows = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
    if not where.exists():
        write_run(where, rows)
    timed("compare", str(where))
    timed("report", str(where), "-o", str(where / "report.html"))
