"""`gifair paper`: the paper's experiments, tuned, run and set beside its own figures."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gifair_ray.cli.over_lambda import over_lambda, study
from gifair_ray.errors import BadInput, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from gifair_ray.api import BatchRun
    from gifair_ray.experiments import Experiment
    from gifair_ray.scenario import Scenario
    from gifair_ray.scenarios.load import Study


@dataclass(frozen=True)
class Plan:
    """An experiment as it will be run."""

    name: str
    experiment: Experiment
    base: Scenario
    tuning: Study
    modes: Mapping[str, str]
    """Labels of GIFAIR with other ranks than the paper's."""
    seeds: int
    out: Path


def paper(arguments: argparse.Namespace) -> None:
    """Run the chosen experiments and print their tables."""
    from gifair_ray.data._places import data_in
    from gifair_ray.experiments import EXPERIMENTS
    from gifair_ray.imports.sources import make_table
    from gifair_ray.parts import nearest

    names = arguments.experiment or list(EXPERIMENTS)
    out = Path(arguments.out or Path("runs") / f"paper-{arguments.data}-{arguments.budget}")
    if unknown := [name for name in names if name not in EXPERIMENTS]:
        raise BadInput(
            f"unknown experiment {unknown[0]!r}; {nearest(unknown[0], list(EXPERIMENTS))}"
        )
    for name in names if arguments.data == "real" else ():
        make_table(EXPERIMENTS[name].real["path"], out)
    with data_in(str(out) if arguments.data == "real" else None):
        plans = [_plan(name, arguments, out) for name in names]
        _estimate(plans, arguments)
        for one in plans:
            if arguments.sensitivity != "only":
                _run(one, arguments)
            if arguments.sensitivity:
                _show(over_lambda(one, arguments))
                print(f"{one.out}/sensitivity.png, sensitivity.md\n")


def _plan(name: str, arguments: argparse.Namespace, out: Path) -> Plan:
    import tomllib

    from gifair_ray.cli.tune import plan
    from gifair_ray.experiments import EXPERIMENTS, SEEDS, table_for
    from gifair_ray.scenario import parse
    from gifair_ray.scenarios.load import text

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
    modes = {"gifair-global, received ranks": "received", "gifair-global, exact ranks": "exact"}
    if arguments.budget == "small" and not experiment.exact:
        del modes["gifair-global, exact ranks"]
    return Plan(name, experiment, base, tuning, modes, seeds, out / name)


def _estimate(plans: list[Plan], arguments: argparse.Namespace) -> None:
    """Say what it will cost: time one client's work of each, and multiply."""
    total = 0.0
    for one in plans:
        cost = _Cost.of(one.base)
        runs: list[Scenario] = []
        if arguments.sensitivity != "only":
            final = one.seeds * (len(one.experiment.algorithms) + len(one.modes))
            runs += [s for _, s in one.tuning.runs] + final * [one.base]
        if arguments.sensitivity:
            runs += [s for _, s in study(one, arguments.budget).runs]
        seconds = sum(s.stop.rounds or 0 for s in runs) * cost.round
        if "exact" in one.modes.values() and arguments.sensitivity != "only":
            seconds += one.seeds * (one.base.stop.rounds or 0) * cost.asking
        seconds /= _workers(arguments)
        total += seconds
        print(f"{one.name}: {len(runs)} runs, about {seconds / 60:.0f} min")
    print(f"In all about {total / 60:.0f} min on {_workers(arguments)} workers; what is finished "
          "already is not run again", flush=True)  # fmt: skip


