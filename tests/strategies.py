"""Hypothesis strategies that several test files share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st


@dataclass(frozen=True)
class Federation:
    """Clients as columns: n_k, s_k, F_k. Every group from 0 to d − 1 has a member."""

    sizes: np.ndarray
    groups: np.ndarray
    losses: np.ndarray
    d: int

    @property
    def p(self) -> np.ndarray:
        return self.sizes / self.sizes.sum()

    @property
    def members(self) -> np.ndarray:
        """|A_{s_k}| of every client."""
        return np.array([np.sum(self.groups == s) for s in self.groups])


TIED = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 3.0])
"""Few values, whose sums are exact: groups tie again and again."""
DYADIC = st.integers(0, 1 << 20).map(lambda n: n / 8)
"""Losses that can be scaled by powers of two and shifted by integers without rounding."""
ANY = st.floats(0.0, 1e6, allow_subnormal=False)


@st.composite
def groupings(draw, fewest: int = 2, most: int = 12) -> tuple[np.ndarray, int]:
    """(group of every client, d); individual fairness (d = K) comes up often."""
    d = draw(st.integers(fewest, most))
    others = draw(st.just([]) | st.lists(st.integers(0, d - 1), max_size=15))
    return np.array(draw(st.permutations([*range(d), *others])), dtype=np.int64), d


@st.composite
def federations(draw, fewest: int = 2, most: int = 12, losses=TIED | ANY) -> Federation:
    """Any federation of `fewest` to `most` groups, with clients of unequal sizes."""
    groups, d = draw(groupings(fewest, most))
    K = len(groups)
    sizes = draw(st.lists(st.integers(1, 2000), min_size=K, max_size=K))
    of_clients = draw(st.lists(losses, min_size=K, max_size=K))
    return Federation(np.array(sizes), groups, np.array(of_clients), d)


fractions = st.sampled_from([0.0, 0.1, 0.5, 0.9]) | st.floats(0.0, 1 - 1e-9)
"""λ / λ_max."""
