"""Repetitions in turn: every arm once, then every arm again; a row of the table for each."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any

import pyarrow as pa

from gifair_ray.bench.meter import pss_bytes
from gifair_ray.bench.workloads import COMMAND, Arm
from gifair_ray.errors import RunFailed

SAMPLE_S = 0.1
SCHEMA = pa.schema(
    [
        pa.field(name, kind, metadata={"unit": unit, "description": description})
        for name, kind, unit, description in (
            ("workload", pa.string(), "1", "what is done"),
            ("arm", pa.string(), "1", "how it is done"),
            ("repetition", pa.int64(), "1", "from 0; the arms of a repetition ran in turn"),
            ("workers", pa.int64(), "processes", "that train"),
            ("updates", pa.int64(), "client updates", "in the time measured"),
            ("rounds", pa.int64(), "server updates", "in the time measured"),
            ("wall_s", pa.float64(), "s", "the time measured; of a command, all of it"),
            ("cpu_s", pa.float64(), "s", "CPU time in it, of all processes of the arm"),
            ("moved_bytes", pa.int64(), "B", "models and results that went between processes"),
            ("peak_pss_bytes", pa.int64(), "B", "largest proportional set size of all processes"),
            ("ready_s", pa.float64(), "s", "from the start of the process to the first round"),
        )
    ],
    metadata={"table": "bench", "version": "1"},
)


def run(arms: Sequence[Arm], repeat: int) -> Iterator[dict[str, Any]]:
    """Measure every arm `repeat` times, in turn: rows of SCHEMA, as they come in."""
    for repetition in range(repeat):
        for arm in arms:
            row = _command(arm) if arm.runs == COMMAND else _measured(arm)
            yield row | {"repetition": repetition}


def _row(arm: Arm, said: dict[str, Any], ready_s: float, peak: int | None) -> dict[str, Any]:
    measured = {name: said[name] for name in ("rounds", "wall_s", "cpu_s", "moved_bytes")}
    who = {"workload": arm.workload, "arm": arm.name, "workers": arm.workers}
    updates = said["rounds"] * arm.per_round
    return who | measured | {"updates": updates, "ready_s": ready_s, "peak_pss_bytes": peak}


def _command(arm: Arm) -> dict[str, Any]:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", arm.runs, *arm.command], capture_output=True)
    took = time.monotonic() - began
    if done.returncode:
        raise RunFailed(f"gifair {' '.join(arm.command)} failed: {done.stderr.decode()[-300:]}")
    said = {"rounds": 0, "wall_s": took, "cpu_s": 0.0, "moved_bytes": 0}
    return _row(arm, said, took, None)


class _Memory:
    """Reads the memory of a process tree from time to time, unless it is told not to."""

    def __init__(self, pid: int) -> None:
        self.peak, self.reading = 0, True
        self._pid, self._ended = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            if self.reading:
                self.peak = max(self.peak, pss_bytes(self._pid))

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self.peak


def _measured(arm: Arm) -> dict[str, Any]:
    began = time.monotonic()
    command = [sys.executable, "-m", arm.runs]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as complaints,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=complaints, text=True) as process,
    ):
        memory = _Memory(process.pid)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(asdict(arm)) + "\n")
            process.stdin.close()
            said = _listen(process.stdout, memory)
            process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            peak = memory.stop()
        if said is None or process.returncode:
            complaints.seek(0)
            why = complaints.read()[-500:]
            raise RunFailed(f"{arm.workload} {arm.name} ended with {process.returncode}: {why}")
    return _row(arm, said, said["ready"] - began, peak)


def _listen(lines: IO[str], memory: _Memory) -> dict[str, Any] | None:
    """What the arm says in the end; None if it ends without a word."""
    for line in lines:
        if line.startswith("{"):
            said: dict[str, Any] = json.loads(line)
            memory.reading = said["phase"] != "timed"
            if said["phase"] == "end":
                memory.reading = False
                return said
    return None
