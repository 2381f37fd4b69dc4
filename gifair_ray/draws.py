"""Randomness by name.

A draw is a hash of (seed, purpose, keys…), so that it depends on nothing but its name: not on
how many draws came before it, nor on the order of events or the number of workers. The keys may
be numpy columns; a million draws are one vectorised call.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Keys = int | npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

# splitmix64 (Steele, Lea, Flood 2014): an increment and two multipliers that mix 64 bits well.
# Arrays of one number: numpy takes them more quickly than numbers.
_GAMMA = np.array(0x9E3779B97F4A7C15, dtype=np.uint64)
_MIX1 = np.array(0xBF58476D1CE4E5B9, dtype=np.uint64)
_MIX2 = np.array(0x94D049BB133111EB, dtype=np.uint64)
_ALL = 2**64 - 1
_S30, _S27, _S31, _S11 = (np.array(s, dtype=np.uint64) for s in (30, 27, 31, 11))


@lru_cache(maxsize=4096)
def _root(seed: int, purpose: str) -> np.uint64:
    digest = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mixes in place, for speed."""
    z ^= z >> _S30
    z *= _MIX1
    z ^= z >> _S27
    z *= _MIX2
    z ^= z >> _S31
    return z


def _mix_one(z: int) -> int:
    """The same of one number, for which Python is quicker than numpy."""
    z &= _ALL
    z = (z ^ (z >> 30)) * int(_MIX1) & _ALL
    z = (z ^ (z >> 27)) * int(_MIX2) & _ALL
    return z ^ (z >> 31)


def bits(seed: int, purpose: str, *keys: Keys) -> npt.NDArray[np.uint64]:
    """64 random bits for each row of the (broadcast) keys; always at least one-dimensional."""
    h: Any = int(_root(seed, purpose))
    for key in keys:
        # Each key is mixed before the next is added, so that (1, 2) and (2, 1) differ.
        if not isinstance(key, int):
            h = np.atleast_1d(np.uint64(h)) if isinstance(h, int) else h
            h = _mix(h + (np.atleast_1d(key).astype(np.uint64) + np.uint64(1)) * _GAMMA)
            continue
        if not -(2**63) <= key < 2**64:
            raise OverflowError(f"key {key} of a draw does not fit in 64 bits")
        added = (key + 1) * int(_GAMMA) & _ALL
        h = _mix_one(h + added) if isinstance(h, int) else _mix(h + np.uint64(added))
    if isinstance(h, int):
        return np.array([_mix_one(h + int(_GAMMA))], dtype=np.uint64)
    return _mix(h + _GAMMA)


def uniform(seed: int, purpose: str, *keys: Keys) -> Floats:
    """Uniform in [0, 1), 53 bits."""
    return np.asarray((bits(seed, purpose, *keys) >> _S11) * 2.0**-53, dtype=np.float64)


def normal(seed: int, purpose: str, *keys: Keys) -> Floats:
    """Standard normal, by Box and Muller's transform of two uniforms."""
    u, v = uniform(seed, purpose + "/radius", *keys), uniform(seed, purpose + "/angle", *keys)
    return np.asarray(np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * np.pi * v))


def permutations(seed: int, purpose: str, length: int, *keys: Keys) -> npt.NDArray[np.int64]:
    """One permutation of range(length) per row of the keys, shape (rows, length)."""
    columns = [np.atleast_1d(key)[:, None] for key in keys]
    priorities = np.atleast_2d(bits(seed, purpose, *columns, np.arange(length)))
    return np.argsort(priorities, axis=1, kind="stable")


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """A numpy generator of its own for a name, where many draws are needed (a client's data)."""
    return np.random.Generator(np.random.Philox(key=int(bits(seed, purpose, *keys)[0])))
