"""How long a search may take: short in CI, as long as the profile says at night."""

from __future__ import annotations

import pytest
from hypothesis import settings


def examples(n, at_night=None):
    """Settings with n examples under the profile "ci", and twenty times as many at night.

    Or `at_night`, where an example is too long for that; never more than the profile allows.
    """
    if _in_ci():
        return settings(max_examples=n)
    return settings(max_examples=min(settings().max_examples, at_night or 20 * n))


def in_parts(n):
    """A search that is long at night, as n tests there, each with so many examples `at_night`."""
    return pytest.mark.parametrize("part", range(1 if _in_ci() else n))


def _in_ci():
    return settings.get_current_profile_name() == "ci"
