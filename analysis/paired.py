"""Two sets of runs with the same seeds, pair by pair: what one change makes of the same luck.

Runs of one seed share their data, devices, availability and draws. What they have in common
cancels in their difference, so a few seeds tell what would else take many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import pyarrow as pa
from rich import box
from rich.table import Table

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.summary import Row, summarise
from gifair_ray.errors import BadInput

# measure, its unit, the factor to show it with, how it is written
_MEASURES = (
    ("mean_accuracy", "%", 100.0),
    ("std_clients_corrected", "%", 100.0),
    ("worst_group", "%", 100.0),
    ("discrepancy", "%", 100.0),
    ("loss_spread", "loss", 1.0),
    ("virtual_hours", "h", 1.0),
    ("megabytes", "MB", 1.0),
)

_SCHEMA = pa.schema(
    [
        pa.field("model", pa.string()),
        pa.field("measure", pa.string()),
        pa.field("unit", pa.string()),
        pa.field("seeds", pa.int64()),
        pa.field("before", pa.float64()),
        pa.field("after", pa.float64()),
        pa.field("difference", pa.float64()),
        pa.field("standard_error", pa.float64()),
    ]
)


def paired(
    before: Iterable[RunTables], after: Iterable[RunTables], split: str = "test"
) -> pa.Table:
    """A row per model and measure: means over the seeds of both sides, and their difference.

    The standard error is that of the mean of the differences, s/√n over n seeds; null for one.
    """
    one, other = _by_seed(before, split), _by_seed(after, split)
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        raise BadInput(
            f"no seed in common: {sorted(one)} before and {sorted(other)} after; give runs of the "
            "same seeds"
        )
    rows = []
    for model in one[seeds[0]]:
        for measure, unit, factor in _MEASURES:
            x = [factor * one[seed][model][measure] for seed in seeds if model in one[seed]]
            y = [factor * other[seed][model][measure] for seed in seeds if model in other[seed]]
            if len(x) != len(y) or not x or any(map(math.isnan, x + y)):
                continue
            d = [b - a for a, b in zip(x, y, strict=True)]
            rows.append(
                {
                    "model": model,
                    "measure": measure,
                    "unit": unit,
                    "seeds": len(d),
                    "before": math.fsum(x) / len(x),
                    "after": math.fsum(y) / len(y),
                    "difference": math.fsum(d) / len(d),
                    "standard_error": _standard_error(d),
                }
            )
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _standard_error(d: list[float]) -> float | None:
    if len(d) < 2:
        return None
    mean = math.fsum(d) / len(d)
    return math.sqrt(math.fsum((x - mean) ** 2 for x in d) / (len(d) - 1) / len(d))


def _by_seed(runs: Iterable[RunTables], split: str) -> dict[int, dict[str, dict[str, float]]]:
    found: dict[int, dict[str, dict[str, float]]] = {}
    for run in runs:
        summary = summarise(run, split)
        if summary.seed in found:
            raise BadInput(
                f"several runs of seed {summary.seed} on one side: give runs that differ in "
                "nothing but the seed"
            )
        found[summary.seed] = {row.model: _measures(run, row) for row in summary.rows}
    return found


def _measures(run: RunTables, row: Row) -> dict[str, float]:
    rounds = run.table("rounds")
    moved = 0
    if rounds.num_rows:
        moved = rounds["bytes_down"][-1].as_py() + rounds["bytes_up"][-1].as_py()
    measured = {name: float(getattr(row, name)) for name, *_ in _MEASURES if name != "megabytes"}
    return measured | {"megabytes": moved / 1e6}


def render_paired(table: pa.Table) -> Table:
    """The result of `paired` for a terminal."""
    out = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for name in ("model", "measure", "before", "after", "difference (std. error)", "unit"):
        out.add_column(name, justify="left" if name in ("model", "measure", "unit") else "right")
    for row in table.to_pylist():
        error = row["standard_error"]
        told = "" if error is None else f" ({error:.3g})"
        out.add_row(
            row["model"],
            row["measure"].replace("_", " "),
            f"{row['before']:.4g}",
            f"{row['after']:.4g}",
            f"{row['difference']:+.3g}{told}",
            row["unit"],
        )
    return out
