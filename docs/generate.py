"""The reference pages, written from the code: every scenario key, table, column and command."""

from __future__ import annotations

import argparse
import inspect
import math
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gifair_ray.analysis import columns, measures, resampling
from gifair_ray.cli import _parser
from gifair_ray.distributions import Spread
from gifair_ray.parts import Part
from gifair_ray.scenario import Scenario
from gifair_ray.scenarios.load import names, summary
from gifair_ray.tables import TABLES

_TYPES = {int: "whole number", float: "number", str: "text", bool: "true or false", Any: "anything"}
_LIMITS = {"ge": "≥\u00a0{}", "gt": ">\u00a0{}", "le": "≤\u00a0{}", "lt": "<\u00a0{}"}


def write_reference(folder: Path) -> None:
    """All pages, into this folder; a page that is the same is left alone."""
    folder.mkdir(exist_ok=True)
    pages = {
        "scenario": scenario_page(),
        "tables": tables_page(),
        "measures": measures_page(),
        "commands": commands_page(),
    }
    for name, text in pages.items():
        file = folder / f"{name}.md"
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


# --- scenarios ------------------------------------------------------------------------------------


def scenario_page() -> str:
    """Every key of a scenario, by section, with what it may be."""
    lines = ["# Scenario keys", ""]
    lines += ["A scenario is a TOML file. Whatever it leaves out has the default shown here;"]
    lines += [
        "`gifair show FILE` prints a scenario with every key. Lists and tables may be written"
    ]
    lines += ["in line, and any key may be changed on the command line: `--set work.steps=20`.", ""]
    lines += ["## Top level", "", *_table(Scenario, "", sections=False), ""]
    for name, field in Scenario.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            lines += [f"## {name}", "", *_section(name, field, kind)]
    lines += ["## Distributions", "", _doc(Spread), "", "A number stands for a constant.", ""]
    lines += [*_table(Spread, ""), ""]
    lines += ["## study", "", "A file may hold several runs: `[study]` with `seeds` (a whole"]
    lines += ["number: so many seeds, from the scenario's on) and a table `[study.variants.NAME]`"]
    lines += ["for each variant, with the keys that it changes.", ""]
    return "\n".join(lines)


def _section(name: str, field: FieldInfo, kind: type[BaseModel]) -> Iterator[str]:
    yield from [f"{_sentence(field.description)}", ""]
    if not (issubclass(kind, Part) and "family" in vars(kind)):
        yield from [_doc(kind), "", *_table(kind, f"{name}."), ""]
        yield from _nested(kind, name)
        return
    members = [kind.find(member) for member in kind.names()]
    shared = _shared(members, kind.key)
    told = ", ".join(f"[`{member}`](#{name}-{member})" for member in kind.names())
    yield from [f"`{name}.{kind.key}` is one of {told}, or `module:Name` of your own.", ""]
    if shared:
        yield from ["All of them have:", "", *_table(members[0], f"{name}.", only=shared), ""]
    for member, made in zip(kind.names(), members, strict=True):
        yield from [f"({name}-{member})=", ""]
        yield from [f'### `{name}.{kind.key} = "{member}"`', "", _doc(made), ""]
        own = set(made.model_fields) - shared - {kind.key}
        if own:
            yield from [*_table(made, f"{name}.", only=own), ""]
        yield from _nested(made, name, only=own)


def _shared(members: list[type[BaseModel]], key: str) -> set[str]:
    common = set.intersection(*(set(member.model_fields) for member in members)) - {key}
    if len(members) < 2:
        return set()
    return {n for n in common if len({repr(member.model_fields[n]) for member in members}) == 1}


def _nested(kind: type[BaseModel], path: str, only: set[str] | None = None) -> Iterator[str]:
    """Tables within a table, such as work.schedule."""
    for name, field in kind.model_fields.items():
        for inner in _models(field.annotation):
            if (only is None or name in only) and inner is not Spread and not _family(inner):
                yield from [f"`{path}.{name}`: {_doc(inner)}", ""]
                yield from [*_table(inner, f"{path}.{name}."), ""]


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for inner in get_args(kind):
        yield from _models(inner)


def _family(kind: type[BaseModel]) -> bool:
    return issubclass(kind, Part) and "family" in vars(kind)


