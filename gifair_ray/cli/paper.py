"""`gifair paper`: the paper's experiments, tuned, run and set beside its own figures."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gifair_ray.errors import BadInput, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from gifair_ray.experiments import Experiment
    from gifair_ray.scenario import Scenario
    from gifair_ray.scenarios.load import Study

LAST_LOCAL = "fedavg, last local models"
RECEIVED = "gifair-global, received ranks"
EXACT = "gifair-global, exact ranks"
LAMBDAS = tuple(i / 10 for i in range(10))


@dataclass(frozen=True)
class Plan:
    """An experiment as it will be run."""

    name: str
    experiment: Experiment
    base: Scenario
    tuning: Study
    seeds: int
    out: Path


def paper(arguments: argparse.Namespace) -> None:
    """Run the chosen experiments and print their tables."""
    from gifair_ray.data._places import data_in
    from gifair_ray.experiments import EXPERIMENTS

    if arguments.budget == "smoke" and arguments.sensitivity:
        raise BadInput("--sensitivity needs at least --budget small")
    names = arguments.experiment or list(EXPERIMENTS)
    out = Path(arguments.out or Path("runs") / f"paper-{arguments.data}-{arguments.budget}")
    if arguments.data == "real":
        _import_real(names, out)
    with data_in(str(out) if arguments.data == "real" else None):
        plans = [_plan(name, arguments, out) for name in names]
        _estimate(plans, arguments)
        for one in plans:
            _run(one, arguments)


def _plan(name: str, arguments: argparse.Namespace, out: Path) -> Plan:
    import tomllib

    from gifair_ray.cli.tune import plan
    from gifair_ray.experiments import EXPERIMENTS, SEEDS, table_for
    from gifair_ray.parts import nearest
    from gifair_ray.scenario import parse
    from gifair_ray.scenarios.load import text

    if name not in EXPERIMENTS:
        raise BadInput(f"unknown experiment {name!r}; {nearest(name, list(EXPERIMENTS))}")
    experiment = EXPERIMENTS[name]
    table = tomllib.loads(text(experiment.scenario))
    base = parse(
        table_for(experiment, table, arguments.data, arguments.budget)
        | {"name": experiment.scenario}
    )
    tried, coarse = base, arguments.budget != "paper"
    if arguments.budget == "small":
        half = {"rounds": experiment.rounds // 2}
        tried = base.model_copy(update={"stop": base.stop.model_copy(update=half)})
    tuning = plan(tried, experiment.algorithms, 1, coarse)
    if arguments.budget == "smoke":  # one candidate each: the way is tested, not the choice
        first = {s.algorithm: (label, s) for label, s in reversed(tuning.runs)}
        tuning = type(tuning)(tuning.name, tuple(reversed(first.values())))
    seeds = arguments.seeds or SEEDS[arguments.budget]
    return Plan(name, experiment, base, tuning, seeds, out / name)


def _estimate(plans: list[Plan], arguments: argparse.Namespace) -> None:
    """Say what it will cost: time one client's work of each, and multiply."""
    total = 0.0
    for one in plans:
        runs = len(one.tuning.runs) + one.seeds * (len(one.experiment.algorithms) + 2)
        seconds = _seconds_per_run(one.base) * runs / _workers(arguments)
        total += seconds
        print(f"{one.name}: {runs} runs, about {seconds / 60:.0f} min")
    print(f"In all about {total / 60:.0f} min on {_workers(arguments)} workers; what is finished "
          "already is not run again", flush=True)  # fmt: skip


