"""Measured availability: a plain file of who was online from when until when.

CSV, Arrow or Parquet with the columns `client` (its name, or its number where the data has no
names), `from` and `until` in seconds. A client without rows is never online.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from gifair_ray.availability import Availability, Calendar, Floats, Ints, stretch
from gifair_ray.errors import BadInput
from gifair_ray.federation import Population


class Trace(Availability):
    """Online in the intervals of a file, which may repeat."""

    kind: Literal["trace"] = "trace"
    path: str = Field(description="CSV, Arrow or Parquet file with client, from, until")
    period_s: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="start the trace again after so long"
    )

    def files(self) -> dict[str, Path]:
        return {"path": Path(self.path).absolute()}

    def build(self, seed: int, population: Population) -> Calendar:
        clients, begin, end = _read(Path(self.path), population)
        if self.period_s is not None and (end > self.period_s).any():
            raise BadInput(
                f"{self.path} goes to {end.max():.6g} s, beyond availability.period_s = "
                f"{self.period_s:.6g}"
            )
        return _Trace.of(clients, begin, end, len(population), self.period_s or math.inf)


def _read(path: Path, population: Population) -> tuple[Ints, Floats, Floats]:
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    if path.exists() and not path.is_file():  # a device or a pipe may never end
        raise BadInput(f"cannot read the availability trace {path}: it is no file; name one")
    try:
        if path.suffix == ".csv":
            as_text = csv.ConvertOptions(column_types={"client": pa.string()})
            table = csv.read_csv(path, convert_options=as_text)
        else:
            read: Any = parquet.read_table if path.suffix == ".parquet" else feather.read_table
            table = read(path)
        table.validate(full=True)  # a damaged file may point outside its own buffers
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        raise BadInput(f"cannot read the availability trace {path}: {error}") from error
    missing = [name for name in ("client", "from", "until") if name not in table.column_names]
    if missing:
        raise BadInput(f"{path} has no column {missing[0]!r}; it needs client, from and until")
    try:
        begin, end = (table[name].to_numpy().astype(np.float64) for name in ("from", "until"))
        names = [str(name) for name in table["client"].to_pylist()]
    except (ValueError, TypeError, LookupError, pa.ArrowException) as error:
        raise BadInput(f"{path}: from and until must be seconds: {error}") from error
    numbers = {population.name(k): k for k in range(len(population))}
    for row, name in enumerate(names):
        if name not in numbers:
            raise BadInput(f"{path}, row {row}: there is no client {name!r} in the data")
        if not 0 <= begin[row] < end[row]:
            raise BadInput(
                f"{path}, row {row}: from {begin[row]:g} until {end[row]:g} is no interval of time"
            )
    return np.array([numbers[name] for name in names], dtype=np.int64), begin, end


@dataclass(frozen=True)
class _Trace:
    """Disjoint intervals, ordered by client and time; `first[k]` is client k's first."""

    begin: Floats
    end: Floats
    first: Ints
    period_s: float

    @staticmethod
    def of(clients: Ints, begin: Floats, end: Floats, K: int, period_s: float) -> _Trace:
        order = np.lexsort((begin, clients))
        merged: list[tuple[int, float, float]] = []
        for k, b, e in zip(clients[order], begin[order], end[order], strict=True):
            if merged and merged[-1][0] == k and b <= merged[-1][2]:
                merged[-1] = (int(k), merged[-1][1], max(merged[-1][2], float(e)))
            else:
                merged.append((int(k), float(b), float(e)))
        owners = np.array([k for k, _, _ in merged], dtype=np.int64)
        first = np.searchsorted(owners, np.arange(K + 1))
        return _Trace(
            np.array([b for _, b, _ in merged]),
            np.array([e for _, _, e in merged]),
            first,
            period_s,
        )

    def _interval(self, client: int, t: float) -> tuple[float, float]:
        """The client's interval that is going on at t, or comes next: (∞, ∞) if none does."""
        own = slice(self.first[client], self.first[client + 1])
        begin, end = self.begin[own], self.end[own]
        if not len(begin):
            return math.inf, math.inf
        first = int(stretch(t, self.period_s)) if math.isfinite(self.period_s) else 0
        for turn in (first, first + 1):
            # The end of a turn is the beginning of the next one, to the last bit.
            base, over = turn * self.period_s if turn else 0.0, (turn + 1) * self.period_s
            ends = np.where(end < self.period_s, np.minimum(end + base, over), over)
            at = int(np.searchsorted(ends, t, side="right"))
            if at < len(begin):
                return float(begin[at]) + base, float(ends[at])
        return math.inf, math.inf

    def online(self, clients: Ints, t: Floats | float) -> npt.NDArray[np.bool_]:
        moments = np.broadcast_to(np.asarray(t, dtype=np.float64), len(clients)).tolist()
        pairs = zip(clients.tolist(), moments, strict=True)
        return np.array([self._interval(k, at)[0] <= at for k, at in pairs], dtype=np.bool_)

    def until(self, clients: Ints, t: Floats, horizon: Floats) -> Floats:
        found = np.full(len(clients), math.inf)
        for i, (k, at) in enumerate(zip(clients.tolist(), t.tolist(), strict=True)):
            begin, end = self._interval(k, at)
            while begin <= at < horizon[i] and self._interval(k, end)[0] == end:
                begin, end = self._interval(k, end)  # the next turn of the trace follows at once
                at = begin
            found[i] = at if begin > at else end
        return np.where(found < horizon, found, math.inf)

    def next_online(self, t: float, clients: Ints | None = None) -> float:
        those = range(len(self.first) - 1) if clients is None else clients.tolist()
        return min((max(self._interval(k, t)[0], t) for k in those), default=math.inf)
