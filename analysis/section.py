"""What the sections of a report have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gifair_ray.analysis import views
from gifair_ray.analysis.load import RunTables

Section = dict[str, Any]


@dataclass(frozen=True)
class About:
    """What all sections are about."""

    runs: Sequence[RunTables]
    split: str
    comparison: pa.Table
    groups: pa.Table
    pairs: pa.Table | None

    @property
    def labels(self) -> dict[str, list[RunTables]]:
        """The runs of each label."""
        return views.by_label(self.runs)


def table_of(name: str, title: str, table: pa.Table) -> dict[str, Any]:
    """A table for the page; what is not finite is unknown."""
    columns = [[plain(value) for value in column.to_pylist()] for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"name": name, "title": title, "columns": table.column_names, "rows": rows}


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plot_of(figure: Any, title: str = "", small: bool = False, **when: str) -> dict[str, Any]:
    """A figure for the page, shown when its controls are set so."""
    drawn = json.loads(figure.to_json())
    return {"figure": drawn, "title": title, "small": small, "when": when}
