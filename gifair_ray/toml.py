"""Values as TOML: a scenario with every key and what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from gifair_ray.errors import BadInput


def dump(model: BaseModel, only: Collection[str] | None = None, under: str = "") -> str:
    """Commented TOML; reading it back gives the same value. Unset keys are commented out.

    With `only`, these keys alone; with `under`, as the table of that name.
    """
    lines = [f"[{under}]"] if under else []
    _table(lines, under, model, only)
    return "\n".join(lines) + "\n"


def _table(
    lines: list[str], path: str, model: BaseModel, only: Collection[str] | None = None
) -> None:
    inner: list[tuple[str, BaseModel]] = []
    plain = model.model_dump(mode="json", by_alias=True)
    for name, info in type(model).model_fields.items():
        key, value = info.alias or name, getattr(model, name)
        if only is not None and key not in only:
            continue
        if isinstance(value, BaseModel) and not _is_short(value):
            inner.append((f"{path}.{key}" if path else key, value))
            continue
        comment = f"  # {info.description}" if info.description else ""
        if value is None:
            lines.append(f"# {key} ={comment}")
        else:
            lines.append(f"{key} = {literal(plain[key])}{comment}")
    for inner_path, value in inner:
        lines += ["", f"[{inner_path}]"]
        _table(lines, inner_path, value)


def _is_short(value: BaseModel) -> bool:
    """Whether a value is easier to read on one line: a distribution."""
    return "dist" in type(value).model_fields


def literal(value: Any) -> str:
    """A plain value on one line; what a table has unset is left out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        given = {k: v for k, v in value.items() if v is not None}
        if given.keys() == {"dist", "value"} and given["dist"] == "constant":
            return literal(given["value"])
        return "{" + ", ".join(f"{key(k)} = {literal(v)}" for k, v in given.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    raise BadInput(f"{value!r} is a {type(value).__name__}, which a TOML file cannot hold")


def key(name: str) -> str:
    """A key as TOML wants it: in quotes, unless it is a plain word."""
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if plain else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
