"""Partial participation: who is asked in a round.

Slots are filled one after the other from a sequence of candidates that is drawn by (seed, draw,
place in the sequence). A candidate that is offline is passed over, and the others keep their
places: one client going offline does not reshuffle the rest. Where too few of the candidates are
online, the slots that are left go by priorities, which every client has of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray import draws
from gifair_ray.config import Frozen
from gifair_ray.errors import BadInput

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Online = Callable[[Ints], npt.NDArray[np.bool_]]

MOST_SHARES = 200  # clients for which `slot_shares` integrates
TOGETHER = 4096  # numbers of several draws that are made in one call
PATIENCE = 16  # blocks of candidates; after those we look at everybody


class Sampling(Frozen):
    """How the participants of a round are drawn."""

    scheme: Literal["p-replace", "uniform", "all", "p-distinct"] = Field(
        "p-replace",
        description="p-replace: m draws by p_k with replacement; uniform: m distinct clients, "
        "all alike; all: everybody; p-distinct: m distinct clients, one after the other by p_k, "
        "and a plain mean (as in much published code; biased)",
    )
    cohort: int = Field(10, ge=1, description="m, how many are drawn (not used by 'all')")

    def slots(self, K: int) -> int:
        """m: how many slots a round has."""
        if self.scheme == "all":
            return K
        return self.cohort if self.scheme == "p-replace" else min(self.cohort, K)

    @property
    def by_share(self) -> bool:
        """Whether clients are drawn by p_k."""
        return self.scheme in ("p-replace", "p-distinct")

    @property
    def caution(self) -> str | None:
        """What a user of this scheme must be warned of."""
        if self.scheme != "p-distinct":
            return None
        return (
            "sampling.scheme = 'p-distinct' gives slots to clients by other shares than p_k, and "
            "so aims at another objective; published code samples so: use 'p-replace' unless that "
            "is what you study"
        )

    def slot_shares(self, p: Floats) -> Floats:
        """ρ_k, the probability that a slot of a round holds client k, if all are online.

        Where clients drawn by p_k do not go back, k is among the first m of a race with times of
        exponential law: ρ_k = (1/m) ∫₀¹ P(fewer than m of the others before −log(y)/p_k) dy.
        """
        if self.scheme != "p-distinct":
            return p if self.scheme == "p-replace" else np.full(len(p), 1.0 / len(p))
        if len(p) > MOST_SHARES:
            raise BadInput(f"the shares of {len(p)} clients take too long; {MOST_SHARES} at most")
        m = self.slots(len(p))
        nodes, share = np.polynomial.legendre.leggauss(400)
        # y = x⁴ resolves the powers of y that the integrand has near 0.
        x, share = (nodes + 1) / 2, share / 2
        out = np.zeros(len(p))
        for k in range(len(p)):
            t = -4 * np.log(x) / p[k]
            fewer = np.zeros((m, len(x)))  # P(exactly i of the others so far are before t)
            fewer[0] = 1.0
            for j in np.delete(np.arange(len(p)), k):
                before = -np.expm1(-p[j] * t)
                fewer[1:] = fewer[1:] * (1 - before) + fewer[:-1] * before
                fewer[0] *= 1 - before
            out[k] = np.sum(share * 4 * x**3 * fewer.sum(axis=0)) / m
        return out

    def inclusion(self, p: Floats) -> Floats:
        """The probability that each client is in a round, if all are online."""
        m = self.slots(len(p))
        return 1 - (1 - p) ** m if self.by_share else np.full(len(p), m / len(p))

    def draw(
        self,
        seed: int,
        index: int,
        cumulative: Floats,
        online: Online,
        m: int | None = None,
    ) -> tuple[Ints, Ints]:
        """(clients in ascending order, how many slots each fills), among those online.

        `cumulative` is Σ_{j≤k} p_j; `m` may ask for another number of slots than usual. Fewer are
        filled if fewer clients are online; none at all if nobody is.
        """
        K = len(cumulative)
        m = self.slots(K) if m is None else m if self.scheme == "p-replace" else min(m, K)
        chosen: list[int] = []
        if self.scheme == "p-replace" or 2 * m < K:
            chosen = self._in_sequence(seed, index, cumulative, m, online)
        if len(chosen) < m:
            there = np.arange(K)[online(np.arange(K))]
            chosen += self._by_priority(seed, index, cumulative, there, chosen, m)
        clients = np.array(chosen, dtype=np.int64)
        clients.sort()
        if self.scheme != "p-replace":
            return clients, np.ones(len(clients), dtype=np.int64)
        return np.unique(clients, return_counts=True)

    def _in_sequence(
        self, seed: int, index: int, cumulative: Floats, m: int, online: Online
    ) -> list[int]:
        """The first m candidates that are online; fewer if they do not turn up soon."""
        chosen: list[int] = []
        size = 2 * m + 16
        for block in range(PATIENCE):
            ahead = block == 0 and m == self.cohort and 2 * size <= TOGETHER
            u = _draw(seed, index, size) if ahead else _sequence(seed, index, size, block)
            if self.by_share:
                candidates = _places(u, cumulative)
            else:
                candidates = (u * len(cumulative)).astype(np.int64)
            chosen += candidates[online(candidates)].tolist()
            if self.scheme != "p-replace":
                chosen = list(dict.fromkeys(chosen))  # distinct, in the order of the sequence
            if len(chosen) >= m:
                break
        return chosen[:m]

    def among(self, seed: int, index: int, clients: Ints, p: Floats, n: int) -> list[int]:
        """Up to n distinct ones of these clients, as a race in which client k has rate p_k or 1."""
        rate = np.maximum(p[clients], 1e-18) if self.by_share else 1.0
        times = -np.log1p(-draws.uniform(seed, "sampling/among", index, clients)) / rate
        return list(map(int, clients[np.argsort(times, kind="stable")][:n]))

    def sequence(self, seed: int, start: int, n: int, cumulative: Floats) -> Ints:
        """Candidates number start, start + 1, … of one endless sequence of draws."""
        u = draws.uniform(seed, "sampling/stream", np.arange(start, start + n))
        if self.by_share:
            return _places(u, cumulative)
        return (u * len(cumulative)).astype(np.int64)

    def _by_priority(
        self, seed: int, index: int, cumulative: Floats, there: Ints, chosen: list[int], m: int
    ) -> list[int]:
        """Clients among those online for the slots that `chosen` leaves."""
        left = range(len(chosen), m)
        if self.scheme == "p-distinct":
            rest = there[~np.isin(there, chosen)]
            return self.among(seed, index, rest, np.diff(cumulative, prepend=0.0), len(left))
        if self.scheme != "p-replace":
            rest = there[~np.isin(there, chosen)]
            order = np.argsort(draws.bits(seed, "sampling/priority", index, rest))
            return list(map(int, rest[order][: len(left)]))
        if not len(there):
            return []
        # A race for every slot, in which client k runs a time of exponential law with rate p_k:
        # it wins with a probability in proportion to p_k.
        rates = np.maximum(np.diff(cumulative, prepend=0.0)[there], 1e-18)
        races = (draws.uniform(seed, "sampling/race", index, slot, there) for slot in left)
        return [int(there[np.argmin(-np.log1p(-u) / rates)]) for u in races]


def _sequence(seed: int, indices: int | Ints, size: int, block: int) -> Floats:
    return draws.uniform(seed, "sampling", indices, np.arange(size) + block * size)


def _draw(seed: int, index: int, size: int) -> Floats:
    """The first block of a draw, which is made with those of the draws that follow it."""
    together = TOGETHER // size
    first = index - index % together
    return np.asarray(_draws(seed, first, together, size)[index - first])


@lru_cache(maxsize=64)
def _draws(seed: int, first: int, n: int, size: int) -> Floats:
    found = _sequence(seed, np.arange(first, first + n)[:, None], size, 0)
    found.setflags(write=False)
    return found


def _places(u: Floats, cumulative: Floats) -> Ints:
    found = np.searchsorted(cumulative, u * cumulative[-1], side="right")
    return np.asarray(np.minimum(found, len(cumulative) - 1), dtype=np.int64)


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
    ratio = np.ones(len(p)) if scheme.startswith("p-") else K * p
    m = int(slots.sum()) if failures == "survivors" else asked
    weights = slots * ratio / m
    return weights / reliability if failures == "corrected" else weights