def _table(
    model: type[BaseModel], path: str, only: set[str] | None = None, sections: bool = True
) -> Iterator[str]:
    yield "| key | may be | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        is_section = isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
        if (only is not None and name not in only) or (is_section and not sections):
            continue
        limits = ", ".join(_limits(field.metadata))
        may = told(field.annotation) + (f", {limits}" if limits else "")
        cells = [f"`{path}{field.alias or name}`", may, _default(field), field.description or ""]
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def told(kind: Any) -> str:
    """What a value may be, in words."""
    if kind in _TYPES:
        return _TYPES[kind]
    if kind is Spread:
        return "number or [distribution](#distributions)"
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = ", ".join(_limits([m for i in inner[1:] for m in getattr(i, "metadata", [i])]))
        return told(inner[0]) + (f" {limits}" if limits else "")
    if origin is Literal:
        return " · ".join(f"`{value!r}`".replace("'", '"') for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(told(one) for one in inner if one is not type(None))
    if origin is dict:
        return f"table of {told(inner[1])}"
    if origin in (list, tuple):
        return f"list of {told(inner[0])}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "table"
    return str(kind)


def _limits(metadata: list[Any]) -> Iterator[str]:
    for one in metadata:
        for name, text in _LIMITS.items():
            limit = getattr(one, name, None)
            if isinstance(limit, int | float) and abs(limit) < 2**60:
                yield text.format(limit)


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "must be given" if not _models_of_algorithms(field) else "by the algorithm"
    if value is None:
        return ""
    if isinstance(value, Spread):
        value = value.value
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, float) and math.isinf(value):
        return "`inf`"
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else repr(value)
    return f"`{text}`".replace("'", '"').replace("(", "[").replace(")", "]")


def _models_of_algorithms(field: FieldInfo) -> bool:
    parts = ("weighting", "solver", "aggregator", "policy", "availability")
    return any(field is Scenario.model_fields[name] for name in parts)


def _doc(kind: type) -> str:
    return inspect.getdoc(kind).replace("<", "&lt;") if inspect.getdoc(kind) else ""  # type: ignore[union-attr]


def _sentence(text: str | None) -> str:
    text = (text or "").strip()
    return text[:1].upper() + text[1:] + "." if text else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# --- tables ---------------------------------------------------------------------------------------


def tables_page() -> str:
    """Every table and column, from the Arrow schemas."""
    lines = ["# Result tables", ""]
    lines += ["A run's folder holds these tables as Arrow segments, `tables/NAME/000000.arrow` and"]
    lines += ["so on, which can be read while the run goes on. Times are virtual seconds since the"]
    lines += ["start of the run unless a column says otherwise. The schemas carry the units and"]
    lines += ["meanings below as metadata.", ""]
    for name, schema in TABLES.items():
        lines += [f"## {name}", "", "| column | type | unit | meaning |", "|---|---|---|---|"]
        for field in schema:
            about = {k.decode(): v.decode() for k, v in field.metadata.items()}
            cells = [f"`{field.name}`", str(field.type), about["unit"], about["description"]]
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)


# --- measures -------------------------------------------------------------------------------------


def measures_page() -> str:
    """Every figure of a comparison, and the definitions behind them."""
    lines = ["# Measures", "", "What `gifair compare` shows. Accuracies are fractions in CSV and"]
    lines += ["Arrow, and percentages elsewhere. Each figure `x` is a mean over seeds, beside its"]
    lines += ["standard deviation `x_sd`; what does not apply is empty.", ""]
    for title, shown in (("By setting", columns.LABELS), ("By setting and group", columns.GROUPS)):
        lines += [f"## {title}", "", "| figure | unit | meaning |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {_cell(c.unit)} | {_cell(c.meaning)} |" for c in shown]
        lines.append("")
    lines += ["## Definitions", "", inspect.getdoc(measures) or "", ""]
    for name, function in inspect.getmembers(measures, inspect.isfunction):
        if function.__module__ == measures.__name__ and not name.startswith("_"):
            lines += [f"### {name}", "", inspect.getdoc(function) or "", ""]
    lines += [
        "## Pairs",
        "",
        "Settings are compared seed by seed, with the seeds that both have.",
        "",
    ]
    for function in (resampling.interval, resampling.sign_flip):
        lines += [f"### {function.__name__}", "", inspect.getdoc(function) or "", ""]
    return "\n".join(lines)


# --- commands -------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its options, and the scenarios that come along."""
    lines = ["# Commands", ""]
    (chosen,) = (a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in chosen._choices_actions}
    for name, command in chosen.choices.items():
        lines += [f"## gifair {name}", "", _sentence(helps.get(name)), ""]
        lines += ["| argument | meaning |", "|---|---|"]
        for action in command._actions:
            if not isinstance(action, argparse._HelpAction):
                lines.append(f"| {_cell(_argument(action))} | {_cell(_meaning(action))} |")
        lines.append("")
    lines += ["## Scenarios that come along", "", "| name | question |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(summary(name))} |" for name in names()]
    return "\n".join([*lines, ""])


def _argument(action: argparse.Action) -> str:
    shown = "`" + "`, `".join(action.option_strings or [str(action.metavar or action.dest)]) + "`"
    if action.choices:
        return f"{shown} {' · '.join(map(str, action.choices))}"
    takes = action.option_strings and action.nargs != 0
    return f"{shown} {action.metavar or action.dest.upper()}" if takes else shown


def _meaning(action: argparse.Action) -> str:
    default = action.default
    plain = default in (None, False, argparse.SUPPRESS) or default == []
    return (action.help or "") + ("" if plain else f" (default: {default})")
