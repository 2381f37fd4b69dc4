"""Synchronous rounds: ask a cohort, wait for all of it (or the timeout), update, repeat."""

from __future__ import annotations

from typing import Literal

from gifair_ray.policies._rounds import Rounds


class Sync(Rounds):
    """Rounds of one cohort each, which close when every outcome is known."""

    kind: Literal["sync"] = "sync"
