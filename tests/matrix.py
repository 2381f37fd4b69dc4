"""The fault matrix of docs/reliability.md: `make matrix` runs it and writes the table there.

A cell is a policy under a fault: with how many of the algorithms the run had the digest of an
undisturbed one. Every run is made; a fault that did not strike counts as a failure.

`python matrix.py driver evaluates` makes the rows that these words occur in, and leaves the others.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import faulty

import gifair_ray
from gifair_ray import runner
from gifair_ray.actors import faults
from gifair_ray.actors.cluster import cluster
from gifair_ray.folder import RunFolder
from gifair_ray.recorder import FolderRecorder
from gifair_ray.session import Saving

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
BEGIN, END = "<!-- matrix -->", "<!-- end of matrix -->"
ON_RAY = {
    "client actor killed before it trains": [faults.anybody("train", "before")],
    "client actor killed while it trains": [faults.anybody("train", "within")],
    "client actor killed while it sends": [faults.anybody("train", "sending")],
    "client actor killed while it evaluates": [faults.anybody("evaluate", "within")],
    "server actor killed between events": [faults.serving("advance", 4)],
    "server actor killed within an event": [faults.serving("collect", 4)],
}


def on_ray(actors, case, plan, root):
    """Whether a run with these faults has the digest that it should have."""
    folder = RunFolder.create(root / "run", faulty.scenario(*case), "run", [], {}).path
    planned = faults.plan(root / "plan", plan)
    session = actors.start(faulty.scenario(*case), folder, Saving(rounds=1), faults=planned)
    while not session.advance(0.0).finished:
        pass
    return session.finish().digest == faulty.undisturbed(*case) and not os.listdir(planned)


def interrupted(case, root):
    """Ctrl-C after five events, then resumed."""
    left = [5]

    def stop(label, scenario, progress):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    table = faulty.scenario(*case).table()
    try:
        gifair_ray.run(table, out=root / "run", backend="local", watch=stop)
    except KeyboardInterrupt:
        resumed = gifair_ray.resume(root / "run", backend="local")
        return resumed.digest == faulty.undisturbed(*case)
    return False


def killed(case, root):
    """The folder as it is on disk after five events, as if the process had died then."""
    left = [5]

    def copy(label, scenario, progress):
        left[0] -= 1
        if not left[0]:
            shutil.copytree(root / "run", root / "copy")
            (root / "copy" / "lock").unlink()

    table = faulty.scenario(*case).table()
    gifair_ray.run(table, out=root / "run", backend="local", watch=copy, checkpoint_rounds=1)
    resumed = gifair_ray.resume(root / "copy", backend="local")
    return resumed.digest == faulty.undisturbed(*case)


IN_PROCESS = {"driver interrupted, resumed": interrupted, "driver killed, resumed": killed}


def at_once(self, do, afterwards=FolderRecorder.afterwards):
    """Checkpoints are on disk before the next event, so that there is one to go on from."""
    done = threading.Event()
    afterwards(self, lambda written: (do(written), done.set()))
    done.wait(60)


def cells(faults):
    """(fault, policy, algorithm, whether the digest was equal) of every run under these faults."""
    runner.STEP_S, afterwards = 0.0, FolderRecorder.afterwards
    FolderRecorder.afterwards = at_once
    for fault in [name for name in IN_PROCESS if name in faults]:
        for case in faulty.CASES:
            with tempfile.TemporaryDirectory() as root:
                yield fault, *case, IN_PROCESS[fault](case, Path(root))
    FolderRecorder.afterwards = afterwards
    if not (on_actors := [name for name in ON_RAY if name in faults]):
        return
    with cluster(workers=2) as actors:
        for fault in on_actors:
            for case in faulty.CASES:
                with tempfile.TemporaryDirectory() as root:
                    yield fault, *case, on_ray(actors, case, ON_RAY[fault], Path(root))


def rows(found):
    """The rows of the matrix, by fault, as Markdown."""
    made = {}
    for fault in dict.fromkeys(fault for fault, *_ in found):
        row = [fault]
        for policy in faulty.POLICIES:
            equal = [same for f, p, _, same in found if (f, p) == (fault, policy)]
            row.append(f"{sum(equal)} of {len(equal)}")
        made[fault] = "| " + " | ".join(row) + " |"
    return made


def main(words):
    everything = [*IN_PROCESS, *ON_RAY]
    chosen = [name for name in everything if not words or any(word in name for word in words)]
    found = []
    for cell in cells(chosen):
        found.append(cell)
        if not cell[-1]:
            print("different:", *cell[:-1], flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    table, _, after = rest.partition(END)
    there = {line.split("|")[1].strip(): line for line in table.splitlines() if "|" in line}
    lines = there | rows(found)
    text = "\n".join([
        "| fault | " + " | ".join(f"`{policy}`" for policy in faulty.POLICIES) + " |",
        "|---|" + "---|" * len(faulty.POLICIES),
        *(lines[fault] for fault in everything if fault in lines),
    ])  # fmt: skip
    print(text)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    return 0 if found and all(cell[-1] for cell in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
