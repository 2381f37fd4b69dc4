"""Calls over a line between two processes of one machine; what fails is left to Ray."""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import closing

import numpy as np
import pytest

import gifair_ray
from gifair_ray.actors.line import Line, Listener, connected
from gifair_ray.actors.wire import pack, pack_results, unpack, unpack_results
from gifair_ray.protocol import Message, TrainJob, TrainJobs
from gifair_ray.replies import Trained

THETA = np.array([0.5, -1.0], dtype=np.float32)
JOBS = TrainJobs.of(
    [TrainJob(7, 3, 2, Message(5, 0.1, -0.25)), TrainJob(8, 1, 0, Message(5, 2, 0))]
)


def answer(run, sent):
    """Models that show what arrived."""
    if run == "bad":
        raise ValueError("such work fails")
    jobs, theta = unpack(sent, {}, "float32")
    models = np.stack([theta * job.client for job in jobs])
    return pack_results(Trained(models, jobs.clocks, jobs.tilts, -models), 0.25)


@pytest.fixture
def line():
    with closing(Line(Listener(answer).name)) as found:
        yield found


def test_what_is_called_over_a_line_comes_back(line):
    for _ in range(3):
        line.call("run", pack(JOBS, THETA))
        assert line.busy
        back, seconds = unpack_results(line.reply(), 2, "float32")
        assert not line.busy
        assert seconds == 0.25
        assert back.models.tolist() == [[1.5, -3.0], [0.5, -1.0]]
        assert back.personal.tolist() == [[-1.5, 3.0], [-0.5, 1.0]]
        assert back.loss_local.tolist() == [0.1, 2.0]
        assert back.loss_received.tolist() == [-0.25, 0.0]


def test_work_that_fails_has_no_reply_and_the_line_goes_on(line):
    line.call("bad", pack(JOBS, THETA))
    assert line.reply() is None
    assert not line.busy
    line.call("run", pack(JOBS, THETA))
    assert line.reply() is not None


def test_large_messages_arrive_whole(line):
    theta = np.arange(60_000, dtype=np.float32)
    line.call("run", pack(JOBS, theta))
    back, _ = unpack_results(line.reply(), len(theta), "float32")
    np.testing.assert_array_equal(back.models, np.stack([3 * theta, theta]))


def test_a_line_whose_other_end_has_gone_is_never_used_again():
    name = f"\0gone-{uuid.uuid4().hex}"
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as there:
        there.bind(name)
        there.listen()
        with closing(Line(name)) as line:
            line.call("run", pack(JOBS, THETA))
            there.accept()[0].close()
            assert line.reply() is None
            assert line.busy
            line.call("run", pack(JOBS, THETA))  # says nothing, as the first
            assert line.reply() is None


def test_nobody_listens():
    assert connected(None) is None
    assert connected(f"\0nobody-{uuid.uuid4().hex}") is None


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_short_work_goes_over_lines_and_long_work_through_ray():
    from gifair_ray.actors.client import RunSpec
    from gifair_ray.actors.cluster import cluster
    from gifair_ray.actors.crew import Crew
    from gifair_ray.actors.pool import RayBackend
    from gifair_ray.backend import LocalBackend
    from gifair_ray.scenario import parse

    table = {
        "data": {"source": "synthetic", "clients": 8, "samples": 20},
        "model": {"kind": "softmax"},
        "work": {"epochs": 1, "batch_size": 10},
        "sampling": {"scheme": "all"},
        "stop": {"rounds": 1},
    }
    jobs = [TrainJob(i, i, 0, Message(0, 0.0, 0.0)) for i in range(8)]
    one, two = TrainJobs.of(jobs[:4]), TrainJobs.of(jobs[4:])
    scenario = parse(table)
    with cluster(workers=1) as actors, LocalBackend(scenario) as here:
        spec = RunSpec(uuid.uuid4().hex, scenario.table(), os.getcwd())
        crew = Crew(list(actors.clients), actors.options)
        there = RayBackend(spec, crew, None)
        for backend in (here, there):
            backend.publish(0, here.describe().initial)
            backend.submit([one, two])  # a line has one call at a time: the second is Ray's
        kinds = [isinstance(there._chunks[number].task.call, Line) for number in (0, 4)]
        assert kinds == [True, False]
        ids = list(range(8))
        expected, found = (backend.collect(ids) for backend in (here, there))
        for i in ids:
            assert found[i].model.tobytes() == expected[i].model.tobytes()
        there.close()
        crew.hang_up()


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
