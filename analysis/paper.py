"""The paper's tables from runs: the same rows, its figures beside ours, and a verdict per claim.

The claims are relative to FedAvg on the same seeds: *fairer* (a smaller standard deviation over
clients, corrected for test-set noise; or a smaller discrepancy between groups) and *accuracy kept*
(a mean accuracy that is not lower). A verdict is "yes" or "no" where the 95 % interval of the
paired difference over seeds says so, else "open".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from gifair_ray.analysis import measures
from gifair_ray.analysis.accuracies import Accuracies, accuracies
from gifair_ray.analysis.load import RunTables

KEPT = 0.01  # an accuracy lower by less than this counts as kept
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)  # Student, 1, 2 …

LAST_LOCAL = "fedavg, last local models"
PERSONAL = ("ditto", "gifair-per", LAST_LOCAL)

Figures = Mapping[str, Mapping[int, Mapping[str, float]]]
"""algorithm → seed → figure"""

SCHEMA = pa.schema(
    [
        ("algorithm", pa.string()),
        ("row", pa.string()),
        ("seeds", pa.int64()),
        ("value", pa.float64()),
        ("sd", pa.float64()),
        ("paper", pa.float64()),
    ]
)
"""One row per algorithm and row of the paper's table; accuracies in percent, sd over seeds."""


def figures(run: RunTables, personal: bool, groups: Sequence[str]) -> dict[str, float]:
    """The rows of the paper's table for one run, and what stands beside them, in percent.

    But for `loss spread`, of the test losses: worst minus best group, or the standard deviation
    over clients where each is a group; and `fallbacks`, clients without a personal model.
    """
    found = accuracies(run, "test", personal)
    out = {"mean": measures.mean_accuracy(found.accuracy)}
    out |= _over_clients(found)
    if groups:
        means = measures.group_means(found.accuracy, found.group)
        names = [found.names[int(i)].lower() for i in np.unique(found.group)]
        out |= dict(zip(names, means.tolist(), strict=True))
        out["discrepancy"] = measures.discrepancy(found.accuracy, found.group)
        out["noise of it"] = _noise_of_discrepancy(found)
        spread = measures.loss_spread(found.loss, found.group)
    else:
        spread = measures.deviation(found.loss)
    in_percent = {name: 100 * value for name, value in out.items()}
    return in_percent | {"loss spread": spread, "fallbacks": found.fallbacks}


def _over_clients(found: Accuracies) -> dict[str, float]:
    a, n = found.accuracy, found.samples
    return {
        "std": measures.deviation(a),
        "std corrected": measures.corrected_deviation(a, n),
        "noise floor": math.sqrt(measures.noise_floor(a, n)),
    }


def _noise_of_discrepancy(found: Accuracies) -> float:
    """Its standard error that finite test sets explain, best and worst group being what they are.

    A client's accuracy has the variance s_k² = a(1 − a)/(n − 1), a group's the mean of those over
    its size.
    """
    a, sizes = found.accuracy, np.unique(found.group, return_counts=True)[1]
    s2 = a * (1 - a) / np.maximum(found.samples - 1, 1)
    by_group = measures.group_means(s2, found.group) / sizes
    means = measures.group_means(a, found.group)
    return math.sqrt(by_group[means.argmax()] + by_group[means.argmin()])


def paper_table(
    runs: Figures,
    rows: Sequence[str],
    paper: Mapping[str, Mapping[str, float]],
) -> pa.Table:
    """Figures by algorithm and seed as a table, each with the paper's own where it has one."""
    out = []
    for algorithm, by_seed in runs.items():
        for row in rows:
            values = np.array([figure[row] for figure in by_seed.values()])
            out.append(
                {
                    "algorithm": algorithm,
                    "row": row,
                    "seeds": len(values),
                    "value": float(values.mean()),
                    "sd": float(values.std(ddof=1)) if len(values) > 1 else None,
                    "paper": _printed(paper.get(algorithm, {}), row),
                }
            )
    return pa.Table.from_pylist(out, SCHEMA)


def _printed(figures: Mapping[str, float], row: str) -> float | None:
    if row == "discrepancy" and figures:  # recomputed: two of those in its Table 3 are not right
        return max(figures.values()) - min(figures.values())
    return figures.get(row)


def interval(differences: Iterable[float]) -> tuple[float, float]:
    """The 95 % interval of a mean difference over seeds, by Student's law; ±∞ for one seed."""
    d = np.array(list(differences))
    if len(d) < 2:
        return -math.inf, math.inf
    t = T_975[min(len(d) - 1, len(T_975)) - 1]
    half = t * float(d.std(ddof=1)) / math.sqrt(len(d))
    return float(d.mean()) - half, float(d.mean()) + half


