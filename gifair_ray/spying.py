"""Looking over a part's shoulder: whether what it returns can be used, and what it is given lives.

For parts that are under trial. A fault says what was returned, to what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.backend import LocalBackend
from gifair_ray.digest import model_hash
from gifair_ray.engine import Engine
from gifair_ray.federation import SPLITS
from gifair_ray.losses import LossTable
from gifair_ray.recorder import Recorder
from gifair_ray.replies import Params
from gifair_ray.scenario import Scenario
from gifair_ray.weightings import Floats, Ints, Memory, Rule, Update

PLAIN = "fiub"  # kinds of arrays that any file can hold: floats, whole numbers, booleans
MOMENTS = 40


class Fault(Exception):
    """A part does not keep to what is asked of it."""


def spy(scenario: Scenario) -> str:
    """Run a scenario with an eye on its rule and on every version of the model."""
    solver = scenario.solver
    for name, pull in (("pull", solver.pull), ("personal_pull", solver.personal_pull)):
        if pull is not None and not (np.isfinite(pull) and pull >= 0):
            raise Fault(f"{name} is {pull}; it must be finite and not negative")
    with _Reading(scenario) as backend:
        try:
            engine = Engine(scenario, backend, Recorder())
            watched = _Watched(engine.world.rule)
            engine.world = replace(engine.world, rule=watched)
            theta = engine.state.theta
            engine.begin()
            while not engine.advance(0.0).finished:
                _check_model(engine.state.theta, theta)
        except Fault:
            raise
        except Exception as error:  # another check is about whether it runs
            return f"it did not come to its end: {type(error).__name__}"
        backend.check_unchanged()
    return f"{watched.seen()}; {len(backend.published)} versions of the model, all finite"


def _check_model(now: Params, first: Params) -> None:
    if now.shape != first.shape or now.dtype != first.dtype:
        raise Fault(
            f"the model became {now.dtype} of shape {now.shape}, from {first.dtype} of shape "
            f"{first.shape}"
        )
    if not np.isfinite(now).all():
        at = int(np.flatnonzero(~np.isfinite(now))[0])
        raise Fault(f"the model has {now[at]} in entry {at}")


class _Reading(LocalBackend):
    """Remembers the versions it was given, to see whether somebody changes them afterwards."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.published: dict[int, tuple[Params, str]] = {}

    def publish(self, version: int, theta: Params) -> None:
        self.published[version] = theta, model_hash(theta)
        super().publish(version, theta)

    def check_unchanged(self) -> None:
        for version, (theta, before) in self.published.items():
            if model_hash(theta) != before:
                raise Fault(f"version {version} of the model was changed after it was sent out")


class _Watched(Rule):
    """A rule, with a check of all that goes in and out."""

    def __init__(self, rule: Rule) -> None:
        self._rule, self.lam, self.lam_max = rule, rule.lam, rule.lam_max
        self._tilts: list[float] = []
        self._weights: list[float] = []

    @property
    def tilting(self) -> bool:
        return self._rule.tilting

    @property
    def reweighing(self) -> bool:
        return self._rule.reweighing

    def tilts(self, losses: LossTable, clients: Ints) -> tuple[Floats, Ints | Floats | None]:
        with _untouched("tilts", losses.loss, losses.version, losses.groups, clients):
            returned = self._rule.tilts(losses, clients)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise Fault(f"tilts returned {_kind(returned)}, not (tilts, ranks or None)")
        tilts, ranks = returned
        self._tilts += _numbers("tilts", tilts, len(clients))
        if min(tilts, default=0.0) <= -1:
            raise Fault(f"tilts returned {min(tilts):g}: m_k = 1 + tilt must be positive")
        if ranks is not None:
            _numbers("ranks", ranks, len(clients))
            if np.asarray(ranks).dtype.kind not in "if":
                raise Fault(f"tilts returned ranks of {np.asarray(ranks).dtype}, not numbers")
        return tilts, ranks

    def memory(self) -> Memory:
        return self._rule.memory()

    def weigh(self, update: Update, memory: Memory) -> Floats:
        given = (update.clients, update.p, update.weights, update.losses, update.rates)
        with _untouched("weigh", *given, *update.models, *update.bases):
            weights = self._rule.weigh(update, memory)
        self._weights += _numbers("weigh", weights, len(update.clients))
        return weights

    def remarks(self, memory: Memory) -> list[str]:
        return self._rule.remarks(memory)

    def seen(self) -> str:
        """The range of what it returned."""
        parts = []
        if self.tilting and self._tilts:
            parts.append(f"tilts from {min(self._tilts):.3g} to {max(self._tilts):.3g}")
        if self.reweighing and self._weights:
            parts.append(f"weights from {min(self._weights):.3g} to {max(self._weights):.3g}")
        return ", ".join(parts) or "FedAvg's tilts and weights"


