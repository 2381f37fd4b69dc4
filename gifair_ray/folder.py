"""A run's folder: who is writing to it, what it holds, how it ended.

manifest.json   what ran, with what, when, and how it ended
scenario.toml   the resolved scenario
tables/         Arrow segments
models/         safetensors: the global model, the personal ones
lock            the process that is writing
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gifair_ray import toml
from gifair_ray.digest import run_digest
from gifair_ray.errors import BadInput
from gifair_ray.protocol import Layout, Params
from gifair_ray.results import MANIFEST, MANIFEST_FORMAT, read_manifest, read_table
from gifair_ray.scenario import Scenario
from gifair_ray.tables import TABLES

PERSONAL_BYTES = 256 << 20  # personal models in one file


@dataclass(frozen=True)
class RunFolder:
    """An open run folder. Made by `create`; `update` and `close` keep the manifest true."""

    path: Path

    @staticmethod
    def create(
        path: Path, scenario: Scenario, label: str, command: Sequence[str], how: Mapping[str, Any]
    ) -> RunFolder:
        """Take possession of a new or empty folder, and say in it what is about to run."""
        about = toml.dump(scenario)
        folder = RunFolder(path)
        try:
            refuse_if_taken(path)
            path.mkdir(parents=True, exist_ok=True)
            _lock(path)
            (path / "tables").mkdir()
            (path / "models").mkdir()
            _write(path / "scenario.toml", about)
            folder.update(
                format=MANIFEST_FORMAT,
                name=scenario.name,
                label=label,
                algorithm=scenario.algorithm,
                seed=scenario.seed,
                scenario_digest=scenario.digest(),
                status="running",
                digest=None,
                command=list(command),
                started=_now(),
                ended=None,
                versions=_versions(),
                cpu=_cpu(),
                **how,
            )
        except OSError as error:
            why = error.strerror or error
            raise BadInput(f"cannot write to {path}: {why}; choose another --out") from error
        return folder

    def update(self, **changes: Any) -> None:
        """Change entries of the manifest."""
        file = self.path / MANIFEST
        manifest = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        _write(file, json.dumps(manifest | changes, indent=2, ensure_ascii=False) + "\n")

    def write_models(self, layout: Layout, theta: Params, personal: Mapping[int, Params]) -> None:
        """Named tensors as safetensors; personal models stacked, with the clients' numbers."""
        _save(self.path / "models" / "global.safetensors", layout.tensors(theta))
        owners = sorted(personal)
        each = max(1, PERSONAL_BYTES // max(1, theta.nbytes))
        for number, at in enumerate(range(0, len(owners), each)):
            some = owners[at : at + each]
            tensors = layout.tensors(np.stack([personal[client] for client in some]))
            clients = np.array(some, dtype=np.int64)
            name = f"personal-{number:04d}.safetensors"
            _save(self.path / "models" / name, {"__clients__": clients, **tensors})
        self.update(
            layout={
                "names": list(layout.names),
                "shapes": [list(shape) for shape in layout.shapes],
                "trainable": layout.trainable,
                "dtype": layout.dtype,
            }
        )

    def close(self, status: str, **changes: Any) -> None:
        """The run has ended, this way."""
        self.update(status=status, ended=_now(), **changes)
        (self.path / "lock").unlink(missing_ok=True)


def read_models(path: Path) -> tuple[Layout, Params, dict[int, Params]]:
    """The layout, the global model and the personal ones of a finished run, as flat vectors."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    shape = read_manifest(path).get("layout")
    if shape is None:
        raise BadInput(f"{path} has no models yet: the run did not end")
    try:
        layout = Layout(
            tuple(shape["names"]),
            tuple(tuple(s) for s in shape["shapes"]),
            shape["trainable"],
            shape["dtype"],
        )
        theta = _flat(layout, load_file(path / "models" / "global.safetensors"), ())
        personal: dict[int, Params] = {}
        for file in sorted((path / "models").glob("personal-*.safetensors")):
            tensors = load_file(file)
            clients = tensors.pop("__clients__")
            stack = _flat(layout, tensors, (len(clients),))
            personal |= dict(zip(clients.tolist(), stack, strict=True))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"the models of {path} cannot be read: {error}") from error
    return layout, theta, personal


def _flat(layout: Layout, tensors: Mapping[str, Params], stack: tuple[int, ...]) -> Params:
    return np.concatenate([tensors[name].reshape(*stack, -1) for name in layout.names], axis=-1)


def folder_digest(path: Path) -> str:
    """The logical digest of a finished run, computed anew from what is on disk."""
    _, theta, personal = read_models(path)
    return run_digest({name: read_table(path, name) for name in TABLES}, theta, personal)


def _save(path: Path, tensors: Mapping[str, Any]) -> None:
    from safetensors.numpy import save_file

    partial = path.with_suffix(".partial")
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, partial)
    partial.replace(path)


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    # A command line may hold bytes that are no text; as escapes, they are valid JSON.
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)


def refuse_if_taken(path: Path) -> None:
    """Refuse a folder that holds anything, and say whether somebody is still writing to it."""
    if not path.exists():
        return
    if not path.is_dir():
        raise BadInput(f"{path} is no folder; choose another --out")
    if (path / "lock").exists():
        pid, host = _owner(path / "lock")
        if host == socket.gethostname() and not _alive(pid):
            raise BadInput(f"{path} holds an unfinished run; choose another --out, or remove it")
        raise BadInput(f"{path} is in use by process {pid} on {host}; choose another --out")
    if any(path.iterdir()):
        raise BadInput(f"{path} is not empty; choose another --out, or remove it")


def finished(path: Path, scenario: Scenario) -> bool:
    """Whether this folder holds the finished run of this scenario; refuses another one's."""
    if not (path / MANIFEST).exists():
        return False
    manifest = read_manifest(path)
    if manifest.get("scenario_digest") != scenario.digest():
        raise BadInput(f"{path} holds a run of another scenario; choose another --out")
    return bool(manifest["status"] == "done")


def clear_unfinished(path: Path) -> None:
    """Remove what a run that did not end has left; refuses a folder that is in use."""
    if not path.exists():
        return
    lock, manifest = path / "lock", path / MANIFEST
    if lock.exists():
        pid, host = _owner(lock)
        if host != socket.gethostname() or _alive(pid):
            raise BadInput(f"{path} is in use by process {pid} on {host}; choose another --out")
    elif not manifest.exists():
        refuse_if_taken(path)  # not ours
        return
    elif read_manifest(path)["status"] == "done":
        raise BadInput(f"{path} holds a finished run; choose another --out, or remove it")
    shutil.rmtree(path)


def _owner(lock: Path) -> tuple[int, str]:
    """The process that holds a lock; one that cannot be told is taken to be alive, elsewhere."""
    try:
        owner = json.loads(lock.read_text(encoding="utf-8"))
        return int(owner["pid"]), str(owner["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, "an unknown machine"


def _lock(path: Path) -> None:
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
    try:
        with open(path / "lock", "x", encoding="utf-8") as file:
            json.dump(owner, file)
    except FileExistsError as error:
        raise BadInput(f"{path} is in use by another process; choose another --out") from error


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return pid > 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    names = ("gifair-ray", "numpy", "pyarrow", "pydantic", "ray", "safetensors", "torch")
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
