"""How long a search may take: short in CI, as long as the profile says at night."""

from __future__ import annotations

from hypothesis import settings


def examples(n, at_night=None):
    """Settings with n examples under the profile "ci", and twenty times as many at night.

    Or `at_night`, where an example is too long for that; never more than the profile allows.
    """
    if settings.get_current_profile_name() == "ci":
        return settings(max_examples=n)
    return settings(max_examples=min(settings().max_examples, at_night or 20 * n))
