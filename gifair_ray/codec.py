"""Plain values for JSON from the state of a run, and back. Nothing is ever unpickled.

Arrays go to a store, and a reference takes their place. Dataclasses and named tuples are named by
module and class; only those of this package, and of modules that the scenario itself names, are
made again. What JSON has no form for is an object with one key that begins with "@".
"""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.errors import BadInput, RunFailed

Array = npt.NDArray[Any]
Reference = list[Any]

ARRAY, OBJECT, TUPLE, SET, DICT, COUNTER = "@array", "@object", "@tuple", "@set", "@dict", "@count"
KINDS = "biufU"  # of arrays: numbers and texts, no objects


def encode(value: Any, put: Callable[[Array], Reference]) -> Any:
    """A value as JSON has it; `put` keeps an array and says where."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in KINDS:
            raise RunFailed(f"an array of {value.dtype} cannot be saved; numbers and texts can")
        return {ARRAY: put(value)}
    if (names := _field_names(type(value))) is not None:
        kind = type(value)
        fields = {name: encode(getattr(value, name), put) for name in names}
        return {OBJECT: f"{kind.__module__}:{kind.__qualname__}", "fields": fields}
    if isinstance(value, list):
        return [encode(one, put) for one in value]
    if isinstance(value, tuple):
        return {TUPLE: [encode(one, put) for one in value]}
    if isinstance(value, set):
        return {SET: [encode(one, put) for one in sorted(value)]}
    if isinstance(value, dict):
        tag = COUNTER if isinstance(value, Counter) else DICT
        return {tag: [[encode(key, put), encode(one, put)] for key, one in value.items()]}
    raise RunFailed(
        f"a {type(value).__name__} cannot be saved: state is made of numbers, texts, arrays, "
        "lists, sets, dictionaries, dataclasses and named tuples"
    )


def _field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass or a named tuple; None for any other class."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return kind._fields if issubclass(kind, tuple) and hasattr(kind, "_fields") else None


def decode(value: Any, get: Callable[[Reference], Array], modules: Collection[str]) -> Any:
    """The value again. `modules` are those besides this package that may name a dataclass."""

    def again(inner: Any) -> Any:
        return decode(inner, get, modules)

    if isinstance(value, list):
        return [again(one) for one in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    inner = value.get(tag)
    if tag == OBJECT:
        return _object(str(inner), {k: again(v) for k, v in value["fields"].items()}, modules)
    if len(value) != 1 or not isinstance(inner, list):
        raise BadInput(f"no saved value looks like {str(value)[:80]}")
    if tag == ARRAY:
        return get(inner)
    if tag == TUPLE:
        return tuple(map(again, inner))
    if tag == SET:
        return set(map(again, inner))
    pairs = {again(key): again(one) for key, one in inner}
    if tag == COUNTER:
        return Counter(pairs)
    if tag == DICT:
        return pairs
    raise BadInput(f"no saved value looks like {str(value)[:80]}")


def _object(name: str, fields: dict[str, Any], modules: Collection[str]) -> Any:
    module, _, kind = name.partition(":")
    ours = module == "gifair_ray" or module.startswith("gifair_ray.") or module in modules
    found: Any = sys.modules.get(module) if ours else None
    for part in kind.split("."):
        found = getattr(found, part, None)
    names = _field_names(found) if isinstance(found, type) else None
    if names is None:
        raise BadInput(f"a saved state has a {name!r}, which is not of this gifair-ray")
    if set(fields) != set(names):
        raise BadInput(f"a saved {name!r} does not have the fields of this gifair-ray's")
    if issubclass(found, tuple):
        return found(**fields)
    made = object.__new__(found)
    for key, value in fields.items():
        object.__setattr__(made, key, value)
    return made
