"""One run from start to end, in a folder or in memory, whatever happens on the way."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gifair_ray.backend import LocalBackend
from gifair_ray.engine import Progress
from gifair_ray.errors import BadInput, GifairError, RunFailed
from gifair_ray.folder import RunFolder, can_resume, clear_unfinished
from gifair_ray.patience import patience
from gifair_ray.protocol import CPU
from gifair_ray.scenario import Scenario
from gifair_ray.session import Outcome, Saving, Session

Watch = Callable[[str, Scenario, Progress], None]
"""Told of (label, scenario, progress) every now and then."""
STEP_S = 0.25


class AnySession(Protocol):
    """A run under way, in this process or elsewhere."""

    def advance(self, budget_s: float) -> Progress: ...
    def finish(self) -> Outcome: ...
    def abort(self) -> None: ...


Start = Callable[[Scenario, Path | None, Saving], contextlib.AbstractContextManager[AnySession]]


@contextlib.contextmanager
def start_local(
    scenario: Scenario, folder: Path | None, saving: Saving, device: str = CPU
) -> Iterator[AnySession]:
    """Begin a run in this process, on a torch device."""
    with LocalBackend(scenario, device) as backend:
        yield Session(scenario, backend, folder, saving)


def run_one(
    label: str,
    scenario: Scenario,
    folder: Path | None,
    start: Start,
    command: Sequence[str],
    how: Mapping[str, Any],
    watch: Watch | None,
    saving: Saving = Saving(),  # noqa: B008 (it is frozen)
) -> Outcome:
    """Run a scenario to its end. Whatever stops it is raised, and written to the manifest.

    An interruption waits until the run can be saved; a second one does not.
    """
    record = None
    if folder is not None and saving.resume:
        record = RunFolder.reopen(folder, scenario, command, how)
    elif folder is not None:
        record = RunFolder.create(folder, scenario, label, command, how)
    session: AnySession | None = None
    try:
        with start(scenario, folder, saving) as session, patience() as asked:
            progress = session.advance(0.0)
            while not progress.finished:
                if asked():
                    raise KeyboardInterrupt
                if watch is not None:
                    watch(label, scenario, progress)
                progress = session.advance(STEP_S)
            outcome = session.finish()
    except BaseException as error:
        if session is not None:
            with contextlib.suppress(GifairError, KeyboardInterrupt):
                session.abort()
        begun = session is not None or saving.resume
        if record is not None and not begun and isinstance(error, BadInput):
            shutil.rmtree(record.path, ignore_errors=True)  # it was empty; nothing has begun
        elif record is not None:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            with contextlib.suppress(OSError):
                record.close(status, error=f"{type(error).__name__}: {error}")
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            again = (
                "" if folder is None else f": once that is mended, gifair resume {folder} goes on"
            )
            raise RunFailed(f"{error}; what was saved is complete{again}") from error
        raise
    if watch is not None:  # whatever it raises, the run is finished
        watch(label, scenario, progress)
    if asked():  # too late for this run; there may be others
        raise KeyboardInterrupt
    return outcome


@dataclass(frozen=True)
class Planned:
    """A run of a batch: what to run, and where to."""

    label: str
    scenario: Scenario
    folder: Path


def make(
    run: Planned, command: Sequence[str], how: Mapping[str, Any], watch: Watch | None
) -> str | None:
    """Make a run of a batch in this process, or go on with it; what is wrong with it, or None."""
    try:
        saving = Saving(resume=can_resume(run.folder, run.scenario))
        if not saving.resume:
            clear_unfinished(run.folder)
        run_one(run.label, run.scenario, run.folder, start_local, command, how, watch, saving)
    except GifairError as error:
        return str(error)
    except Exception as error:  # a part of the user's own, a full disk: the others go on
        return f"{type(error).__name__}: {error}"
    return None
