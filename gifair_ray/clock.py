"""Virtual time: events in a total order."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gifair_ray.errors import RunFailed


class Event(NamedTuple):
    """Something that happens at a virtual time. `needs` are the jobs whose results it uses."""

    kind: str
    needs: tuple[int, ...] = ()
    payload: Any = None


@dataclass(slots=True)
class Clock:
    """A heap ordered by (time, priority, serial): nothing is left to chance, not even ties."""

    now: float = 0.0
    _heap: list[tuple[float, int, int, Event]] = field(default_factory=list)
    _serial: int = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time: float, event: Event, priority: int = 0) -> None:
        """Let an event happen at a time; a smaller priority goes first among equals."""
        if not self.now <= time < math.inf:
            never = "; a device is so slow that it never ends: see devices, or set policy.timeout_s"
            raise RunFailed(
                f"event {event.kind!r} at {time} s: virtual time is {self.now} s"
                f"{never if time == math.inf else ''}"
            )
        heapq.heappush(self._heap, (time, priority, self._serial, event))
        self._serial += 1

    def peek(self) -> tuple[float, Event] | None:
        """The next event and its time, which stays where it is."""
        return (self._heap[0][0], self._heap[0][3]) if self._heap else None

    def take(self, n: int, kind: str, before: float) -> list[tuple[float, Event]]:
        """The next events with their times: up to n, of one kind, before a moment."""
        heap = self._heap
        found: list[tuple[float, Event]] = []
        while len(found) < n and heap and heap[0][0] < before and heap[0][3].kind == kind:
            self.now, _, _, event = heapq.heappop(heap)
            found.append((self.now, event))
        return found

    def keep_only(self, kinds: Collection[str]) -> None:
        """Forget all events of other kinds."""
        self._heap = [entry for entry in self._heap if entry[3].kind in kinds]
        heapq.heapify(self._heap)

    def pop(self) -> Event:
        """The next event; virtual time moves to it."""
        self.now, _, _, event = heapq.heappop(self._heap)
        return event
