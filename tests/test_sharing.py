"""Several processes at once: a folder belongs to one of them, and to nobody when that has died."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading

import faulty
import numpy as np
import pytest

import gifair_ray
from gifair_ray import locks
from gifair_ray.errors import BadInput
from gifair_ray.results import read_manifest
from gifair_ray.scenarios.load import load
from gifair_ray.scenarios.show import dump


def a_dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def lock_of(path, **owner):
    (path / "lock").write_text(json.dumps({"host": socket.gethostname(), "since": ""} | owner))


def test_a_lock_of_a_dead_process_is_nobodys(tmp_path):
    lock_of(tmp_path, pid=a_dead_process(), born=1)
    assert locks.user(tmp_path) is None
    locks.lock(tmp_path, "now")
    assert str(os.getpid()) in locks.user(tmp_path)
    locks.unlock(tmp_path)


def test_a_lock_whose_number_another_process_has_got_is_nobodys(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        lock_of(tmp_path, pid=other.pid, born=locks._born(other.pid))
        assert locks.user(tmp_path) == f"process {other.pid} on {socket.gethostname()}"
        lock_of(tmp_path, pid=other.pid, born=locks._born(other.pid) - 1)
        assert locks.user(tmp_path) is None
        other.stdin.close()


def test_a_lock_of_another_machine_says_what_to_do(tmp_path):
    lock_of(tmp_path, pid=1, host="far-away")
    with pytest.raises(BadInput, match=r"process 1 on far-away \(if that has ended, remove .*lock"):
        locks.lock(tmp_path, "now")


def test_of_many_that_find_a_stale_lock_one_gets_it(tmp_path):
    lock_of(tmp_path, pid=a_dead_process())
    program = (
        "import sys, time; from pathlib import Path; from gifair_ray import locks\n"
        "from gifair_ray.errors import BadInput\n"
        "try: locks.lock(Path(sys.argv[1]), 'now'); print('mine', flush=True); input()\n"
        "except BadInput: print('taken', flush=True); input()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", program, str(tmp_path)]
    several = [subprocess.Popen(command, **pipes) for _ in range(3)]
    said = sorted(process.stdout.readline().strip() for process in several)
    for process in several:
        process.communicate("\n")
    assert said == ["mine", "taken", "taken"]


def test_a_writer_waits_for_the_one_before_it(tmp_path, monkeypatch):
    program = (
        "import sys; from pathlib import Path; from gifair_ray import locks\n"
        "locks.hold(Path(sys.argv[1])); print('held', flush=True); input()\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], **pipes)
    assert other.stdout.readline().strip() == "held"
    with monkeypatch.context() as patched:
        patched.setattr(locks, "WRITER_S", 0.2)
        with pytest.raises(BadInput, match="another process is still writing"):
            locks.hold(tmp_path)
    threading.Timer(0.3, other.kill).start()
    locks.hold(tmp_path)  # the lock went with the process
    locks.let_go(tmp_path)
    other.communicate()
    assert not (tmp_path / "writer").exists()


def test_a_run_that_goes_on_cannot_be_resumed_by_another(tmp_path):
    table = faulty.scenario("sync", "AFL").table()

    def meanwhile(label, scenario, progress):
        if not progress.finished:
            with pytest.raises(BadInput, match="in use by process"):
                gifair_ray.resume(tmp_path / "run", backend="local")

    run = gifair_ray.run(table, out=tmp_path / "run", backend="local", watch=meanwhile)
    assert run.digest == faulty.undisturbed("sync", "AFL")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_two_runs_at_once_on_one_cluster_and_in_one_folder(tmp_path):
    import ray

    address = ray.get_runtime_context().gcs_address
    cases = [("sync", "AFL"), ("fedbuff", "GIFAIR-Per")]
    commands = []
    for case in cases:
        (tmp_path / f"{case[0]}.toml").write_text(dump(load(faulty.scenario(*case).table())))
        arguments = ["run", f"{case[0]}.toml", "--out", f"runs/{case[0]}", "--quiet"]
        computing = ["--workers", "1", "--address", address, "--checkpoint-rounds", "2"]
        command = [sys.executable, "-m", "gifair_ray", *arguments, *computing]
        commands.append(subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True))
    for case, command in zip(cases, commands, strict=True):
        _, err = command.communicate(timeout=300)
        assert command.returncode == 0, err
        manifest = read_manifest(tmp_path / "runs" / case[0])
        assert manifest["digest"] == faulty.undisturbed(*case)
        assert manifest["needs"].startswith("about ")


# Long runs


def anonymous(pid="self"):
    """Bytes that a process has for itself; what it shares with others is not counted."""
    with open(f"/proc/{pid}/status") as file:
        (line,) = (line for line in file if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


def slope(seen):
    """Bytes that a round of the last half adds to a process's memory, by least squares.

    Some megabytes come and go with what is waiting to be written, which is hundreds of bytes for
    each of these rounds; what a round records is ten thousand, and its model two.
    """
    late = [row for row in seen if row[0] >= seen[-1][0] / 2]
    assert len(late) >= 10
    return np.polyfit(*np.array(late, dtype=float).T, 1)[0]


def long_run(policy):
    """Ten thousand rounds, with models of two kilobytes, so that one that is kept is noticed."""
    table = faulty.scenario(policy, "GIFAIR-Per").table()
    return table | {
        "data": table["data"] | {"dim": 250},
        "work": table["work"] | {"schedule": {"kind": "constant", "lr": 0.001}},
        "stop": {"rounds": 10_000},
        "evaluation": {"every": 500, "splits": ["train"]},
    }


@pytest.mark.nightly
@pytest.mark.parametrize("policy", ["sync", "fedbuff"])
def test_memory_does_not_grow_with_rounds(policy, tmp_path):
    seen = []

    def watch(label, scenario, progress):
        seen.append((progress.rounds, anonymous()))

    options = {"backend": "local", "watch": watch, "checkpoint_s": 2.0}
    gifair_ray.run(long_run(policy), out=tmp_path / "run", **options)
    print(f"{policy}: {slope(seen):.0f} bytes a round, {seen[-1][1] >> 20} MB in the end")
    assert slope(seen) < 1_000


@pytest.mark.ray
@pytest.mark.nightly
@pytest.mark.usefixtures("ray_on_this_machine")
@pytest.mark.parametrize("policy", ["sync", "fedbuff"])
def test_memory_of_actors_does_not_grow_with_rounds(policy, tmp_path):
    """The driver, the server with its recorder, and both workers."""
    import ray

    from gifair_ray.actors.cluster import cluster
    from gifair_ray.folder import RunFolder
    from gifair_ray.session import Saving

    scenario = load(long_run(policy)).runs[0][1]
    folder = RunFolder.create(tmp_path / "run", scenario, "run", [], {}).path
    with cluster(workers=2) as actors:
        session = actors.start(scenario, folder, Saving(seconds=2.0))
        server = ray.get(actors.server.__ray_call__.remote(lambda self: os.getpid()))
        workers = ray.get([actor.ready.remote() for actor in actors.clients])
        whose = {"driver": "self", "server": server, "worker 0": workers[0], "worker 1": workers[1]}
        seen = {name: [] for name in whose}
        finished = False
        while not finished:
            progress = session.advance(0.5)
            finished = progress.finished
            for name, pid in whose.items():
                seen[name].append((progress.rounds, anonymous(pid)))
        session.finish()
    found = {name: slope(memory) for name, memory in seen.items()}
    for name, bytes_a_round in found.items():
        last = seen[name][-1][1] >> 20
        print(f"{policy}, {name}: {bytes_a_round:.0f} bytes a round, {last} MB in the end")
    assert max(found.values()) < 1_000, found
