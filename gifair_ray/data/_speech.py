"""A made-up language: words from syllables, sentences from patterns, voices that differ.

Everybody knows the common words. A group has a dialect, and a role words of its own, that take
the place of some of them. Frequent words are frequent in all voices (their frequency falls as
1/rank), so that a model that learns the language of the many knows half of that of the few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gifair_ray import draws

Ints = npt.NDArray[np.int64]

_ONSETS = [*"bcdfghklmnprstvw", "th", "sh", "st", "tr", "br", "gl"]
_VOWELS = [*"aeiou", "ea", "ou", "ay"]
_CODAS = ["", "n", "r", "s", "t", "l", "nd", "st", "m", ""]
FUNCTION, NOUN, VERB, QUALITY = range(4)
_COMMON = (14, 60, 36, 24)  # words of each kind that everybody knows
_DIALECT = (0, 40, 24, 16)
_OWN = (0, 8, 4, 2)
_PATTERNS = (
    (FUNCTION, NOUN, VERB),
    (FUNCTION, NOUN, VERB, FUNCTION, NOUN),
    (FUNCTION, QUALITY, NOUN, VERB, FUNCTION, NOUN),
    (FUNCTION, VERB, FUNCTION, QUALITY, NOUN),
    (NOUN, VERB, FUNCTION, FUNCTION, NOUN),
    (VERB, FUNCTION, NOUN, FUNCTION, FUNCTION, QUALITY, NOUN),
    (FUNCTION, FUNCTION, NOUN, VERB, QUALITY),
)
_STOPS = (".\n", ", ", "! ", "? ", ";\n", ". ")


@lru_cache(maxsize=64)
def lexicon(seed: int, whose: str, number: int, counts: tuple[int, ...]) -> tuple[list[str], ...]:
    """Words of each kind, the most frequent first."""
    g = draws.generator(seed, f"data/words/{whose}", number)
    kinds = []
    for kind, count in enumerate(counts):
        syllables = 1 if kind == FUNCTION else 2
        words: dict[str, None] = {}
        while len(words) < count:
            parts = int(g.integers(1, syllables + 1)) if kind != NOUN else syllables
            word = "".join(
                str(g.choice(_ONSETS)) + str(g.choice(_VOWELS)) + str(g.choice(_CODAS))
                for _ in range(parts)
            )
            words[word] = None
        kinds.append(list(words))
    return tuple(kinds)


@dataclass(frozen=True)
class Voice:
    """How a role speaks: its words with their frequencies, and how it ends a sentence."""

    words: tuple[npt.NDArray[np.object_], ...]
    cumulative: tuple[npt.NDArray[np.float64], ...]
    stops: npt.NDArray[np.float64]

    @staticmethod
    def of(seed: int, client: int, group: int | None, dialect: float, own: float) -> Voice:
        """The voice of a client, of a group if there are any with a dialect."""
        common = lexicon(seed, "common", 0, _COMMON)
        local = lexicon(seed, "group", group, _DIALECT) if group is not None else None
        mine = lexicon.__wrapped__(seed, "client", client, _OWN)  # of no use to anybody else
        words, cumulative = [], []
        for kind, everybody in enumerate(common):
            layers = [(everybody, 1.0)]
            for extra, share in ((local, dialect), (mine, own)):
                if extra is not None and extra[kind] and share:
                    layers = [(w, weight * (1 - share)) for w, weight in layers]
                    layers.append((extra[kind], share))
            weights = [weight * _falling(len(w)) for w, weight in layers]
            words.append(np.array([word for w, _ in layers for word in w], dtype=object))
            cumulative.append(np.cumsum(np.concatenate(weights)))
        g = draws.generator(seed, "data/stops", client)
        taste = g.standard_gamma(1.0, len(_STOPS)) + 0.05
        return Voice(tuple(words), tuple(cumulative), np.cumsum(taste / taste.sum()))

    def speak(self, g: np.random.Generator, length: int) -> str:
        """So many characters of speech."""
        # A sentence has 25 characters or so; if they are not enough, more follow.
        pieces: list[str] = []
        said = 0
        while said < length:
            text = self._sentences(g, max(4, (length - said) // 20))
            pieces.append(text)
            said += len(text)
        return "".join(pieces)[:length]

    def _sentences(self, g: np.random.Generator, count: int) -> str:
        patterns = g.integers(0, len(_PATTERNS), count).tolist()
        kinds = np.array([kind for p in patterns for kind in _PATTERNS[p]])
        u = g.random(len(kinds))
        spoken = np.empty(len(kinds), dtype=object)
        for kind, (words, cumulative) in enumerate(zip(self.words, self.cumulative, strict=True)):
            at = np.flatnonzero(kinds == kind)
            place = np.searchsorted(cumulative, u[at] * cumulative[-1], side="right")
            spoken[at] = words[np.minimum(place, len(words) - 1)]
        ends = np.searchsorted(self.stops, g.random(count), side="right")
        out, start, capital = [], 0, True
        for p, end in zip(patterns, np.minimum(ends, len(_STOPS) - 1).tolist(), strict=True):
            stop = start + len(_PATTERNS[p])
            sentence = " ".join(spoken[start:stop])
            out.append((sentence[0].upper() + sentence[1:] if capital else sentence) + _STOPS[end])
            start, capital = stop, _STOPS[end] != ", "
        return "".join(out)


def _falling(count: int) -> npt.NDArray[np.float64]:
    weight = 1.0 / np.arange(1, count + 1)
    return np.asarray(weight / weight.sum())
