"""`gifair whatif`: the same seeds, devices, availability and draws, with one thing changed."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gifair_ray.cli.commands import run_shown
from gifair_ray.errors import BadInput

if TYPE_CHECKING:
    from gifair_ray.scenario import Scenario


@dataclass(frozen=True)
class Question:
    """Finished runs to compare with (none, if both sides are to be run), and what to run."""

    before: tuple[Path, ...]
    rerun: tuple[Scenario, ...]
    changed: tuple[Scenario, ...]


def question(folders: list[str], sets: list[str], seeds: int | None) -> Question:
    """What runs answer "what if": changed copies of these, or of `seeds` seeds of the first."""
    from gifair_ray.analysis import find_runs
    from gifair_ray.results import read_manifest
    from gifair_ray.scenarios.load import load

    if not sets:
        raise BadInput("say what to change: --set policy.timeout_s=60, for example")
    found = find_runs(folders)
    labels = sorted({read_manifest(folder)["label"] for folder in found})
    if len(labels) > 1:
        raise BadInput(
            f"these are runs of {', '.join(labels)}: give the folders of one of them, such as "
            f"{found[0].parent}/{found[0].name.rpartition('-seed')[0]}-seed*"
        )
    files = [folder / "scenario.toml" for folder in found]
    if seeds is None:
        changed = tuple(load(file, sets).runs[0][1] for file in files)
        return Question(tuple(found), (), changed)
    first = load(files[0]).runs[0][1].seed
    wanted = range(first, first + seeds)
    return Question(
        (),
        tuple(load(files[0], (), seed).runs[0][1] for seed in wanted),
        tuple(load(files[0], sets, seed).runs[0][1] for seed in wanted),
    )


def whatif(arguments: argparse.Namespace) -> None:
    """Run the changed scenario on the same seeds, and show the paired differences."""
    from rich.console import Console

    from gifair_ray.analysis import load as load_run
    from gifair_ray.analysis import paired, render_paired
    from gifair_ray.scenarios.load import Study

    asked = question(arguments.runs, arguments.sets, arguments.seeds)
    runs = [("before", scenario) for scenario in asked.rerun]
    runs += [("after", scenario) for scenario in asked.changed]
    done, _ = run_shown(Study("whatif", tuple(runs)), arguments)
    before = [*asked.before, *(run.folder for run in done if run.label == "before" and run.folder)]
    after = [run.folder for run in done if run.label == "after" and run.folder]
    table = paired(map(load_run, before), map(load_run, after), arguments.split)
    print(f"what if {', '.join(arguments.sets)}: {len(after)} pair(s) of runs with equal seeds")
    Console().print(render_paired(table))
