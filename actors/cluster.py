"""Starts the actors, on this machine or on a running cluster, and stops what it started."""

from __future__ import annotations

import contextlib
import math
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gifair_ray.actors.calls import ActorLost, wait
from gifair_ray.actors.client import RunSpec
from gifair_ray.actors.crew import new_client
from gifair_ray.actors.server import ServerActor
from gifair_ray.actors.shipping import ship
from gifair_ray.actors.start import running
from gifair_ray.data._places import DATA_DIR
from gifair_ray.engine import Progress
from gifair_ray.errors import BadInput, GifairError, RunFailed
from gifair_ray.folder import RunFolder
from gifair_ray.preflight import Needs, Node, check_places
from gifair_ray.protocol import CPU
from gifair_ray.scenario import Scenario
from gifair_ray.session import Outcome, Saving

RESTARTS = 4  # of the server, before the run gives up
ROOM_S = 120.0  # for actors to start, before a word is said about it


@dataclass
class Cluster:
    """A server actor and client actors, ready for one run after the other."""

    server: Any
    clients: list[Any]
    options: Mapping[str, Any]
    """Of a client actor."""
    clients_per_actor: int | None
    on_this_machine: bool
    """Whether no other machine can join it."""
    device: str = CPU
    """Of torch, on which client actors compute."""

    def new_server(self) -> None:
        """Another server, with the same client actors."""
        with contextlib.suppress(Exception):
            ray.kill(self.server)
        self.server = _new_server()
        self.server.meet.remote(self.clients, self.options)

    def start(
        self,
        scenario: Scenario,
        folder: Path | None,
        saving: Saving = Saving(),  # noqa: B008 (it is frozen)
        delay_s: float = 0.0,
        faults: str | None = None,
    ) -> RaySession:
        """Begin a run, or go on with one; with delays and faults on purpose, for tests."""
        shipment = ship(scenario, contents=not self.on_this_machine)
        run, here, data = uuid.uuid4().hex, str(Path.cwd()), os.environ.get(DATA_DIR)
        spec = RunSpec(run, scenario.table(), here, data, shipment, delay_s, faults, self.device)
        session = RaySession(self, spec, folder.resolve() if folder is not None else None, saving)
        session.begin()
        return session


@dataclass
class RaySession:
    """A run on a cluster, with the same face as `gifair_ray.session.Session`.

    If the server actor is lost, another takes the run up from its last checkpoint.
    """

    cluster: Cluster
    spec: RunSpec
    folder: Path | None
    saving: Saving
    losses: int = 0
    needs: Needs | None = None
    """The memory that it takes, once it has begun."""

    def begin(self) -> None:
        """Let the server take the run up, if there is room for it."""
        while True:
            server = self.cluster.server
            try:
                self.needs = wait(server.prepare.remote(self.spec, self.cluster.clients_per_actor))
                workers = len(self.cluster.clients)
                self.needs.check(_nodes(), workers)
                if self.folder is not None:
                    RunFolder(self.folder).update(needs=self.needs.text(workers))
                wait(server.begin.remote(self.spec, self.folder, self.saving))
                return
            except ActorLost as error:
                self._replace_server(error)

    def advance(self, budget_s: float) -> Progress:
        """Go on for about so long."""
        progress: Progress = self._call("advance", budget_s)
        return progress

    def finish(self) -> Outcome:
        """Write the results of a finished run."""
        outcome: Outcome = self._call("finish")
        return outcome

    def _call(self, method: str, *arguments: Any) -> Any:
        while True:
            try:
                return wait(getattr(self.cluster.server, method).remote(*arguments))
            except ActorLost as error:
                self._replace_server(error)
                self.begin()
                if method == "finish":  # the last events happen again
                    while not self.advance(1.0).finished:
                        pass

    def _replace_server(self, error: ActorLost) -> None:
        self.losses += 1
        if self.losses > RESTARTS:
            raise RunFailed(f"{self.losses} servers of this run were lost; the last: {error}")
        self.cluster.new_server()
        self.saving = replace(self.saving, resume=self.folder is not None)

    def bytes_moved(self) -> int:
        """Models and results that have gone between server and client actors so far."""
        moved: int = wait(self.cluster.server.bytes_moved.remote())
        return moved

    def abort(self) -> None:
        """Give the run up; what was recorded stays."""
        with contextlib.suppress(GifairError):
            wait(self.cluster.server.abort.remote())


@contextlib.contextmanager
def cluster(
    *,
    workers: int | None = None,
    address: str | None = None,
    clients_per_actor: int | None = None,
    population: int | None = None,
    cpus_per_actor: float | None = None,
    gpus_per_actor: float = 0.0,
    device: str = CPU,
) -> Iterator[Cluster]:
    """Actors for as long as the block lasts; then all that was started here is stopped.

    Uses Ray as `running` says. A client actor takes a CPU, or a share if there are more actors,
    unless it is said how many CPUs and GPUs (or what fraction) it takes.
    """
    actors: list[Any] = []
    with running(workers, address) as ours, _killed(actors):
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cpus = int(resources.get("CPU", 1))
        n = _actor_count(workers or cpus, clients_per_actor, population)
        share = min(1.0, cpus / n) if cpus_per_actor is None else cpus_per_actor
        if cpus_per_actor is not None or gpus_per_actor:
            check_places(_nodes(), n, share, gpus_per_actor)
        options = {"num_cpus": share, "num_gpus": gpus_per_actor}
        actors += [new_client(options) for _ in range(n)]
        _wait_for_room(actors, share)
        found = Cluster(None, list(actors), options, clients_per_actor, ours, device)
        found.new_server()
        try:
            yield found
        finally:
            actors.append(found.server)


def _wait_for_room(actors: list[Any], cpus: float) -> None:
    """Until all actors are there; says so if others have taken what they need."""
    calls = [actor.ready.remote() for actor in actors]
    here, _ = ray.wait(calls, num_returns=len(calls), timeout=ROOM_S)
    if len(here) < len(calls):
        free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
        warnings.warn(
            f"{len(here)} of {len(calls)} client actors have started: each takes {cpus:g} CPUs, "
            f"and {free.get('CPU', 0.0):g} are free; waiting for the others",
            stacklevel=2,
        )
    wait(calls)


def _nodes() -> list[Node]:
    """The machines of the cluster that are there now."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [
        Node(
            node["NodeManagerHostname"],
            node["Resources"].get("CPU", 0.0),
            node["Resources"].get("GPU", 0.0),
            node["Resources"].get("memory", math.inf),
        )
        for node in nodes
        if node["Alive"]
    ]


def _new_server() -> Any:
    """A server where the driver is, whose disk the results go to."""
    here = ray.get_runtime_context().get_node_id()
    pinned = NodeAffinitySchedulingStrategy(here, soft=False)
    server: Any = ray.remote(ServerActor)
    return server.options(num_cpus=0, scheduling_strategy=pinned).remote()


@contextlib.contextmanager
def _killed(actors: list[Any]) -> Iterator[None]:
    """In the end, none of these actors is left."""
    try:
        yield
    finally:
        for actor in actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)


def _actor_count(workers: int, clients_per_actor: int | None, population: int | None) -> int:
    if clients_per_actor is None:
        return max(1, workers)
    if population is None:
        raise BadInput("clients_per_actor needs to know how many clients there are")
    return -(-population // clients_per_actor)
