"""Faults on purpose: an actor that dies at a chosen moment. For tests, and for `gifair verify`.

A plan is a folder with an empty file for every fault that is yet to happen. The actor that it
strikes removes the file first, so that a fault happens once, however often its work is repeated:

    train-3-1-sending       who trains client 3 for the second time dies while it sends the result
    evaluate-0-5-before     who evaluates client 0 at version 5 of the model dies before it begins
    server-collect-7        the server dies as it is about to collect results for the seventh time

A fault "always" stays in the plan, and strikes everybody who comes to it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from gifair_ray.protocol import EvaluateJob, TrainJob

MOMENTS = ("before", "within", "sending")
ALWAYS = "always"
CALLS = ("publish", "submit", "collect", "advance")


def training(client: int, ordinal: int, moment: str) -> str:
    """The name of a fault: a client's dispatch, and the moment in it."""
    return f"train-{client}-{ordinal}-{moment}"


def evaluating(client: int, version: int, moment: str) -> str:
    """The name of a fault: a client's evaluation at a version of the model."""
    return f"evaluate-{client}-{version}-{moment}"


def anybody(work: str, moment: str) -> str:
    """The name of a fault: whoever is the first to do that work, "train" or "evaluate"."""
    return f"{work}-any-{moment}"


def serving(call: str, number: int) -> str:
    """The name of a fault: a server's so-manieth call of that kind."""
    return f"server-{call}-{number}"


def plan(folder: Path, names: Iterable[str]) -> str:
    """A plan of these faults in a new folder."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return str(folder)


def die() -> None:
    """At once, as a process does whose machine loses power."""
    os.kill(os.getpid(), signal.SIGKILL)


def strikes(folder: str, name: str) -> bool:
    """Whether this fault is to happen, now and never again."""
    try:
        os.unlink(os.path.join(folder, name))
    except FileNotFoundError:
        return False
    return True


class _Doomed:
    """A result that is never sent: who writes it down dies."""

    def __reduce__(self) -> tuple[Any, ...]:
        die()
        return (str, ())

    def __iter__(self) -> Any:
        die()


def struck_training(
    folder: str, jobs: Sequence[TrainJob], train: Callable[[Sequence[TrainJob]], Any]
) -> Any:
    """The result of training, unless the plan has a fault for it."""
    names = [(job.client, job.ordinal) for job in jobs]
    return _struck_work(folder, "train", names, lambda n: train(jobs[:n]))


def struck_evaluation(folder: str, job: EvaluateJob, evaluate: Callable[[EvaluateJob], Any]) -> Any:
    """The result of an evaluation, unless the plan has a fault for it."""
    names = [(client, job.version) for client in job.clients.tolist()]
    return _struck_work(folder, "evaluate", names, lambda n: evaluate(job))


def _struck_work(
    folder: str, kind: str, those: Sequence[tuple[int, int]], work: Callable[[int], Any]
) -> Any:
    def names(moment: str) -> list[str]:
        own = [f"{kind}-{client}-{number}-{moment}" for client, number in those]
        return [*own, anybody(kind, moment)]

    def struck(moment: str) -> bool:
        return any(strikes(folder, name) for name in names(moment))

    if struck("before") or any(Path(folder, name).exists() for name in names(ALWAYS)):
        die()
    if struck("within"):
        work((len(those) + 1) // 2)
        die()
    done = work(len(those))
    return _Doomed() if struck("sending") else done
