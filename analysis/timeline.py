"""A stretch of a run's rounds, dispatch by dispatch: the table behind the Gantt chart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.summary import group_names
from gifair_ray.errors import BadInput
from gifair_ray.tables import TABLES

MOST_DISPATCHES = 600
MOST_CLIENTS = 60
MOST_ROUNDS = 40


@dataclass(frozen=True)
class Stretch:
    """Dispatches meant for these rounds, by client; and when the server's updates were made."""

    first: int
    last: int
    dispatches: pa.Table
    updates_s: tuple[float, ...]
    left_out: int  # clients that are not shown, of a single round that has too many


def timeline(run: RunTables, rounds: tuple[int, int] | None = None) -> Stretch | None:
    """The dispatches of rounds `first` to `last`; None if there are none.

    Without rounds given: as many from the first on as can be read, some hundred dispatches of some
    dozen clients. Of a single round with more clients, an even choice of them.
    """
    first, last = rounds if rounds is not None else (1, MOST_ROUNDS)
    if not 1 <= first <= last:
        raise BadInput(f"rounds {first} to {last} are no stretch: give first and last, from 1 on")
    table = pa.concat_tables(
        part.filter(_between(part["round"], first, last))
        for part in chain(run.parts("dispatches"), [TABLES["dispatches"].empty_table()])
    )
    if not len(table):
        return None
    last = min(last, pc.max(table["round"]).as_py())
    if rounds is None:
        last = _readable(table)
        table = table.filter(pc.less_equal(table["round"], last))
    everybody = np.unique(table["client"].to_numpy())
    shown = everybody[np.unique(np.linspace(0, len(everybody) - 1, MOST_CLIENTS).astype(int))]
    if rounds is not None and len(everybody) <= 4 * MOST_CLIENTS:
        shown = everybody  # as was asked for
    table = table.filter(pc.is_in(table["client"], pa.array(shown)))
    if len(table) > 5 * MOST_DISPATCHES:
        raise BadInput(
            f"rounds {first} to {last} have {len(table)} dispatches, too many to draw: give fewer"
        )
    made = run.table("rounds")
    made = made.filter(_between(made["round"], first, last))
    updates = tuple(made["time_s"].to_pylist())
    return Stretch(first, last, _rows(run, table), updates, len(everybody) - len(shown))


def _between(column: pa.ChunkedArray, first: int, last: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))


def _readable(table: pa.Table) -> int:
    """The last round that can be shown together with all before it."""
    order = table["round"].to_numpy()
    client = table["client"].to_numpy()
    numbers = np.unique(order)
    best = int(numbers[0])
    for number in numbers.tolist():
        inside = order <= number
        if inside.sum() > MOST_DISPATCHES or len(np.unique(client[inside])) > MOST_CLIENTS:
            break
        best = int(number)
    return best


def _rows(run: RunTables, table: pa.Table) -> pa.Table:
    clients = run.table("clients").select(["client", "name", "group"])
    names = group_names(run)
    groups = [names.get(number, f"group {number}") for number in clients["group"].to_pylist()]
    clients = clients.append_column("group_name", pa.array(groups, pa.string()))
    joined = table.join(clients, "client").sort_by(
        [("group", "ascending"), ("client", "ascending"), ("send_s", "ascending")]
    )
    until = pc.fill_null(joined["arrival_s"], joined["notice_s"])
    until = pc.max_element_wise(until, joined["end_s"])
    wanted = ["dispatch", "round", "client", "name", "group_name", "outcome", "send_s", "start_s"]
    wanted += ["end_s", "staleness", "steps", "weight"]
    return joined.select(wanted).append_column("until_s", until)
