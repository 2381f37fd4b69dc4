"""How long a search may take: short in CI, as long as the profile says at night."""

from __future__ import annotations

from hypothesis import settings


def examples(n, at_night=None):
    """Settings with n examples under the profile "ci", and the profile's own under any other.

    Or `at_night`, where an example is too long for the profile's own number.
    """
    if settings.get_current_profile_name() == "ci":
        return settings(max_examples=n)
    return settings() if at_night is None else settings(max_examples=at_night)
