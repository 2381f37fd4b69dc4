"""Sweeps: a scenario over all combinations of some keys' values, each over the same seeds."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    doubled = [key for key, _ in axes if sum(key == other for other, _ in axes) > 1]
    if doubled:
        raise BadInput(f"--over {doubled[0]} is given twice; list its values once")
    common = [*sets, *([] if seeds is None else [f"study.seeds={seeds}"])]
    runs, folders = [], dict[str, str]()
    for values in itertools.product(*(values for _, values in axes)):
        chosen = [(key, value) for (key, _), value in zip(axes, values, strict=True)]
        study = load(source, [*common, *(f"{key}={value}" for key, value in chosen)], seed)
        varied = len({label for label, _ in study.runs}) > 1
        for own, scenario in study.runs:
            label = ", ".join([own] * varied + [_told(key, value) for key, value in chosen])
            label = label or own
            twin = folders.setdefault(folder_name(label), label)
            if twin != label:
                raise BadInput(f"{twin!r} and {label!r} would share a folder; change a value")
            runs.append((label, scenario))
        if len(runs) > MOST_RUNS:
            raise BadInput(f"the sweep has more than {MOST_RUNS} runs; take fewer values or seeds")
    return Study(runs[0][1].name, tuple(runs))


def _axis(written: str) -> tuple[str, list[str]]:
    """`a.b=v1,v2` as the key and its values, each as TOML writes it or as plain text."""
    key, equals, listed = written.partition("=")
    if not equals or not key.strip() or not listed.strip():
        raise BadInput(f"--over takes key=v1,v2,…, as in work.steps=1,5,20, not {shown(written)}")
    try:
        given = tomllib.loads(f"values = [{listed}]")["values"]
    except ValueError:
        given = [part.strip() for part in listed.split(",")]
        return key.strip(), [part for part in given if part]
    return key.strip(), [_written(value) for value in given]


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _told(key: str, value: str) -> str:
    plain = value.strip('"')
    return plain if key == "algorithm" else f"{key.rpartition('.')[2]}={plain}"