class _Cost(NamedTuple):
    """Seconds of one worker: a round of training, and asking everybody for their loss."""

    round: float
    asking: float

    @classmethod
    def of(cls, scenario: Scenario) -> _Cost:
        import numpy as np

        from gifair_ray.backend import LocalBackend
        from gifair_ray.protocol import Message, TrainJob, TrainJobs

        with LocalBackend(scenario) as backend:
            described = backend.describe()
            sizes = described.population.train
            typical = int(np.argsort(sizes)[len(sizes) // 2])
            backend.publish(0, described.initial)
            for ordinal in (0, 1):  # the first also makes the data
                job = TrainJob(ordinal, typical, ordinal, Message(0, 0.0, 0.0))
                backend.submit([TrainJobs.of([job])])
                began = time.process_time()
                backend.collect([ordinal])
            seconds = time.process_time() - began
        passes = scenario.work.sample_passes(sizes)
        each = seconds / passes[typical]
        # Clients are drawn by their sizes, and some algorithms train twice or ask for losses.
        training = scenario.sampling.slots(len(sizes)) * float((passes**2).sum() / passes.sum())
        return cls(1.3 * each * training, 0.3 * each * float(sizes.sum()))


def _workers(arguments: argparse.Namespace) -> int:
    import os

    if arguments.backend == "local":
        return 1
    return int(arguments.workers or os.cpu_count() or 1)


def _run(one: Plan, arguments: argparse.Namespace) -> None:
    from gifair_ray.cli.tune import run_batch_shown, settle, write_choice

    table = settle(one.tuning, run_batch_shown(one.tuning, one.out / "tuning", arguments))
    write_choice(table, one.base, one.seeds, one.out / "tuning")
    chosen, told = settings(table)
    runs = run_batch_shown(_final(one, chosen), one.out / "runs", arguments)
    if failed := [run for run in runs if run.error is not None]:
        raise RunFailed(f"{one.name}, {failed[0].label}: {failed[0].error}")
    _show(_page(one, runs, told))
    print(f"{one.out}/table.md, table.arrow; more: gifair compare {one.out / 'runs'}\n")


def _page(one: Plan, runs: list[BatchRun], told: Mapping[str, str]) -> str:
    """Write the table and what explains it; the same as text."""
    import pyarrow.feather as feather

    from gifair_ray.analysis import load
    from gifair_ray.analysis import paper as tables
    from gifair_ray.analysis.reweighting import NAMES, reweighting
    from gifair_ray.grids import BASELINE

    groups = one.experiment.groups
    found: dict[str, dict[int, dict[str, float]]] = {}
    for run in runs:
        loaded, seed = load(run.folder), run.scenario.seed
        personal = run.label in tables.PERSONAL
        figures = tables.figures(loaded, personal, groups) | reweighting(loaded)
        found.setdefault(run.label, {})[seed] = figures
        if run.label == BASELINE:
            local = tables.figures(loaded, True, groups) | dict.fromkeys(NAMES, math.nan)
            found.setdefault(tables.LAST_LOCAL, {})[seed] = local
    order = [*one.experiment.algorithms, tables.LAST_LOCAL, *one.modes]
    found = {algorithm: found[algorithm] for algorithm in order}
    unfair = "discrepancy" if groups else "std corrected"
    rows = (
        [*groups, unfair, "noise of it", "mean"]
        if groups
        else ["mean", "std", unfair, "noise floor"]
    )
    result = tables.paper_table(found, rows, one.experiment.paper)
    verdict = tables.verdicts(found, BASELINE, unfair)
    text = f"""## {one.experiment.table}

{tables.markdown(result, verdict, told)}
Seed by seed, with 95 % intervals:

{tables.pairs_markdown(found, BASELINE, ["mean", unfair, "loss spread"])}
The re-weighting, in %:

{tables.means_markdown(found, NAMES)}
Clients without a personal model of their own: {tables.fallbacks(found)}.
"""
    feather.write_feather(result, one.out / "table.arrow", compression="uncompressed")
    (one.out / "table.md").write_text(text, encoding="utf-8")
    return text


def settings(table: pa.Table) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
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
    for label, mode in one.modes.items():
        changes[label] = {**own, "weighting": {**own["weighting"], "ranks": mode}}
    runs: list[tuple[str, Scenario]] = []
    for label, change in changes.items():
        runs += over_seeds(label, one.base, change, one.seeds)
    return Study(one.name, tuple(runs))


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
    parser.add_argument(
        "--sensitivity", nargs="?", choices=("also", "only"), const="also",
        help="the figure over λ, too or alone",
    )  # fmt: skip
    parser.add_argument("--out", help="folder for the results; the same one goes on from there")
    parser.add_argument("--backend", choices=("ray", "local"), default="ray")
    parser.add_argument("--workers", type=int, help="runs at a time (default: one per core)")
    parser.add_argument("--address", help="of a running Ray cluster, or auto")
    parser.add_argument("--quiet", action="store_true", help="no progress; the tables only")
    parser.set_defaults(do=paper)