def _kind(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + ("" if shape is None else f" of shape {shape}")


def _numbers(what: str, values: Any, n: int) -> list[float]:
    """One finite number for each of n clients."""
    if not isinstance(values, np.ndarray) or values.shape != (n,):
        raise Fault(f"{what} returned {_kind(values)}, not an array of {n}, one for each client")
    if values.dtype.kind not in PLAIN or not np.isfinite(values).all():
        wrong = next((v for v in values.tolist() if not np.isfinite(v)), values.dtype)
        raise Fault(f"{what} returned {wrong}; all must be finite numbers")
    numbers: list[float] = values.tolist()
    return numbers


@contextmanager
def _untouched(what: str, *arrays: npt.NDArray[Any]) -> Iterator[None]:
    before = [array.tobytes() for array in arrays]
    yield
    if any(a.tobytes() != b for a, b in zip(arrays, before, strict=True)):
        raise Fault(f"{what} changed an array that it was given; change a copy")


def stored(memory: Memory) -> Memory:
    """The memory after a journey through plain bytes; refuses what no file of arrays can hold."""
    out: Memory = {}
    for name, array in memory.items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray):
            raise Fault(f"memory[{name!r}] is {_kind(array)}; it must hold arrays by name")
        if array.dtype.kind not in PLAIN:
            raise Fault(
                f"memory[{name!r}] is an array of {array.dtype}; only floats, integers and "
                "booleans can be stored"
            )
        out[name] = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape).copy()
    return out


def check_shards(scenario: Scenario) -> str:
    """Every client's data against what the population and the task say of it."""
    federation = scenario.data.build(scenario.seed)
    population, task = federation.population, federation.task
    if not task.classes:
        return f"{len(population)} clients without samples"
    total = 0
    for client in range(len(population)):
        shard = federation.shard(client)
        for split in SPLITS:
            samples, expected = getattr(shard, split), int(population.sizes(split)[client])
            where = f"client {client}, split {split}"
            if len(samples.y) != expected or len(samples.x) != expected:
                raise Fault(f"{where}: {len(samples.y)} samples; the population says {expected}")
            if samples.x.shape[1:] != task.input_shape:
                raise Fault(
                    f"{where}: inputs of shape {samples.x.shape[1:]}; the task says "
                    f"{task.input_shape}"
                )
            _check_range(where, samples.y, task.classes, "classes")
            if task.tokens:
                _check_range(where, samples.x, task.tokens, "tokens")
            elif not np.isfinite(samples.x).all():
                raise Fault(f"{where}: an input is not finite")
            total += expected
    return f"{len(population)} clients with {total} samples, as the population says"


def _check_range(where: str, values: npt.NDArray[Any], n: int, what: str) -> None:
    if values.dtype.kind not in "iu" or (len(values) and not 0 <= values.min() <= values.max() < n):
        raise Fault(f"{where}: {what} must be whole numbers in [0, {n})")


def check_calendar(scenario: Scenario) -> str:
    """A calendar's three questions must have answers that agree, asked together or one by one."""
    population = scenario.data.build(scenario.seed).population
    calendar = scenario.availability.build(scenario.seed, population)
    everybody = np.arange(len(population))
    online = 0
    for t in np.linspace(0.0, 1e5, MOMENTS).tolist():
        at, horizon = np.full(len(everybody), t), np.full(len(everybody), t + 1e4)
        here = calendar.online(everybody, t)
        _agree(here, [calendar.online(everybody[k : k + 1], t)[0] for k in everybody[::-1]], t)
        until = calendar.until(everybody, at, horizon)
        if until.shape != here.shape or not (until[here] > t).all():
            raise Fault(f"at {t:g} s somebody is online, who is offline from then on by until")
        leaving = here & np.isfinite(until)
        if calendar.online(everybody[leaving], until[leaving]).any():
            raise Fault(f"from {t:g} s on, until gives a moment at which the client is online")
        then = calendar.next_online(t)
        if then < t or (here.any() and then != t):
            raise Fault(f"next_online({t:g}) is {then:g}, with {here.sum()} clients online then")
        if np.isfinite(then) and not calendar.online(everybody, then).any():
            raise Fault(f"next_online({t:g}) is {then:g}, when nobody is online")
        online += int(here.sum())
    share = online / (MOMENTS * len(everybody))
    return f"{share:.0%} online; online, until and next_online agree at {MOMENTS} moments"


def _agree(together: npt.NDArray[np.bool_], one_by_one: Sequence[Any], t: float) -> None:
    if together.tolist() != [bool(one) for one in one_by_one][::-1]:
        raise Fault(f"at {t:g} s somebody is online alone but not in company, or the other way")
