"""What every configurable value has in common: frozen, and strict about unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A checked, immutable value. Field descriptions are the user's documentation of a key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)
