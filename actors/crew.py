"""The client actors of a run: who lives, who was lost, and who comes in a lost one's place.

A call to an actor that was lost is made again with one that lives, and another actor is started in
the background. It may never come (its node may have gone for good), so nobody waits for it unless
no other is left. Results do not depend on who computed them, so none of this reaches them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from gifair_ray.actors.calls import ActorLost, wait
from gifair_ray.actors.client import ClientActor
from gifair_ray.actors.handshake import Hello, check
from gifair_ray.actors.line import Call, Line, connected
from gifair_ray.actors.rest import Rest
from gifair_ray.errors import BadInput, GifairError, RunFailed

ATTEMPTS = 4  # at one call, and at filling one place
REPLACED_S = 120.0  # for another actor to come, when none is left
QUIET_S = 1.0  # without a call through Ray, for actors to rest from those


def new_client(options: Mapping[str, Any]) -> Any:
    """Start a client actor. Ray shall not start it again by itself: the crew sees to that."""
    remote: Any = ray.remote(ClientActor)
    return remote.options(max_restarts=0, max_task_retries=0, **options).remote()


@dataclass(eq=False, slots=True)
class Task:
    """A call to any client actor. `begin` makes it; `about` names it, should it come to nothing.

    `over`, if there is one, makes it over a line instead, if that takes it.
    """

    begin: Callable[[Any], Any]
    about: Callable[[], str]
    cost: float = 0.0
    over: Callable[[Line], Call | None] | None = None
    place: int = -1
    actor: Any = None
    call: Any = None
    attempts: int = 0


@dataclass
class _Coming:
    """An actor that will fill a place, and what it says when it is there."""

    actor: Any
    hello: Any
    attempt: int


@dataclass
class Crew:
    """Actors in numbered places. `options` are those of an actor that is started."""

    actors: list[Any]
    options: Mapping[str, Any]
    losses: list[str] = field(default_factory=list)
    """What became of actors that were lost."""

    def __post_init__(self) -> None:
        self._down: set[int] = set()
        self._coming: dict[int, _Coming] = {}
        self._greet: Callable[[Any], Any] = lambda actor: actor.ready.remote()
        self._first: Hello | None = None
        self._lines: dict[int, Line] = {}
        self._rests: dict[int, Rest] = {}
        self._awake_s = time.monotonic()  # since when

    def assemble(self, greet: Callable[[Any], Any]) -> Hello:
        """Greet everybody for a run, now and when one comes later; what the first of them says.

        An actor that would not compute the same as the first is refused.
        """
        self._greet, self._first = greet, None
        for place, coming in self._coming.items():  # those of the run before
            self._coming[place] = replace(coming, hello=greet(coming.actor))
        self._wake()
        while True:
            calls = {place: greet(self.actors[place]) for place in self._standing()}
            for place, call in calls.items():
                try:
                    self._meet(place, wait(call))
                except ActorLost as error:
                    self._lost(place, self.actors[place], error)
            if self._first is not None:
                return self._first
            self._wait_for_somebody("the start of the run")

    def _meet(self, place: int, said: Hello) -> None:
        self._first = self._first or said
        check(said.credentials, self._first.credentials)
        if said.node == ray.get_runtime_context().get_node_id():
            self._connect(place, said.line)

    def _connect(self, place: int, name: str | None) -> None:
        known = self._lines.get(place)
        if known is not None and known.name == name:
            return
        if known is not None:
            known.close()
            del self._lines[place]
        if (line := connected(name)) is not None:
            self._lines[place] = line

    @property
    def has_lines(self) -> bool:
        """Whether there is a line to everybody."""
        return sum(not line.gone for line in self._lines.values()) == len(self.actors)

    @property
    def has_any_line(self) -> bool:
        """Whether there is a line to somebody."""
        return any(not line.gone for line in self._lines.values())

    def hang_up(self) -> None:
        """Close all lines; calls go through Ray until the next `assemble`."""
        self._wake()
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def live(self, about: str = "work") -> list[int]:
        """The places whose actors can be called; waits for one if there is none."""
        if not (found := self._standing()):
            self._wait_for_somebody(about)
            found = self._standing()
        return found

    def _standing(self) -> list[int]:
        self._look()
        return [place for place in range(len(self.actors)) if place not in self._down]

    def send(self, task: Task, place: int) -> None:
        """Make a call to the actor in this place."""
        task.place, task.actor = place, self.actors[place]
        line = self._lines.get(place)
        task.call = task.over(line) if task.over is not None and line is not None else None
        if task.call is None:
            self._through_ray(task)
        elif time.monotonic() > self._awake_s + QUIET_S:
            self._lay_to_rest(place)

    def _lay_to_rest(self, place: int) -> None:
        before = self._rests.get(place)
        if before is None or before.over:
            self._rests[place] = Rest(self.actors[place])
            if before is not None:
                before.end()

    def _through_ray(self, task: Task) -> None:
        self._wake()
        task.call = task.begin(task.actor)

    def _wake(self) -> None:
        self._awake_s = time.monotonic()
        while self._rests:
            self._rests.popitem()[1].end()

    def results(self, tasks: Sequence[Task], place: Callable[[Task], int]) -> list[Any]:
        """What calls have come to. One whose actor was lost is made again, in a place that is told.

        Raises what an actor raised, and RunFailed for a call that was lost too often.
        """
        done = {id(task): reply for task in tasks if (reply := self._heard(task)) is not None}
        if len(done) == len(tasks):  # the most frequent case, and the shortest calls
            return list(done.values())
        todo = [task for task in tasks if id(task) not in done]
        try:
            done.update(zip(map(id, todo), ray.get([task.call for task in todo]), strict=True))
            todo = []
        except ray.exceptions.RayError:
            pass  # one of them; which one?
        while todo:
            failed = []
            for task in todo:
                try:
                    reply = self._heard(task)
                    done[id(task)] = wait(task.call) if reply is None else reply
                except ActorLost as error:
                    self._note(task, error)
                    failed.append(task)
            for task in failed:
                self.send(task, place(task))
            todo = failed
        return [done[id(task)] for task in tasks]

    def ask(self, begin: Callable[[Any], Any], about: str) -> Any:
        """What the first that lives says."""
        task = Task(begin, lambda: about)
        while True:
            self.send(task, self.live(about)[0])
            try:
                return wait(task.call)
            except ActorLost as error:
                self._note(task, error)

    def _heard(self, task: Task) -> Any:
        """What came back over a line. If nothing did it is asked for again: Ray will say why."""
        if not isinstance(task.call, Call):
            return None
        if (reply := task.call.reply()) is None:
            self._through_ray(task)
        return reply

    def give_up(self, tasks: Iterable[Task]) -> None:
        """Nobody will ask for the results of these calls, nor of any other over a line."""
        for task in tasks:
            if not isinstance(task.call, Call):
                ray.cancel(task.call)
        self.hang_up()

    def _note(self, task: Task, error: ActorLost) -> None:
        if not isinstance(error.__cause__, ray.exceptions.ObjectLostError):  # it may be well
            self._lost(task.place, task.actor, error)
        task.attempts += 1
        if task.attempts >= ATTEMPTS:
            raise RunFailed(
                f"{task.about()}: client actor {task.place} was lost, as {ATTEMPTS - 1} before it: "
                f"{_first_line(error)}"
            ) from error

    def _lost(self, place: int, actor: Any, error: GifairError) -> None:
        if self.actors[place] is not actor or place in self._down:
            return  # it is known
        self.losses.append(f"client actor {place}: {_first_line(error)}")
        self._down.add(place)
        self._wake()
        if (line := self._lines.pop(place, None)) is not None:
            line.close()
        _kill(actor)  # it may only have been out of reach
        self._start(place, 1)

    def _start(self, place: int, attempt: int) -> None:
        actor = new_client(self.options)
        self._coming[place] = _Coming(actor, self._greet(actor), attempt)

    def _look(self) -> None:
        """Those that have come since take their places."""
        for place, coming in list(self._coming.items()):
            if not ray.wait([coming.hello], timeout=0)[0]:
                continue
            del self._coming[place]
            try:
                self._meet(place, wait(coming.hello))
            except BadInput as error:  # another would be no better
                self.losses.append(f"client actor {place}: {_first_line(error)}")
                _kill(coming.actor)
            except GifairError as error:
                self.losses.append(f"client actor {place}: {_first_line(error)}")
                if coming.attempt < ATTEMPTS:
                    self._start(place, coming.attempt + 1)
            else:
                self.actors[place] = coming.actor
                self._down.discard(place)

    def _wait_for_somebody(self, about: str) -> None:
        while self._coming:
            calls = [coming.hello for coming in self._coming.values()]
            if not ray.wait(calls, timeout=REPLACED_S)[0]:
                break
            if self._standing():
                return
        raise RunFailed(
            f"{about}: no client actor is left, and none came in {REPLACED_S:g} s: "
            f"{'; '.join(self.losses[-3:])}"
        )


def _kill(actor: Any) -> None:
    try:
        ray.kill(actor)
    except Exception:  # it is gone, or out of reach: either way nobody will call it
        return


def _first_line(error: BaseException) -> str:
    """What Ray says of a loss, without its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:1] + [line for line in lines[1:] if "died because" in line])[:300]
