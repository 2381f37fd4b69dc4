"""The columns of a comparison: each figure's name, unit and meaning, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from gifair_ray.analysis.participation import CAUSES, COUNTS

PERCENT, PERCENT2, LOSS, PLAIN = "percent", "percent²", "loss", "plain"


class Column(NamedTuple):
    """One figure. Without a heading it is not shown in a terminal's table."""

    name: str
    unit: str
    meaning: str
    kind: str = PLAIN
    heading: str = ""


LABELS: Sequence[Column] = (
    Column("rounds", "server updates", "up to the evaluation", PLAIN, "rounds"),
    Column("virtual_hours", "h", "virtual time of the evaluation", PLAIN, "virtual\nhours"),
    Column("megabytes", "MB", "moved up to the evaluation"),
    Column("lambda_fraction", "1", "λ/λ_max; 0 where the weighting has no λ"),
    Column("clients", "clients", "that the figures cover"),
    Column("never_selected", "clients", "left out: personal models of clients never in it"),
    Column("without_samples", "clients", "left out: no samples in the split"),
    Column("mean_accuracy", "1", "mean over clients", PERCENT, "mean\nacc."),
    Column("weighted_accuracy", "1", "mean over samples", PERCENT),
    Column("std_clients", "1", "over clients, raw", PERCENT, "std\nraw"),
    Column("std_clients_corrected", "1", "over clients, less test noise", PERCENT, "std\ncorr."),
    Column("std_noise", "1", "root of the test sets' noise", PERCENT),
    Column("variance_clients", "1", "over clients, raw", PERCENT2),
    Column("variance_clients_corrected", "1", "over clients, less test noise", PERCENT2),
    Column("std_weighted", "1", "by samples, raw", PERCENT),
    Column("std_weighted_corrected", "1", "by samples, less test noise", PERCENT),
    Column("variance_weighted", "1", "by samples, raw", PERCENT2),
    Column("variance_weighted_corrected", "1", "by samples, less test noise", PERCENT2),
    Column("variance_groups", "1", "over groups (Definition 1)", PERCENT2, "group\nvar."),
    Column("worst_tenth", "1", "mean of the worst 10 % of clients", PERCENT, "worst\n10 %"),
    *(Column(f"decile_{i}", "1", f"{i}0 % of clients are below", PERCENT) for i in range(1, 10)),
    Column("best_tenth", "1", "mean of the best 10 % of clients", PERCENT),
    Column("worst_group", "1", "the lowest accuracy of a group", PERCENT, "worst\ngroup"),
    Column("discrepancy", "1", "best minus worst group", PERCENT, "discr."),
    Column("jain", "1", "Jain's index of the clients' accuracies; 1: all alike", LOSS),
    Column("gini", "1", "Gini's coefficient of the clients' accuracies; 0: all alike", LOSS),
    Column("mean_loss", "loss", "mean over clients", LOSS, "mean\nloss"),
    Column("loss_spread", "loss", "worst minus best group", LOSS, "loss\nspread"),
    Column("rounds_to_target", "server updates", "to the target accuracy"),
    Column("hours_to_target", "h", "virtual hours to the target accuracy", PLAIN, "h to\ntarget"),
    Column("megabytes_to_target", "MB", "moved up to the target accuracy"),
    *(Column(n, "dispatches", "dispatches" if n == "selected" else "of which") for n in COUNTS),
    Column("busy_hours", "h", "compute time of the clients"),
    Column("wasted_hours", "h", "of which on work that was discarded"),
    Column("wasted_share", "1", "wasted_hours / busy_hours", PERCENT),
    Column("wasted_megabytes", "MB", "moved for work that was discarded"),
    Column("wrong_signs", "1", "pairs of groups in the wrong order, mean of audits", PERCENT),
    Column("loss_age", "versions", "age of the losses behind the ranks, mean of audits"),
    Column("delta", "loss", "δ of the ranks, mean of audits", LOSS),
)

BRIEF = ("mean_accuracy", "std_clients_corrected", "worst_group", "discrepancy", "loss_spread")

GROUPS: Sequence[Column] = (
    Column("clients", "clients", "members", PLAIN, "clients"),
    Column("p", "1", "share of the training samples", PERCENT, "data\n%"),
    Column("accuracy", "1", "mean over members", PERCENT, "acc."),
    Column("loss", "loss", "mean over members", LOSS, "loss"),
    Column("selected", "dispatches", "dispatches to members", PLAIN, "selec-\nted"),
    Column("completed", "dispatches", "of which were aggregated", PLAIN, "comple-\nted"),
    *(Column(n, "dispatches", f"of which ended as {n}", PLAIN, n[:5]) for n in CAUSES),
    Column("completed_share", "1", "completed / selected", PERCENT),
    Column("busy_s", "s", "compute time"),
    Column("wasted_s", "s", "of which on discarded work", PLAIN, "wasted\ns"),
    Column("bytes", "B", "moved to and from members"),
    Column("wasted_bytes", "B", "of which for discarded work", PLAIN, "wasted\nB"),
    Column("weight", "1", "sum of the aggregation weights ω_k"),
    Column("weight_share", "1", "share of all aggregation weight", PERCENT, "weight\n%"),
    Column("effective_weight", "1", "sum of ω_k m_k, with the multipliers"),
    Column("effective_share", "1", "share of all effective weight", PERCENT, "effect.\n%"),
    Column("weight_ratio", "1", "weight_share / p", LOSS),
    Column("effective_ratio", "1", "effective_share / p", LOSS),
    Column("staleness", "versions", "mean of aggregated dispatches"),
    Column("turnaround_s", "s", "mean, from sending to arrival"),
)

GROUP_LEGEND = (
    "Mean over seeds. weight: share of all aggregation weight ω; effect.: of ω times the "
    "multipliers. wasted: on work that was discarded."
)


def legend(shown: Sequence[Column], target: str) -> str:
    """What a reader of these columns has to know; `target` is the accuracy to reach, or empty."""
    names = {column.name for column in shown}
    told = "Mean (std over seeds); accuracies and their std in %"
    told += ", variance in %²." if "variance_groups" in names else "."
    raw = "raw and corrected" if "std_clients" in names else "corrected"
    told += f" std: over clients, {raw} for test-set noise. discr.: best minus worst group."
    if target and "hours_to_target" in names:
        told += f" Target: an accuracy of {100 * float(target):g} %."
    return told


def schema(heads: Sequence[pa.Field], columns: Sequence[Column]) -> pa.Schema:
    """Fields for who a row is about, then for each figure x its mean `x` and deviation `x_sd`."""
    fields = list(heads)
    for column in columns:
        about = {"unit": column.unit, "description": column.meaning}
        of_seeds = {"unit": column.unit, "description": "its standard deviation over seeds"}
        fields.append(pa.field(column.name, pa.float64(), metadata=about))
        fields.append(pa.field(f"{column.name}_sd", pa.float64(), metadata=of_seeds))
    return pa.schema(fields)


def number(value: float, kind: str) -> str:
    """A figure as it is shown: fractions as percentages, few digits."""
    if kind == PLAIN:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    value *= {PERCENT: 100.0, PERCENT2: 10_000.0, LOSS: 1.0}[kind]
    shown = f"{value:.3f}" if kind == LOSS else f"{value:.1f}"
    return shown if len(shown) <= 6 else f"{value:.3g}"
