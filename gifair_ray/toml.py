"""A scenario as a TOML file with every key and what it means."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from gifair_ray.scenario import Scenario


def dump(scenario: Scenario) -> str:
    """Commented TOML; reading it back gives the same scenario. Unset keys are commented out."""
    lines: list[str] = []
    _table(lines, "", scenario)
    return "\n".join(lines) + "\n"


def _table(lines: list[str], path: str, model: BaseModel) -> None:
    inner: list[tuple[str, BaseModel]] = []
    for name, info in type(model).model_fields.items():
        key, value = info.alias or name, getattr(model, name)
        if isinstance(value, BaseModel) and not _is_short(value):
            inner.append((f"{path}.{key}" if path else key, value))
            continue
        comment = f"  # {info.description}" if info.description else ""
        if value is None:
            lines.append(f"# {key} ={comment}")
        else:
            lines.append(f"{key} = {literal(value)}{comment}")
    for inner_path, value in inner:
        lines += ["", f"[{inner_path}]"]
        _table(lines, inner_path, value)


def _is_short(value: BaseModel) -> bool:
    """Whether a value is easier to read on one line: a distribution."""
    return "dist" in type(value).model_fields


def literal(value: Any) -> str:
    """A TOML value on one line."""
    if isinstance(value, BaseModel):
        plain = value.model_dump(mode="python", exclude_none=True)
        return literal(plain["value"] if plain.get("dist") == "constant" else plain)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        pairs = (f"{_key(k)} = {literal(v)}" for k, v in value.items() if v is not None)
        return "{" + ", ".join(pairs) + "}"
    return "[" + ", ".join(literal(item) for item in value) + "]"


def _key(name: str) -> str:
    bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    return name if bare else json.dumps(name, ensure_ascii=False)
