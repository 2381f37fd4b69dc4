"""The server actor: one run, advanced in short steps by the driver."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gifair_ray.actors.client import RunSpec
from gifair_ray.actors.pool import RayBackend
from gifair_ray.engine import Progress
from gifair_ray.scenario import parse
from gifair_ray.session import Outcome, Saving, Session


class ServerActor:
    """Owns all state of a run. Every call returns soon, so that the driver can always step in."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._backend: RayBackend | None = None

    def begin(
        self,
        spec: RunSpec,
        actors: Sequence[Any],
        clients_per_actor: int | None,
        folder: Path | None,
        saving: Saving,
    ) -> None:
        """Take up a run with these client actors."""
        self._backend = RayBackend(spec, actors, clients_per_actor)
        self._session = Session(parse(spec.scenario), self._backend, folder, saving)
        gc.freeze()  # what is there now stays: looking through it again and again takes long

    def advance(self, budget_s: float) -> Progress:
        """Go on for about so long."""
        return self._current().advance(budget_s)

    def finish(self) -> Outcome:
        """Write the results of a finished run."""
        outcome = self._current().finish()
        self._release()
        return outcome

    def abort(self) -> None:
        """Give the run up; what was recorded stays."""
        if self._session is not None:
            self._session.abort()
        self._release()

    def bytes_moved(self) -> int:
        """Models and results that have gone to and from client actors so far."""
        return self._backend.moved if self._backend is not None else 0

    def _current(self) -> Session:
        if self._session is None:
            raise RuntimeError("no run has begun")
        return self._session

    def _release(self) -> None:
        if self._backend is not None:
            self._backend.close()
        self._session = self._backend = None
