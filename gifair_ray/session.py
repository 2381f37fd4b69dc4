"""One run from its first event to its last file, on any backend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from gifair_ray.backend import Backend
from gifair_ray.digest import run_digest
from gifair_ray.engine import Engine, Progress
from gifair_ray.folder import RunFolder
from gifair_ray.protocol import Layout, Params
from gifair_ray.recorder import FolderRecorder, Recorder
from gifair_ray.scenario import Scenario


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

    def __init__(self, scenario: Scenario, backend: Backend, folder: Path | None) -> None:
        self._folder = RunFolder(folder) if folder is not None else None
        self._recorder = FolderRecorder(folder) if folder is not None else Recorder()
        try:
            self._engine = Engine(scenario, backend, self._recorder)
            self._engine.begin()
        except BaseException:
            self._recorder.close()
            raise

    def advance(self, budget_s: float) -> Progress:
        """Go on for about so long."""
        return self._engine.advance(budget_s)

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
        """Stop in the middle; whole segments of what happened so far stay."""
        self._recorder.close()
