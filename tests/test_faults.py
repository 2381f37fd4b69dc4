"""Actors and nodes are lost, and nobody can tell from the results."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import faulty
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples, in_parts

import gifair_ray
from gifair_ray.actors import crew, faults, handshake
from gifair_ray.actors.cluster import RESTARTS, cluster
from gifair_ray.actors.shipping import ship, unpacked
from gifair_ray.errors import BadInput, RunFailed
from gifair_ray.folder import RunFolder
from gifair_ray.results import read_manifest
from gifair_ray.scenarios.load import load
from gifair_ray.scenarios.show import dump
from gifair_ray.session import Saving

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_on_this_machine")]


@pytest.fixture(scope="module")
def actors(ray_on_this_machine):
    with cluster(workers=2) as found:
        yield found


def new_folder(path, case):
    return RunFolder.create(path, faulty.scenario(*case), "run", [], {}).path


def finished(session, budget_s=0.01):
    while not session.advance(budget_s).finished:
        pass
    return session.finish().digest


# Plans


def a_fault(rounds):
    """A fault of a client actor at some piece of its work, or of the server at some call."""
    moment = st.sampled_from(faults.MOMENTS)
    client = st.integers(0, 5)
    return st.one_of(
        st.builds(faults.training, client, st.integers(0, 3), moment),
        st.builds(faults.evaluating, client, st.integers(0, rounds), moment),
        st.builds(faults.serving, st.sampled_from(faults.CALLS), st.integers(1, 12)),
    )


@in_parts(5)
@examples(20, at_night=40)
@given(
    case=st.sampled_from(faulty.CASES),
    plan=st.lists(a_fault(8), min_size=1, max_size=3, unique=True),
    in_folder=st.booleans(),
)
def test_whatever_is_lost_the_results_are_the_same(
    part, case, plan, in_folder, actors, tmp_path_factory
):
    root = tmp_path_factory.mktemp("faults")
    folder = new_folder(root / "run", case) if in_folder else None
    planned = faults.plan(root / "plan", plan)
    session = actors.start(faulty.scenario(*case), folder, Saving(rounds=2), faults=planned)
    assert finished(session) == faulty.undisturbed(*case)


@pytest.mark.parametrize("moment", faults.MOMENTS)
@pytest.mark.parametrize("algorithm", ["GIFAIR-Per", "GIFAIR, large model"])
def test_a_client_actor_that_dies_while_it_trains(algorithm, moment, actors, tmp_path):
    case = ("sync", algorithm)
    plan = [faults.training(k, 0, moment) for k in range(6)]
    folder = faults.plan(tmp_path / "plan", plan)
    session = actors.start(faulty.scenario(*case), None, faults=folder)
    assert finished(session) == faulty.undisturbed(*case)
    assert len(os.listdir(folder)) < len(plan)  # somebody has died


def test_a_server_that_dies_starts_where_it_was_saved(actors, tmp_path):
    case = ("fedbuff", "AFL")
    plan = [faults.serving(*at) for at in (("collect", 9), ("publish", 5), ("advance", 3))]
    planned = faults.plan(tmp_path / "plan", plan)
    folder = new_folder(tmp_path / "run", case)
    session = actors.start(faulty.scenario(*case), folder, Saving(rounds=1), faults=planned)
    assert finished(session) == faulty.undisturbed(*case)
    assert session.losses >= 2


def test_servers_that_keep_dying_end_the_run(actors, tmp_path):
    plan = [faults.serving("advance", n) for n in (1,)]
    folder = tmp_path / "plan"
    faults.plan(folder, plan)
    session = actors.start(faulty.scenario("sync", "AFL"), None, faults=str(folder))
    session.losses = RESTARTS
    with pytest.raises(RunFailed, match="servers of this run were lost"):
        finished(session)
    actors.new_server()


# The crew


def test_work_whose_actors_are_lost_again_and_again(actors, tmp_path):
    """One attempt less than are made."""
    case = ("sync", "AFL")
    plan = [faults.training(k, 0, moment) for moment in faults.MOMENTS for k in range(6)]
    assert len(faults.MOMENTS) == crew.ATTEMPTS - 1
    folder = faults.plan(tmp_path / "plan", plan[::6])
    assert finished(actors.start(faulty.scenario(*case), None, faults=folder)) == (
        faulty.undisturbed(*case)
    )


def test_work_that_kills_everybody_ends_the_run_and_is_named(actors, tmp_path):
    plan = [faults.training(k, 0, faults.ALWAYS) for k in range(6)]
    folder = faults.plan(tmp_path / "plan", plan)
    session = actors.start(faulty.scenario("sync", "AFL"), None, faults=folder)
    told = r"training of clients \d.* from version 0 of the model: client actor \d was lost"
    with pytest.raises(RunFailed, match=told):
        finished(session)
    session.abort()


def test_work_that_fails_beside_work_that_comes_back_ends_the_run(tmp_path):
    """In a process of its own, because a server that waits for a second reply never comes back."""
    table = faulty.table_of(tmp_path / "data.csv")
    rows = (tmp_path / "data.csv").read_text().splitlines()
    wild = [re.sub(r",.*,", ",1e30,-1e30,", row) if row.startswith("3,") else row for row in rows]
    (tmp_path / "data.csv").write_text("\n".join(wild))
    (tmp_path / "s.toml").write_text(dump(load(table)))
    how = ["--workers", "2", "--clients-per-actor", "2", "--out", "run", "--quiet"]
    command = [sys.executable, "-m", "gifair_ray", "run", "s.toml", *how]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert re.fullmatch(r"gifair: client 3 diverged .*\n", done.stderr)
    assert read_manifest(tmp_path / "run")["status"] == "failed"


def test_an_actor_that_is_killed_between_two_events_is_replaced(actors):
    import ray

    case = ("tiers", "GIFAIR, exact")
    session = actors.start(faulty.scenario(*case, 40), None)
    session.advance(0.0)
    for actor in actors.clients:  # all of them
        with contextlib.suppress(ray.exceptions.RayActorError):  # a test before has killed it
            os.kill(ray.get(actor.ready.remote()), signal.SIGKILL)
    assert finished(session) == faulty.undisturbed(*case, 40)


@pytest.mark.parametrize(
    "change",
    [
        {"torch": "1.0+cu999"},
        {"capability": "ABACUS"},
        {"build": "2.13.0 (0123abcd)"},
        {"kernels": "ABACUS"},
        {"threads": 7},
        {"gifair": "0.0.0"},
        {"data": "other"},
        {"device": "cuda (Another One)"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_worker_that_would_compute_otherwise_is_refused(change):
    pytest.importorskip("torch")
    one = handshake.Credentials.mine("data")
    handshake.check(replace(one, host="another one"), one)
    (value,) = change.values()
    with pytest.raises(BadInput, match=rf"on far-away is not .*{re.escape(str(value))} against"):
        handshake.check(replace(one, host="far-away", **change), one)


def test_a_worker_that_has_torch_from_an_earlier_run_is_welcome(actors):
    """Whoever comes in another's place has not, if the model of this run does without."""
    import ray

    for case in (("sync", "GIFAIR, large model"), ("tiers", "GIFAIR, exact")):
        session = actors.start(faulty.scenario(*case), None)
        session.advance(0.0)
        assert finished(session) == faulty.undisturbed(*case)
        with contextlib.suppress(ray.exceptions.RayActorError):  # a test before has killed it
            os.kill(ray.get(actors.clients[0].ready.remote()), signal.SIGKILL)
    case = ("sync", "AFL")
    assert finished(actors.start(faulty.scenario(*case), None)) == faulty.undisturbed(*case)


