"""`gifair data import`: public data sets as tables."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gifair_ray.imports import Imported, Tell

LINE_EVERY_S = 5.0


def add_data(parser: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    """The command's own commands."""
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    imports = chosen.add_parser(
        "import", help="convert a public data set into a table", parents=[common]
    )
    what = imports.add_subparsers(title="data sets", metavar="DATASET", required=True)
    leaf = what.add_parser("leaf", parents=[common], help="LEAF's JSON: FEMNIST, Shakespeare")
    leaf.add_argument("--pool", action="store_true", help="put train and test together")
    emnist = what.add_parser("emnist", parents=[common], help="EMNIST byclass: idx (.gz) or npz")
    roles = what.add_parser("roles", parents=[common], help="Parquet of roles: text and gender")
    roles.add_argument("--no-split", action="store_true", help="leave splitting to the scenario")
    roles.add_argument("--stride", type=int, default=1, help="take every so-manieth window")
    for data_set, do in ((leaf, _leaf), (emnist, _emnist), (roles, _roles)):
        data_set.add_argument("path", metavar="PATH", help="file or folder")
        data_set.add_argument("-o", "--output", metavar="OUT", required=True, help="an .arrow file")
        data_set.add_argument("--data-dir", metavar="DIR", help="where PATH may be as well")
        data_set.add_argument("--quiet", action="store_true", help="no progress")
        data_set.set_defaults(do=do)


def _leaf(arguments: argparse.Namespace) -> None:
    from gifair_ray.imports.leaf import import_leaf

    with _progress(arguments) as tell:
        done = import_leaf(arguments.path, arguments.output, pool=arguments.pool, tell=tell)
    _say(done, "table")


def _emnist(arguments: argparse.Namespace) -> None:
    from gifair_ray.imports.emnist import import_emnist

    with _progress(arguments) as tell:
        done = import_emnist(arguments.path, arguments.output, tell=tell)
    _say(done, "table" if done.clients else "pooled")


def _roles(arguments: argparse.Namespace) -> None:
    from gifair_ray.imports.roles import import_roles

    with _progress(arguments) as tell:
        done = import_roles(
            arguments.path,
            arguments.output,
            split=not arguments.no_split,
            stride=arguments.stride,
            tell=tell,
        )
    _say(done, "table")


def _say(done: Imported, source: str) -> None:
    whose = f" of {done.clients:,} clients" if done.clients else ""
    left = f" ({done.left_out:,} without enough samples left out)" if done.left_out else ""
    print(f"{done.rows:,} samples{whose}{left} in {done.path}")
    print(f'Use it with: [data] source = "{source}", path = "{done.path}"')


@contextlib.contextmanager
def _progress(arguments: argparse.Namespace) -> Iterator[Tell | None]:
    """A bar on a terminal, lines now and then elsewhere."""
    from rich.console import Console
    from rich.progress import Progress

    console, name = Console(stderr=True), Path(arguments.path).name
    if arguments.quiet:
        yield None
    elif console.is_terminal:
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(f"importing {name}")
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _Lines(name).tell


class _Lines:
    def __init__(self, name: str) -> None:
        self._name, self._last = name, time.monotonic()

    def tell(self, done: int, total: int) -> None:
        if time.monotonic() - self._last >= LINE_EVERY_S:
            self._last = time.monotonic()
            with contextlib.suppress(OSError):  # nobody reads it
                print(f"[{100 * done // total:3} %] {self._name}", file=sys.stderr, flush=True)