def difference(
    one: Mapping[int, Mapping[str, float]], other: Mapping[int, Mapping[str, float]], row: str
) -> tuple[float, float, float]:
    """Mean of one minus other over the seeds of both, and its 95 % interval."""
    d = [one[seed][row] - other[seed][row] for seed in sorted(one.keys() & other.keys())]
    return float(np.mean(d)), *interval(d)


def verdicts(runs: Figures, baseline: str, unfairness: str) -> dict[str, tuple[str, str]]:
    """(fairer, accuracy kept) for every algorithm but the baseline: yes, no or open."""
    out = {}
    base = runs[baseline]
    for algorithm, by_seed in runs.items():
        if algorithm == baseline:
            continue
        _, low, high = difference(by_seed, base, unfairness)
        fairer = "yes" if high < 0 else "no" if low > 0 else "open"
        _, low, high = difference(by_seed, base, "mean")
        kept = "yes" if low > -100 * KEPT else "no" if high < 0 else "open"
        out[algorithm] = fairer, kept
    return out


def markdown(
    table: pa.Table, verdict: Mapping[str, tuple[str, str]], settings: Mapping[str, str]
) -> str:
    """The table as Markdown, a line per algorithm: mean (sd over seeds), the paper's beside it."""
    records = table.to_pylist()
    cell = {(r["algorithm"], r["row"]): r for r in records}
    rows = list(dict.fromkeys(r["row"] for r in records))
    printed = {r["row"] for r in records if r["paper"] is not None}
    heads = ["algorithm", "setting"]
    for row in rows:
        heads += [row, "*paper*"] if row in printed else [row]
    heads += ["fairer?", "accuracy kept?"]
    lines = [f"| {' | '.join(heads)} |", "|---|---" + "|---:" * (len(heads) - 4) + "|---|---|"]
    for algorithm in dict.fromkeys(r["algorithm"] for r in records):
        cells = [algorithm, settings.get(algorithm, "")]
        for row in rows:
            record = cell[algorithm, row]
            cells.append(_told(record))
            if row in printed:
                paper = record["paper"]
                cells.append("" if paper is None else f"*{paper:.1f}*")
        cells += verdict.get(algorithm, ("", ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _told(record: Mapping[str, float | None]) -> str:
    value, sd = record["value"], record["sd"]
    return f"{value:.1f}" if sd is None else f"{value:.1f} ({sd:.1f})"


def pairs_markdown(runs: Figures, baseline: str, rows: Sequence[str]) -> str:
    """Every algorithm less FedAvg, seed by seed; personal models less FedAvg's own local ones."""
    digits = {row: 3 if row == "loss spread" else 1 for row in rows}
    lines = [f"| | {' | '.join(rows)} |", "|---" + "|---:" * len(rows) + "|"]
    levels = [
        f"{np.mean([one[row] for one in runs[baseline].values()]):.{digits[row]}f}" for row in rows
    ]
    lines.append(f"| {baseline} | {' | '.join(levels)} |")
    for against in (baseline, LAST_LOCAL):
        for algorithm in runs:
            if algorithm in (baseline, against) or against not in runs:
                continue
            if against == LAST_LOCAL and algorithm not in PERSONAL:
                continue
            changes = {row: difference(runs[algorithm], runs[against], row) for row in rows}
            cells = [_change(*change, digits[row]) for row, change in changes.items()]
            lines.append(f"| {algorithm} − {against} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _change(mean: float, low: float, high: float, digits: int) -> str:
    told = f"{mean:+.{digits}f}"
    return told if math.isinf(low) else f"{told} [{low:+.{digits}f}, {high:+.{digits}f}]"


def means_markdown(runs: Figures, rows: Sequence[str]) -> str:
    """Means over seeds, a line per algorithm that has any of these figures."""
    lines = [f"| | {' | '.join(rows)} |", "|---" + "|---:" * len(rows) + "|"]
    for algorithm, by_seed in runs.items():
        means = [float(np.mean([one[row] for one in by_seed.values()])) for row in rows]
        if not all(math.isnan(mean) for mean in means):
            cells = ["" if math.isnan(mean) else f"{mean:.1f}" for mean in means]
            lines.append(f"| {algorithm} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def fallbacks(runs: Figures) -> str:
    """Of every algorithm with personal models, how many clients have none: means over seeds."""
    each = {a: [one["fallbacks"] for one in runs[a].values()] for a in PERSONAL if a in runs}
    return ", ".join(f"{a} {np.mean(n):.1f}" for a, n in each.items())
