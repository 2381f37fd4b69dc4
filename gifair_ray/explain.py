"""What is wrong with a scenario, in words: which key, its value, what it may be instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gifair_ray import toml
from gifair_ray.errors import BadInput
from gifair_ray.parts import Part, nearest

MOST = 3  # problems that are told at a time
LONGEST = 60  # characters of a value that are shown

Path = tuple[str | int, ...]

_MUST_BE = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": "a table",
    "string_too_short": "some text",
    "string_type": "text, in quotes",
    "tuple_type": "a list",
}


def explain(error: ValidationError, model: type[BaseModel], table: Mapping[str, Any]) -> str:
    """The first problems of a table that was checked against a model, on one line."""
    by_place: dict[Path, list[ErrorDetails]] = {}
    for problem in error.errors(include_url=False):
        by_place.setdefault(_place(problem, table), []).append(problem)
    told = [_told(path, same, model, table) for path, same in list(by_place.items())[:MOST]]
    if len(by_place) > MOST:
        told.append(f"and {len(by_place) - MOST} more")
    return "; ".join(told)


def _place(problem: ErrorDetails, table: Any) -> Path:
    """Where in the table the problem is; pydantic's own steps, into a union, are left out."""
    path: Path = ()
    *way, last = problem["loc"] or [""]
    for step in way:
        if _holds(table, step):
            path, table = (*path, step), table[step]
    return (*path, last) if _holds(table, last) or problem["type"] == "missing" else path


def _holds(table: Any, step: str | int) -> bool:
    if isinstance(table, list | tuple):
        return isinstance(step, int) and step < len(table)
    return isinstance(table, Mapping) and step in table


def _told(
    path: Path, problems: Sequence[ErrorDetails], model: type[BaseModel], table: Mapping[str, Any]
) -> str:
    """One place, with all that pydantic has against it (a union, against each of its members)."""
    kind, name = problems[0]["type"], dotted(path)
    if kind == "extra_forbidden":
        return f"unknown key {name}: {_known_instead(path, model, table)}"
    if kind == "missing":
        return f"{name} is missing{_what_for(path, model, table)}"
    said = [p for p in problems if p["type"] == "value_error"]
    if said:
        return (f"{name}: " if path else "") + " or ".join(str(p["ctx"]["error"]) for p in said)
    must = list(dict.fromkeys(filter(None, map(_must_be, problems))))
    value = f"{name} = {shown(problems[0]['input'])}: " if path else "the scenario "
    if not must:
        return value + problems[0]["msg"][:1].lower() + problems[0]["msg"][1:]
    keys = _what_for(path, model, table) if kind == "model_type" else ""
    return f"{value}must be {', or '.join(must)}{keys}"


def _must_be(problem: ErrorDetails) -> str:
    limits = problem.get("ctx", {}).items()
    told = {k: f"{v:g}" if isinstance(v, float) else v for k, v in limits}
    return _MUST_BE.get(problem["type"], "").format(**told)


def _known_instead(path: Path, model: type[BaseModel], table: Mapping[str, Any]) -> str:
    unknown, keys = str(path[-1]), set[str]()
    for kind in _kinds(path[:-1], model, table):
        keys |= _keys(kind)
        if _is_part(kind):
            family = next(base for base in kind.__mro__ if "family" in vars(base))
            others = [name for name in family.names() if unknown in _keys(family.find(name))]
            if others:
                return f"it belongs to {kind.called} {' and '.join(map(repr, others))}"
    elsewhere = next((p for p in _places(model, table) if p[-1] == unknown), None)
    if elsewhere:
        return f"did you mean '{dotted(elsewhere)}'?"
    return nearest(unknown, sorted(keys)) if keys else "there are no keys to give here"


def _places(kind: Any, table: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of all keys that a table of this kind may have."""
    for member in _members(kind, table):
        for name, info in member.model_fields.items() if _keys(member) else ():
            key = info.alias or name
            yield (*path, key)
            inner = table.get(key) if isinstance(table, Mapping) else None
            yield from _places(info.annotation, inner, (*path, key))


def _what_for(path: Path, model: type[BaseModel], table: Mapping[str, Any]) -> str:
    """What to put where something is missing, or is no table."""
    for kind in _kinds(path, model, table):
        if _is_part(kind):
            return f": say {dotted((*path, kind.key))} = …; known: {', '.join(kind.names())}"
        if _keys(kind):
            return f": it may have {', '.join(sorted(_keys(kind)))}"
    return ""


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Part)


def _keys(kind: Any) -> set[str]:
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return set()
    return {info.alias or name for name, info in kind.model_fields.items()}


def _kinds(path: Path, model: type[BaseModel], table: Any) -> list[Any]:
    """The types that may be in this place of a table that is to be a model."""
    kinds: list[Any] = [model]
    for step in path:
        kinds = [inner for kind in kinds for inner in _inside(kind, step, table)]
        table = table.get(step) if isinstance(table, Mapping) else None
    return [member for kind in kinds for member in _members(kind, table)]


def _inside(kind: Any, step: str | int, table: Any) -> list[Any]:
    found = []
    for member in _members(kind, table):
        if isinstance(member, type) and issubclass(member, BaseModel):
            fields = member.model_fields.items()
            found += [info.annotation for name, info in fields if step == (info.alias or name)]
        elif get_origin(member) in (dict, list, tuple):
            found += get_args(member)[-1:]
    return found


def _members(kind: Any, table: Any) -> list[Any]:
    """A union's members; of a family of parts, the one that the table names."""
    if _is_part(kind) and "family" in vars(kind):
        named = table.get(kind.key) if isinstance(table, Mapping) else None
        try:
            return [kind.find(named) if isinstance(named, str) else kind]
        except BadInput:
            return [kind]
    if isinstance(kind, type) or get_origin(kind) in (dict, list, tuple):
        return [kind]
    return [member for arg in get_args(kind) for member in _members(arg, table)]


def dotted(path: Path) -> str:
    """A path as one would write it in TOML."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{toml.key(step)}" for step in path)
    return "".join(steps).removeprefix(".")


def shown(value: Any) -> str:
    """A value as one would write it in TOML, cut to a readable length."""
    try:
        text = toml.literal(value)
    except BadInput:
        text = repr(value)
    except ValueError:  # Python refuses to write out so long a number
        text = "…"
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
