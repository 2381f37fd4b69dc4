"""What GIFAIR's re-weighting was in a run: how strong, how often wrong, what it had left to do.

It acts by m_k, a factor of a client's learning rate. λ < λ_max caps it at

    |m_k − 1| ≤ f · min_j(p_j |A_j|) / (p_k |A_k|),  f = λ/λ_max,

which only the client with the smallest p |A| reaches. And where local training nearly converges, a
model does not depend on the rate by which it got there: the effect of m_k saturates.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow.compute as pc

from gifair_ray.analysis.course import lambda_fraction, rank_quality
from gifair_ray.analysis.load import RunTables

NAMES = ("cap", "sent", "wrong signs", "loss left")


def reweighting(run: RunTables) -> dict[str, float]:
    """In percent; nan where a run has no ranks, or no audit of them.

    `cap`: the largest |m_k − 1| that λ allows, of the median client. `sent`: the mean |m_k − 1| of
    all work. `wrong signs`: pairs of groups in the wrong order, mean of audits. `loss left`: the
    training loss of a local model as a share of that at the model received, in the second half of
    the rounds; of audited rounds, and only where clients report their loss after training.
    """
    rounds = run.table("rounds")
    if not len(rounds) or rounds["lam"].null_count:
        return dict.fromkeys(NAMES, math.nan)
    wrong = rank_quality(run)["wrong_signs"].drop_null()
    work = run.table("dispatches")
    tilts = np.abs(work["tilt"].to_numpy())
    found = {
        "cap": _cap(run),
        "sent": float(tilts.mean()) if len(tilts) else math.nan,
        "wrong signs": float(pc.mean(wrong).as_py()) if len(wrong) else math.nan,
        "loss left": _left(run),
    }
    return {name: 100 * found[name] for name in NAMES}


def _cap(run: RunTables) -> float:
    clients = run.table("clients")
    group = clients["group"].to_numpy()
    sizes = clients["p"].to_numpy() * np.bincount(group)[group]
    return lambda_fraction(run) * float(np.median(sizes.min() / sizes))


def _left(run: RunTables) -> float:
    """Σ F_k(θ_k) / Σ L_i(θ) over the work of audited rounds, i being the client's group."""
    work, ranks = run.table("dispatches"), run.table("ranks")
    work = work.filter(pc.is_valid(work["loss_local"]))
    if not len(work) or not len(ranks):
        return math.nan
    late = pc.greater(pc.multiply(ranks["version"], 2), pc.max(ranks["version"]))
    ranks = ranks.filter(late)
    exact = {
        (version, group): loss
        for version, group, loss in zip(
            *(ranks[name].to_pylist() for name in ("version", "group", "L_exact")), strict=True
        )
    }
    clients = run.table("clients").sort_by("client")
    groups = clients["group"].to_numpy()
    before = after = 0.0
    for version, client, loss in zip(
        *(work[name].to_pylist() for name in ("version", "client", "loss_local")), strict=True
    ):
        if (key := (version, int(groups[client]))) in exact:
            before, after = before + exact[key], after + loss
    return after / before if before else math.nan
