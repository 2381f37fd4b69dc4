"""The report of runs that are going on: made again whenever there is something new on disk."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from gifair_ray.analysis.load import RunTables, find_runs, open_runs
from gifair_ray.analysis.report import content
from gifair_ray.errors import BadInput


class Live:
    """What a page about some folders shows now. Safe to be asked by several threads."""

    def __init__(self, paths: Sequence[str], split: str | None) -> None:
        self._paths, self._split = list(paths), split
        self._lock = threading.Lock()
        self._state, self._content = "", dict[str, Any]()
        find_runs(self._paths)  # refuse what is no run before anything is served

    def state(self) -> str:
        """A mark that changes with the folders' contents."""
        digest = hashlib.blake2b(digest_size=12)
        for folder in find_runs(self._paths):
            for path in (folder / "manifest.json", *sorted((folder / "tables").glob("*/*.arrow"))):
                digest.update(f"{path}:{_size(path)}".encode())
        return digest.hexdigest()

    def now(self) -> tuple[str, dict[str, Any]]:
        """The state, and the content of the page: either sections, or why there are none yet."""
        with self._lock:
            state = self.state()
            if state != self._state:
                self._content, self._state = self._made(), state
            return self._state, self._content

    def _made(self) -> dict[str, Any]:
        runs = open_runs(self._paths)
        going_on = [run for run in runs if run.manifest["status"] == "running"]
        told = {"live": _where(runs, going_on), "finished": not going_on}
        try:
            return content(runs, self._split) | told
        except BadInput as error:
            return {"waiting": f"Nothing to show yet: {error}"} | told


def _size(path: Path) -> str:
    try:
        found = path.stat()
    except FileNotFoundError:  # taken away meanwhile
        return "-"
    return f"{found.st_size}:{found.st_mtime_ns}"


def _where(runs: Sequence[RunTables], going_on: Sequence[RunTables]) -> str:
    if not going_on:
        return f"{len(runs)} run(s), all ended"
    run = going_on[-1]
    rounds = pc.max(run.table("rounds")["round"]).as_py() or 0
    done = len(runs) - len(going_on)
    return f"live: {run.manifest['label']}, round {rounds}; {done} of {len(runs)} run(s) ended"
