"""`gifair tune` and `gifair sweep`: many independent runs at once, on all workers."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gifair_ray.errors import BadInput, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from gifair_ray.api import BatchRun
    from gifair_ray.scenario import Scenario
    from gifair_ray.scenarios.load import Study

TABLE, TUNED = "tuning.arrow", "tuned.toml"
SYMBOLS = {
    "lambda_fraction": "λ/λ_max",
    "lambda_value": "λ",
    "epsilon": "ε",
    "gamma": "γ",
    "mu": "μ",
}


def run_batch_shown(study: Study, out: Path, arguments: argparse.Namespace) -> list[BatchRun]:
    """Run a study's runs at once, with one progress bar for all."""
    from gifair_ray.api import run_batch
    from gifair_ray.cli.progress import ProgressDisplay

    with ProgressDisplay(len(study.runs), quiet=arguments.quiet) as display:
        return run_batch(
            study,
            out,
            backend=arguments.backend,
            workers=arguments.workers,
            address=arguments.address,
            watch=display.overall,
        )


def sweep(arguments: argparse.Namespace) -> None:
    """Run a scenario over all combinations of values, and compare them."""
    from gifair_ray.cli.commands import show_comparison, show_more
    from gifair_ray.scenarios.sweep import sweep as combine

    study = combine(
        arguments.scenario, arguments.over, arguments.sets, arguments.seed, arguments.seeds
    )
    out = _folder(arguments, study.name, "sweep")
    runs = run_batch_shown(study, out, arguments)
    done = [run.folder for run in runs if run.error is None]
    if done:
        show_comparison(done)
        show_more(out)
    if failed := [run for run in runs if run.error is not None]:
        first = failed[0]
        raise RunFailed(
            f"{len(failed)} of {len(runs)} runs failed, the first of them {first.label}, seed "
            f"{first.scenario.seed}: {first.error}; the same command runs only those again"
        )


def tune(arguments: argparse.Namespace) -> None:
    """Choose every algorithm's setting on validation data, and say how sure that is."""
    from rich.console import Console

    from gifair_ray.scenarios.load import load

    study = load(arguments.scenario, arguments.sets, arguments.seed)
    base = study.runs[0][1]
    seeds = arguments.seeds or sum(label == study.runs[0][0] for label, _ in study.runs)
    refuse_unmeasured(base)
    algorithms = arguments.algorithms.split(",") if arguments.algorithms else None
    out = _folder(arguments, study.name, "tune")
    planned = plan(base, algorithms, seeds)
    table = settle(planned, run_batch_shown(planned, out, arguments))
    write_choice(table, base, seeds, out)
    Console().print(render(table))
    print(f"{out / TABLE}: all candidates. Run the chosen: gifair run {out / TUNED}")


def refuse_unmeasured(base: Scenario) -> None:
    """Refuse data on which no accuracy can be estimated, before anything is run."""
    federation = base.data.build(base.seed)
    if not federation.task.classes or not federation.population.val.any():
        raise BadInput("tuning needs accuracies on validation data: give the data a val split")


def plan(
    base: Scenario, algorithms: Sequence[str] | None, seeds: int, coarse: bool = False
) -> Study:
    """All candidates of these algorithms (or of all that have a grid), evaluated on `val` alone."""
    from gifair_ray.grids import BASELINE, GRIDS, candidates
    from gifair_ray.scenarios.load import Study

    chosen = dict.fromkeys([BASELINE, *(algorithms or GRIDS)])  # each once
    measured = {"evaluation": {"every": 0, "splits": ["val"]}, "audit": {"every": 0}}
    runs: list[tuple[str, Scenario]] = []
    for algorithm in chosen:
        for changes in candidates(algorithm, coarse):
            runs += over_seeds(_label(changes), base, {**changes, **measured}, seeds)
    return Study(base.name, tuple(runs))


def over_seeds(
    label: str, base: Scenario, changes: Mapping[str, Any], seeds: int
) -> list[tuple[str, Scenario]]:
    """Runs of the scenario with a candidate: its algorithm's parts, whatever the scenario had."""
    from gifair_ray.algorithms import ALGORITHMS
    from gifair_ray.scenario import merge, parse
    from gifair_ray.scenarios.change import PARTS_OF_AN_ALGORITHM, vary

    table, parts = base.table(), ALGORITHMS[changes["algorithm"]]
    if "lambda_fraction" in changes.get("weighting", {}):
        table["weighting"].pop("lambda_value", None)  # it is one or the other
    kinds = {part: {"kind": parts[part]["kind"]} for part in PARTS_OF_AN_ALGORITHM}
    first = parse(vary(table, merge(kinds, changes)))
    every = range(base.seed, base.seed + seeds)
    return [(label, first.model_copy(update={"seed": seed})) for seed in every]


def _label(changes: Mapping[str, Any]) -> str:
    from gifair_ray.grids import setting

    return f"{changes['algorithm']} {setting(changes)}".strip()


