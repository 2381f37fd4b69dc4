"""What rules tell the engine to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gifair_ray.protocol import Job
from gifair_ray.replies import Params


@dataclass(frozen=True, slots=True)
class Submit:
    """Start these jobs; their results will be needed later."""

    jobs: Sequence[Job]


@dataclass(frozen=True, slots=True)
class Publish:
    """A new version of the model, for jobs to refer to."""

    version: int
    theta: Params


@dataclass(frozen=True, slots=True)
class Record:
    """Rows for a table, as columns; `None` in place of a column leaves it null."""

    table: str
    columns: Mapping[str, Any]


Command = Submit | Publish | Record
Commands = list[Command]


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of words, as positions in a list of them; a column has one list in all records."""

    codes: npt.NDArray[np.integer]
    words: Sequence[str]

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True, slots=True)
class Nullable:
    """A column of floats in which NaN and ∞ stand for null; the table may want integers."""

    values: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.values)
