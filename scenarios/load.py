"""Scenario files: find them by name or path, vary them, expand studies into runs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from gifair_ray.errors import BadInput
from gifair_ray.parts import nearest
from gifair_ray.scenario import Scenario, merge, parse

PARTS_OF_AN_ALGORITHM = ("weighting", "solver", "aggregator")


@dataclass(frozen=True)
class Study:
    """Named runs that belong together; a plain scenario is a study of one."""

    name: str
    runs: tuple[tuple[str, Scenario], ...]
    """(label, scenario): the label is the same for all seeds of a variant."""


def names() -> list[str]:
    """The scenarios that come with the package."""
    files = resources.files("gifair_ray.scenarios").iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def summary(name: str) -> str:
    """The first line of a scenario file's comment: the question it answers."""
    first = text(name).split("\n", 1)[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def text(source: str | Path) -> str:
    """The text of a scenario, by name or path."""
    path = Path(source)
    if path.suffix == ".toml" or path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"cannot read the scenario file {path}: {error}") from error
    if str(source) not in names():
        raise BadInput(f"unknown scenario {str(source)!r}; {nearest(str(source), names())}")
    return (resources.files("gifair_ray.scenarios") / f"{source}.toml").read_text("utf-8")


def load(
    source: str | Path | Mapping[str, Any], sets: Sequence[str] = (), seed: int | None = None
) -> Study:
    """A scenario or study, with `a.b=c` changes on top and its seeds counted from `seed`."""
    if isinstance(source, Mapping):
        table, name = dict(source), str(source.get("name", "scenario"))
    else:
        try:
            table, name = tomllib.loads(text(source)), Path(source).stem
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{source} is not valid TOML: {error}") from error
    for change in sets:
        table = vary(table, parse_set(change))
    study = table.pop("study", {})
    table.setdefault("name", name)
    if seed is not None:
        table["seed"] = seed
    return _expand(table, study)


def _expand(table: dict[str, Any], study: Any) -> Study:
    if not isinstance(study, Mapping) or set(study) - {"seeds", "variants"}:
        raise BadInput("a [study] has seeds (how many) and [study.variants.NAME] tables, no more")
    seeds, variants = study.get("seeds", 1), study.get("variants", {})
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 1:
        raise BadInput(f"study.seeds = {seeds!r} is not a positive whole number")
    if not isinstance(variants, Mapping) or not all(
        isinstance(v, Mapping) for v in variants.values()
    ):
        raise BadInput("study.variants must hold a table for each variant")
    first = table.get("seed", 0)
    runs = []
    for label, changes in (variants or {"": {}}).items():
        for i in range(seeds):
            varied = vary(table, changes)
            scenario = parse(varied | {"seed": first + i} if isinstance(first, int) else varied)
            runs.append((label or scenario.algorithm, scenario))
    return Study(str(table["name"]), tuple(runs))


def vary(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes on top of a scenario's table. Another algorithm takes nothing of the old parts."""
    base = dict(table)
    if changes.get("algorithm", base.get("algorithm")) != base.get("algorithm"):
        for part in PARTS_OF_AN_ALGORITHM:
            base.pop(part, None)
    return merge(base, changes)


def parse_set(change: str) -> dict[str, Any]:
    """`a.b=c` as a nested table; c is a TOML value, or else a plain string."""
    key, equals, value = change.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise BadInput(
            f"--set takes key=value with a dotted key, as in work.steps=5; not {change!r}"
        )
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(key.split(".")):
        parsed = {part.strip(): parsed}
    return dict(parsed)
