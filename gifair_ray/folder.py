"""A run's folder: who is writing to it, what it holds, how it ended.

manifest.json   what ran, with what, when, and how it ended
scenario.toml   the resolved scenario
tables/         Arrow segments
models/         safetensors: the global model, the personal ones
lock            the process that is writing
"""

from __future__ import annotations

import contextlib
import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from gifair_ray import locks, toml
from gifair_ray.digest import run_digest
from gifair_ray.errors import BadInput
from gifair_ray.files import write_text, writing
from gifair_ray.inputs import inputs
from gifair_ray.protocol import CPU, Layout
from gifair_ray.replies import Params
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
        folder, ours = RunFolder(path), False
        try:
            refuse_if_taken(path)
            path.mkdir(parents=True, exist_ok=True)
            locks.lock(path, _now())
            ours = True
            (path / "tables").mkdir()
            (path / "models").mkdir()
            write_text(path / "scenario.toml", about)
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
                inputs=inputs(scenario),
                **how,
            )
        except BaseException as error:
            if ours:  # it was empty, and nothing has begun
                shutil.rmtree(path, ignore_errors=True)
                with contextlib.suppress(OSError):
                    locks.unlock(path)
            if not isinstance(error, OSError):
                raise
            why = error.strerror or error
            raise BadInput(f"cannot write to {path}: {why}; choose another --out") from error
        return folder

    @staticmethod
    def reopen(
        path: Path, scenario: Scenario, command: Sequence[str], how: Mapping[str, Any]
    ) -> RunFolder:
        """Take possession of the folder of a run that did not end, to go on with it."""
        folder = RunFolder(path)
        manifest = read_manifest(path)
        if manifest["status"] == "done":
            raise BadInput(f"the run in {path} is finished: there is nothing to go on with")
        if manifest.get("scenario_digest") != scenario.digest():
            raise BadInput(f"{path} holds a run of another scenario; a run goes on with its own")
        now = _versions()
        then = manifest.get("versions")
        if then != now:
            both = sorted(set(now) | set(then or {}))
            told = [f"{n} {(then or {}).get(n)} → {now.get(n)}" for n in both
                    if (then or {}).get(n) != now.get(n)]  # fmt: skip
            raise BadInput(
                f"{path} was begun with other versions ({', '.join(told)}), so that its digest "
                "could not be that of one run: install those, or run it again"
            )
        if manifest.get("cpu") != _cpu():
            raise BadInput(
                f"{path} was begun on another processor ({manifest.get('cpu')}): numbers may "
                "differ in their last bits; go on there, or run it again"
            )
        if (then := manifest.get("device", CPU)) != how.get("device", CPU):
            raise BadInput(f"{path} was begun on another device: go on with --device {then}")
        if manifest.get("inputs") != (found := inputs(scenario)):
            raise BadInput(
                f"{path} was begun with other files ({manifest.get('inputs')}) than there are now "
                f"({found}): restore them, or run it again"
            )
        try:
            locks.lock(path, _now(), "wait for it, or stop it")
            folder.update(status="running", ended=None, error=None, command=list(command))
            folder.update(resumed=[*manifest.get("resumed", []), _now()])
        except OSError as error:
            raise BadInput(f"cannot write to {path}: {error.strerror or error}") from error
        return folder

    def update(self, **changes: Any) -> None:
        """Change entries of the manifest."""
        file = self.path / MANIFEST
        manifest = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        write_text(file, json.dumps(manifest | changes, indent=2, ensure_ascii=False) + "\n")

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
        try:
            self.update(status=status, ended=_now(), **changes)
        finally:  # even if it cannot be said
            with contextlib.suppress(OSError):
                locks.unlock(self.path)
            locks.let_go(self.path)


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
    from safetensors.numpy import save

    with writing(path) as file:
        file.write(save({name: np.ascontiguousarray(t) for name, t in tensors.items()}))


def refuse_if_taken(path: Path) -> None:
    """Refuse a folder that holds anything, and say whether somebody is still writing to it."""
    if not path.exists():
        return
    if not path.is_dir():
        raise BadInput(f"{path} is no folder; choose another --out")
    if owner := locks.user(path):
        raise BadInput(f"{path} is in use by {owner}; choose another --out")
    if (path / MANIFEST).exists() and _status(path) != "done":
        raise BadInput(
            f"{path} holds an unfinished run: gifair resume goes on with it; or choose another "
            "--out, or remove it"
        )
    if locks.exists(path):
        raise BadInput(
            f"{path} holds an unfinished run that had not begun yet: begin it with --resume; or "
            "choose another --out, or remove it"
        )
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


def can_resume(path: Path, scenario: Scenario) -> bool:
    """Whether this folder holds a run of this scenario that was begun here and did not end."""
    try:
        manifest = read_manifest(path)
    except BadInput:
        return False
    same = manifest.get("scenario_digest") == scenario.digest()
    here = manifest.get("versions") == _versions() and manifest.get("cpu") == _cpu()
    here = here and manifest.get("inputs") == inputs(scenario)
    failed = manifest["status"] == "failed"  # it would fail again
    return bool(same and here and not failed and manifest["status"] != "done")


def clear_unfinished(path: Path) -> None:
    """Remove what a run that did not end has left; refuses a folder that is in use."""
    if not path.exists():
        return
    if owner := locks.user(path):
        raise BadInput(f"{path} is in use by {owner}; choose another --out")
    if not locks.exists(path):
        if not (path / MANIFEST).exists():
            refuse_if_taken(path)  # not ours
            return
        if read_manifest(path)["status"] == "done":
            raise BadInput(f"{path} holds a finished run; choose another --out, or remove it")
    shutil.rmtree(path)


def _status(path: Path) -> str | None:
    try:
        status = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["status"]
        return str(status)
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
