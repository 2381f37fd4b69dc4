"""How long a search may take: short in CI, as long as the profile says at night."""

from __future__ import annotations

from hypothesis import settings


def examples(n):
    """Settings with n examples under the profile "ci", and twenty times as many at night.

    Never more than the profile itself allows.
    """
    if settings.get_current_profile_name() == "ci":
        return settings(max_examples=n)
    return settings(max_examples=min(settings().max_examples, 20 * n))
