"""What every configurable value has in common: frozen, and strict about keys and types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import PydanticKnownError

LARGEST = 2**63  # of a whole number, in arrays and in tables


class Frozen(BaseModel):
    """A checked, immutable value. Field descriptions are the user's documentation of a key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _is_what_it_seems(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        # pydantic takes "5" and true for numbers, and "off" and 0 for false; a typo may hide there.
        checked = handler(value)
        if isinstance(checked, bool):
            if not isinstance(value, bool):
                raise PydanticKnownError("bool_type")
        elif isinstance(checked, int | float) and isinstance(value, bool | str):
            raise PydanticKnownError("int_type" if isinstance(checked, int) else "float_type")
        if isinstance(checked, float) and math.isinf(checked) and cls._is_finite(info.field_name):
            raise PydanticKnownError("finite_number")
        for number in _numbers(checked):
            if number != number:
                raise PydanticKnownError("float_type")
            if isinstance(number, int) and number >= LARGEST:
                raise PydanticKnownError("less_than", {"lt": LARGEST})
            if isinstance(number, int) and number <= -LARGEST:
                raise PydanticKnownError("greater_than", {"gt": -LARGEST})
        return checked

    @classmethod
    def _is_finite(cls, field: str | None) -> bool:
        """Whether a key takes finite numbers only: those that have one as their default."""
        default = cls.model_fields[field or ""].default
        return isinstance(default, int | float) and math.isfinite(default)


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers(inner)
