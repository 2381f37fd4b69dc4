"""Two sets of runs with the same seeds, pair by pair: what one change makes of the same luck.

Runs of one seed share their data, devices, availability and draws. What they have in common
cancels in their difference, so a few seeds tell what would else take many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pyarrow as pa
from rich import box
from rich.table import Table
from rich.text import Text

from gifair_ray.analysis.compare import all_figures
from gifair_ray.analysis.course import lambda_fraction
from gifair_ray.analysis.load import RunTables, distinct
from gifair_ray.analysis.resampling import interval, sign_flip
from gifair_ray.analysis.summary import summarise
from gifair_ray.errors import BadInput

# measure, its unit, the factor to show it with
_MEASURES = (
    ("mean_accuracy", "%", 100.0),
    ("std_clients_corrected", "%", 100.0),
    ("worst_tenth", "%", 100.0),
    ("worst_group", "%", 100.0),
    ("discrepancy", "%", 100.0),
    ("loss_spread", "loss", 1.0),
    ("virtual_hours", "h", 1.0),
    ("megabytes", "MB", 1.0),
    ("wasted_share", "%", 100.0),
)

_FIELDS = [
    pa.field("model", pa.string()),
    pa.field("measure", pa.string()),
    pa.field("unit", pa.string()),
    pa.field("seeds", pa.int64()),
    pa.field("before", pa.float64()),
    pa.field("after", pa.float64()),
    pa.field("difference", pa.float64()),
    pa.field("standard_error", pa.float64()),
    pa.field("low", pa.float64()),
    pa.field("high", pa.float64()),
    pa.field("p_value", pa.float64()),
]
_SCHEMA = pa.schema(_FIELDS)
_PAIRS = pa.schema([pa.field("label", pa.string()), pa.field("against", pa.string()), *_FIELDS])

ROUNDING = 1e-14  # what is left of a sum of equal numbers, relative to them

Figures = dict[int, dict[str, dict[str, float]]]
"""seed -> model -> measure"""


def paired(
    before: Iterable[RunTables], after: Iterable[RunTables], split: str = "test"
) -> pa.Table:
    """A row per model and measure: means over the seeds of both sides, and their difference.

    The standard error is that of the mean of the differences, s/√n over n seeds; low and high are
    a 95 % bootstrap interval of that mean (`resampling.interval`), and the p-value is that of a
    sign-flip test (`resampling.sign_flip`). They are null for one seed, the interval for less than
    four.
    """
    one, other = _by_seed(before, split), _by_seed(after, split)
    if not one.keys() & other.keys():
        raise BadInput(
            f"no seed in common: {sorted(one)} before and {sorted(other)} after; give runs of the "
            "same seeds"
        )
    return pa.Table.from_pylist(_rows(one, other), schema=_SCHEMA)


def pairs(runs: Iterable[RunTables], against: str | None = None, split: str = "test") -> pa.Table:
    """Every label paired with one of them: `against`, or else the one with the smallest λ.

    As `paired`, with the seeds that both have; a label without any in common has no rows.
    """
    by_label: dict[str, list[RunTables]] = {}
    for run in distinct(runs):
        by_label.setdefault(run.manifest["label"], []).append(run)
    against = baseline(by_label) if against is None else against
    if against not in by_label:
        raise BadInput(f"there is no label {against!r}: the labels are {', '.join(by_label)}")
    figures = {label: _by_seed(of, split) for label, of in by_label.items()}
    rows = [
        {"label": label, "against": against} | row
        for label in by_label
        if label != against and figures[label].keys() & figures[against].keys()
        for row in _rows(figures[against], figures[label])
    ]
    return pa.Table.from_pylist(rows, schema=_PAIRS)


def baseline(by_label: dict[str, list[RunTables]]) -> str:
    """The label with the smallest λ, as FedAvg has; the first of several."""
    if not by_label:
        raise BadInput("there are no runs to compare")
    return min(by_label, key=lambda label: _known(lambda_fraction(by_label[label][0])))


def _known(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _rows(one: Figures, other: Figures) -> list[dict[str, object]]:
    seeds = sorted(one.keys() & other.keys())
    rows: list[dict[str, object]] = []
    for model in one[seeds[0]]:
        for measure, unit, factor in _MEASURES:
            x = [factor * one[seed][model][measure] for seed in seeds if model in one[seed]]
            y = [factor * other[seed][model][measure] for seed in seeds if model in other[seed]]
            if len(x) != len(y) or not x or any(map(math.isnan, x + y)):
                continue
            rows.append(
                {
                    "model": model,
                    "measure": measure,
                    "unit": unit,
                    "seeds": len(x),
                    "before": math.fsum(x) / len(x),
                    "after": math.fsum(y) / len(y),
                    **_difference([b - a for a, b in zip(x, y, strict=True)]),
                }
            )
    return rows


def _difference(d: Sequence[float]) -> dict[str, float | None]:
    n, mean = len(d), math.fsum(d) / len(d)
    if n < 2:
        return {"difference": mean}
    low, high = interval(d)
    return {
        "difference": mean,
        "standard_error": math.sqrt(math.fsum((x - mean) ** 2 for x in d) / (n - 1) / n),
        "low": None if math.isnan(low) else low,
        "high": None if math.isnan(high) else high,
        "p_value": sign_flip(d),
    }


def _by_seed(runs: Iterable[RunTables], split: str) -> Figures:
    found: Figures = {}
    for run in runs:
        summary = summarise(run, split)
        if summary.seed in found:
            raise BadInput(
                f"several runs of seed {summary.seed} on one side: give runs that differ in "
                "nothing but the seed"
            )
        models = (row.model for row in summary.rows)
        found[summary.seed] = dict(zip(models, all_figures(run, summary), strict=True))
    return found


def render_paired(table: pa.Table) -> Table:
    """The result of `paired` or `pairs` for a terminal."""
    many = "label" in table.column_names
    against = table["against"][0].as_py() if many and len(table) else ""
    out = Table(
        title=f"Against {against}, seed by seed" if against else None,
        caption=Text(
            "Differences of runs with equal seeds, with their standard error, a 95 % bootstrap "
            "interval and the p-value of a sign-flip test."
        )
        if many
        else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    names = ["model", "measure", "before", "after", "difference (std. error)", "95 %", "p", "unit"]
    for name in ["label"] * many + names:
        left = name in ("label", "model", "measure", "unit")
        out.add_column(name, justify="left" if left else "right", overflow="fold")
    told = None
    for row in table.to_pylist():
        error, low, high, p = (row[n] for n in ("standard_error", "low", "high", "p_value"))
        label = Text("" if row.get("label") == told else row.get("label") or "")
        told = row.get("label")
        if error is not None and error < ROUNDING * (abs(row["before"]) + abs(row["after"])):
            error = 0.0  # differences that are alike
        out.add_row(
            *[label] * many,
            row["model"],
            row["measure"].replace("_", " "),
            f"{row['before']:.4g}",
            f"{row['after']:.4g}",
            f"{row['difference']:+.3g}" + ("" if error is None else f" ({error:.3g})"),
            "" if low is None else f"{low:+.3g} … {high:+.3g}",
            "" if p is None else f"{p:.2g}",
            row["unit"],
        )
    return out
