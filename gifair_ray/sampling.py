"""Partial participation: who is asked in a round.

Slots are filled one after the other from a sequence of candidates that is drawn by (seed, draw,
place in the sequence). A candidate that is offline is passed over, and the others keep their
places: one client going offline does not reshuffle the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.config import Frozen

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Online = Callable[[Ints], npt.NDArray[np.bool_]]

PATIENCE = 16  # blocks of candidates; after those we look at everybody


class Sampling(Frozen):
    """How the participants of a round are drawn."""

    scheme: Literal["p-replace", "uniform", "all"] = Field(
        "p-replace",
        description="p-replace: m draws by p_k with replacement; uniform: m distinct clients, "
        "all alike; all: everybody",
    )
    cohort: int = Field(10, ge=1, description="m, how many are drawn (not used by 'all')")

    def slots(self, K: int) -> int:
        """m: how many slots a round has."""
        return K if self.scheme == "all" else self.cohort

    def draw(self, seed: int, index: int, cumulative: Floats, online: Online) -> tuple[Ints, Ints]:
        """(clients in ascending order, how many slots each fills), among those online.

        `cumulative` is Σ_{j≤k} p_j. Fewer than m slots are filled if fewer clients are online;
        none at all if nobody is.
        """
        K, m = len(cumulative), self.slots(len(cumulative))
        if self.scheme == "all":
            everybody = np.arange(K)
            clients = everybody[online(everybody)]
            return clients, np.ones_like(clients)
        if self.scheme == "uniform" and 2 * m >= K:
            return self._by_priority(seed, index, np.arange(K), m, online)
        found = self._in_sequence(seed, index, cumulative, m, online)
        if len(found) == m:
            return _counted(found)
        # Hardly anybody is online: draw among those who are.
        there = np.arange(K)[online(np.arange(K))]
        if not len(there):
            return there, there
        if self.scheme == "uniform":
            return self._by_priority(seed, index, there, m, lambda c: np.ones(len(c), np.bool_))
        p = np.diff(cumulative, prepend=0.0)[there]
        u = draws.uniform(seed, "sampling/few", index, np.arange(m))
        return _counted(there[_places(u, np.cumsum(p))])

    def _in_sequence(
        self, seed: int, index: int, cumulative: Floats, m: int, online: Online
    ) -> Ints:
        chosen: list[int] = []
        seen: set[int] = set()
        size = 2 * m + 16
        for block in range(PATIENCE):
            u = draws.uniform(seed, "sampling", index, np.arange(size) + block * size)
            if self.scheme == "uniform":
                candidates = (u * len(cumulative)).astype(np.int64)
            else:
                candidates = _places(u, cumulative)
            for client in candidates[online(candidates)].tolist():
                if self.scheme == "uniform":
                    if client in seen:
                        continue
                    seen.add(client)
                chosen.append(client)
                if len(chosen) == m:
                    return np.array(chosen)
        return np.array(chosen, dtype=np.int64)

    def _by_priority(
        self, seed: int, index: int, clients: Ints, m: int, online: Online
    ) -> tuple[Ints, Ints]:
        """The m online clients of smallest priority, where every client has its own."""
        order = clients[np.argsort(draws.bits(seed, "sampling/priority", index, clients))]
        return _counted(order[online(order)][:m])


def _places(u: Floats, cumulative: Floats) -> Ints:
    found = np.searchsorted(cumulative, u * cumulative[-1], side="right")
    return np.asarray(np.minimum(found, len(cumulative) - 1), dtype=np.int64)


def _counted(chosen: Ints) -> tuple[Ints, Ints]:
    clients, slots = np.unique(chosen, return_counts=True)
    return clients, slots


Failures = Literal["slots", "survivors", "corrected"]


def aggregation_weights(
    scheme: str, p: Floats, slots: Ints, asked: int, K: int, failures: Failures, reliability: Floats
) -> Floats:
    """ω_k of the clients that answered: slots_k · (p_k/ρ_k) / m, for shares p and slot counts.

    ρ_k, the probability that a slot holds client k, is p_k or 1/K by the scheme. What becomes of
    the slots whose clients failed is a choice with consequences for fairness:

        slots       m = slots asked: failures shrink the step
        survivors   m = slots answered: biased towards the reliable
        corrected   as slots, and each weight divided by the client's probability of answering

    `reliability` is that probability.
    """
    ratio = np.ones(len(p)) if scheme == "p-replace" else K * p
    m = int(slots.sum()) if failures == "survivors" else asked
    weights = slots * ratio / m
    return weights / reliability if failures == "corrected" else weights
