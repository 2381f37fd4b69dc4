"""Waiting for Ray calls, with errors as they were raised."""

from __future__ import annotations

from typing import Any

import ray

from gifair_ray.errors import GifairError, RunFailed


class ActorLost(RunFailed):
    """An actor died, or its node did."""


def wait(calls: Any) -> Any:
    """The results of calls; what an actor raised is raised again, without Ray around it."""
    try:
        return ray.get(calls)
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, GifairError):
            raise cause from None
        if isinstance(cause, ray.exceptions.RayError):  # what it needed was lost on the way
            raise ActorLost(f"an actor's call was lost: {cause}") from cause
        raise RunFailed(f"an actor failed: {type(cause).__name__}: {cause}") from error
    except ray.exceptions.RayError as error:
        raise ActorLost(f"an actor was lost: {error}") from error
