"""Participation policies: when work goes out, what is waited for, when the model changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.clock import Event
from gifair_ray.parts import Part

if TYPE_CHECKING:
    from gifair_ray.commands import Commands
    from gifair_ray.replies import Results
    from gifair_ray.world import State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Policy(Part):
    """Base of all policies: rules over the server's state, without I/O and without a clock.

    Each rule changes the state in place, schedules what comes next on the state's clock, and
    returns commands for the engine to carry out.
    """

    family: ClassVar[str] = "gifair_ray.policies"
    called: ClassVar[str] = "policy"
    cohorts: ClassVar[bool] = True
    """Whether a server update is the work of one cohort, as the sampling scheme draws it."""

    kind: str = Field(description="when work goes out and the model changes")
    timeout_s: float = Field(
        math.inf, gt=0, description="the server waits no longer than this for a reply, seconds"
    )
    notice: Literal["timeout", "disconnect"] = Field(
        "disconnect",
        description="when the server knows that a client is lost: at the timeout, or when the "
        "connection breaks, one latency later",
    )
    failures: Literal["slots", "survivors", "corrected"] = Field(
        "slots",
        description="weights when some fail: slots (a smaller step), survivors (biased towards "
        "the reliable), corrected (by the probability of answering)",
    )
    reliability: Literal["known", "estimated"] = Field(
        "estimated",
        description="for corrected: from the device's dropout and lifetime, or from "
        "the client's record so far",
    )
    busy_asked: Literal["answer", "wait", "skip"] = Field(
        "answer",
        description="what a client that is training does when asked for its loss: answer beside "
        "its training, wait until it is done, or not answer",
    )
    discarded: Literal["unchanged", "kept"] = Field(
        "unchanged",
        description="personal state of a client whose finished work the server discards: as if "
        "it had not trained, or what it trained",
    )

    def begin(self, world: World, state: State) -> Commands:
        """The run starts."""
        raise NotImplementedError

    def handle(self, world: World, state: State, event: Event, results: Results) -> Commands:
        """An event of this policy's own happens."""
        raise NotImplementedError

    def gather(
        self, world: World, state: State, event: Event, updates: int
    ) -> list[tuple[float, Event]]:
        """Events that may be taken off the clock with this one and handled together, if any, in
        the course of at most so many server updates.

        Handling them together must come to the same as handling one after the other.
        """
        return []

    def handle_together(
        self, world: World, state: State, events: list[tuple[float, Event]], results: Results
    ) -> Commands:
        """Events that were gathered, with their times."""
        raise NotImplementedError

    def wind_up(self, world: World, state: State) -> Commands:
        """The run is over: conclude what is still under way."""
        raise NotImplementedError

    def discounted(self, lag: Ints) -> Floats:
        """s(lag), the staleness discount."""
        return np.ones(len(lag))
