"""Who took part, and what became of the work, per client and per group.

The counts come from the last record of the table `participation`, or from `dispatches` where a run
has written none yet; then questions for losses are not in the bytes. Staleness and turnaround
come from `dispatches`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.measures import Array
from gifair_ray.errors import BadInput
from gifair_ray.tables import OUTCOMES, TABLES

CAUSES = tuple(cause.replace("-", "_") for cause in OUTCOMES[1:])
COUNTS = ("selected", "completed", *CAUSES)
SUMS = (*COUNTS, "busy_s", "wasted_s", "bytes", "wasted_bytes", "weight")
EFFECTIVE = "effective_weight"
MEANS = ("staleness", "turnaround_s")
SHARES = (
    "weight_share", "effective_share", "weight_ratio", "effective_ratio", "completed_share",
)  # fmt: skip
BATCH = 1 << 20  # rows of `dispatches` that are looked at together

_ABOUT = {
    "clients": ("clients", "members of the group"),
    "p": ("1", "share of the training samples, Σ p_k"),
    EFFECTIVE: ("1", "sum of ω_k m_k: aggregation weight times the multiplier 1 + tilt"),
    "staleness": ("versions", "mean over aggregated dispatches"),
    "turnaround_s": ("s", "mean time from sending to arrival, of aggregated dispatches"),
    "weight_share": ("1", "share of all aggregation weight"),
    "effective_share": ("1", "share of all effective weight"),
    "weight_ratio": ("1", "weight_share / p; 1: as much as its data would give it"),
    "effective_ratio": ("1", "effective_share / p; 1: as much as its data would give it"),
    "completed_share": ("1", "completed / selected"),
}


def _field(name: str, kind: pa.DataType) -> pa.Field:
    if name in SUMS:
        return TABLES["participation"].field(name)
    unit, description = _ABOUT[name]
    return pa.field(name, kind, metadata={"unit": unit, "description": description})


_CLIENTS = pa.schema(
    [
        *(TABLES["clients"].field(n) for n in ("client", "name", "group", "group_name", "p")),
        *(_field(name, pa.float64()) for name in (*SUMS, EFFECTIVE, *MEANS)),
    ]
)
_GROUPS = pa.schema(
    [
        *(TABLES["clients"].field(n) for n in ("group", "group_name")),
        _field("clients", pa.int64()),
        _field("p", pa.float64()),
        *(_field(name, pa.float64()) for name in (*SUMS, EFFECTIVE, *MEANS)),
        *(_field(name, pa.float64()) for name in SHARES),
    ]
)


def by_client(run: RunTables) -> pa.Table:
    """A row per client of the run: who it is, its counts, seconds, bytes and weight."""
    clients = run.table("clients")
    rows, columns = _counted(run)
    about = {name: clients[name] for name in ("client", "name", "group", "group_name", "p")}
    counted = {
        f.name: _column(columns[f.name][rows], f.type) for f in _CLIENTS if f.name in columns
    }
    return pa.table({**about, **counted}, schema=_CLIENTS)


def by_group(run: RunTables) -> pa.Table:
    """A row per group of the run: sums over its clients, and its share of the weight."""
    clients = run.table("clients")
    rows, columns = _counted(run)
    numbers, place = np.unique(clients["group"].to_numpy(), return_inverse=True)
    d = len(numbers)
    sums = {name: np.bincount(place, columns[name][rows], d) for name in (*SUMS, EFFECTIVE)}
    p = np.bincount(place, pc.fill_null(clients["p"], 0.0).to_numpy(), d)
    completed = columns["completed"][rows]
    means = {
        name: _ratio(np.bincount(place, np.nan_to_num(columns[name][rows]) * completed, d), of)
        for name in MEANS
        for of in [sums["completed"]]
    }
    share, effective = (
        _ratio(sums[name], np.full(d, sums[name].sum())) for name in ("weight", EFFECTIVE)
    )
    names = {g: n or f"group {g}" for g, n in _pairs(clients)}
    found: dict[str, Any] = {
        "group": numbers,
        "group_name": [names[int(number)] for number in numbers],
        "clients": np.bincount(place, minlength=d),
        "p": p,
        **sums,
        **means,
        "weight_share": share,
        "effective_share": effective,
        "weight_ratio": _ratio(share, p),
        "effective_ratio": _ratio(effective, p),
        "completed_share": _ratio(sums["completed"], sums["selected"]),
    }
    return pa.table([_column(found[field.name], field.type) for field in _GROUPS], schema=_GROUPS)


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    """An array of a table, in which nan is null."""
    unknown = np.isnan(values) if pa.types.is_floating(kind) else None
    return pa.array(values, kind, mask=unknown)


def totals(run: RunTables) -> dict[str, float]:
    """The sums over all clients."""
    rows, columns = _counted(run, only_sums=True)
    return {name: float(columns[name][rows].sum()) for name in SUMS}


def _ratio(above: Array, below: Array) -> Array:
    ratio: Array = np.full(len(above), np.nan)
    np.divide(above, below, out=ratio, where=below != 0)
    return ratio


def _pairs(clients: pa.Table) -> Any:
    return zip(clients["group"].to_pylist(), clients["group_name"].to_pylist(), strict=True)


def _counted(run: RunTables, only_sums: bool = False) -> tuple[Array, dict[str, Array]]:
    """Where each client of the table `clients` is found in the columns, and the columns."""
    clients = run.table("clients")["client"].to_numpy()
    table = run.table("participation")
    width = int(clients.max()) + 1 if len(clients) else 0
    columns: dict[str, Array] = {}
    if not (only_sums and len(table)):
        columns = _from_dispatches(run, width, all_of_it=not len(table))
    if len(table):
        last = table.slice(max(0, len(table) - len(clients)))
        who = last["client"].to_numpy()
        if len(who) != len(clients) or len(np.union1d(who, clients)) != len(clients):
            raise BadInput(
                f"run {run.manifest['name']!r}: its table `participation` does not end with a row "
                "for every client; restore it, or run again"
            )
        for name in SUMS:
            columns[name] = np.zeros(width)
            columns[name][who] = pc.fill_null(last[name], 0).to_numpy()
    return clients, columns


def _from_dispatches(run: RunTables, width: int, all_of_it: bool) -> dict[str, Array]:
    """Sums by client number, batch by batch; the means of those that were aggregated."""
    wanted = ["client", "outcome", "staleness", "send_s", "arrival_s", "weight", "tilt"]
    if all_of_it:
        wanted += ["start_s", "end_s", "bytes_down", "bytes_up"]
    sums = {name: np.zeros(width) for name in (*SUMS, EFFECTIVE, *MEANS)}
    done = np.zeros(width)
    parts = (part.select(wanted) for part in run.parts("dispatches"))
    for batch in (batch for part in parts for batch in part.to_batches(max_chunksize=BATCH)):
        client = batch["client"].to_numpy()
        if len(client) and client.max() >= width:
            raise BadInput(
                f"run {run.manifest['name']!r} sent work to client {client.max()}, which its table "
                "`clients` does not list: the table is incomplete; restore it, or run again"
            )
        completed = pc.equal(batch["outcome"], "completed").to_numpy(zero_copy_only=False)
        count = np.bincount(client, completed, width)
        done += count
        sums["staleness"] += np.bincount(client, _floats(batch["staleness"]) * completed, width)
        took = _floats(batch["arrival_s"]) - _floats(batch["send_s"])
        sums["turnaround_s"] += np.bincount(client, np.where(completed, took, 0.0), width)
        effective = _floats(batch["weight"]) * (1 + _floats(batch["tilt"]))
        sums[EFFECTIVE] += np.bincount(client, effective, width)
        if all_of_it:
            sums["completed"] += count
            _add(sums, batch, client, completed, width)
    with np.errstate(invalid="ignore"):
        return sums | {name: sums[name] / np.where(done, done, np.nan) for name in MEANS}


def _add(
    sums: dict[str, Array], batch: pa.RecordBatch, client: Array, completed: Array, width: int
) -> None:
    sums["selected"] += np.bincount(client, minlength=width)
    for cause, name in zip(OUTCOMES[1:], CAUSES, strict=True):
        ended = pc.equal(batch["outcome"], cause).to_numpy(zero_copy_only=False)
        sums[name] += np.bincount(client, ended, width)
    busy = np.maximum(_floats(batch["end_s"]) - _floats(batch["start_s"]), 0.0)
    moved = _floats(batch["bytes_down"]) + _floats(batch["bytes_up"])
    for name, values in (("busy_s", busy), ("bytes", moved)):
        sums[name] += np.bincount(client, values, width)
    for name, values in (("wasted_s", busy), ("wasted_bytes", moved)):
        sums[name] += np.bincount(client, np.where(completed, 0.0, values), width)
    sums["weight"] += np.bincount(client, _floats(batch["weight"]), width)


def _floats(column: pa.Array) -> Array:
    values: Array = pc.cast(pc.fill_null(column, 0), pa.float64()).to_numpy(zero_copy_only=False)
    return values
