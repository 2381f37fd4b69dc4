"""Distributions of a device's properties over clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from gifair_ray import draws
from gifair_ray.config import Frozen
from gifair_ray.errors import BadInput

Floats = npt.NDArray[np.float64]

_NEEDS = {
    "constant": ("value",),
    "uniform": ("low", "high"),
    "lognormal": ("median", "sigma"),
    "pareto": ("minimum", "shape"),
    "trace": ("path", "column"),
}


class Spread(Frozen):
    """One value per client, drawn by the client's number."""

    dist: Literal["constant", "uniform", "lognormal", "pareto", "trace"] = Field(
        description="constant(value), uniform(low, high), lognormal(median, sigma), "
        "pareto(minimum, shape), or trace(path, column): measured values from a CSV or Arrow file"
    )
    value: float | None = Field(None, description="constant")
    low: float | None = Field(None, description="uniform")
    high: float | None = Field(None, description="uniform")
    median: float | None = Field(None, gt=0, description="lognormal")
    sigma: float | None = Field(None, ge=0, description="lognormal, of the logarithm")
    minimum: float | None = Field(None, gt=0, description="pareto")
    shape: float | None = Field(None, gt=0, description="pareto; smaller is heavier-tailed")
    path: str | None = Field(None, description="trace")
    column: str | None = Field(None, description="trace")

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Spread:
        for name in _NEEDS[self.dist]:
            if getattr(self, name) is None:
                raise ValueError(f"dist = {self.dist!r} needs {' and '.join(_NEEDS[self.dist])}")
        if self.dist == "uniform" and self.low > self.high:  # type: ignore[operator]
            raise ValueError(f"low = {self.low} is above high = {self.high}")
        return self

    @np.errstate(over="ignore", invalid="ignore")
    def draw(self, seed: int, purpose: str, clients: npt.NDArray[np.int64]) -> Floats:
        """The clients' values; ∞ or NaN where the distribution goes beyond all numbers."""
        if self.dist == "constant":
            return np.full(len(clients), self.value, dtype=np.float64)
        if self.dist == "lognormal":
            z = draws.normal(seed, purpose, clients)
            return np.asarray((self.median or 0) * np.exp((self.sigma or 0) * z))
        u = draws.uniform(seed, purpose, clients)
        if self.dist == "uniform":
            return np.asarray((self.low or 0) + ((self.high or 0) - (self.low or 0)) * u)
        if self.dist == "pareto":
            return np.asarray((self.minimum or 0) * (1 - u) ** (-1 / (self.shape or 1)))
        values = _column(Path(self.path or ""), self.column or "")
        return np.asarray(values[(u * len(values)).astype(np.int64)])


def _column(path: Path, column: str) -> Floats:
    import pyarrow as pa
    from pyarrow import csv, feather

    try:
        table = csv.read_csv(path) if path.suffix == ".csv" else feather.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"cannot read the trace {path}: {error}") from error
    if column not in table.column_names:
        raise BadInput(f"{path} has no column {column!r}; it has {', '.join(table.column_names)}")
    try:
        values = table[column].to_numpy().astype(np.float64)
    except ValueError as error:
        raise BadInput(f"{path}: column {column!r} is not numeric") from error
    if not len(values) or not np.isfinite(values).all():
        raise BadInput(f"{path}: column {column!r} is empty or has a value that is not finite")
    return np.asarray(values)


def _number_is_constant(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"dist": "constant", "value": value}
    return value


Distribution = Annotated[Spread, BeforeValidator(_number_is_constant)]
"""A distribution; a plain number is short for a constant."""


def constant(value: float) -> Spread:
    """The same for every client."""
    return Spread(dist="constant", value=value)
