"""What every client gets out of a run: its personal model's accuracy, or the global one's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.measures import Array
from gifair_ray.analysis.summary import group_names
from gifair_ray.errors import BadInput


@dataclass(frozen=True)
class Accuracies:
    """Columns over the clients that have samples in the split."""

    client: Array
    accuracy: Array
    loss: Array
    samples: Array
    group: Array
    names: dict[int, str]
    """Of the groups."""
    fallbacks: int
    """Clients without a personal model, where others have one: they use the global one."""


def accuracies(run: RunTables, split: str, personal: bool = True) -> Accuracies:
    """The last evaluation of a split; personal models where clients have them, if wanted."""
    table = run.table("evaluations")
    table = table.filter(pc.equal(table["split"], split))
    table = table.filter(pc.equal(table["evaluation"], pc.max(table["evaluation"])))
    table = table.filter(pc.greater(table["samples"], 0))
    if not len(table) or table["correct"].null_count:
        raise BadInput(f"run {run.manifest['name']!r} has no accuracies on its {split} split")
    own = table.filter(pc.equal(table["model"], "personal" if personal else ""))
    shared = table.filter(pc.equal(table["model"], "global"))
    rest = shared.filter(pc.invert(pc.is_in(shared["client"], value_set=own["client"])))
    table = pa.concat_tables([own, rest]).sort_by("client")
    n = table["samples"].to_numpy()
    clients = run.table("clients").sort_by("client")
    where = np.searchsorted(clients["client"].to_numpy(), table["client"].to_numpy())
    return Accuracies(
        client=table["client"].to_numpy(),
        accuracy=table["correct"].to_numpy() / n,
        loss=table["loss"].to_numpy(),
        samples=n,
        group=clients["group"].to_numpy()[where],
        names=group_names(run),
        fallbacks=len(rest) if len(own) else 0,
    )
