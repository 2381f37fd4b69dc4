"""One run from its first event to its last file, on any backend."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from gifair_ray import locks
from gifair_ray.backend import Backend
from gifair_ray.checkpoint import Checkpoints
from gifair_ray.digest import run_digest
from gifair_ray.engine import Engine, Progress
from gifair_ray.folder import RunFolder
from gifair_ray.protocol import Layout
from gifair_ray.recorder import FolderRecorder, Recorder
from gifair_ray.replies import Params
from gifair_ray.scenario import Scenario


@dataclass(frozen=True)
class Saving:
    """When a run in a folder is saved: after so many seconds or rounds, whichever comes first.

    With `resume`, the run goes on from its last checkpoint, or from the start if it has none.
    """

    seconds: float = 60.0
    rounds: int | None = None
    resume: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a finished run leaves: its digest, its models, and its tables if kept in memory."""

    digest: str
    layout: Layout
    theta: Params
    personal: dict[int, Params]
    tables: dict[str, pa.Table] | None
    remarks: tuple[str, ...] = ()
    """What a user should know of how it went."""


class Session:
    """Drives an engine in short steps, and sees to it that the results are written."""

    def __init__(
        self,
        scenario: Scenario,
        backend: Backend,
        folder: Path | None,
        saving: Saving = Saving(),  # noqa: B008 (it is frozen)
    ) -> None:
        self._folder = RunFolder(folder) if folder is not None else None
        self._checkpoints = Checkpoints(folder, scenario) if folder is not None else None
        self._saving = saving
        self._recorder: Recorder = Recorder()
        try:
            self._begin(scenario, backend)
        except BaseException:
            self._stop()
            raise
        self._saved_at, self._saved_round = time.monotonic(), self._engine.state.version

    @np.errstate(over="ignore", invalid="ignore")  # devices so slow that they never finish
    def _begin(self, scenario: Scenario, backend: Backend) -> None:
        restored = None
        if self._folder is not None:
            locks.hold(self._folder.path)
            if self._checkpoints is not None and self._saving.resume:
                restored = self._checkpoints.restore()
            written = restored.written if restored is not None else None
            self._recorder = FolderRecorder(self._folder.path, written)
        self._engine = Engine(scenario, backend, self._recorder)
        if restored is None:
            self._engine.begin()
        else:
            self._engine.resume(restored.state)

    def advance(self, budget_s: float) -> Progress:
        """Go on for about so long."""
        if self._checkpoints is None:
            return self._engine.advance(budget_s)
        every = math.inf if self._saving.rounds is None else self._saving.rounds
        progress = self._engine.advance(budget_s, self._saved_round + every)
        due = time.monotonic() - self._saved_at >= self._saving.seconds
        if (due or progress.rounds >= self._saved_round + every) and not progress.finished:
            self._save()
        return progress

    def _save(self) -> None:
        """Take a checkpoint, for the recorder to write when the rows before it are on disk."""
        checkpoints, saved = self._checkpoints, self._engine.saved()
        if checkpoints is None or saved is None or not isinstance(self._recorder, FolderRecorder):
            return
        snapshot = checkpoints.take(saved)
        self._recorder.afterwards(lambda segments: checkpoints.write(snapshot, segments))
        self._saved_at, self._saved_round = time.monotonic(), self._engine.state.version

    def finish(self) -> Outcome:
        """Write everything and close the folder; call when the progress says finished."""
        self._recorder.close()
        (theta, personal), layout = self._engine.models(), self._engine.world.layout
        tables = self._recorder.tables()
        digest = run_digest(tables, theta, personal)
        remarks = tuple(self._engine.remarks())
        if self._folder is None:
            return Outcome(digest, layout, theta, personal, tables, remarks)
        self._folder.write_models(layout, theta, personal)
        progress = self._engine.progress()
        self._folder.close(
            "done",
            digest=digest,
            rounds=progress.rounds,
            virtual_s=progress.virtual_s,
            remarks=list(remarks),
        )
        return Outcome(digest, layout, theta, personal, None, remarks)

    def abort(self) -> None:
        """Stop in the middle; whole segments of what happened so far stay, and a checkpoint."""
        try:
            self._save()
        finally:
            self._stop()

    def _stop(self) -> None:
        try:
            self._recorder.close()
        finally:
            if self._folder is not None:
                locks.let_go(self._folder.path)
