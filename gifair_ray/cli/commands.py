"""What each command does. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import sys
import textwrap
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gifair_ray.errors import BadInput, RunFailed

if TYPE_CHECKING:
    from gifair_ray.api import Run
    from gifair_ray.parts import Part
    from gifair_ray.scenarios.load import Study


def run(arguments: argparse.Namespace) -> None:
    """Run a scenario or a study, with progress, and end with its table."""
    from gifair_ray.scenarios.load import load

    study = load(arguments.scenario, arguments.sets, arguments.seed)
    if arguments.resume and not arguments.out:
        raise BadInput("--resume goes on with the runs in a folder: name it with --out")
    runs, out = run_shown(study, arguments)
    _show_results(runs, out)


def resume(arguments: argparse.Namespace) -> None:
    """Go on with runs that were stopped; those that are finished stay as they are."""
    from gifair_ray.analysis import find_runs
    from gifair_ray.api import resume as go_on
    from gifair_ray.cli.progress import ProgressDisplay
    from gifair_ray.results import read_manifest

    found = find_runs(arguments.runs)
    folders = [folder for folder in found if read_manifest(folder)["status"] != "done"]
    if not folders:
        raise BadInput(f"{found[0]} is finished: there is nothing to go on with")
    with ProgressDisplay(len(folders), quiet=arguments.quiet) as display:
        runs = [go_on(folder, watch=display.update, **computing(arguments)) for folder in folders]
    _show_results(runs, folders[0] if len(folders) == 1 else Path(arguments.runs[0]))


COMPUTING = (
    "backend", "workers", "address", "clients_per_actor", "cpus_per_actor", "gpus_per_actor",
    "device", "checkpoint_s", "checkpoint_rounds",
)  # fmt: skip
"""Options that say how a run is computed and saved; only the device may change its results."""


def computing(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those options as the command line gives them."""
    return {name: getattr(arguments, name) for name in COMPUTING}


def run_shown(study: Study, arguments: argparse.Namespace) -> tuple[list[Run], Path]:
    """Run a study as the command line says, with its progress; and where the results are."""
    from gifair_ray.api import run_study
    from gifair_ray.cli.progress import ProgressDisplay

    out = Path(arguments.out or Path("runs") / f"{study.name}-{datetime.now():%Y%m%d-%H%M%S}")
    with ProgressDisplay(len(study.runs), quiet=arguments.quiet) as display:
        runs = run_study(
            study,
            out=out,
            watch=display.update,
            resume=getattr(arguments, "resume", False),
            **computing(arguments),
        )
    return runs, out


def _show_results(runs: list[Run], out: Path) -> None:
    show_comparison([run.folder for run in runs if run.folder is not None])
    for remark in dict.fromkeys(remark for run in runs for remark in run.outcome.remarks):
        print(f"note: {remark}")
    if len(runs) == 1:
        print(f"digest {runs[0].digest}")
    show_more(out)


def show_more(out: Path) -> None:
    """The commands that show more of what is in a folder, to be typed as they are."""
    folder, command = shlex.quote(str(out)), "gifair"
    typed = Path(sys.argv[0])
    if typed.name == command and shutil.which(command) is None:  # make run, without activation
        command = shlex.quote(sys.argv[0])
    print(f"More: {command} compare {folder}")
    print(f"      {command} report {folder} --open")


def show_comparison(folders: list[Path]) -> None:
    """Finished runs side by side, in short."""
    from rich.console import Console

    from gifair_ray.analysis import compare as compare_runs
    from gifair_ray.analysis import load, render

    tables = [load(folder) for folder in folders]
    for split in ("test", "train"):  # some problems have no test data
        with contextlib.suppress(BadInput):  # not evaluated
            table = compare_runs(tables, split)
            if table["mean_loss"].null_count < len(table):
                Console().print(render(table, brief=True))
                break
    else:
        print(f"{len(folders)} run(s) done; there was no evaluation to show")


def list_all(arguments: argparse.Namespace) -> None:
    """Scenarios, algorithms and the parts that can be combined."""
    from gifair_ray.aggregators import Aggregator
    from gifair_ray.algorithms import ALGORITHMS
    from gifair_ray.availability import Availability
    from gifair_ray.federation import DataSource
    from gifair_ray.models import Model
    from gifair_ray.policies import Policy
    from gifair_ray.scenarios.load import names, summary
    from gifair_ray.solvers import Solver
    from gifair_ray.weightings import Weighting

    room = shutil.get_terminal_size((sys.maxsize, 0)).columns  # a file takes lines of any length

    def tell(line: str, indent: int = 2) -> None:
        first, others = "  ", " " * indent
        print(textwrap.fill(line, room, break_on_hyphens=False,
                            initial_indent=first, subsequent_indent=others))  # fmt: skip

    print("scenarios (gifair run NAME)")
    width = max(map(len, names()))
    for name in names():
        tell(f"{name:<{width}}  {summary(name)}", width + 4)
    print("algorithms")
    tell("  ".join(ALGORITHMS))
    families: dict[str, type[Part]] = {
        "data sources": DataSource,
        "models": Model,
        "weightings": Weighting,
        "solvers": Solver,
        "aggregators": Aggregator,
        "policies": Policy,
        "availability": Availability,
    }
    for title, family in families.items():
        print(title)
        tell("  ".join(family.names()))


def show(arguments: argparse.Namespace) -> None:
    """The resolved scenario or study as commented TOML with every key."""
    from gifair_ray.scenarios.load import load
    from gifair_ray.scenarios.show import dump

    print(dump(load(arguments.scenario, arguments.sets, arguments.seed)), end="")


def plot(arguments: argparse.Namespace) -> None:
    """Group losses over virtual time, with the ranks."""
    from gifair_ray.analysis import group_losses, load

    save(group_losses(load(arguments.run), arguments.split), arguments.output)


def save(figure: object, file: str) -> None:
    """Draw a figure to a file, and say so."""
    if not Path(file).suffix:
        raise BadInput(f"cannot draw to {file!r}: give it an ending, as in {file}.png")
    try:
        figure.savefig(file, dpi=200)  # type: ignore[attr-defined]
    except ValueError as error:
        raise BadInput(f"cannot draw to {file!r}: {error}") from error
    print(file)


def digest(arguments: argparse.Namespace) -> None:
    """The logical digest, from what is on disk; an error if it is not what the run wrote."""
    from gifair_ray.analysis import find_runs
    from gifair_ray.folder import folder_digest
    from gifair_ray.results import read_manifest

    changed = []
    for folder in find_runs(arguments.runs):
        manifest = read_manifest(folder)
        if manifest["status"] != "done":
            raise BadInput(f"{folder} has no digest: its run is {manifest['status']}, not done")
        try:
            now = folder_digest(folder)
        except BadInput as error:  # a table or a model that can no longer be read
            changed.append(str(error))
            continue
        print(f"{now}  {folder}")
        if manifest.get("digest") != now:
            changed.append(f"{folder} had {manifest.get('digest')}")
    if changed:
        raise RunFailed(f"results have changed since they were written: {'; '.join(changed)}")
