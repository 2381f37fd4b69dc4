"""What a comparison says, in sentences: the answer that a report begins with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gifair_ray.analysis.resampling import FEWEST

_TOLD = {
    "discrepancy": ("the gap between best and worst group", "points"),
    "worst_group": ("the accuracy of the worst group", "points"),
    "mean_accuracy": ("the mean accuracy of clients", "points"),
    "loss_spread": ("the gap between the groups' losses", ""),
}


def answer(comparison: pa.Table, groups: pa.Table, pairs: pa.Table | None) -> list[str]:
    """A few sentences: the fairest setting against the baseline, and what it costs."""
    lines = [row for row in comparison.to_pylist() if row["model"] == "global"]
    graded = any(row["discrepancy"] is not None for row in lines)
    gap = "discrepancy" if graded else "loss_spread"
    known = [row for row in lines if row[gap] is not None]
    if not known:
        return ["No evaluation has a result to compare yet."]
    if len(known) == 1 or pairs is None or not len(pairs):
        return [_alone(row, groups, gap) for row in sorted(known, key=lambda row: row[gap])[:3]]
    best = min(known, key=lambda row: row[gap])
    against = pairs["against"][0].as_py()
    if best["label"] == against:
        others = sorted((r for r in known if r["label"] != against), key=lambda row: row[gap])
        return [
            f"No setting is fairer than “{against}”, with {_gap(best, gap)}; the next, "
            f"“{others[0]['label']}”, has {_size(others[0], gap)}.",
            *_changes(pairs, others[0]["label"], against, gap),
        ]
    return [
        f"Fairest is “{best['label']}”, with {_gap(best, gap)}; “{against}” has "
        f"{_size(next(r for r in lines if r['label'] == against), gap)}.",
        *_changes(pairs, best["label"], against, gap),
    ]


def _gap(row: dict[str, Any], gap: str) -> str:
    of = "groups" if gap == "discrepancy" else "groups' losses"
    return f"{_size(row, gap)} between the best and the worst of the {of}"


def _size(row: dict[str, Any], gap: str) -> str:
    if row[gap] is None:
        return "no result yet"
    return f"{100 * row[gap]:.1f} points" if gap == "discrepancy" else f"{row[gap]:.3g}"


def _alone(row: dict[str, Any], groups: pa.Table, gap: str) -> str:
    told = f"“{row['label']}”: {_gap(row, gap)}"
    mine = [
        g for g in groups.to_pylist() if g["label"] == row["label"] and g["accuracy"] is not None
    ]
    if gap == "discrepancy" and len(mine) > 1:
        low = min(mine, key=lambda group: group["accuracy"])
        high = max(mine, key=lambda group: group["accuracy"])
        told += (
            f" ({low['group_name']} {100 * low['accuracy']:.1f} %, {high['group_name']} "
            f"{100 * high['accuracy']:.1f} %); mean of clients {100 * row['mean_accuracy']:.1f} %"
        )
    return told + "."


def _changes(pairs: pa.Table, label: str, against: str, gap: str) -> list[str]:
    rows = {
        row["measure"]: row
        for row in pairs.to_pylist()
        if row["label"] == label and row["model"] == "global"
    }
    wanted = ("discrepancy", "worst_group", "mean_accuracy") if gap == "discrepancy" else (gap,)
    told = [_change(rows[measure]) for measure in wanted if measure in rows]
    if not told:
        return []
    seeds = rows[next(m for m in wanted if m in rows)]["seeds"]
    with_what = f"over {seeds} seeds that both were run with" if seeds > 1 else "on one seed"
    lines = [f"“{label}” against “{against}”, {with_what}: " + "; ".join(told) + "."]
    if seeds < FEWEST:
        lines.append(
            f"{seeds} seed{'s are' if seeds > 1 else ' is'} too few for an interval: run at least "
            f"{FEWEST}, better ten, before you claim a difference."
        )
    return lines


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−")


def _change(row: dict[str, Any]) -> str:
    what, unit = _TOLD[row["measure"]]
    told = f"{what} changes by {_signed(row['difference'])}{' ' + unit if unit else ''}"
    if row["low"] is None:
        return told
    clear = row["low"] > 0 or row["high"] < 0 or row["low"] == row["high"]
    interval = f"95 % interval {_signed(row['low'])} to {_signed(row['high'])}"
    return f"{told} ({interval}{'' if clear else ': no clear change'})"
