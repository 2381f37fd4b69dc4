"""Independent runs, several at a time: each one in a worker process of its own.

A run of a sweep is small; it is computed in process, by one worker, and the workers share the
runs out. A worker that dies is replaced, and its run begins again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from gifair_ray.actors.start import running
from gifair_ray.data._places import DATA_DIR, data_in
from gifair_ray.engine import Progress
from gifair_ray.runner import Planned, make
from gifair_ray.scenario import Scenario, parse

REPORT_S = 1.0


class Board:
    """Where the runs are, for whoever looks."""

    def __init__(self) -> None:
        self._fractions: dict[int, float] = {}

    def note(self, number: int, fraction: float) -> None:
        """A run has come so far."""
        self._fractions[number] = fraction

    def read(self) -> dict[int, float]:
        """All runs that have begun."""
        return self._fractions


def run_batch(
    runs: Sequence[Planned],
    *,
    workers: int | None,
    address: str | None,
    command: Sequence[str],
    how: Mapping[str, Any],
    watch: Callable[[float], None],
) -> list[str | None]:
    """Make the runs; what went wrong with each, or None. `watch` is told how many are done.

    A run that fails does not stop the others.
    """
    with running(workers, address):
        board: Any = ray.remote(Board).options(num_cpus=0).remote()
        play: Any = ray.remote(_play).options(num_cpus=1)
        where = str(Path.cwd()), os.environ.get(DATA_DIR)
        calls = {
            play.remote(
                i, run.label, run.scenario.table(), run.folder.resolve(), where, command, how, board
            ): i
            for i, run in enumerate(runs)
        }
        errors: list[str | None] = [None] * len(runs)
        try:
            for finished in _as_they_end(list(calls), board, watch):
                with contextlib.suppress(KeyError):
                    errors[calls[finished]] = _outcome(finished)
        except BaseException:
            for call in calls:
                ray.cancel(call)  # a run that is stopped says so in its manifest
            with contextlib.suppress(Exception):
                ray.wait(list(calls), num_returns=len(calls), timeout=10.0)
            raise
        finally:
            ray.kill(board)
    return errors


def _as_they_end(calls: list[Any], board: Any, watch: Callable[[float], None]) -> Iterator[Any]:
    done = 0
    while calls:
        finished, calls = ray.wait(calls, num_returns=1, timeout=REPORT_S)
        done += len(finished)
        yield from finished
        fractions = ray.get(board.read.remote())
        watch(min(max(done, sum(fractions.values())), done + len(calls)))


def _outcome(call: Any) -> str | None:
    try:
        error: str | None = ray.get(call)
        return error
    except ray.exceptions.RayError as error:
        return f"its worker was lost: {error}"


def _play(
    number: int,
    label: str,
    table: dict[str, Any],
    folder: Path,
    where: tuple[str, str | None],
    command: Sequence[str],
    how: Mapping[str, Any],
    board: Any,
) -> str | None:
    here, data = where
    os.chdir(here)  # relative paths in the scenario are the driver's, and so are its modules
    if here not in sys.path:
        sys.path.insert(0, here)
    last = time.monotonic()

    def report(label: str, scenario: Scenario, progress: Progress) -> None:
        nonlocal last
        if progress.finished or time.monotonic() - last >= REPORT_S:
            last = time.monotonic()
            board.note.remote(number, progress.fraction)

    with data_in(data):
        return make(Planned(label, parse(table), folder), command, how, report)
