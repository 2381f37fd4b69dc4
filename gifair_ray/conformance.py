"""What every part must keep to, its author's own or built in, tried out in small scenarios.

options     they can be written to a scenario file and read back; unknown ones are refused
values      what it returns is of the right shape and finite, and what it is given stays as it was
runs        every trial comes to its end, also with one client or hardly an answer
twice       the same scenario gives the same digest again
alone       each client's result is the same alone, in any order, from data and a learner built anew
fresh       objects made anew between any two events change nothing: all state is in the `State`
stored      nor does storing what it remembers as plain arrays and reading it back
relabelled  numbering the clients in another way permutes their weights, and nothing else
"""

from __future__ import annotations

import copy
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gifair_ray import draws, toml
from gifair_ray.engine import Engine
from gifair_ray.errors import BadInput, GifairError
from gifair_ray.parts import Part, import_user_object, nearest
from gifair_ray.scenario import Scenario, merge, parse
from gifair_ray.spying import Fault, check_calendar, check_shards, spy, stored
from gifair_ray.trials import (
    QUADRATIC,
    Alone,
    Result,
    anew,
    check_fits,
    first_difference,
    play,
    rebuild,
    scenarios,
)

FAMILIES: dict[str, type[Part]] = {
    name: info.annotation
    for name, info in Scenario.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Part)
}
Found = TypeVar("Found")
UNKNOWN = "an_option_that_nobody_has"
CLOSE = 1e-9  # relative: sums over clients in another order round differently


@dataclass(frozen=True)
class Verdict:
    """What one check has come to; `passed` is None where it does not apply."""

    check: str
    passed: bool | None
    seen: str


def find(part: str) -> tuple[str, str]:
    """(family, name) of a part: `module:Class`, the name of a built-in one, or `family.name`."""
    if ":" in part:
        found = import_user_object(part)
        for family, base in FAMILIES.items():
            if isinstance(found, type) and issubclass(found, base):
                return family, part
        if callable(found) and not isinstance(found, type):
            return "model", part  # a factory of modules
        raise BadInput(
            f"{part!r} is no part: derive it from one of "
            + ", ".join(f"{base.__module__}.{base.__name__}" for base in FAMILIES.values())
        )
    known = {f"{family}.{name}": (family, name)
             for family, base in FAMILIES.items() for name in base.names()}  # fmt: skip
    matches = [key for key, (_, name) in known.items() if part in (key, name)]
    if not matches:
        names = sorted({name for _, name in known.values()})
        raise BadInput(
            f"there is no part {part!r}; {nearest(part, names)}; one of your own is module:Class"
        )
    if len(matches) > 1:
        raise BadInput(f"{part!r} may be {' or '.join(matches)}: say which")
    return known[matches[0]]


