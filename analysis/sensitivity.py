"""How results depend on λ: runs that differ in λ alone, as series."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from gifair_ray.analysis.course import lambda_fraction
from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.views import by_label, table_of

MEASURES = ("mean_accuracy", "worst_group", "discrepancy", "std_clients_corrected", "loss_spread")
COLUMNS = (
    "label",
    "seeds",
    "lambda_fraction",
    *(f"{name}{end}" for name in MEASURES for end in ("", "_sd")),
)
_LAMBDA = ("weighting.lambda_fraction", "weighting.lambda_value")
_WEIGHTING = ("algorithm", "weighting.")

Setting = tuple[tuple[str, str], ...]


def sensitivity(runs: Sequence[RunTables], comparison: pa.Table) -> pa.Table:
    """Figures by λ/λ_max, a series for each setting of everything else; empty if λ is not varied.

    Runs without a λ, such as FedAvg's, are the point 0 of every series that shares what is not
    about weighting. `comparison` is the result of `compare` for these runs.
    """
    lines = {
        row["label"]: row
        for row in comparison.to_pylist()
        if row["model"] == "global" and row["lambda_fraction"] is not None
    }
    firsts = {label: of[0] for label, of in by_label(runs).items() if label in lines}
    fair = {label: run for label, run in firsts.items() if lambda_fraction(run) > 0}
    keys = _varied(list(firsts.values()))
    series: dict[Setting, list[str]] = {}
    for label, run in fair.items():
        series.setdefault(_setting(run, keys), []).append(label)
    named = _varied(list(fair.values()))
    rows = []
    for setting, labels in series.items():
        plain = [
            label
            for label, run in firsts.items()
            if label not in fair and _rest(_setting(run, keys)) == _rest(setting)
        ]
        labels = sorted(plain + labels, key=lambda label: lines[label]["lambda_fraction"])
        if len({lines[label]["lambda_fraction"] for label in labels}) > 1:
            name = ", ".join(f"{k.rpartition('.')[2]} {v}" for k, v in setting if k in named)
            rows += [{"series": name} | {c: lines[label][c] for c in COLUMNS} for label in labels]
    return table_of(rows, ["series", *COLUMNS])


def _varied(runs: Sequence[RunTables]) -> list[str]:
    keys = {key for run in runs for key in run.settings if key not in _LAMBDA}
    return sorted(key for key in keys if len({run.settings.get(key) for run in runs}) > 1)


def _setting(run: RunTables, keys: Sequence[str]) -> Setting:
    return tuple((key, run.settings.get(key, "not set")) for key in keys)


def _rest(setting: Setting) -> Setting:
    return tuple((key, value) for key, value in setting if not key.startswith(_WEIGHTING))
