"""Run scenarios from Python: the same as the command line, which is built on this.

import gifair_ray
run = gifair_ray.run("quickstart.toml", sets=["stop.rounds=20"], backend="local")
run.table("groups").to_pandas()
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow as pa

from gifair_ray.backend import LocalBackend
from gifair_ray.engine import Progress
from gifair_ray.errors import BadInput, GifairError
from gifair_ray.folder import RunFolder, refuse_if_taken
from gifair_ray.protocol import Params
from gifair_ray.results import read_table
from gifair_ray.scenario import Scenario
from gifair_ray.scenarios.load import Study, folder_name, load
from gifair_ray.session import Outcome, Session

Source = str | Path | Mapping[str, Any]
Watch = Callable[[str, Scenario, Progress], None]
"""Told of (label, scenario, progress) every now and then."""
STEP_S = 0.25


@dataclass(frozen=True)
class Run:
    """A finished run: its scenario, tables and models."""

    label: str
    scenario: Scenario
    folder: Path | None
    outcome: Outcome

    @property
    def digest(self) -> str:
        """The logical digest: equal for equal results, however they were computed."""
        return self.outcome.digest

    def table(self, name: str) -> pa.Table:
        """One of the result tables."""
        if self.outcome.tables is not None:
            if name not in self.outcome.tables:
                raise BadInput(f"there is no table {name!r}: {', '.join(self.outcome.tables)}")
            return self.outcome.tables[name]
        assert self.folder is not None
        return read_table(self.folder, name)

    def model(self, client: int | None = None) -> dict[str, Params]:
        """The global model as named tensors, or a client's personal one.

        A client without a personal model (never selected, or none are kept) has the global one.
        """
        flat = self.outcome.theta
        if client is not None:
            flat = self.outcome.personal.get(client, flat)
        return self.outcome.layout.tensors(flat)


class _AnySession(Protocol):
    def advance(self, budget_s: float) -> Progress: ...
    def finish(self) -> Outcome: ...
    def abort(self) -> None: ...


Start = Callable[[Scenario, Path | None], contextlib.AbstractContextManager[_AnySession]]


def run(source: Source, **options: Any) -> Run:
    """Run one scenario; options as for `run_study`."""
    study = load(source, options.pop("sets", ()), options.pop("seed", None))
    if len(study.runs) != 1:
        raise BadInput(
            f"{study.name} is a study of {len(study.runs)} runs: use run_study, or "
            "change study.seeds and study.variants"
        )
    return run_study(study, **options)[0]


def run_study(
    source: Source | Study,
    *,
    sets: Sequence[str] = (),
    seed: int | None = None,
    out: str | Path | None = None,
    backend: Literal["ray", "local"] = "ray",
    workers: int | None = None,
    address: str | None = None,
    clients_per_actor: int | None = None,
    watch: Watch | None = None,
) -> list[Run]:
    """Run all runs of a study, one after the other.

    `sets` are changes such as "work.steps=5". Results go to the folder `out`, a folder within it
    for each run if there are several; without it they stay in memory. `backend` "local" computes
    in this process, "ray" on `workers` actors, on this machine or the cluster at `address`;
    `clients_per_actor` gives every actor clients of its own. The results are the same.
    """
    study = source if isinstance(source, Study) else load(source, sets, seed)
    if clients_per_actor is not None and clients_per_actor < 1:
        raise BadInput(f"clients_per_actor = {clients_per_actor} is less than 1")
    if workers is not None and workers < 1:
        raise BadInput(f"workers = {workers} is less than 1")
    population = max(_check(scenario) for _, scenario in study.runs)
    folders = _folders(study, Path(out) if out is not None else None)
    how = {"backend": backend, "workers": workers, "clients_per_actor": clients_per_actor}
    with _starter(backend, workers, address, clients_per_actor, population) as start:
        return [
            _run_one(label, scenario, folder, start, how, watch)
            for (label, scenario), folder in zip(study.runs, folders, strict=True)
        ]


def _check(scenario: Scenario) -> int:
    """Refuse now what would be refused later, of any run; the number of clients."""
    if (caution := scenario.aggregator.caution) is not None:
        warnings.warn(caution, UserWarning, stacklevel=4)
    population = scenario.data.build(scenario.seed).population
    scenario.weighting.start(population)
    scenario.devices.build(scenario.seed, population)
    scenario.availability.build(scenario.seed, population)
    return len(population)


def _folders(study: Study, out: Path | None) -> list[Path | None]:
    if out is None or len(study.runs) == 1:
        return [out] * len(study.runs)
    folders = [out / f"{folder_name(label)}-seed{scenario.seed}" for label, scenario in study.runs]
    for folder in folders:
        refuse_if_taken(folder)
    return list(folders)


@contextlib.contextmanager
def _starter(
    backend: str,
    workers: int | None,
    address: str | None,
    clients_per_actor: int | None,
    population: int,
) -> Iterator[Start]:
    if backend == "local":
        yield _start_local
        return
    if backend != "ray":
        raise BadInput(f"backend = {backend!r} is neither 'ray' nor 'local'")
    from gifair_ray.actors.cluster import cluster

    with cluster(
        workers=workers,
        address=address,
        clients_per_actor=clients_per_actor,
        population=population,
    ) as actors:
        yield lambda scenario, folder: contextlib.nullcontext(actors.start(scenario, folder))


@contextlib.contextmanager
def _start_local(scenario: Scenario, folder: Path | None) -> Iterator[_AnySession]:
    with LocalBackend(scenario) as backend:
        yield Session(scenario, backend, folder)


def _run_one(
    label: str,
    scenario: Scenario,
    folder: Path | None,
    start: Start,
    how: Mapping[str, Any],
    watch: Watch | None,
) -> Run:
    record = None
    if folder is not None:
        record = RunFolder.create(folder, scenario, label, sys.argv, how)
    session: _AnySession | None = None
    try:
        with start(scenario, folder) as session:
            progress = session.advance(0.0)
            while not progress.finished:
                if watch is not None:
                    watch(label, scenario, progress)
                progress = session.advance(STEP_S)
            outcome = session.finish()
            if watch is not None:
                watch(label, scenario, progress)
    except BaseException as error:
        if session is not None:
            with contextlib.suppress(GifairError, KeyboardInterrupt):
                session.abort()
        if record is not None and session is None and isinstance(error, BadInput):
            shutil.rmtree(record.path, ignore_errors=True)  # it was empty; nothing has begun
        elif record is not None:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            with contextlib.suppress(OSError):
                record.close(status, error=f"{type(error).__name__}: {error}")
        raise
    return Run(label, scenario, folder, outcome)