class Conformance:
    """A part in its trials. `checks` gives the verdicts one after the other."""

    def __init__(self, part: str, changes: Mapping[str, Any] | None = None) -> None:
        """`changes` are options of the part, as a scenario's table, and all else of the trials."""
        self.family, self.name = find(part)
        key = FAMILIES[self.family].key
        self._changes = merge({self.family: {key: self.name}}, changes or {})
        self._crash = ""
        try:
            self.trials, refusal = scenarios(self._changes)
        except Exception as error:
            self.trials, self._crash = {}, _told(error)
        if not self.trials and not self._crash:
            raise BadInput(f"{part} fits none of the trials: {refusal} (--set changes them)")

    def checks(self) -> Iterator[Verdict]:
        """All verdicts. Where the first checks fail, the others say nothing of the part."""
        if self._crash:
            yield Verdict("runs", False, self._crash)
            return
        needed = (self._options, self._values, self._runs, self._twice)
        sound = True
        for check in (*needed, self._alone, self._fresh, self._stored, self._relabelled):
            if sound:
                yield (verdict := self._verdict(check))
                sound = verdict.passed is not False or check not in needed
            else:
                yield Verdict(check.__name__[1:], None, "not tried: a check before it failed")

    def _verdict(self, check: Callable[[], str]) -> Verdict:
        name = check.__name__[1:]
        try:
            seen = check()
        except Exception as error:
            return Verdict(name, False, _told(error))
        return Verdict(name, None if seen.startswith("n/a") else True, seen)

    @cached_property
    def _found(self) -> dict[str, Result]:
        return {name: _within(name, _play_anew, scenario) for name, scenario in self.trials.items()}

    def _ordinary(self) -> dict[str, Scenario]:
        """The trials without those at the edge of what makes sense, if there are others."""
        edge = ("one client", "few answer")
        ordinary = {name: s for name, s in self.trials.items() if name not in edge}
        return ordinary or self.trials

    def _options(self) -> str:
        scenario = next(iter(self.trials.values()))
        try:
            for how, table in (
                ("as plain values", scenario.table()),
                ("as TOML", tomllib.loads(toml.dump(scenario))),
            ):
                if parse(table) != scenario:
                    raise Fault(f"the options are not the same when read back {how}")
        except (BadInput, ValueError) as error:
            raise Fault(f"the options cannot be written down and read back: {error}") from error
        part, key = getattr(scenario, self.family), FAMILIES[self.family].key
        own = [name for name in type(part).model_fields if name != key]
        try:
            parse(merge(scenario.table(), {self.family: {UNKNOWN: 1}}))
        except BadInput:
            return f"{len(own)} read back as they were written; unknown ones refused"
        raise Fault("an unknown option is accepted, so a misspelt one would be: forbid extra keys")

    def _values(self) -> str:
        if self.family == "availability":
            return check_calendar(next(iter(self.trials.values())))
        look = check_shards if self.family == "data" else spy
        seen = [_within(name, look, anew(scenario)) for name, scenario in self.trials.items()]
        return seen[0]

    def _runs(self) -> str:
        rounds = sum(len(result.tables["rounds"]) for result in self._found.values())
        return f"{rounds} rounds in {len(self._found)} trials: {'; '.join(self._found)}"

    def _compare(self, trials: Mapping[str, Scenario], run: Callable[[Scenario], Result]) -> str:
        for name, scenario in trials.items():
            again = _within(name, run, scenario)
            if difference := first_difference(self._found[name], again):
                raise Fault(f"{name}: {difference}")
        return f"the same digests in {len(trials)} trials"

    def _twice(self) -> str:
        return self._compare(self._ordinary(), _play_anew)

    def _alone(self) -> str:
        # Who computes what is up to the clients' side; one trial for each kind of data will do.
        by_data = {scenario.data.source: name for name, scenario in self._ordinary().items()}
        chosen = {name: self.trials[name] for name in by_data.values()}
        return self._compare(chosen, lambda scenario: play(anew(scenario), Alone))

    def _fresh(self) -> str:
        return self._compare(self._ordinary(), lambda s: play(anew(s), between=rebuild))

    def _stored(self) -> str:
        if self.family == "weighting":
            kept: set[str] = set()

            def through_arrays(engine: Engine) -> None:
                kept.update(engine.state.memory)
                engine.state.memory = stored(engine.state.memory)

            same = self._compare(self._ordinary(), lambda s: play(anew(s), between=through_arrays))
            return f"{same}; it remembers {', '.join(sorted(kept)) or 'nothing'}"
        if self.family == "policy":

            def copied(engine: Engine) -> None:
                engine.state = copy.deepcopy(engine.state)

            return self._compare(self._ordinary(), lambda s: play(anew(s), between=copied))
        return "n/a: parts of this family remember nothing"

    def _relabelled(self) -> str:
        if self.family not in ("weighting", "solver", "aggregator"):
            return "n/a: parts of this family may go by the clients' numbers"
        K = 6
        try:
            check_fits(before := parse(self._numbered(np.arange(K))))
        except BadInput as error:
            return f"n/a: {error}"
        first = play(before)
        for order in (np.arange(K)[::-1], draws.permutations(0, "conformance", K)[0]):
            after = play(parse(self._numbered(order)))
            _same_but_for_the_order(first, after, order)
        return "weights and tilts go with the clients; θ stays"

    def _numbered(self, order: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Everybody takes part in a problem without noise, in which client i is order[i]."""
        K, dim = len(order), 3
        g = draws.generator(0, "conformance/problem")
        half = g.standard_normal((K, dim, dim))
        A = half @ np.swapaxes(half, 1, 2) / dim + 0.5 * np.eye(dim)
        problem = {
            "source": "quadratic", "problem": "own", "A": A[order].tolist(),
            "b": g.standard_normal((K, dim))[order].tolist(),
            "sizes": g.integers(10, 100, K)[order].tolist(),
            "groups": np.array([0, 0, 1, 1, 2, 2])[order].tolist(),
        }  # fmt: skip
        table = merge(merge(QUADRATIC, {"devices": {"dropout": 0.0}}), self._changes)
        everybody = {"sampling": {"scheme": "all"}, "policy": {"kind": "sync"}}
        table = merge(table, {**everybody, "model": {"kind": "quadratic"}})
        return {**table, "data": problem}


def _play_anew(scenario: Scenario) -> Result:
    return play(anew(scenario))


def _same_but_for_the_order(one: Result, other: Result, order: npt.NDArray[np.int64]) -> None:
    for column in ("tilt", "weight"):
        a, b = _by_round(one, column), _by_round(other, column)
        for round_, values in a.items():
            expected, found = values[order], b[round_]
            if len(wrong := np.flatnonzero(~np.isclose(found, expected, CLOSE, CLOSE))):
                i, old = int(wrong[0]), int(order[wrong[0]])
                raise Fault(
                    f"client {old} has {column} {expected[i]:.12g} in round {round_}, and "
                    f"{found[i]:.12g} when it is called client {i}"
                )
    if not np.allclose(one.theta, other.theta, CLOSE, CLOSE):
        raise Fault(
            f"θ depends on how clients are numbered: {_first(one.theta, other.theta)}; "
            "the weights do not"
        )


def _by_round(result: Result, column: str) -> dict[int, npt.NDArray[np.float64]]:
    table = result.tables["dispatches"].sort_by([("round", "ascending"), ("client", "ascending")])
    rounds, values = table["round"].to_numpy(), table[column].to_numpy().astype(np.float64)
    return {int(round_): values[rounds == round_] for round_ in np.unique(rounds)}


def _first(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> str:
    i = int(np.argmax(np.abs(a - b)))
    return f"entry {i} is {a[i]:.12g} or {b[i]:.12g}"


def _within(trial: str, act: Callable[[Scenario], Found], scenario: Scenario) -> Found:
    """Act, and say in which trial it was that something went wrong."""
    try:
        return act(scenario)
    except Exception as error:
        raise Fault(f"{trial}: {_told(error)}") from error


def _told(error: Exception) -> str:
    """An error in words; where it happened, if it was not foreseen."""
    if isinstance(error, Fault | GifairError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    others = {"gifair_ray", "site-packages"}
    own = [frame for frame in frames if others.isdisjoint(Path(frame.filename).parts)]
    at = (own or frames)[-1]
    where = f"{Path(at.filename).name}, line {at.lineno}"
    return f"raised {type(error).__name__}: {error} ({where})"
