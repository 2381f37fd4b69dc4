"""Scenario files: find them by name or path, vary them, expand studies into runs."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from gifair_ray.errors import BadInput
from gifair_ray.explain import dotted, shown
from gifair_ray.parts import nearest
from gifair_ray.scenario import Scenario, merge, parse
from gifair_ray.scenarios.change import (
    REMOVE,
    in_variant,
    parse_set,
    refuse_idle,
    together,
    without,
)

MOST_SEEDS = 10_000
MOST = 10 << 20  # characters of a scenario file


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
    """The text of a scenario, by name or path. A file of the same name ends in .toml or has a /."""
    wanted = str(source)
    if wanted in names():
        return (resources.files("gifair_ray.scenarios") / f"{wanted}.toml").read_text("utf-8")
    path = Path(source)
    try:
        if path.suffix == ".toml" or os.sep in wanted or path.is_file():
            return _all_of(path)
    except FileNotFoundError as error:
        raise BadInput(
            f"there is no file {wanted!r}; gifair list shows what comes along"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot read the scenario file {wanted!r}: {why}") from error
    raise BadInput(f"unknown scenario {wanted!r}; {nearest(wanted, names())}")


def _all_of(path: Path) -> str:
    """What a file or a pipe holds; not of one that does not end."""
    with path.open(encoding="utf-8-sig") as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise ValueError(f"it holds more than {MOST >> 20} MB, and no scenario does")
    return content


def load(
    source: str | Path | Mapping[str, Any], sets: Sequence[str] = (), seed: int | None = None
) -> Study:
    """A scenario or study, with `a.b=c` changes on top and its seeds counted from `seed`."""
    try:
        table, name = _read(source)
        changes = [parse_set(change) for change in sets]
        for keys in (keys for keys, value in changes if value is REMOVE):
            table = without(table, keys)
        over = together(changes) | ({} if seed is None else {"seed": seed})
        study, study_over = table.pop("study", {}), over.pop("study", {})
        if study_over:
            study = merge({"study": study}, {"study": study_over})["study"]
        table = {"name": name} | table
        variants = _checked_variants(study)
        refuse_idle(table, variants, changes)
        return _expand(table, variants, over, study.get("seeds", 1))
    except RecursionError:
        raise BadInput("the scenario is nested too deeply; no key of it is that deep") from None


def _read(source: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The table, and what to call it if it does not say."""
    if isinstance(source, Mapping):
        return dict(source), "scenario"
    try:
        table = tomllib.loads(text(source))
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        raise BadInput(f"{str(source)!r} is not valid TOML: {error}") from error
    return table, re.sub(r"[^\w.+-]+", "-", Path(source).stem)[:80] or "scenario"


def _checked_variants(study: Any) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(study, Mapping):
        raise BadInput(f"study = {shown(study)}: must be a table with seeds and variants")
    if unknown := [key for key in study if key not in ("seeds", "variants")]:
        hint = nearest(str(unknown[0]), ["seeds", "variants"])
        raise BadInput(f"unknown key {dotted(('study', str(unknown[0])))}: {hint}")
    seeds, variants = study.get("seeds", 1), study.get("variants", {})
    if type(seeds) is not int or not 1 <= seeds <= MOST_SEEDS:
        raise BadInput(
            f"study.seeds = {shown(seeds)}: must be a whole number from 1 to {MOST_SEEDS}"
        )
    if not isinstance(variants, Mapping):
        raise BadInput(f"study.variants = {shown(variants)}: must hold a table for each variant")
    folders: dict[str, str] = {}
    for label, changes in variants.items():
        if not isinstance(label, str) or not label.isprintable() or not 1 <= len(label) <= 80:
            raise BadInput(f"a variant is called {label!r}: give it a name of 1 to 80 characters")
        where = dotted(("study", "variants", label))
        if not isinstance(changes, Mapping):
            raise BadInput(f"{where} = {shown(changes)}: must be a table of what it changes")
        if own := [key for key in ("seed", "study") if key in changes]:
            raise BadInput(f"{where} sets {own[0]}, which all variants share; set it outside")
        twin = folders.setdefault(folder_name(label), label)
        if twin != label:
            raise BadInput(
                f"the variants {twin!r} and {label!r} would share the folder "
                f"{folder_name(label)!r}; rename one of them"
            )
    return variants


def folder_name(label: str) -> str:
    """A label as the name of a folder, without the seed."""
    return re.sub(r"[^A-Za-z0-9.+-]", "_", label)


def _expand(
    table: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    over: Mapping[str, Any],
    seeds: int,
) -> Study:
    runs, refused = [], {}
    for label, variant in (variants or {"": {}}).items():
        varied = in_variant(table, variant, over)
        try:
            first = parse(varied)
            last = parse(varied | {"seed": first.seed + seeds - 1})  # so are all between, but seed
            for seed in range(first.seed, last.seed + 1):
                runs.append((label or first.algorithm, first.model_copy(update={"seed": seed})))
        except BadInput as error:
            refused[label] = str(error)
    for label, why in refused.items():
        of_all = len(refused) == max(1, len(variants)) and len(set(refused.values())) == 1
        raise BadInput(why if of_all else f"variant {label!r}: {why}")
    return Study(runs[0][1].name, tuple(runs))
