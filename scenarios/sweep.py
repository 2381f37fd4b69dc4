"""Sweeps: a scenario over all combinations of some keys' values, each over the same seeds."""

from __future__ import annotations

import itertools
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gifair_ray import toml
from gifair_ray.errors import BadInput
from gifair_ray.explain import shown
from gifair_ray.scenarios.load import Study, folder_name, load

MOST_RUNS = 100_000


def sweep(
    source: str | Path | Mapping[str, Any],
    over: Sequence[str],
    sets: Sequence[str] = (),
    seed: int | None = None,
    seeds: int | None = None,
) -> Study:
    """All combinations of `a.b=v1,v2,…`, as a study with a label for each.

    A study's own variants are combined with them. `seeds` is how many each is run on, if not as
    many as the scenario says.
    """
    axes = [_axis(one) for one in over]
    away = "take the variants away with --set study.variants= and name an --set algorithm=…"
    doubled = [key for key, _ in axes if sum(key == other for other, _ in axes) > 1]
    if doubled:
        raise BadInput(f"--over {doubled[0]} is given twice; list its values once")
    common = [*sets, *([] if seeds is None else [f"study.seeds={seeds}"])]
    runs, folders, seen = [], dict[str, tuple[str, int]](), dict[tuple[str, str], str]()
    for number, values in enumerate(itertools.product(*(values for _, values in axes))):
        chosen = [(key, value) for (key, _), value in zip(axes, values, strict=True)]
        sets = [*common, *(f"{key}={literal}" for key, (_, literal) in chosen)]
        try:
            study = load(source, sets, seed)
        except BadInput as error:
            if not str(error).startswith("variant "):
                raise
            raise BadInput(f"{error}; to vary one setting, {away}") from error
        varied = len({label for label, _ in study.runs}) > 1
        for own, scenario in study.runs:
            label = ", ".join([own] * varied + [_told(key, plain) for key, (plain, _) in chosen])
            label = label or own
            twin = folders.setdefault(folder_name(label), (label, number))
            if twin != (label, number):
                raise BadInput(f"{twin[0]!r} and {label!r} would share a folder; change a value")
            same = seen.setdefault((own, scenario.digest()), label)
            if same != label:
                why = f" (a variant's own value stands: {away})" if varied else ""
                raise BadInput(f"{same!r} and {label!r} are the same scenario{why}")
            runs.append((label, scenario))
        if len(runs) > MOST_RUNS:
            raise BadInput(f"the sweep has more than {MOST_RUNS} runs; take fewer values or seeds")
    return Study(runs[0][1].name, tuple(runs))


Value = tuple[str, str]
"""A value as it is shown in a label, and as TOML (or plain text) writes it."""


def _axis(written: str) -> tuple[str, list[Value]]:
    """`a.b=v1,v2` as the key and its values."""
    key, equals, listed = written.partition("=")
    if not equals or not key.strip() or not listed.strip():
        raise BadInput(f"--over takes key=v1,v2,…, as in work.steps=1,5,20, not {shown(written)}")
    values = _values(listed)
    if not values:
        raise BadInput(f"--over {shown(written)} lists no values")
    if doubled := [plain for (plain, _), n in Counter(values).items() if n > 1]:
        raise BadInput(f"--over {key.strip()} lists {doubled[0]} twice; list each value once")
    return key.strip(), values


def _values(listed: str) -> list[Value]:
    try:
        table = tomllib.loads(f"values = [{listed}]")
    except ValueError:  # not TOML: plain words
        words = [word.strip() for word in listed.split(",")]
        return [(word.strip("\"'"), word) for word in words if word]
    if set(table) != {"values"}:
        raise BadInput(f"--over takes values on one line, not {shown(listed)}")
    return [(_plain(value), toml.literal(value)) for value in table["values"]]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else toml.literal(value)


def _told(key: str, plain: str) -> str:
    return plain if key == "algorithm" else f"{key.rpartition('.')[2]}={plain}"
