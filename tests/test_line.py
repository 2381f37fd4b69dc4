"""Calls over a line between two processes of one machine; what fails is left to Ray."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import uuid
from contextlib import closing

import numpy as np
import pytest

import gifair_ray
from gifair_ray.actors.line import QUEUED, QUEUED_JOBS, Call, Line, Listener, connected
from gifair_ray.actors.pad import MOST, Pad, Rows, pad_for
from gifair_ray.actors.rest import Rest, rest
from gifair_ray.actors.wire import pack, pack_losses, unpack, unpack_losses
from gifair_ray.protocol import Layout, Message, TrainJob, TrainJobs
from gifair_ray.replies import Trained

THETA = np.array([0.5, -1.0], dtype=np.float32)
JOBS = TrainJobs.of(
    [TrainJob(7, 3, 2, Message(5, 0.1, -0.25)), TrainJob(8, 1, 0, Message(5, 2, 0))]
)


EIGHT = {
    "data": {"source": "synthetic", "clients": 8, "samples": 20},
    "model": {"kind": "softmax"},
    "work": {"epochs": 1, "batch_size": 10},
    "sampling": {"scheme": "all"},
    "stop": {"rounds": 1},
}
LAYOUT = Layout(("theta",), ((2,),), 2, "float32")


def answer(run, sent, memory, places):
    """Models that show what arrived."""
    if run == "bad":
        raise ValueError("such work fails")
    jobs, theta = unpack(sent, {}, "float32")
    rows, (start, first) = Rows(memory, LAYOUT), places
    out = rows.at(first, len(jobs))
    assert theta is None
    out[:] = rows.at(start, 1) * jobs.clients[:, None]
    return pack_losses(Trained(out, jobs.clocks, jobs.tilts), 0.25)


@pytest.fixture
def line():
    with closing(Line(Listener(answer).name)) as found:
        yield found


@pytest.fixture
def pad():
    with closing(Pad(LAYOUT)) as found:
        yield found


@pytest.fixture
def start(pad):
    """The row of the model."""
    row = pad.take(1)
    lent = pad.lent(row, 1)
    lent[0] = THETA
    yield row
    del lent


def called(line, pad, start, jobs=JOBS, run="run"):
    line.share(pad)
    return line.call(run, pack(jobs), (start, pad.take(len(jobs))))


def replied(call, pad):
    return unpack_losses(call.reply(), pad.lent(call.places[1], call.jobs))


def test_what_is_called_over_a_line_comes_back(line, pad, start):
    for _ in range(3):
        back, seconds = replied(called(line, pad, start), pad)
        assert seconds == 0.25
        assert back.models.tolist() == [[1.5, -3.0], [0.5, -1.0]]
        assert back.personal is None
        assert back.loss_local.tolist() == [0.1, 2.0]
        assert back.loss_received.tolist() == [-0.25, 0.0]


def test_work_that_fails_has_no_reply_and_the_line_goes_on(line, pad, start):
    assert called(line, pad, start, run="bad").reply() is None
    assert line.takes(1)
    assert called(line, pad, start).reply() is not None


@pytest.mark.parametrize("n", [QUEUED_JOBS // 2, 10 * QUEUED_JOBS])
def test_large_messages_arrive_whole(line, pad, start, n):
    jobs = TrainJobs.of([TrainJob(i, i, 0, Message(5, 0.5 * i, -i)) for i in range(n)])
    calls = []
    while line.takes(n):
        calls.append(called(line, pad, start, jobs))
    assert len(calls) == max(1, QUEUED_JOBS // n)
    assert not line.takes(1)
    for call in calls:
        back, _ = replied(call, pad)
        np.testing.assert_array_equal(back.models, np.arange(n)[:, None] * THETA)
        np.testing.assert_array_equal(back.loss_local, jobs.clocks)
        np.testing.assert_array_equal(back.loss_received, jobs.tilts)
        del back


@pytest.mark.parametrize("sizes", [[QUEUED_JOBS // QUEUED] * QUEUED, [1, QUEUED_JOBS - 1]])
def test_calls_that_wait_do_not_make_the_server_wait(pad, start, sizes):
    """All that a line takes has been sent before the first of it is answered."""
    began, go, stuck = threading.Event(), threading.Event(), []

    def hesitant(*call):
        began.set()
        if not go.wait(20.0):  # the server waits for this answer in the middle of a call
            stuck.append(call)
            go.set()
        return answer(*call)

    with closing(Line(Listener(hesitant).name)) as line:
        calls = []
        for n in sizes:
            assert line.takes(n)
            jobs = TrainJobs.of([TrainJob(i, i, 0, Message(5, 0.0, 0.0)) for i in range(n)])
            calls.append(called(line, pad, start, jobs))
            assert began.wait(60.0)
        assert not line.takes(1)
        go.set()
        for call in calls:
            assert call.reply() is not None
    assert not stuck


def test_a_line_that_has_gone_is_none_to_the_crew(line):
    from gifair_ray.actors.crew import Crew

    crew = Crew([None], {})
    crew._lines[0] = line
    assert [crew.has_lines, crew.has_any_line] == [True, True]
    line.close()
    assert [crew.has_lines, crew.has_any_line] == [False, False]


def test_a_call_before_its_pad_ends_the_line(line):
    assert line.call("run", pack(JOBS), (0, 1)).reply() is None
    assert not line.takes(1)


def test_a_line_whose_other_end_has_gone_is_never_used_again(pad, start):
    name = f"\0gone-{uuid.uuid4().hex}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as there:
        there.bind(name)
        there.listen()
        with closing(Line(name)) as line:
            call = called(line, pad, start)
            there.accept()[0].close()
            assert call.reply() is None
            assert not line.takes(1)
            assert called(line, pad, start).reply() is None  # says nothing, as the first


def test_calls_wait_in_a_queue(line, pad, start):
    calls = []
    while line.takes(len(JOBS)):
        calls.append(called(line, pad, start))
    assert len(calls) == QUEUED
    for call in reversed(calls):  # asked for in any order
        back, _ = replied(call, pad)
        assert back.models.tolist() == [[1.5, -3.0], [0.5, -1.0]]
    assert line.takes(QUEUED_JOBS)


def test_rows_of_a_pad_are_given_back_when_nobody_has_them(pad):
    assert [pad.take(3), pad.take(2)] == [0, 3]
    rows = pad.lent(0, 3)
    last = rows[2]
    del rows
    assert pad.take(1) == 5
    del last
    assert pad.take(3) == 0


def test_a_pad_gives_no_more_rows_than_it_has(pad):
    assert pad.take(MOST + 1) is None
    rows = pad.lent(pad.take(MOST), MOST)
    assert pad.take(1) is None
    del rows
    assert pad.take(MOST) == 0


def test_models_that_are_too_large_have_no_pad():
    assert pad_for(Layout(("theta",), ((1 << 27,),), 1 << 27, "float32")) is None


def test_nobody_listens():
    assert connected(None) is None
    assert connected(f"\0nobody-{uuid.uuid4().hex}") is None


class Sleeper:
    """An actor as far as its rest goes."""

    def __init__(self):
        self.threads = []
        self.rest = self

    def remote(self, name):
        self.threads.append(threading.Thread(target=rest, args=(name,)))


@pytest.fixture
def long_rests(monkeypatch):
    """Longer than a test waits, so that none is over by itself."""
    monkeypatch.setattr("gifair_ray.actors.rest.LASTS_S", 60.0)


@pytest.mark.usefixtures("long_rests")
def test_a_rest_ends_when_it_is_told_to_even_before_it_has_begun():
    actor = Sleeper()
    first, second = Rest(actor), Rest(actor)
    resting, late = actor.threads
    resting.start()
    second.end()
    late.start()
    late.join(10)
    assert not late.is_alive()
    assert resting.is_alive()
    first.end()
    resting.join(10)
    assert not resting.is_alive()


def test_a_rest_is_over_by_itself_for_others_may_call(monkeypatch, long_rests):
    actor = Sleeper()
    long = Rest(actor)
    monkeypatch.setattr("gifair_ray.actors.rest.LASTS_S", 0.05)
    short = Rest(actor)
    resting = actor.threads[1]
    resting.start()
    resting.join(10)
    assert not resting.is_alive()
    assert [long.over, short.over] == [False, True]
    for began in (long, short):
        began.end()


@pytest.mark.usefixtures("long_rests")
def test_a_rest_ends_with_the_process_that_began_it():
    program = (
        "import sys; from types import SimpleNamespace; from gifair_ray.actors.rest import Rest\n"
        "actor = SimpleNamespace(rest=SimpleNamespace(remote=lambda n: print(n, flush=True)))\n"
        "began = Rest(actor); input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        name = process.stdout.readline().decode().rstrip("\n")
        resting = threading.Thread(target=rest, args=(name,))
        resting.start()
        resting.join(0.1)
        assert resting.is_alive()
        process.kill()
    resting.join(10)
    assert not resting.is_alive()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_actors_that_rest_answer_over_lines_and_wake_for_a_call_through_ray(monkeypatch):
    from gifair_ray.actors import crew as crews
    from gifair_ray.actors.client import RunSpec
    from gifair_ray.actors.cluster import cluster
    from gifair_ray.actors.pool import RayBackend
    from gifair_ray.backend import LocalBackend
    from gifair_ray.protocol import EvaluateJob
    from gifair_ray.scenario import parse

    monkeypatch.setattr(crews, "QUIET_S", -1.0)
    scenario = parse(EIGHT)
    with cluster(workers=1) as actors, LocalBackend(scenario) as here:
        spec = RunSpec(uuid.uuid4().hex, scenario.table(), os.getcwd())
        crew = crews.Crew(list(actors.clients), actors.options)
        there = RayBackend(spec, crew, None)
        for backend in (here, there):
            backend.publish(0, here.describe().initial)
        resting = []
        for number in range(0, 20, 4):
            trained = TrainJobs.of([TrainJob(number, 3, number, Message(0, 0.0, 0.0))])
            evaluated = EvaluateJob(number + 1, np.arange(8), "test", 0)
            for job in (trained, trained, evaluated):
                ids = [number] if job is trained else [number + 1]
                for backend in (here, there):
                    backend.submit([job])
                resting.append(len(crew._rests))
                expected, found = (backend.collect(ids)[ids[0]] for backend in (here, there))
                if job is trained:
                    assert found.model.tobytes() == expected.model.tobytes()
                else:
                    assert found.loss.tobytes() == expected.loss.tobytes()
        assert resting == [1, 1, 0] * 5
        crew.assemble(lambda actor: actor.hello.remote(spec))  # as the next run does
        there.close()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_calls_go_over_lines_and_what_these_do_not_take_through_ray(monkeypatch):
    from gifair_ray.actors import line as lines
    from gifair_ray.actors.client import RunSpec
    from gifair_ray.actors.cluster import cluster
    from gifair_ray.actors.crew import Crew
    from gifair_ray.actors.pool import RayBackend
    from gifair_ray.backend import LocalBackend
    from gifair_ray.scenario import parse

    monkeypatch.setattr(lines, "QUEUED_JOBS", 4)
    jobs = [TrainJob(i, i, 0, Message(0, 0.0, 0.0)) for i in range(8)]
    some = [TrainJobs.of(jobs[at : at + 2]) for at in range(0, 8, 2)]
    scenario = parse(EIGHT)
    with cluster(workers=1) as actors, LocalBackend(scenario) as here:
        spec = RunSpec(uuid.uuid4().hex, scenario.table(), os.getcwd())
        crew = Crew(list(actors.clients), actors.options)
        there = RayBackend(spec, crew, None)
        for backend in (here, there):
            backend.publish(0, here.describe().initial)
            backend.submit(some)
        kinds = [isinstance(there._chunks[number].task.call, Call) for number in range(0, 8, 2)]
        assert kinds == [True, True, False, False]
        ids = list(range(8))
        expected, found = (backend.collect(ids) for backend in (here, there))
        for i in ids:
            assert found[i].model.tobytes() == expected[i].model.tobytes()
        there.close()
        crew.hang_up()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
@pytest.mark.parametrize("features", [60, 3000])
def test_models_go_over_a_pad_whose_rows_come_back(features):
    from gifair_ray.actors.client import RunSpec
    from gifair_ray.actors.cluster import cluster
    from gifair_ray.actors.crew import Crew
    from gifair_ray.actors.pool import RayBackend
    from gifair_ray.backend import LocalBackend
    from gifair_ray.scenario import parse

    scenario = parse(EIGHT | {"data": EIGHT["data"] | {"features": features}})
    with cluster(workers=2) as actors, LocalBackend(scenario) as here:
        spec = RunSpec(uuid.uuid4().hex, scenario.table(), os.getcwd())
        crew = Crew(list(actors.clients), actors.options)
        there = RayBackend(spec, crew, None)
        theta = here.describe().initial
        for version in range(3):
            theta = theta + np.float32(0.1)
            jobs = [TrainJob(8 * version + i, i, 0, Message(version, 0.0, 0.0)) for i in range(8)]
            columns = TrainJobs.of(jobs)
            for backend in (here, there):
                backend.publish(version, theta)
                backend.submit([columns])
            assert {type(chunk.task.call) for chunk in there._chunks.values()} == {Call}
            expected, found = (backend.collect(columns.ids.tolist()) for backend in (here, there))
            for job in jobs:
                assert found[job.id].model.tobytes() == expected[job.id].model.tobytes()
            del found
            there.retire(version)
            rows = len(there._pad._free)
            assert there._pad.take(rows) == 0  # all are free again
            there._pad.lent(0, rows)
        there.close()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_a_run_is_not_begun_while_work_that_was_given_up_goes_on():
    """Both would draw from torch's generator, which a process has one of."""
    from gifair_ray.actors.client import ClientActor, RunSpec
    from gifair_ray.scenario import parse

    class Lock:
        held = False

        def __enter__(self):
            self.held = True

        def __exit__(self, *_):
            self.held = False

    scenario = parse(
        {
            "data": {"source": "synthetic", "clients": 2, "samples": 20},
            "model": {"kind": "mlp", "hidden": [3]},
            "work": {"steps": 1},
            "stop": {"rounds": 1},
        }
    )
    actor, lock, seen = ClientActor(), Lock(), []
    actor._one_at_a_time, build = lock, actor._build
    actor._build = lambda spec: (seen.append(lock.held), build(spec))
    spec = RunSpec(uuid.uuid4().hex, scenario.table(), os.getcwd())
    actor.hello(spec)
    _, _, learner = actor._runs[spec.run]
    initial = learner.initial
    learner.initial = lambda: (seen.append(lock.held), initial())[1]
    whole = actor.initial(spec.run, 1)
    assert np.array_equal(np.concatenate(actor.initial(spec.run, 3)), whole)
    assert np.array_equal(whole, initial())
    assert seen == [True, True, True]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_a_learner_need_not_care_where_its_models_are_to_lie():
    from gifair_ray.actors.client import ClientActor, RunSpec
    from gifair_ray.scenario import parse

    scenario = parse(EIGHT)
    actor = ClientActor()
    spec = RunSpec(uuid.uuid4().hex, scenario.table(), os.getcwd())
    name = actor.hello(spec).line
    _, _, learner = actor._runs[spec.run]
    theta = learner.initial() + np.float32(0.1)
    jobs = TrainJobs.of([TrainJob(i, i, 0, Message(0, 0.0, 0.0)) for i in range(3)])
    train = learner.train
    expected = train(theta, jobs).models
    learner.train = lambda theta, jobs, out: train(theta, jobs)
    with closing(Pad(learner.layout)) as pad, closing(Line(name)) as line:
        model = pad.lent(pad.take(1), 1)
        model[0] = theta
        line.share(pad)
        call = line.call(spec.run, pack(jobs), (0, pad.take(3)))
        assert replied(call, pad)[0].models.tobytes() == expected.tobytes()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_what_diverges_is_told_as_without_a_line():
    scenario = {
        "data": {"source": "synthetic", "clients": 4, "samples": 20},
        "model": {"kind": "softmax"},
        "work": {"epochs": 1, "batch_size": 10, "schedule": {"lr": 1e38}},
        "stop": {"rounds": 3},
    }
    told = []
    for backend in ("local", "ray"):
        with pytest.raises(gifair_ray.errors.Diverged) as error:
            gifair_ray.run(scenario, backend=backend)
        told.append(str(error.value))
    assert told[0] == told[1]
