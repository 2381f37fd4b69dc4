"""Starts the actors, on this machine or on a running cluster, and stops what it started."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from gifair_ray.actors.calls import wait
from gifair_ray.actors.client import ClientActor, RunSpec
from gifair_ray.actors.server import ServerActor
from gifair_ray.engine import Progress
from gifair_ray.errors import BadInput, GifairError
from gifair_ray.scenario import Scenario
from gifair_ray.session import Outcome

RESTARTS = 4  # of an actor, before the run gives up
TUNING = {
    # Results of up to so many bytes come back with the reply, past the object store: that saves
    # several messages for each.
    "max_direct_call_object_size": 1 << 20,
    # Nobody looks at Ray's own record of every call, which takes a tenth of a short one's time.
    "task_events_report_interval_ms": 0,
}
STORE_BYTES = 512 << 20
CONNECT_S = 5.0  # for a cluster's head node to answer
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@dataclass
class Cluster:
    """A server actor and client actors, ready for one run after the other."""

    server: Any
    clients: list[Any]
    clients_per_actor: int | None

    def start(self, scenario: Scenario, folder: Path | None, delay_s: float = 0.0) -> RaySession:
        """Begin a run."""
        spec = RunSpec(uuid.uuid4().hex, scenario.table(), str(Path.cwd()), delay_s)
        where = folder.resolve() if folder is not None else None
        wait(self.server.begin.remote(spec, self.clients, self.clients_per_actor, where))
        return RaySession(self.server)


@dataclass
class RaySession:
    """A run on a cluster, with the same face as `gifair_ray.session.Session`."""

    server: Any

    def advance(self, budget_s: float) -> Progress:
        """Go on for about so long."""
        progress: Progress = wait(self.server.advance.remote(budget_s))
        return progress

    def finish(self) -> Outcome:
        """Write the results of a finished run."""
        outcome: Outcome = wait(self.server.finish.remote())
        return outcome

    def bytes_moved(self) -> int:
        """Models and results that have gone between server and client actors so far."""
        moved: int = wait(self.server.bytes_moved.remote())
        return moved

    def abort(self) -> None:
        """Give the run up; what was recorded stays."""
        with contextlib.suppress(GifairError):
            wait(self.server.abort.remote())


@contextlib.contextmanager
def cluster(
    *,
    workers: int | None = None,
    address: str | None = None,
    clients_per_actor: int | None = None,
    population: int | None = None,
) -> Iterator[Cluster]:
    """Actors for as long as the block lasts; then all that was started here is stopped.

    Uses Ray if it is already running in this process, else the cluster at `address`, else starts
    one on this machine.
    """
    ours = not ray.is_initialized()
    if ours:
        _init(workers, address)
    actors: list[Any] = []
    try:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        cpus = int(resources.get("CPU", 1))
        n = _actor_count(workers or cpus, clients_per_actor, population)
        share = 1.0 if n <= cpus else cpus / n
        remote_client: Any = ray.remote(ClientActor)
        options = {"max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        actors = [remote_client.options(num_cpus=share, **options).remote() for _ in range(n)]
        remote_server: Any = ray.remote(ServerActor)
        server = remote_server.options(num_cpus=0).remote()
        actors.append(server)
        wait([actor.ready.remote() for actor in actors[:-1]])
        yield Cluster(server, actors[:-1], clients_per_actor)
    finally:
        for actor in actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)
        if ours:
            ray.shutdown()


def _actor_count(workers: int, clients_per_actor: int | None, population: int | None) -> int:
    if clients_per_actor is None:
        return max(1, workers)
    if population is None:
        raise BadInput("clients_per_actor needs to know how many clients there are")
    return -(-population // clients_per_actor)


def _init(workers: int | None, address: str | None) -> None:
    if address is not None:
        _check_address(address)
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise BadInput(f"no Ray cluster answers at {address!r}: {error}") from error
        return
    start_ray(workers)


def start_ray(workers: int | None) -> None:
    """Ray on this machine, for as long as this process lasts."""
    ray.init(
        address="local",  # of its own, even where somebody else's cluster is running
        num_cpus=workers,
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
        object_store_memory=STORE_BYTES,
        _system_config=TUNING,
    )


def _check_address(address: str) -> None:
    """Refuse at once what Ray would try for minutes: an address where nobody listens."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise BadInput(f"--address {address!r} is neither HOST:PORT nor 'auto'")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"no Ray cluster answers at {address!r}: {error}") from error