def settle(planned: Study, runs: Sequence[BatchRun]) -> pa.Table:
    """The table of all candidates and the choice among them."""
    from gifair_ray.analysis import load
    from gifair_ray.analysis.tuning import Estimate, choose, estimate
    from gifair_ray.grids import BASELINE

    estimates: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
    errors: dict[tuple[str, str], str] = {}
    order = dict[tuple[str, str], None]()
    for run in runs:
        candidate = (run.scenario.algorithm, run.label.partition(" ")[2])
        order[candidate] = None
        if run.error is not None:
            errors[candidate] = run.error
        else:
            estimates[candidate].append(estimate(load(run.folder)))
    return choose(list(order), estimates, errors, BASELINE)


def choices(table: pa.Table) -> dict[str, dict[str, Any]]:
    """The chosen changes by algorithm; an algorithm for which FedAvg was chosen has those."""
    from gifair_ray.grids import BASELINE, candidates, setting

    out = {}
    for row in table.to_pylist():
        if row["chosen"]:
            taken = BASELINE if row["flagged"] else row["algorithm"]
            by_setting = {setting(changes): changes for changes in candidates(taken)}
            out[row["algorithm"]] = by_setting["" if row["flagged"] else row["setting"]]
    return out


def write_choice(table: pa.Table, base: Scenario, seeds: int, out: Path) -> None:
    """The table of candidates, and the chosen settings as a study that can be run."""
    import pyarrow.feather as feather

    from gifair_ray.scenarios.load import Study
    from gifair_ray.scenarios.show import dump

    feather.write_feather(table, out / TABLE, compression="uncompressed")
    runs: list[tuple[str, Scenario]] = []
    for algorithm, changes in choices(table).items():
        runs += over_seeds(algorithm, base, changes, seeds)
    (out / TUNED).write_text(dump(Study(base.name, tuple(runs))), encoding="utf-8")


def render(table: pa.Table) -> Any:
    """The candidates for a terminal: accuracy in %, variance in %², each ± its noise."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption="On validation data. ±: standard error that the size of the validation sets "
        "explains; floor: the variance that they would show if all groups were alike.",
        caption_justify="left",
    )
    shown.add_column("algorithm", no_wrap=True)
    shown.add_column("setting", no_wrap=True)
    for heading in ("accuracy %", "variance %²", "floor"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("")
    last = None
    for row in table.to_pylist():
        verdict = "chosen" if row["chosen"] else "" if row["qualifies"] else "less accurate"
        verdict = "none qualifies: as fedavg" if row["flagged"] else verdict
        cells = ["", "", ""]
        if row["error"] is None:
            cells = [
                f"{100 * row['accuracy']:.2f} ±{100 * row['accuracy_noise']:.2f}",
                f"{1e4 * row['variance']:.1f} ±{1e4 * row['variance_noise']:.1f}",
                f"{1e4 * row['variance_floor']:.1f}",
            ]
        else:
            verdict = f"failed: {row['error']}"
        style = "bold" if row["chosen"] else ""
        name = row["algorithm"] if row["algorithm"] != last else ""
        last = row["algorithm"]
        key, equals, value = row["setting"].partition(" = ")
        setting = f"{SYMBOLS.get(key, key)}{equals}{value}"
        shown.add_row(*(Text(cell) for cell in (name, setting, *cells, verdict)), style=style)
    return shown


def _folder(arguments: argparse.Namespace, name: str, what: str) -> Path:
    if arguments.out:
        return Path(arguments.out)
    return Path("runs") / f"{name}-{what}-{datetime.now():%Y%m%d-%H%M%S}"


def add_to(chosen: Any, common: argparse.ArgumentParser, changes: Any) -> None:
    """Add both commands to the command line's parser."""
    for name, do, told in (
        ("sweep", sweep, "a scenario over all combinations of values, many runs at once"),
        ("tune", tune, "choose every algorithm's setting on validation data"),
    ):
        parser = chosen.add_parser(name, parents=[common], help=told)
        parser.add_argument("scenario", help="name of a scenario, or a TOML file")
        changes(parser)
        parser.add_argument("--seed", type=int, help="the first seed")
        parser.add_argument("--seeds", type=_positive, help="how many seeds each (as the scenario)")
        if name == "sweep":
            parser.add_argument(
                "--over", action="append", default=[], metavar="A.B=V1,V2",
                help="a key and its values; may be given many times (none: the study as it is)",
            )  # fmt: skip
        else:
            parser.add_argument(
                "--algorithms", metavar="A,B", help="only these (default: all that have a grid)"
            )
        parser.add_argument("--out", help="folder for the results; the same one goes on from there")
        parser.add_argument("--backend", choices=("ray", "local"), default="ray")
        parser.add_argument("--workers", type=int, help="runs at a time (default: one per core)")
        parser.add_argument("--address", help="of a running Ray cluster, or auto")
        parser.add_argument("--quiet", action="store_true", help="no progress; the result only")
        parser.set_defaults(do=do)


def _positive(written: str) -> int:
    if not written.isdecimal() or int(written) < 1:
        raise argparse.ArgumentTypeError(f"{written!r} is not a whole number from 1 on")
    return int(written)
