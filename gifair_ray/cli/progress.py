"""Progress on a terminal as a live bar; elsewhere as plain lines now and then."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gifair_ray.engine import Progress as Where
from gifair_ray.scenario import Scenario

LINE_EVERY_S = 5.0


def virtual(seconds: float) -> str:
    """A virtual time that is easy to read."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86400:.1f} d"


class ProgressDisplay:
    """Shows where the runs of a study are, on standard error."""

    def __init__(self, runs: int, quiet: bool) -> None:
        self._runs, self._finished, self._quiet = runs, 0, quiet
        self._console = Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last_line = -math.inf
        self._started = time.monotonic()

    def __enter__(self) -> ProgressDisplay:
        if not self._quiet:
            if self._console.is_terminal:
                self._bar = Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(),
                    TextColumn("{task.fields[where]}", markup=False),
                    TimeRemainingColumn(),
                    console=self._console,
                    transient=True,
                )
                self._bar.start()
                self._task = self._bar.add_task("starting", total=self._runs, where="")
            else:
                self._say(f"starting {self._runs} run(s)")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, label: str, scenario: Scenario, where: Where) -> None:
        """A run is here now."""
        if self._quiet:
            return
        done = self._finished + where.fraction
        name = f"{label}, seed {scenario.seed}" if self._runs > 1 else scenario.name
        told = f"round {where.rounds} · {virtual(where.virtual_s)}"
        if not math.isnan(where.loss):
            told += f" · loss {where.loss:.4g} · spread {where.spread:.3g}"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, description=name, where=told)
        elif where.finished or time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            elapsed = self._last_line - self._started
            rest = ""
            if 0 < done < self._runs:
                rest = f" · about {elapsed / done * (self._runs - done):.0f} s left"
            self._say(f"[{100 * done / self._runs:3.0f} %] {name}: {told}{rest}")
        if where.finished:
            self._finished += 1

    def overall(self, done: float) -> None:
        """So many of all runs are done, parts of runs included."""
        if self._bar is not None and self._task is not None:
            told = f"{int(done)} of {self._runs} done"
            self._bar.update(self._task, completed=done, description="runs", where=told)
        elif not self._quiet and time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            elapsed, share = self._last_line - self._started, done / max(self._runs, 1)
            rest = f" · about {elapsed / share - elapsed:.0f} s left" if 0 < share < 1 else ""
            self._say(f"[{100 * share:3.0f} %] {int(done)} of {self._runs} runs done{rest}")

    def _say(self, line: str) -> None:
        try:
            print(line, file=sys.stderr, flush=True)
        except OSError:  # nobody reads it any more, which is no reason to end the run
            self._quiet = True