def test_another_processor_is_told_without_torch_too():
    """Numpy's BLAS computes other last bits there."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found")
    if not found:
        pytest.skip("numpy uses no more here than it does everywhere")
    program = (
        "import sys; from gifair_ray.actors.handshake import Credentials\n"
        "mine = Credentials.mine('data'); assert 'torch' not in sys.modules; print(mine.capability)"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"NPY_DISABLE_CPU_FEATURES": less},
            capture_output=True, text=True, check=True,
        ).stdout
        for less in ("", " ".join(found))
    ]  # fmt: skip
    assert said[0] != said[1]


def test_a_crew_with_a_stranger_does_not_begin(actors):
    import ray

    said = handshake.Hello(None, None, 1, handshake.Credentials.mine("data"))

    class Member:
        def __init__(self, said):
            self.said = said

        def hello(self):
            return self.said

    stranger = replace(said, credentials=replace(said.credentials, torch="0.1", host="far-away"))
    members = [ray.remote(Member).options(num_cpus=0).remote(one) for one in (said, stranger)]
    with pytest.raises(BadInput, match="far-away"):
        crew.Crew(members, {}).assemble(lambda actor: actor.hello.remote())
    assert crew.Crew(members[:1], {}).assemble(lambda actor: actor.hello.remote()) == said
    for member in members:
        ray.kill(member)


# Data


def test_a_worker_without_files_gets_them_from_the_driver(actors, tmp_path, monkeypatch):
    from gifair_ray.actors import cluster as module

    table = faulty.table_of(tmp_path / "data.csv")

    def ship(scenario, contents, ship=module.ship):
        assert contents  # others may join this cluster
        return {
            key: replace(one, path="/no/such/folder/data.csv")
            for key, one in ship(scenario, contents).items()
        }

    monkeypatch.setattr(module, "ship", ship)
    session = actors.start(gifair_ray.load(table).runs[0][1], None)
    assert finished(session) == gifair_ray.run(table, backend="local").digest


def test_a_file_that_differs_is_not_used(tmp_path, actors):
    path = tmp_path / "data.csv"
    table = faulty.table_of(path)
    sent = ship(gifair_ray.load(table).runs[0][1], contents=True)
    assert unpacked(table, sent) == table
    before = path.read_bytes()
    path.write_text("client,a,y\n0,1,1\n")
    other = Path(unpacked(table, sent)["data"]["path"])
    assert (other.read_bytes(), other.suffix) == (before, ".csv")
    kept_back = {key: replace(one, content=None) for key, one in sent.items()}
    with pytest.raises(BadInput, match="holds something else on a worker's machine"):
        unpacked(table, kept_back)
