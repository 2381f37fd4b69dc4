"""Parts that a scenario names: each a frozen value with its options, in a file of its own.

A part's class sits in the module of its name inside its family's package (the weighting
`gifair` in `gifair_ray/weightings/gifair.py`) and carries that name in its field `kind` (a data
source in `source`). A part of the user's own is named `module:Class`. Adding a part means writing
that file, and no other.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from gifair_ray.config import Frozen
from gifair_ray.errors import BadInput

SEARCHED, LISTED = 10_000, 20  # of what is known (the groups of a population may be millions)


def nearest(word: str, known: Sequence[str]) -> str:
    """'did you mean …?', where something known comes close; else a list of what is known."""
    close = difflib.get_close_matches(word, known[:SEARCHED], n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - LISTED} more" if len(known) > LISTED else ""
    return f"known: {', '.join(sorted(known)[:LISTED])}{more}"


def import_user_object(name: str) -> Any:
    """`package.module:object`, looked for in the current folder as well, as `python -m` does."""
    module_name, _, attribute = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise BadInput(
            f"cannot import {name!r}: {error}; it must be in the current folder, or installed"
        ) from error
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is run
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"cannot import {name!r}, as module:object: {what}") from error
    if not hasattr(module, attribute):
        raise BadInput(f"{name!r}: module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)


class Part(Frozen):
    """Base of all parts. A family (weighting, policy, data source …) names its package."""

    family: ClassVar[str]
    """Package that holds the family's parts."""
    called: ClassVar[str]
    """What a member is called in an error message."""
    key: ClassVar[str] = "kind"
    """The field that holds a member's name."""

    def files(self) -> dict[str, Path]:
        """The files that this part reads, by the field that names them: where they are."""
        return {}

    @classmethod
    def names(cls) -> list[str]:
        """The names of the family's built-in members."""
        package = importlib.import_module(cls.family)
        return sorted(
            module.name.replace("_", "-")
            for module in pkgutil.iter_modules(package.__path__)
            if not module.name.startswith("_")
        )

    @classmethod
    def find(cls, kind: str) -> type[Part]:
        """The class of a member, built in or the user's own."""
        if ":" in kind:
            found = import_user_object(kind)
            if not (isinstance(found, type) and issubclass(found, cls)):
                raise BadInput(f"{kind!r} is not a subclass of {cls.__module__}.{cls.__name__}")
            return found
        if kind not in cls.names():
            raise BadInput(f"unknown {cls.called} {kind!r}; {nearest(kind, cls.names())}")
        module = importlib.import_module(f"{cls.family}.{kind.replace('-', '_')}")
        return next(
            member
            for member in vars(module).values()
            if isinstance(member, type)
            and issubclass(member, cls)
            and member.__module__ == module.__name__
            and not member.__name__.startswith("_")
        )

    @model_validator(mode="wrap")
    @classmethod
    def _become_the_named_part(cls, value: Any, handler: Any) -> Any:
        # Validating a table against a family's base gives the member that the table names.
        if "family" not in vars(cls) or not isinstance(value, Mapping):
            return handler(value)
        kind = value.get(cls.key)
        if not isinstance(kind, str):
            given = "" if kind is None else f", not {kind!r}"
            raise ValueError(
                f"say which {cls.called}, by its name: {cls.key} = …{given}; "
                f"known: {', '.join(cls.names())}"
            )
        try:
            member = cls.find(kind)
        except BadInput as error:
            raise ValueError(str(error)) from error
        return member.model_validate(value)
