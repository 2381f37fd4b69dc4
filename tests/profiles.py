"""How long a search may take: short in CI, as long as the profile says at night."""

from __future__ import annotations

from hypothesis import settings


def examples(n):
    """Settings with n examples under the profile "ci", and the profile's own under any other."""
    if settings.get_current_profile_name() == "ci":
        return settings(max_examples=n)
    return settings()
