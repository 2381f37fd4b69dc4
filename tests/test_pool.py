"""Who plays which client: the work is even, and clients go home where that makes no difference."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import numpy as np
import pytest

from gifair_ray.actors.client import RunSpec
from gifair_ray.actors.pool import RayBackend
from gifair_ray.backend import LocalBackend
from gifair_ray.protocol import Message, TrainJob, TrainJobs
from gifair_ray.scenario import parse

ACTORS = 3
SCENARIO = parse(
    {
        "data": {"source": "synthetic", "clients": 60, "samples": 20},
        "model": {"kind": "softmax"},
        "work": {"epochs": 1, "batch_size": 10},
        "stop": {"rounds": 1},
    }
)


class Crew:
    """Takes calls and makes none."""

    has_lines = has_any_line = False

    def __init__(self, described):
        self.actors, self.described, self.lost = list(range(ACTORS)), described, set()

    def assemble(self, _greet):
        return SimpleNamespace(
            population=self.described.population, layout=self.described.layout, width=60
        )

    def live(self, _about=""):
        return [place for place in self.actors if place not in self.lost]

    def send(self, task, place):
        task.place = place


@pytest.fixture
def backend():
    with LocalBackend(SCENARIO) as here:
        described = here.describe()
    found = RayBackend(RunSpec(uuid.uuid4().hex, SCENARIO.table(), "."), Crew(described), None)
    found._pace = 1.0  # a second for a sample: everything is worth sharing out
    found.publish(0, described.initial)
    return found


def sent(backend, clients, first=0):
    """The actor that each client's job went to."""
    jobs = [TrainJob(first + i, k, 0, Message(0, 0.0, 0.0)) for i, k in enumerate(clients)]
    backend.submit([TrainJobs.of(jobs)])
    return {k: backend._chunks[first + i].task.place for i, k in enumerate(clients)}


def test_clients_go_home_while_the_work_is_even(backend):
    clients = [0, 3, 6, 1, 4, 7, 2, 5, 8]
    assert sent(backend, clients) == {k: k % ACTORS for k in clients}


def test_work_is_even_even_if_all_are_at_home_in_one_place(backend):
    places = list(sent(backend, [0, 3, 6, 9, 12, 15, 18, 21, 24]).values())
    assert sorted(places) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_who_is_busy_gets_less(backend):
    sent(backend, [0, 1])  # a job for each of two actors
    places = list(sent(backend, [3, 6, 1, 4], first=10).values())
    assert np.bincount(places, minlength=ACTORS).tolist() == [1, 1, 2]


def test_clients_of_a_lost_actor_go_elsewhere(backend):
    backend._crew.lost.add(1)
    assert set(sent(backend, [1, 4, 7, 10]).values()) == {0, 2}
