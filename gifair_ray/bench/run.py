"""Repetitions: the arms of a workload start, take turns, and end; and all of that again.

A machine may be slow for some seconds, and turns are short: so it is slow for all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import groupby
from typing import Any, Self

import pyarrow as pa

from gifair_ray.bench.meter import pss_bytes
from gifair_ray.bench.workloads import COMMAND, Arm
from gifair_ray.errors import RunFailed

SAMPLE_S = 0.1
TAIL_S = 1.0  # for the memory of what does nothing but start to be read
Row = dict[str, Any]
SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"unit": unit, "description": description})
        for name, kind, unit, description in (
            ("workload", pa.string(), "1", "what is done"),
            ("arm", pa.string(), "1", "how it is done"),
            ("repetition", pa.int64(), "1", "from 0; in each all processes are new"),
            ("turn", pa.int64(), "1", "from 0; the arms of a workload ran one after the other"),
            ("workers", pa.int64(), "processes", "that train"),
            ("updates", pa.int64(), "client updates", "in the time measured"),
            ("rounds", pa.int64(), "server updates", "in the time measured"),
            ("wall_s", pa.float64(), "s", "the time measured; of a command, all of it"),
            ("cpu_s", pa.float64(), "s", "CPU time in it, of all processes of the arm"),
            ("moved_bytes", pa.int64(), "B", "models and results that went between processes"),
            (
                "peak_pss_bytes",
                pa.int64(),
                "B",
                "largest proportional set size of the arm, alone",
            ),
            ("ready_s", pa.float64(), "s", "from the start of the process to the first round"),
        )
    ],
    metadata={"table": "bench", "version": "2"},
)


def run(arms: Sequence[Arm], repeat: int) -> Iterator[list[Row]]:
    """Measure every arm `repeat` times: rows of SCHEMA, those of a turn together."""
    for repetition in range(repeat):
        for _, some in groupby(arms, key=lambda arm: arm.workload):
            for turn, rows in _workload(list(some)):
                yield [row | {"repetition": repetition, "turn": turn} for row in rows]


def _workload(arms: Sequence[Arm]) -> Iterator[tuple[int, list[Row]]]:
    for arm in arms:
        if not arm.turns:
            yield 0, [_command(arm) if arm.runs == COMMAND else _started(arm)]
    timed = [arm for arm in arms if arm.turns]
    # What processes share counts less in each: an arm is weighed when no other is there.
    peaks = {arm.name: _weighed(arm) for arm in timed if arm.weighed}
    with ExitStack() as stack:
        processes = []
        for arm in timed:
            processes.append(stack.enter_context(_Process(arm)))
            processes[-1].wait_until_ready()
        for turn in range(max((arm.turns for arm in timed), default=0)):
            # There and back again: what grows slowly in a turn falls on all alike.
            for process in processes[:: -1 if turn % 2 else 1]:
                process.turn()
            yield turn, [process.row(peaks.get(process.arm.name)) for process in processes]


_NOTHING = {"rounds": 0, "wall_s": 0.0, "cpu_s": 0.0, "moved_bytes": 0}


def _row(arm: Arm, said: Mapping[str, Any], ready_s: float, peak: int | None) -> Row:
    who = {"workload": arm.workload, "arm": arm.name, "workers": arm.workers}
    updates = said["rounds"] * arm.per_round
    return who | {**said, "updates": updates, "ready_s": ready_s, "peak_pss_bytes": peak}


def _command(arm: Arm) -> Row:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", arm.runs, *arm.command], capture_output=True)
    took = time.monotonic() - began
    if done.returncode:
        raise RunFailed(f"gifair {' '.join(arm.command)} failed: {done.stderr.decode()[-300:]}")
    return _row(arm, _NOTHING | {"wall_s": took}, took, None)


def _started(arm: Arm) -> Row:
    with _Process(arm) as process, _Memory(process.pid) as memory:
        process.wait_until_ready()
        time.sleep(TAIL_S)
    return process.row(memory.peak)


def _weighed(arm: Arm) -> int:
    """The most memory that an arm takes until the end of all its turns."""
    with _Process(arm) as process, _Memory(process.pid) as memory:
        process.wait_until_ready()
        for _ in range(arm.turns):
            process.turn()
    return memory.peak


class _Memory:
    """Reads the memory of a process tree from time to time."""

    def __init__(self, pid: int) -> None:
        self.peak, self._pid, self._ended = 0, pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.peak = max(self.peak, pss_bytes(self._pid))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class _Process:
    """An arm, from its start to the end of the block."""

    def __init__(self, arm: Arm) -> None:
        self.arm, self._said, self._ready_s = arm, _NOTHING, 0.0
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed at the end)
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", arm.runs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def wait_until_ready(self) -> None:
        """Until it has warmed up."""
        self._ready_s = self._asked(json.dumps(asdict(self.arm)))["ready"] - self._began

    def turn(self) -> None:
        """Let it work."""
        self._said = self._asked(f"{self.arm.seconds}")

    def row(self, peak: int | None) -> Row:
        """What it did in its last turn."""
        return _row(self.arm, self._said, self._ready_s, peak)

    def _asked(self, line: str) -> dict[str, Any]:
        """What it says to a line."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # it has ended: why, is told below
            process.stdin.write(line + "\n")
            process.stdin.flush()
        for answer in process.stdout:
            if answer.startswith("{"):
                said: dict[str, Any] = json.loads(answer)
                return said
        code = process.wait()
        self._complaints.seek(0)
        why = self._complaints.read()[-500:]
        raise RunFailed(f"{self.arm.workload} {self.arm.name} ended with {code}: {why}")

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._process.communicate()  # nothing more is said to it: so it ends
        self._complaints.close()
