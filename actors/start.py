"""Ray itself: as it is running already, at an address, or started on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator

import ray

from gifair_ray.errors import BadInput, RunFailed
from gifair_ray.memory import MMAP_BYTES, TRIM_BYTES

TUNING = {
    # Results of up to so many bytes come back with the reply, past the object store: that saves
    # several messages for each.
    "max_direct_call_object_size": 1 << 20,
    # Nobody looks at Ray's own record of every call, which takes a tenth of a short one's time.
    "task_events_report_interval_ms": 0,
    # Results that have been used make room for the next ones, not a second later.
    "free_objects_period_milliseconds": 50,
}
STORE_BYTES = 512 << 20
FRUGAL = {
    # Processes have one pool of free memory, not eight per core; see `memory` for the others.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(TRIM_BYTES),
    "MALLOC_MMAP_THRESHOLD_": str(MMAP_BYTES),
    # Arrow takes memory from these, and gives it back, instead of keeping a pool of its own.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Environment of the processes that Ray starts, where the user's has nothing else."""
UNWATCHED = ("kill_log_monitor", "kill_monitor", "kill_dashboard")
"""Processes of Ray's for people who look at a cluster, at 50 MB each: nobody looks at ours."""
CONNECT_S = 5.0  # for a cluster's head node to answer


@contextlib.contextmanager
def running(workers: int | None, address: str | None) -> Iterator[bool]:
    """Ray: as it is already running in this process, at `address`, or started on this machine.

    What was started here is stopped in the end. Tells whether it is this machine alone.
    """
    ours = not ray.is_initialized()
    if ours:
        with _polite_kill_as_before():
            _init(workers, address)
    try:
        yield ours and address is None
    finally:
        if ours:
            ray.shutdown()


@contextlib.contextmanager
def _polite_kill_as_before() -> Iterator[None]:
    """Ray's own answer to SIGTERM is to die at once, where ours is to save the run."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None:
        with contextlib.suppress(ValueError):  # not the main thread: Ray has not touched it
            signal.signal(signal.SIGTERM, before)


def _init(workers: int | None, address: str | None) -> None:
    if address is not None:
        _check_address(address)
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise BadInput(
                f"no Ray cluster answers at {address!r}: {str(error).rstrip('.')}. If it was "
                "started with a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN to that here, too"
            ) from error
        return
    start_ray(workers)


def start_ray(workers: int | None) -> None:
    """Ray on this machine, for as long as this process lasts."""
    added = {name: value for name, value in FRUGAL.items() if name not in os.environ}
    os.environ.update(added)
    try:
        ray.init(
            address="local",  # of its own, even where somebody else's cluster is running
            num_cpus=workers,
            include_dashboard=False,
            logging_level=logging.ERROR,
            log_to_driver=False,
            object_store_memory=STORE_BYTES,
            _system_config=TUNING,
        )
    except Exception as error:  # Ray has no class of its own for it
        raise RunFailed(
            f"Ray did not start on this machine: {error} Try again when that is less busy, or "
            "compute in process with --backend local"
        ) from error
    finally:
        for name in added:
            del os.environ[name]
    for stop in UNWATCHED:
        with contextlib.suppress(Exception):  # no option of ray.init leaves them out
            getattr(ray._private.worker._global_node, stop)(check_alive=False)


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
