"""Run scenarios from Python: the same as the command line, which is built on this.

import gifair_ray
run = gifair_ray.run("quickstart.toml", sets=["stop.rounds=20"], backend="local")
run.table("groups").to_pylist()
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from gifair_ray.errors import BadInput
from gifair_ray.folder import clear_unfinished, finished, read_models, refuse_if_taken
from gifair_ray.protocol import CPU
from gifair_ray.replies import Params
from gifair_ray.results import MANIFEST, read_manifest, read_table
from gifair_ray.runner import Planned, Start, Watch, make, run_one, start_local
from gifair_ray.scenario import Scenario
from gifair_ray.scenarios.load import Study, folder_name, load
from gifair_ray.session import Outcome, Saving

Source = str | Path | Mapping[str, Any]


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
    cpus_per_actor: float | None = None,
    gpus_per_actor: float = 0.0,
    device: str = CPU,
    watch: Watch | None = None,
    checkpoint_s: float = 60.0,
    checkpoint_rounds: int | None = None,
    resume: bool = False,
) -> list[Run]:
    """Run all runs of a study, one after the other.

    `sets` are changes such as "work.steps=5". Results go to the folder `out`, a folder within it
    for each run if there are several; without it they stay in memory. `backend` "local" computes
    in this process, "ray" on `workers` actors, on this machine or the cluster at `address`;
    `clients_per_actor` gives every actor clients of its own; `cpus_per_actor` and
    `gpus_per_actor` say how many of those, or what fraction, Ray keeps for an actor. The results
    are the same; on another torch `device` they differ as on another kind of CPU. A run in a
    folder is saved every `checkpoint_s` seconds or `checkpoint_rounds` rounds; with `resume`,
    runs that `out` holds already are gone on with, and finished ones not run again.
    """
    study = source if isinstance(source, Study) else load(source, sets, seed)
    _check_computing(backend, workers, clients_per_actor)
    population = max(_check(scenario) for _, scenario in study.runs)
    folders = _folders(study, Path(out) if out is not None else None, resume)
    how = {"backend": backend, "workers": workers, "clients_per_actor": clients_per_actor,
           "device": device}  # fmt: skip
    saving = _saving(checkpoint_s, checkpoint_rounds)
    resources = (cpus_per_actor, gpus_per_actor, device)
    with _starter(backend, workers, address, clients_per_actor, population, resources) as start:
        runs = []
        for (label, scenario), folder in zip(study.runs, folders, strict=True):
            if resume and folder is not None and finished(folder, scenario):
                runs.append(Run(label, scenario, folder, _outcome(folder)))
                continue
            again = resume and folder is not None and (folder / MANIFEST).exists()
            if resume and folder is not None and not again:
                clear_unfinished(folder)  # of a run that was killed before it began
            how_saved = replace(saving, resume=again)
            outcome = run_one(label, scenario, folder, start, sys.argv, how, watch, how_saved)
            runs.append(Run(label, scenario, folder, outcome))
        return runs


def _outcome(folder: Path) -> Outcome:
    """Of a run that is finished already."""
    manifest = read_manifest(folder)
    return Outcome(manifest["digest"], *read_models(folder), None, tuple(manifest["remarks"]))


def resume(
    folder: str | Path,
    *,
    backend: Literal["ray", "local"] = "ray",
    workers: int | None = None,
    address: str | None = None,
    clients_per_actor: int | None = None,
    cpus_per_actor: float | None = None,
    gpus_per_actor: float = 0.0,
    device: str = CPU,
    watch: Watch | None = None,
    checkpoint_s: float = 60.0,
    checkpoint_rounds: int | None = None,
) -> Run:
    """Go on with a run that was stopped, from its last checkpoint; options as for `run_study`.

    The finished run has the digest of one that was never stopped. A changed scenario, and other
    versions of what computes it, are refused.
    """
    _check_computing(backend, workers, clients_per_actor)
    path = Path(folder)
    label = read_manifest(path)["label"]
    scenario = load(path / "scenario.toml").runs[0][1]
    saving = replace(_saving(checkpoint_s, checkpoint_rounds), resume=True)
    resources = (cpus_per_actor, gpus_per_actor, device)
    population = _check(scenario)
    with _starter(backend, workers, address, clients_per_actor, population, resources) as start:
        outcome = run_one(label, scenario, path, start, sys.argv, {"device": device}, watch, saving)
    return Run(label, scenario, path, outcome)


def _saving(seconds: float, rounds: int | None) -> Saving:
    if not seconds > 0:
        raise BadInput(f"checkpoint_s = {seconds} is not above 0")
    if rounds is not None and rounds < 1:
        raise BadInput(f"checkpoint_rounds = {rounds} is less than 1")
    return Saving(seconds, rounds)


@dataclass(frozen=True)
class BatchRun:
    """A run of a batch, and what went wrong with it, if anything did."""

    label: str
    scenario: Scenario
    folder: Path
    error: str | None


def run_batch(
    study: Study,
    out: str | Path,
    *,
    backend: Literal["ray", "local"] = "ray",
    workers: int | None = None,
    address: str | None = None,
    watch: Callable[[float], None] | None = None,
) -> list[BatchRun]:
    """Run all runs of a study at once, each on one worker; for sweeps of many small runs.

    A folder within `out` for each; those that are finished already are not run again, so that a
    batch which was stopped can go on. A run that fails does not stop the others. `watch` is told
    how many are done. The results are those of `run_study`.
    """
    _check_computing(backend, workers)
    for scenario in {scenario.model_copy(update={"seed": 0}).digest(): scenario
                     for _, scenario in study.runs}.values():  # fmt: skip
        _check(scenario)
    root = Path(out)
    planned = [
        Planned(label, scenario, root / f"{folder_name(label)}-seed{scenario.seed}")
        for label, scenario in study.runs
    ]
    todo = [run for run in planned if not finished(run.folder, run.scenario)]
    tell = watch or (lambda done: None)
    how = {"backend": "local", "workers": 1, "clients_per_actor": None}
    errors: list[str | None]
    if backend == "local":
        errors = []
        for run in todo:
            tell(len(planned) - len(todo) + len(errors))
            errors.append(make(run, sys.argv, how, None))
    else:
        from gifair_ray.actors.batch import run_batch as on_workers

        skipped = len(planned) - len(todo)
        errors = on_workers(
            todo, workers=workers, address=address, command=sys.argv, how=how,
            watch=lambda done: tell(skipped + done),
        ) if todo else []  # fmt: skip
    tell(len(planned))
    failed = {run.folder: error for run, error in zip(todo, errors, strict=True)}
    return [
        BatchRun(run.label, run.scenario, run.folder, failed.get(run.folder)) for run in planned
    ]


def _check_computing(
    backend: str, workers: int | None, clients_per_actor: int | None = None
) -> None:
    if clients_per_actor is not None and clients_per_actor < 1:
        raise BadInput(f"clients_per_actor = {clients_per_actor} is less than 1")
    if backend not in ("ray", "local"):
        raise BadInput(f"backend = {backend!r} is neither 'ray' nor 'local'")
    if workers is not None and workers < 1:
        raise BadInput(f"workers = {workers} is less than 1")


def _check(scenario: Scenario) -> int:
    """Refuse now what would be refused later, of any run; the number of clients."""
    for caution in filter(None, (scenario.aggregator.caution, scenario.sampling.caution)):
        warnings.warn(caution, UserWarning, stacklevel=4)
    population = scenario.data.build(scenario.seed).population
    scenario.weighting.start(population)
    scenario.devices.build(scenario.seed, population)
    scenario.availability.build(scenario.seed, population)
    return len(population)


def _folders(study: Study, out: Path | None, resume: bool) -> list[Path | None]:
    if out is None or len(study.runs) == 1:
        return [out] * len(study.runs)
    folders = [out / f"{folder_name(label)}-seed{scenario.seed}" for label, scenario in study.runs]
    for folder in folders if not resume else ():
        refuse_if_taken(folder)
    return list(folders)


@contextlib.contextmanager
def _starter(
    backend: str,
    workers: int | None,
    address: str | None,
    clients_per_actor: int | None,
    population: int,
    resources: tuple[float | None, float, str],
) -> Iterator[Start]:
    cpus, gpus, device = resources
    if not (cpus is None or cpus > 0) or not gpus >= 0:
        raise BadInput(f"an actor cannot take {cpus} CPUs and {gpus} GPUs")
    if backend == "local":
        yield partial(start_local, device=device)
        return
    from gifair_ray.actors.cluster import cluster

    with cluster(
        workers=workers,
        address=address,
        clients_per_actor=clients_per_actor,
        population=population,
        cpus_per_actor=cpus,
        gpus_per_actor=gpus,
        device=device,
    ) as actors:
        yield lambda scenario, folder, saving: contextlib.nullcontext(
            actors.start(scenario, folder, saving)
        )
