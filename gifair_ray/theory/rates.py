"""How fast a gap falls: its slope on log–log axes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gifair_ray.errors import BadInput
from gifair_ray.theory.problems import Floats


def slope(gaps: Floats, first: int, last: int, stretches: int = 12) -> float:
    """d log(gap)/d log(C) over rounds `first` to `last`; gaps[C] is the gap after C rounds.

    The last iterate chatters about a tie, and noise makes it jump: so a line is fitted to the
    means over stretches of equal length on the logarithmic axis.
    """
    if not 1 <= first < last < len(gaps):
        raise BadInput(f"rounds {first} to {last} are not within the {len(gaps) - 1} of the run")
    edges = np.unique(np.geomspace(first, last + 1, stretches + 1).astype(int))
    means = np.array([gaps[a:b].mean() for a, b in pairwise(edges)])
    middles = np.sqrt(edges[:-1] * (edges[1:] - 1.0))
    if (means <= 0).any():
        return -np.inf  # it has arrived
    return float(np.polyfit(np.log(middles), np.log(means), 1)[0])