def _seconds_per_run(scenario: Scenario) -> float:
    import numpy as np

    from gifair_ray.backend import LocalBackend
    from gifair_ray.protocol import Message, TrainJob

    with LocalBackend(scenario) as backend:
        described = backend.describe()
        sizes = described.population.train
        typical = int(np.argsort(sizes)[len(sizes) // 2])
        backend.publish(0, described.initial)
        for ordinal in (0, 1):  # the first also makes the data
            backend.submit([TrainJob(ordinal, typical, ordinal, Message(0, 0.0, 0.0))])
            began = time.perf_counter()
            backend.collect([ordinal])
        seconds = time.perf_counter() - began
    updates = (scenario.stop.rounds or 0) * scenario.sampling.slots(len(sizes))
    passes = scenario.work.sample_passes(sizes)
    evaluations = 6 * len(sizes) / 3 * 0.3
    return float(seconds * (updates * passes.mean() / passes[typical] + evaluations))


def _workers(arguments: argparse.Namespace) -> int:
    import os

    if arguments.backend == "local":
        return 1
    return int(arguments.workers or os.cpu_count() or 1)


def _run(one: Plan, arguments: argparse.Namespace) -> None:
    import pyarrow.feather as feather

    from gifair_ray.analysis import load
    from gifair_ray.analysis import paper as tables
    from gifair_ray.cli.tune import run_batch_shown, settle, write_choice
    from gifair_ray.grids import BASELINE

    experiment = one.experiment
    table = settle(one.tuning, run_batch_shown(one.tuning, one.out / "tuning", arguments))
    write_choice(table, one.base, one.seeds, one.out / "tuning")
    chosen, told = _settings(table)
    study = _final(one, chosen)
    runs = run_batch_shown(study, one.out / "runs", arguments)
    if failed := [run for run in runs if run.error is not None]:
        raise RunFailed(f"{one.name}, {failed[0].label}: {failed[0].error}")
    groups = experiment.groups
    found: dict[str, dict[int, dict[str, float]]] = {}
    for run in runs:
        personal = run.label in ("ditto", "gifair-per")
        loaded = load(run.folder)
        seed = run.scenario.seed
        found.setdefault(run.label, {})[seed] = tables.figures(loaded, personal, groups)
        if run.label == BASELINE:
            found.setdefault(LAST_LOCAL, {})[seed] = tables.figures(loaded, True, groups)
    order = [a for a in [*experiment.algorithms, LAST_LOCAL, RECEIVED, EXACT] if a in found]
    found = {algorithm: found[algorithm] for algorithm in order}
    rows = ["mean", "std", "std corrected", "noise floor"]
    if groups:
        rows = [*groups, "discrepancy", "mean"]
    result = tables.paper_table(found, rows, experiment.paper)
    verdict = tables.verdicts(found, BASELINE, "discrepancy" if groups else "std corrected")
    text = f"## {experiment.table}\n\n{tables.markdown(result, verdict, told)}"
    feather.write_feather(result, one.out / "table.arrow", compression="uncompressed")
    (one.out / "table.md").write_text(text, encoding="utf-8")
    _show(text)
    if arguments.sensitivity:
        _sensitivity(one, arguments)
    print(f"{one.out}/table.md, table.arrow; more: gifair compare {one.out / 'runs'}\n")


def _settings(table: pa.Table) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """What every algorithm is run with, as changes and in words.

    That is its choice. Where none of its candidates was as accurate as FedAvg the rule would run
    FedAvg again: the most accurate of them says more, and has a dagger.
    """
    from gifair_ray.grids import candidates, setting

    chosen: dict[str, Mapping[str, Any]] = {}
    told = {}
    rows = table.to_pylist()
    for row in [row for row in rows if row["chosen"]]:
        name = row["algorithm"]
        by_setting = {setting(changes): changes for changes in candidates(name)}
        if row["flagged"]:
            tried = [r for r in rows if r["setting"] in by_setting and r["algorithm"] == name]
            row = max(tried, key=lambda r: r["accuracy"] or 0.0) | {"flagged": True}
        chosen[name] = by_setting[row["setting"]]
        told[name] = row["setting"] + " †" * row["flagged"]
    return chosen, told


def _final(one: Plan, chosen: Mapping[str, Mapping[str, Any]]) -> Study:
    """All algorithms with their settings; FedAvg keeps local models; GIFAIR's rank modes."""
    from gifair_ray.cli.tune import over_seeds
    from gifair_ray.scenarios.load import Study

    changes = dict(chosen) | {"fedavg": {"algorithm": "fedavg", "solver": {"keep": True}}}
    own = chosen["gifair-global"]
    for label, mode in ((RECEIVED, "received"), (EXACT, "exact")):
        changes[label] = {**own, "weighting": {**own["weighting"], "ranks": mode}}
    runs: list[tuple[str, Scenario]] = []
    for label, settings in changes.items():
        runs += over_seeds(label, one.base, settings, one.seeds)
    return Study(one.name, tuple(runs))


def _sensitivity(one: Plan, arguments: argparse.Namespace) -> None:
    """The paper's figure: accuracies of the groups (or mean and std) against λ/λ_max."""
    from gifair_ray.analysis import load
    from gifair_ray.analysis.lambda_plot import sensitivity
    from gifair_ray.cli.tune import over_seeds, run_batch_shown
    from gifair_ray.scenarios.load import Study

    runs: list[tuple[str, Scenario]] = []
    for fraction in LAMBDAS[:: 3 if arguments.budget == "small" else 1]:
        change = {"algorithm": "gifair-global", "weighting": {"lambda_fraction": fraction}}
        runs += over_seeds(f"{fraction:g}", one.base, change, one.seeds)
    done = run_batch_shown(Study(one.name, tuple(runs)), one.out / "sensitivity", arguments)
    if failed := [run for run in done if run.error is not None]:
        raise RunFailed(f"{one.name}, λ/λ_max = {failed[0].label}: {failed[0].error}")
    by_lambda: dict[float, list[Any]] = {}
    for run in done:
        by_lambda.setdefault(float(run.label), []).append(load(run.folder))
    figure = sensitivity(by_lambda, grouped=bool(one.experiment.groups))
    figure.savefig(one.out / "sensitivity.png", dpi=200)
    print(one.out / "sensitivity.png")


def _import_real(names: list[str], out: Path) -> None:
    """Turn the files of the data folder into the tables that the experiments read."""
    from gifair_ray.data._places import find
    from gifair_ray.experiments import EXPERIMENTS
    from gifair_ray.imports.emnist import import_emnist
    from gifair_ray.imports.leaf import import_leaf
    from gifair_ray.imports.roles import import_roles

    known: dict[str, tuple[Any, tuple[str, ...]]] = {
        "emnist.arrow": (import_emnist, ("emnist_byclass_62x200.npz", "emnist",
                         "emnist_byclass_62x200/emnist_byclass_62x200.npz")),
        "roles.arrow": (import_roles, ("shakespeare_roles.parquet",
                        "shakespeare/shakespeare_roles.parquet")),
        "femnist.arrow": (import_leaf, ("femnist", "leaf/data/femnist/data/all_data")),
    }  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        file = EXPERIMENTS[name].real["path"] if name in EXPERIMENTS else ""
        if not file or (out / file).exists() or find(file).exists():
            continue
        make, sources = known[file]
        source = next((s for s in sources if find(s).exists()), None)
        if source is None:
            raise BadInput(
                f"{name} on real data needs {file}, or one of {', '.join(sources)} to make it "
                "from; say where with --data-dir or GIFAIR_DATA"
            )
        make(str(find(source)), str(out / file))


def _show(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        print(text)


def add_to(chosen: Any, common: argparse.ArgumentParser) -> None:
    """Add the command to the command line's parser."""
    parser = chosen.add_parser("paper", parents=[common], help="the paper's experiments")
    parser.add_argument(
        "--experiment", action="append", metavar="NAME", help="femnist-skewed, …; may be repeated"
    )
    parser.add_argument("--data", choices=("embedded", "real"), default="embedded")
    parser.add_argument("--data-dir", metavar="DIR", help="where the real data is")
    parser.add_argument("--budget", choices=("smoke", "small", "paper"), default="small")
    parser.add_argument("--seeds", type=int, help="how many (3 for small, 5 for paper)")
    parser.add_argument("--sensitivity", action="store_true", help="also the figure over λ")
    parser.add_argument("--out", help="folder for the results; the same one goes on from there")
    parser.add_argument("--backend", choices=("ray", "local"), default="ray")
    parser.add_argument("--workers", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--address", help="of a running Ray cluster, or auto")
    parser.add_argument("--quiet", action="store_true", help="no progress; the tables only")
    parser.set_defaults(do=paper)
