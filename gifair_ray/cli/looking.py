"""Commands for looking at results: compare, report, watch, export."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gifair_ray.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

WIDE = 120  # columns of a terminal that shows a row per label
FORMATS = ("csv", "markdown", "latex")
TABLES = ("labels", "groups", "clients", "pairs")


def add_commands(chosen: Any, common: argparse.ArgumentParser) -> None:
    """The parsers of these commands."""
    compare_ = chosen.add_parser("compare", parents=[common], help="runs side by side")
    _add_runs(compare_)
    compare_.add_argument(
        "--table",
        choices=TABLES,
        help="only this: a row per label, per label and group, per client, or paired tests",
    )
    compare_.add_argument("--all", action="store_true", help="every figure, in a tall table")
    compare_.add_argument("--against", metavar="LABEL", help="pair the others with this label")
    compare_.add_argument("--target", type=float, help="accuracy to reach (default: all reach it)")
    compare_.add_argument("--format", choices=FORMATS, help="print this instead of a table")
    compare_.add_argument(
        "-o", "--output", metavar="FILE", help="write to a file: .csv, .md, .tex or .arrow"
    )
    compare_.add_argument("--plot", metavar="FILE", help="draw the groups' accuracies, PNG or SVG")
    compare_.set_defaults(do=compare)

    report_ = chosen.add_parser("report", parents=[common], help="runs as a page for the browser")
    _add_runs(report_)
    report_.add_argument("-o", "--output", metavar="FILE", default="report.html")
    report_.add_argument("--rounds", metavar="A:B", help="rounds that the timeline shows")
    report_.add_argument("--open", action="store_true", help="open it in the browser")
    report_.set_defaults(do=report)

    watch_ = chosen.add_parser("watch", parents=[common], help="the same page while runs go on")
    _add_runs(watch_)
    watch_.add_argument("--port", type=int, default=8765, help="on localhost; 0: any that is free")
    watch_.add_argument("--open", action="store_true", help="open it in the browser")
    watch_.set_defaults(do=watch)

    export_ = chosen.add_parser("export", parents=[common], help="all tables in another format")
    export_.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run or of several")
    export_.add_argument(
        "--to",
        required=True,
        choices=("parquet", "csv", "duckdb", "tensorboard", "mlflow"),
        help="a file per table; a database; curves for a tracker",
    )
    export_.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="new folder or file; MLflow: or a URI"
    )
    export_.set_defaults(do=export)


def _add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run or of several")
    parser.add_argument(
        "--split", choices=("train", "val", "test"), help="default: test, if it was evaluated"
    )


def compare(arguments: argparse.Namespace) -> None:
    """Runs side by side: mean and spread over seeds, groups, and paired tests."""
    from gifair_ray.analysis import compare_groups, open_runs, write
    from gifair_ray.analysis.render import WRITERS
    from gifair_ray.analysis.summary import default_split
    from gifair_ray.cli.commands import save

    runs = open_runs(arguments.runs)
    arguments.split = arguments.split or default_split(runs)
    if arguments.output or arguments.format:
        table = _table(runs, arguments, arguments.table or "labels")
        if arguments.output:
            write(table, arguments.output)
            print(arguments.output)
        if arguments.format:
            sys.stdout.write(WRITERS[arguments.format](table))
    else:
        _show(runs, arguments)
    if arguments.plot:
        save(compare_groups(runs, arguments.split), arguments.plot)


def _table(runs: list[Any], arguments: argparse.Namespace, which: str) -> pa.Table:
    from gifair_ray import analysis

    if which == "labels":
        return analysis.compare(runs, arguments.split, arguments.target)
    if which == "groups":
        return analysis.compare_by_group(runs, arguments.split)
    if which == "pairs":
        return analysis.pairs(runs, arguments.against, arguments.split)
    if len(runs) > 1:
        raise BadInput(f"--table clients is about one run, and there are {len(runs)}: name one")
    return analysis.by_client(runs[0])


def _show(runs: list[Any], arguments: argparse.Namespace) -> None:
    from rich.console import Console

    from gifair_ray.analysis import render, render_groups, render_paired
    from gifair_ray.analysis.render import render_rows

    console = Console()
    if not console.is_terminal:  # a file has room for all columns
        console.width = max(console.width, 2 * WIDE if arguments.table == "clients" else WIDE)
    narrow = console.width < WIDE
    labels = {run.manifest["label"] for run in runs}
    only = arguments.table
    if only in (None, "labels"):
        table = _table(runs, arguments, "labels")
        console.print(render(table, tall=narrow, everything=arguments.all))
    if only in (None, "groups"):
        console.print(render_groups(_table(runs, arguments, "groups"), console.width))
    if only == "clients":
        console.print(render_rows(_table(runs, arguments, "clients")))
    if only == "pairs":
        console.print(render_paired(_table(runs, arguments, "pairs")))
    elif only is None and len(labels) > 1:
        hope = contextlib.nullcontext() if arguments.against else contextlib.suppress(BadInput)
        with hope:  # runs that make no pairs, such as several of one seed
            table = _table(runs, arguments, "pairs")
            if len(table):
                console.print(render_paired(table))
    if only is None and len(runs) == 1:
        print(f"Per client: gifair compare {Path(arguments.runs[0])} --table clients")


def report(arguments: argparse.Namespace) -> None:
    """Runs as one page that needs no network."""
    from gifair_ray.analysis import open_runs
    from gifair_ray.analysis.report import report as page_about

    rounds = _rounds(arguments.rounds)
    file = Path(arguments.output)
    text = page_about(open_runs(arguments.runs), arguments.split, rounds)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write to {file}: {error.strerror or error}") from error
    print(file)
    if arguments.open:
        _open(file.resolve().as_uri())


def _rounds(told: str | None) -> tuple[int, int] | None:
    if told is None:
        return None
    first, colon, last = told.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal()):
        raise BadInput(f"--rounds {told}: give the first and the last, as in 10:20")
    return int(first), int(last)


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        print(f"No browser could be started; open {address}", file=sys.stderr)


def watch(arguments: argparse.Namespace) -> None:
    """Serve the page on localhost until Ctrl-C."""
    from gifair_ray.analysis.live import Live
    from gifair_ray.cli.serving import HOST, server

    with server(Live(arguments.runs, arguments.split), arguments.port) as serving:
        address = f"http://{HOST}:{serving.server_address[1]}/"
        print(f"{address}  (Ctrl-C ends it)", flush=True)
        if arguments.open:
            _open(address)
        with contextlib.suppress(KeyboardInterrupt):
            serving.serve_forever()


def export(arguments: argparse.Namespace) -> None:
    """All tables of the runs in another format."""
    from gifair_ray.analysis import open_runs
    from gifair_ray.analysis.export import export as write_all

    write_all(open_runs(arguments.runs), arguments.to, arguments.output)
    print(arguments.output)
