"""What workers need on machines that do not have it: data files, and this package itself.

Data files go through Ray's object store. A worker uses the file under its own path if that holds
the same; otherwise what was shipped, in a folder that goes with the worker.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import ray

from gifair_ray.errors import BadInput
from gifair_ray.files import writing
from gifair_ray.inputs import files, fingerprint, with_files
from gifair_ray.scenario import Scenario

WORKERS_PART = "data"  # what a worker reads; the rest is read by the server, where the driver is


@dataclass(frozen=True)
class Shipped:
    """A file of the driver's: its path there, its fingerprint, and its bytes by reference."""

    path: str
    fingerprint: str
    content: Any = None
    """None: the workers have the driver's disk."""


Shipment = dict[tuple[str, str], Shipped]


def ship(scenario: Scenario, contents: bool) -> Shipment:
    """The files that workers need, with what they hold if `contents`."""
    found: Shipment = {}
    for part, field, path in files(scenario):
        if part == WORKERS_PART and path.exists():
            content = ray.put(np.fromfile(path, dtype=np.uint8)) if contents else None
            found[part, field] = Shipped(str(path), fingerprint(path), content)
    return found


def unpacked(table: Mapping[str, Any], shipment: Shipment) -> dict[str, Any]:
    """The scenario's table for this worker, whose files hold what the driver's do."""
    return with_files(table, {key: _place(shipped) for key, shipped in shipment.items()})


def _place(shipped: Shipped) -> Path:
    local = Path(shipped.path)
    if local.is_file() and fingerprint(local) == shipped.fingerprint:
        return local
    if shipped.content is None:
        state = "holds something else" if local.exists() else "is not there"
        raise BadInput(f"{local} {state} on a worker's machine, and was not sent to it")
    own = _folder() / f"{shipped.fingerprint}{local.suffix}"
    if not own.exists():
        with writing(own) as file:
            file.write(ray.get(shipped.content).data)
    return own


def code(wheel: str | Path) -> dict[str, Any]:
    """A `runtime_env` for `ray.init` that brings this package to every worker, as a wheel.

    What it depends on must be installed there.
    """
    path = Path(wheel)
    if path.suffix != ".whl" or not path.is_file():
        raise BadInput(f"{path} is no wheel; make one with pip wheel --no-deps")
    own = _folder() / f"{path.stem}.zip"  # which a wheel is; Ray unpacks it where workers start
    shutil.copyfile(path, own)
    return {"working_dir": str(own)}


@cache
def _folder() -> Path:
    """Of this worker, for as long as it lives."""
    folder = tempfile.TemporaryDirectory(prefix="gifair-data-")
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []
