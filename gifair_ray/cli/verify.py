"""`gifair verify`: whether a scenario has one answer, and a part keeps to what must hold."""

from __future__ import annotations

import argparse
from typing import Any

from gifair_ray.errors import BadInput, RunFailed

MARKS = {True: "✓", False: "✗", None: "–"}


def verify(arguments: argparse.Namespace) -> None:
    """Check a scenario or a part, a line for each check; an error if it fails one."""
    if (arguments.scenario is None) == (arguments.part is None):
        raise BadInput("say what to verify: a scenario, or --part module:Class; one of them")
    if arguments.scenario is None:
        verify_part(arguments.part, arguments.sets)
    else:
        from gifair_ray.cli.verify_scenario import verify_scenario

        verify_scenario(arguments.scenario, arguments.sets)


def verify_part(part: str, sets: list[str]) -> None:
    """Every check of the conformance suite on one part, in trials that `sets` may change."""
    from gifair_ray.conformance import FAMILIES, Conformance
    from gifair_ray.scenarios.change import REMOVE, parse_set, together

    changes = [parse_set(change) for change in sets]
    for keys, value in changes:
        if value is REMOVE:
            raise BadInput(f"--set {'.'.join(keys)}= has nothing to take away here; give a value")
    suite = Conformance(part, together(changes))
    print(f"{FAMILIES[suite.family].called} {suite.name}")
    failed = []
    for verdict in suite.checks():
        print(f"{MARKS[verdict.passed]} {verdict.check:<10}  {verdict.seen}", flush=True)
        if verdict.passed is False:
            failed.append(verdict.check)
    if failed:
        raise RunFailed(f"{part} does not conform: {', '.join(failed)}")


def add_to(chosen: Any, common: argparse.ArgumentParser, changes: Any) -> None:
    """Add the command to the command line's parser."""
    parser = chosen.add_parser(
        "verify",
        parents=[common],
        help="a scenario's one answer, or a part of your own, against what must hold",
    )
    parser.add_argument(
        "scenario", nargs="?", help="run it in process, on Ray, interrupted and with actors killed"
    )
    parser.add_argument(
        "--part",
        metavar="MODULE:CLASS",
        help="a weighting, solver, aggregator, policy, model, data source or availability, in a "
        "file of your own or by its name",
    )
    changes(parser)
    parser.set_defaults(do=verify)
