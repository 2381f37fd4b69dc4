"""`gifair bench`: measure, write the table and the plot, and say which goals are met."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gifair_ray.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

    from gifair_ray.analysis.speed import Spread


def bench(arguments: argparse.Namespace) -> None:
    """Measure workloads beside their limits."""
    from gifair_ray.bench.workloads import NAMES, arms

    if arguments.repeat < 1:
        raise BadInput(f"--repeat {arguments.repeat} measures nothing; it must be at least 1")
    folder = Path(arguments.output or f"runs/bench-{datetime.now():%Y%m%d-%H%M%S}")
    if (folder / "bench.arrow").exists():
        raise BadInput(f"{folder} has a bench.arrow already: choose another folder with -o")
    with tempfile.TemporaryDirectory() as data:
        chosen = arms(arguments.workloads or list(NAMES), Path(data), arguments.small)
        folder.mkdir(parents=True, exist_ok=True)
        table = _measured(chosen, arguments.repeat, folder / "bench.arrow", arguments.quiet)
    _draw(table, folder / "bench.png")
    _show(table)
    print(folder)


def _measured(chosen: list[Any], repeat: int, file: Path, quiet: bool) -> pa.Table:
    """Run all arms; the table on disk grows with every row, so that nothing measured is lost."""
    import pyarrow as pa
    from pyarrow import ipc

    from gifair_ray.bench.run import SCHEMA, run

    rows: list[dict[str, Any]] = []
    table = SCHEMA.empty_table()
    for some in run(chosen, repeat):
        rows += some
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        with ipc.new_file(str(file), SCHEMA) as writer:
            writer.write_table(table)
        if not quiet:
            which = f"{some[0]['repetition'] + 1}/{repeat}.{some[0]['turn'] + 1}"
            told = "; ".join(map(_told, some))
            print(f"{which} {some[0]['workload']} {told}", file=sys.stderr, flush=True)
    return table


def _told(row: dict[str, Any]) -> str:
    if row["updates"]:
        each = 1e3 * row["cpu_s"] / row["updates"]
        return f"{row['arm']}: {row['updates'] / row['wall_s']:,.4g} updates/s, {each:.3g} ms CPU"
    return f"{row['arm']}: ready after {row['ready_s']:.2f} s"


def _draw(table: pa.Table, file: Path) -> None:
    from gifair_ray.analysis.speed import summary
    from gifair_ray.analysis.speed_plot import speeds

    speeds(summary(table)).savefig(file, dpi=200)


def _show(table: pa.Table) -> None:
    from rich.console import Console
    from rich.table import Table

    from gifair_ray.analysis.speed import judged, summary

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 140)
    head = ("", "arm", "updates/s", "of limit", "CPU ms/update", "of limit")
    shown = Table(*head, "kB moved/update", "peak MB (PSS)", "ready s", box=None, header_style="")
    for (workload, arm), found in summary(table).items():
        cells = [_cell(found["rate"]), _cell(found.get("rate/limit"))]
        cells += [_cell(found["cpu"], 1e3), _cell(found.get("cpu/limit"))]
        cells += [_cell(found["moved"], 1e-3), _cell(found["memory"], 1e-6), _cell(found["ready"])]
        shown.add_row(workload, arm, *cells)
    console.print(shown)
    verdicts = Table("goal", "median (range)", "bound", "", box=None, header_style="")
    for goal, found_value in judged(table):
        bound = f"≥ {goal.at_least:g}" if goal.at_least is not None else f"≤ {goal.at_most:g}"
        met = "met" if goal.is_met(found_value.median) else "MISSED"
        verdicts.add_row(goal.text, _cell(found_value), bound, met)
    console.print(verdicts)


def _cell(spread: Spread | None, times: float = 1.0) -> str:
    if spread is None or math.isnan(spread.median):
        return ""
    middle, low, high = (
        f"{times * value:,.3g}" if abs(times * value) < 1000 else f"{times * value:,.0f}"
        for value in (spread.median, spread.low, spread.high)
    )
    return middle if spread.low == spread.high else f"{middle} ({low}–{high})"
