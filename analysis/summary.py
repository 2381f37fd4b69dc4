"""One run in figures: its last evaluation, for the global and for the personal models."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis import measures
from gifair_ray.analysis.load import RunTables
from gifair_ray.errors import BadInput

SPLITS = ("train", "val", "test")
MODELS = ("global", "personal")


@dataclass(frozen=True)
class Group:
    """One group at the evaluation; accuracy is nan where the task has none."""

    number: int
    name: str
    clients: int
    accuracy: float
    loss: float


@dataclass(frozen=True)
class Row:
    """The figures of one model; definitions in `measures`, nan where one does not apply."""

    model: str  # global | personal
    rounds: int  # server updates up to the evaluation
    virtual_hours: float  # virtual time of the evaluation
    clients: int  # clients that the figures cover
    never_selected: int  # left out: personal models of clients that never took part
    without_samples: int  # left out: clients with no samples in the split
    mean_accuracy: float
    weighted_accuracy: float
    std_clients: float
    std_clients_corrected: float
    std_noise: float  # root of the noise floor
    variance_clients: float
    variance_clients_corrected: float
    std_weighted: float  # by samples
    std_weighted_corrected: float
    variance_weighted: float
    variance_weighted_corrected: float
    deciles: tuple[float, ...]  # nine
    jain: float
    gini: float
    variance_groups: float
    worst_tenth: float
    best_tenth: float
    worst_group: float
    discrepancy: float
    mean_loss: float
    loss_spread: float
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Summary:
    """A run's identity and its rows: global, then personal where there are such models.

    A run that has not evaluated the split yet has no rows.
    """

    name: str
    label: str
    algorithm: str
    seed: int
    status: str
    split: str
    rows: tuple[Row, ...]


def default_split(runs: Iterable[RunTables]) -> str:
    """The split to look at: test, if any run has results of it, else train."""
    for run in runs:
        table = run.table("evaluations").select(["split", "samples"])
        measured = pc.and_(pc.equal(table["split"], "test"), pc.greater(table["samples"], 0))
        if pc.any(measured).as_py():
            return "test"
    return "train"


def summarise(run: RunTables, split: str = "test") -> Summary:
    """The figures at the last evaluation of the split. Clients count the same unless said so.

    A personal model exists once its client took part, so clients that never did are left out of
    the personal row, and counted in it.
    """
    if split not in SPLITS:
        raise BadInput(f"there is no split {split!r}: it is one of {', '.join(SPLITS)}")
    table = run.table("evaluations")
    table = table.filter(pc.equal(table["split"], split))
    rows = []
    for model in MODELS:
        part = table.filter(pc.equal(table["model"], model))
        if len(part):
            last = part.filter(pc.equal(part["evaluation"], pc.max(part["evaluation"])))
            rows.append(_row(model, last, run))
    told = run.manifest
    return Summary(
        name=told["name"],
        label=told["label"],
        algorithm=told["algorithm"],
        seed=told["seed"],
        status=told["status"],
        split=split,
        rows=tuple(rows),
    )


def client_results(run: RunTables, split: str, model: str) -> tuple[measures.Array, measures.Array]:
    """The clients' accuracies (nan where the task has none) and losses at the last evaluation."""
    table = run.table("evaluations")
    wanted = pc.and_(pc.equal(table["split"], split), pc.equal(table["model"], model))
    table = table.filter(pc.and_(wanted, pc.greater(table["samples"], 0)))
    if model == "personal":
        table = table.filter(table["selected_ever"])
    last = table.filter(pc.equal(table["evaluation"], pc.max(table["evaluation"])))
    correct = pc.fill_null(pc.cast(last["correct"], pa.float64()), math.nan).to_numpy()
    return correct / last["samples"].to_numpy(), pc.fill_null(last["loss"], math.nan).to_numpy()


def _row(model: str, rows: pa.Table, run: RunTables) -> Row:
    version, time_s = rows["version"][0].as_py(), rows["time_s"][0].as_py()
    never_selected = 0
    if model == "personal":
        selected = rows.filter(rows["selected_ever"])
        never_selected = len(rows) - len(selected)
        rows = selected
    measured = rows.filter(pc.greater(rows["samples"], 0))
    n = measured["samples"].to_numpy()
    correct = pc.cast(measured["correct"], pa.float64()).to_numpy()  # null, for regression: nan
    loss = measured["loss"].to_numpy()
    groups, names = _groups(measured["client"].to_numpy(), run)
    a = correct / n
    number, members = np.unique(groups, return_counts=True)
    by_group = zip(
        number,
        members,
        measures.group_means(a, groups),
        measures.group_means(loss, groups),
        strict=True,
    )
    return Row(
        model=model,
        rounds=version,
        virtual_hours=time_s / 3600,
        clients=len(measured),
        never_selected=never_selected,
        without_samples=len(rows) - len(measured),
        mean_accuracy=measures.mean_accuracy(a),
        weighted_accuracy=measures.weighted_accuracy(a, n),
        std_clients=measures.deviation(a),
        std_clients_corrected=measures.corrected_deviation(a, n),
        std_noise=math.sqrt(measures.noise_floor(a, n)),
        variance_clients=measures.variance(a),
        variance_clients_corrected=measures.corrected_variance(a, n),
        std_weighted=math.sqrt(measures.weighted_variance(a, n)),
        std_weighted_corrected=math.sqrt(measures.corrected_variance(a, n, weighted=True)),
        variance_weighted=measures.weighted_variance(a, n),
        variance_weighted_corrected=measures.corrected_variance(a, n, weighted=True),
        deciles=tuple(measures.deciles(a).tolist()),
        jain=measures.jain(a),
        gini=measures.gini(a),
        variance_groups=measures.group_variance(a, groups),
        worst_tenth=measures.worst_tenth(a),
        best_tenth=measures.best_tenth(a),
        worst_group=measures.worst_group(a, groups),
        discrepancy=measures.discrepancy(a, groups),
        mean_loss=measures.mean_loss(loss),
        loss_spread=measures.loss_spread(loss, groups),
        groups=tuple(
            Group(int(i), names[int(i)], int(size), float(accuracy), float(L))
            for i, size, accuracy, L in by_group
        ),
    )


def _groups(clients: measures.Array, run: RunTables) -> tuple[measures.Array, dict[int, str]]:
    """The group of each of these clients, and the names of all groups."""
    table = run.table("clients")
    known = table["client"].to_numpy()
    order = np.argsort(known)
    at = np.searchsorted(known, clients, sorter=order)
    inside = at < len(known)
    if not inside.all() or (known[order[at]] != clients).any():
        raise BadInput(
            f"run {run.manifest['name']!r} evaluated clients that its table `clients` does not "
            "list: the table is incomplete; restore it, or run again"
        )
    return table["group"].to_numpy()[order[at]], group_names(run)


def group_names(run: RunTables) -> dict[int, str]:
    """Names of the groups by number."""
    table = run.table("clients").group_by(["group", "group_name"]).aggregate([])
    pairs = zip(table["group"].to_pylist(), table["group_name"].to_pylist(), strict=True)
    return {number: name or f"group {number}" for number, name in pairs}
