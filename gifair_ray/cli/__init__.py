"""The command `gifair`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence

from gifair_ray.cli import commands, looking, paper, tune, verify
from gifair_ray.cli.bench import bench
from gifair_ray.cli.data import add_data
from gifair_ray.cli.theory import theory
from gifair_ray.cli.whatif import whatif
from gifair_ray.data._places import data_in
from gifair_ray.errors import BadInput, GifairError

EXIT_DONE, EXIT_FAILED, EXIT_BAD_INPUT = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0 for done, 2 for bad input, 1 for anything else."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # λ on a terminal that has no Greek
    # Looking through all that is installed for these takes pydantic a tenth of `gifair list`.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    arguments = _parser().parse_args(argv)
    with contextlib.suppress(ValueError):  # not the main thread: somebody else's to decide
        signal.signal(signal.SIGTERM, _terminated)
    with warnings.catch_warnings():
        warnings.showwarning = _one_line_warning
        try:
            with data_in(getattr(arguments, "data_dir", None)):
                arguments.do(arguments)
            sys.stdout.flush()
        except BaseException as error:
            code, message = _told(error)
            if arguments.debug:
                traceback.print_exception(error)
            elif message:
                _complain(message)
            return code
    return EXIT_DONE


def _terminated(number: int, frame: object) -> None:
    """A polite kill is an interruption: what is there is saved."""
    raise KeyboardInterrupt


def _told(error: BaseException) -> tuple[int, str]:
    """The exit code for an error, and what to say of it; nothing to a reader that has gone."""
    if isinstance(error, BrokenPipeError):
        _write_to_nowhere()
        return EXIT_FAILED, ""
    if isinstance(error, BadInput):
        return EXIT_BAD_INPUT, str(error)
    if isinstance(error, GifairError | OSError):
        return EXIT_FAILED, str(error)
    if isinstance(error, KeyboardInterrupt):
        return (
            EXIT_FAILED,
            "interrupted; results so far are kept, and gifair resume goes on with them",
        )
    if isinstance(error, MemoryError):
        return EXIT_FAILED, f"not enough memory: {error}; make the scenario smaller"
    if isinstance(error, Exception):
        hint = f"unexpected {type(error).__name__}: {error} (--debug shows where)"
        return EXIT_FAILED, hint
    raise error


def _write_to_nowhere() -> None:
    """After `gifair list | head -1`: what is left in the buffer must not be tried again at exit."""
    with open(os.devnull, "w") as nowhere, contextlib.suppress(OSError):
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"gifair: {' '.join(message.split())}", file=sys.stderr, flush=True)


def _one_line_warning(message: Warning | str, *_: object, **__: object) -> None:
    _complain(f"warning: {message}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gifair",
        description="Simulate fair federated learning under real-world systems conditions.",
        epilog="Begin with: gifair run quickstart",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show where an error comes from")
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = chosen.add_parser("run", parents=[common], help="run a scenario or a study")
    run.add_argument("scenario", help="name of a scenario (see gifair list), or a TOML file")
    _add_changes(run)
    run.add_argument("--seed", type=int, help="seed, or the first of a study's seeds")
    _add_running(run)
    run.add_argument(
        "--resume", action="store_true", help="go on with what --out holds of these runs already"
    )
    run.set_defaults(do=commands.run)

    resume = chosen.add_parser("resume", parents=[common], help="go on with a run that was stopped")
    resume.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run or of several")
    _add_running(resume, out=False)
    resume.set_defaults(do=commands.resume)

    listing = chosen.add_parser("list", parents=[common], help="what there is to choose from")
    listing.set_defaults(do=commands.list_all)

    show = chosen.add_parser("show", parents=[common], help="a scenario with every key, as TOML")
    show.add_argument("scenario", help="name of a scenario, or a TOML file")
    _add_changes(show)
    show.add_argument("--seed", type=int, help="seed, or the first of a study's seeds")
    show.set_defaults(do=commands.show)

    looking.add_commands(chosen, common)

    what = chosen.add_parser(
        "whatif", parents=[common], help="runs again with one thing changed, pair by pair"
    )
    what.add_argument("runs", nargs="+", metavar="RUN", help="folders of runs of one variant")
    _add_changes(what)
    what.add_argument(
        "--seeds", type=int, help="run both sides on so many seeds, instead of those in RUN"
    )
    what.add_argument("--split", choices=("train", "val", "test"), default="test")
    _add_running(what)
    what.set_defaults(do=whatif)

    tune.add_to(chosen, common, _add_changes)
    paper.add_to(chosen, common)
    verify.add_to(chosen, common, _add_changes)

    plot = chosen.add_parser("plot", parents=[common], help="group losses over virtual time")
    plot.add_argument("run", metavar="RUN", help="folder of a run")
    plot.add_argument("-o", "--output", default="group-losses.png", help="PNG, SVG or PDF file")
    plot.add_argument("--split", choices=("train", "val", "test"), default="train")
    plot.set_defaults(do=commands.plot)

    proved = chosen.add_parser(
        "theory", parents=[common], help="convergence on a problem of known answer, and its bounds"
    )
    proved.add_argument("--problem", choices=("q1", "q3", "random"), default="q1")
    proved.add_argument("-o", "--output", default=".", metavar="FOLDER", help="for the figures")
    proved.add_argument("--fraction", type=float, help="λ/λ_max (default: .6 on q1, .5 elsewhere)")
    proved.add_argument("--steps", type=int, default=1, help="E, local steps (default: 1)")
    proved.add_argument("--rounds", type=int, default=3000, help="(default: 3000)")
    proved.add_argument("--seed", type=int, default=0, help="which random problem (default: 0)")
    proved.set_defaults(do=theory)

    digest = chosen.add_parser("digest", parents=[common], help="compute a run's digest anew")
    digest.add_argument("runs", nargs="+", metavar="RUN", help="folder of a run or of several")
    digest.set_defaults(do=commands.digest)

    add_data(chosen.add_parser("data", help="data sets: import"), common)

    measure = chosen.add_parser(
        "bench", parents=[common], help="how fast it is, beside loops written by hand"
    )
    measure.add_argument("workloads", nargs="*", metavar="W", help="S, W1 … W5 (default: all)")
    measure.add_argument("--repeat", type=int, default=5, help="repetitions, in turn (default: 5)")
    measure.add_argument(
        "-o", "--output", help="folder for table and plot (default: runs/bench-DATE-TIME)"
    )
    measure.add_argument("--small", action="store_true", help="little of it, to see that it works")
    measure.add_argument("--quiet", action="store_true", help="no progress; the result only")
    measure.set_defaults(do=bench)
    return parser


def _add_changes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="A.B=C",
        help="change a key of the scenario, or take it away with A.B= ; may be given many times",
    )


def _add_running(parser: argparse.ArgumentParser, out: bool = True) -> None:
    if out:
        parser.add_argument("--out", help="folder for the results (default: runs/NAME-DATE-TIME)")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where data files may be as well (or set GIFAIR_DATA)"
    )
    parser.add_argument("--backend", choices=("ray", "local"), default="ray")
    parser.add_argument("--workers", type=int, help="client actors (default: one per core)")
    parser.add_argument("--address", help="of a running Ray cluster, or auto")
    parser.add_argument(
        "--clients-per-actor", type=int, help="give every actor so many clients of its own"
    )
    parser.add_argument(
        "--cpus-per-actor", type=float, metavar="N", help="CPUs, or a fraction, that an actor takes"
    )
    parser.add_argument(
        "--gpus-per-actor", type=float, default=0.0, metavar="N", help="the same for GPUs"
    )
    parser.add_argument(
        "--device", default="cpu", help="torch device of cnn, lstm and own models, such as cuda"
    )
    parser.add_argument(
        "--checkpoint-s", type=float, default=60.0, metavar="S", help="save a run every S seconds"
    )
    parser.add_argument("--checkpoint-rounds", type=int, metavar="N", help="and every N rounds")
    parser.add_argument("--quiet", action="store_true", help="no progress; the result only")
