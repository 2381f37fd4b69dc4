"""Changes to a scenario: what `--set` and the variants of a study do to its table."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gifair_ray.errors import BadInput
from gifair_ray.explain import dotted, shown
from gifair_ray.scenario import DEFAULT_ALGORITHM, complete, merge

PARTS_OF_AN_ALGORITHM = ("weighting", "solver", "aggregator")
REMOVE = object()
"""The value of a key that `--set key=` takes away."""

Keys = tuple[str, ...]
Change = tuple[Keys, Any]


def parse_set(change: str) -> Change:
    """`a.b=c` as the path (a, b) and c: a TOML value, or else plain text; REMOVE where c is empty.

    Keys are written as in TOML: one that is no plain word goes in quotes.
    """
    for equals in re.finditer("=", change):
        keys, value = _keys(change[: equals.start()]), change[equals.end() :].strip()
        if keys:
            return keys, _value(value, change)
    raise BadInput(
        f"--set takes key=value with a dotted key, as in work.steps=5, not {shown(change)}; "
        "put a part of the key that is no plain word in quotes"
    )


def _keys(written: str) -> Keys:
    """The parts of a dotted key; nothing if it is none."""
    if re.fullmatch(r"[\w-]+(\.[\w-]+)*", written):  # as TOML has it, and with any alphabet
        return tuple(written.split("."))
    if "\n" in written:
        return ()
    try:
        inner: Any = tomllib.loads(f"{written}=0")
    except ValueError:
        return ()
    keys: Keys = ()
    while isinstance(inner, dict) and inner:
        ((key, inner),) = inner.items()
        keys = (*keys, key)
    return keys


def _value(written: str, change: str) -> Any:
    if not written:
        return REMOVE
    try:
        table = tomllib.loads(f"value = {written}")
    except ValueError as error:
        if written[0] in "{[\"'":
            raise BadInput(
                f"--set {shown(change)}: not a TOML value: {error}; put text in quotes, and the "
                "whole in other quotes for the shell"
            ) from error
        return written
    if set(table) != {"value"}:
        raise BadInput(f"--set {shown(change)}: one key at a time")
    return table["value"]


def without(table: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """The table without this key."""
    inner: Any = table
    for key in keys:
        if not isinstance(inner, Mapping) or key not in inner:
            raise BadInput(f"--set {dotted(keys)}= is to take that key away, but there is none")
        inner = inner[key]
    kept = {key: value for key, value in table.items() if key != keys[0]}
    return kept | {keys[0]: without(table[keys[0]], keys[1:])} if keys[1:] else kept


def together(changes: Sequence[Change]) -> dict[str, Any]:
    """All that is to be set, as one table."""
    over: dict[str, Any] = {}
    for keys, value in changes:
        if value is not REMOVE:
            over = merge(over, _nested(keys, value))
    return over


def _nested(keys: Keys, value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def vary(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes on top of a scenario's table. Another algorithm takes nothing of the old parts."""
    base = dict(table)
    algorithm = base.get("algorithm", DEFAULT_ALGORITHM)
    if changes.get("algorithm", algorithm) != algorithm:
        for part in PARTS_OF_AN_ALGORITHM:
            base.pop(part, None)
    elif changes:
        with contextlib.suppress(ValueError):  # an unknown algorithm is refused later
            base = complete(base)  # so that the kinds of its parts are there to compare with
    return merge(base, changes)


def in_variant(
    table: Mapping[str, Any], variant: Mapping[str, Any], over: Mapping[str, Any]
) -> dict[str, Any]:
    """A scenario's table for a variant of its study: `over` changes all but what makes it one."""
    return merge(vary(vary(table, variant), over), variant)


def refuse_idle(
    table: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    changes: Sequence[Change],
) -> None:
    """Refuse what no run would feel: every variant has its own word on it."""
    if not variants:
        return
    algorithm = table.get("algorithm", DEFAULT_ALGORITHM)
    if all(v.get("algorithm", algorithm) != algorithm for v in variants.values()):
        for part in filter(table.__contains__, PARTS_OF_AN_ALGORITHM):
            raise BadInput(
                f"[{part}] would change nothing: every variant of the study names an algorithm, "
                f"which comes with its own. Give {part} in the variants"
            )
    for keys, value in changes:
        places = [] if value is REMOVE or keys[0] == "study" else list(_leaves(keys, value))
        if places and all(_says(v, place) for v in variants.values() for place in places):
            where = dotted(("study", "variants", next(iter(variants)), *keys))
            raise BadInput(
                f"--set {dotted(keys)} would change nothing: every variant of the study has its "
                f"own. Set {where}, or take all variants away with --set study="
            )


def _leaves(keys: Keys, value: Any) -> Iterator[Keys]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves((*keys, key), inner)
    else:
        yield keys


def _says(variant: Any, keys: Keys) -> bool:
    """Whether a variant itself has a word on this key, or on what holds it."""
    for key in keys:
        if not isinstance(variant, Mapping):
            return True
        if key not in variant:
            return False
        variant = variant[key]
    return True
