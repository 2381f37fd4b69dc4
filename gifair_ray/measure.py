"""Measurements: what the simulator looks at, free of virtual charge, and what it records.

An evaluation takes the losses and accuracies of all clients. An audit sets the exact ranks and
δ beside the ranks that the server uses. Neither touches the simulated world.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from gifair_ray import objective
from gifair_ray.clock import Event
from gifair_ray.commands import Command, Commands, Nullable, Record, Submit
from gifair_ray.federation import Split
from gifair_ray.protocol import EvaluateJob
from gifair_ray.replies import Results
from gifair_ray.world import State, World

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

KINDS = ("evaluated", "audited")
FIRST = -1  # priority: what is measured at a moment is recorded before anything else happens
CLIENT_ROWS = 1 << 16  # rows of a record of the clients table
PERSONAL_BYTES = 256 << 20  # personal models that are sent out for evaluation at a time


def _audits(world: World) -> bool:
    """Whether there are ranks to audit, and anybody wants it."""
    return world.rule.lam is not None and world.scenario.audit.every != 0


def audit_if_due(world: World, state: State) -> Commands:
    """At the moment of a dispatch: compare the ranks in use with those at the current model."""
    if not _audits(world) or state.version == state.audited_version or not _due(world, state):
        return []
    state.audited_version = state.version
    return _audit(world, state, in_use=True)


def _due(world: World, state: State) -> bool:
    """'auto' keeps the arithmetic of audits near a tenth of the training's.

    Where every server update is a cohort's work, that is a number of rounds. Elsewhere it depends
    on who comes back how often, and the work that was done is counted.
    """
    every, enough = world.scenario.audit.every, 10 * world.evaluation_work
    if every != "auto":
        return state.version % every == 0
    if world.scenario.policy.cohorts:
        return state.version % math.ceil(enough / world.cohort_work) == 0
    if state.trained < state.next_audit:
        return False
    state.next_audit = enough * (math.floor(state.trained / enough) + 1)
    return True


def _audit(world: World, state: State, in_use: bool) -> Commands:
    job = EvaluateJob(state.job_id(), np.arange(world.K), "train", state.version)
    L_used = state.losses.group_losses()
    ages = state.losses.ages(state.version)
    a_member = np.unique(world.population.groups, return_index=True)[1]
    r_used = world.rule.tilts(state.losses, a_member)[1] if in_use else None
    payload = (state.version, state.now, L_used, r_used, ages)
    state.clock.at(state.now, Event("audited", (job.id,), payload), FIRST)
    return [Submit([job])]


def audited(world: World, state: State, event: Event, results: Results) -> Commands:
    """The exact losses are in: H, δ, and the ranks side by side."""
    version, time, L_used, r_used, ages = event.payload
    groups, d, lam = world.population.groups, world.population.d, world.rule.lam or 0.0
    exact: Floats = results[event.needs[0]].loss
    L = objective.group_losses(exact, groups, d)
    if r_used is not None and version == state.version:
        H = objective.penalised_objective(exact, world.p, groups, d, lam)
        state.audited = H, objective.rank_error(exact, r_used, groups, d, lam)
    age_mean, age_max = _by_group(ages, groups, d)
    columns = {
        "version": np.full(d, version),
        "time_s": np.full(d, time),
        "group": np.arange(d),
        "L_used": Nullable(L_used),
        "L_exact": L,
        "r_used": r_used,
        "r_exact": objective.group_ranks(L),
        "age_mean": Nullable(age_mean),
        "age_max": Nullable(age_max),
    }
    return [Record("ranks", columns), _participation(world, state)]


def _by_group(values: Floats, groups: Ints, d: int) -> tuple[Floats, Floats]:
    """(mean, largest) of each group's known values; NaN where there are none."""
    known = ~np.isnan(values)
    counts = np.bincount(groups[known], minlength=d)
    sums = np.bincount(groups[known], weights=values[known], minlength=d)
    largest = np.full(d, -np.inf)
    np.maximum.at(largest, groups[known], values[known])
    some = counts > 0
    return np.where(some, sums / np.maximum(counts, 1), np.nan), np.where(some, largest, np.nan)


def evaluate_if_due(world: World, state: State) -> Commands:
    """Between rounds: evaluate, if so much has happened since the last time."""
    evaluation = world.scenario.evaluation
    done = state.count(evaluation.unit)
    if not evaluation.every or done < state.next_evaluation or state.should_stop(world):
        return []
    state.next_evaluation = evaluation.every * (math.floor(done / evaluation.every) + 1)
    return evaluate(world, state)


def evaluate(world: World, state: State) -> Commands:
    """Evaluate the global model on all clients, and the personal models on their own."""
    number = state.evaluations
    state.evaluations += 1
    commands: list[Command] = []
    owners = np.array(sorted(state.personal), dtype=np.int64)
    at_once = max(1, PERSONAL_BYTES // max(1, world.model_bytes))
    for split in world.scenario.evaluation.splits:
        jobs = [EvaluateJob(state.job_id(), np.arange(world.K), split, state.version)]
        for at in range(0, len(owners), at_once):
            some = owners[at : at + at_once]
            models = np.stack([state.personal[k] for k in some.tolist()])
            jobs.append(EvaluateJob(state.job_id(), some, split, state.version, models))
        payload = (number, state.version, state.now, split, owners)
        needs = tuple(job.id for job in jobs)
        state.clock.at(state.now, Event("evaluated", needs, payload), FIRST)
        commands.append(Submit(jobs))
    return commands


def evaluated(world: World, state: State, event: Event, results: Results) -> Commands:
    """An evaluation is in: a row per client and per group, for each kind of model."""
    number, version, time, split, owners = event.payload
    parts = [results[need] for need in event.needs]
    moment = (number, version, time)
    shared = (np.arange(world.K), parts[0].loss, parts[0].correct)
    commands = _evaluation_rows(world, state, moment, split, "global", *shared)
    if len(parts) > 1:
        loss = np.concatenate([part.loss for part in parts[1:]])
        correct = np.concatenate([part.correct for part in parts[1:]])
        commands += _evaluation_rows(world, state, moment, split, "personal", owners, loss, correct)
    return commands


def _evaluation_rows(
    world: World, state: State, moment: tuple[int, int, float], split: Split, model: str,
    clients: Ints, loss: Floats, correct: Ints,
) -> Commands:  # fmt: skip
    samples = world.population.sizes(split)[clients]
    if not samples.any() and world.scenario.model.kind != "quadratic":
        return []
    n = len(clients)
    number, version, time = moment
    graded = correct >= 0
    common = {"split": [split] * n, "model": [model] * n}
    rows = {
        "evaluation": np.full(n, number),
        "version": np.full(n, version),
        "time_s": np.full(n, time),
        "client": clients,
        **common,
        "loss": Nullable(loss),
        "samples": samples,
        "correct": Nullable(np.where(graded, correct, np.nan)),
        "selected_ever": state.participation.counts["completed"][clients] > 0,
    }
    accuracy = np.where(graded & (samples > 0), correct / np.maximum(samples, 1), np.nan)
    return [
        Record("evaluations", rows),
        _group_rows(world, moment, split, model, clients, loss, accuracy),
    ]


def _group_rows(
    world: World, moment: tuple[int, int, float], split: Split, model: str,
    clients: Ints, loss: Floats, accuracy: Floats,
) -> Record:  # fmt: skip
    groups, d = world.population.groups[clients], world.population.d
    number, version, time = moment
    by_group = objective.group_losses(accuracy, groups, d)  # a mean over the known members
    known = by_group[~np.isnan(by_group)]
    return Record(
        "groups",
        {
            "evaluation": np.full(d, number),
            "version": np.full(d, version),
            "time_s": np.full(d, time),
            "split": [split] * d,
            "model": [model] * d,
            "group": np.arange(d),
            "clients": np.bincount(groups[~np.isnan(loss)], minlength=d),
            "loss": Nullable(objective.group_losses(loss, groups, d)),
            "accuracy": Nullable(by_group),
            "variance": Nullable(np.full(d, known.var() if len(known) else np.nan)),
            "discrepancy": Nullable(np.full(d, np.ptp(known) if len(known) else np.nan)),
        },
    )


def _participation(world: World, state: State) -> Record:
    part, K = state.participation, world.K
    columns = {
        "version": np.full(K, state.version),
        "time_s": np.full(K, state.now),
        "client": np.arange(K),
        **{name.replace("-", "_"): count.copy() for name, count in part.counts.items()},
        "busy_s": part.busy_s.copy(),
        "wasted_s": part.wasted_s.copy(),
        "bytes": part.bytes.copy(),
        "wasted_bytes": part.wasted_bytes.copy(),
        "weight": part.weight.copy(),
    }
    return Record("participation", columns)


def finish(world: World, state: State) -> Commands:
    """The run is over: a last evaluation and audit, and who took part."""
    commands = evaluate(world, state)
    if _audits(world):
        return commands + _audit(world, state, in_use=False)
    return [*commands, _participation(world, state)]


def clients_table(world: World) -> Iterator[Record]:
    """Who the clients are, some at a time: a million names at once would take much memory."""
    population, fleet = world.population, world.fleet
    names = population.group_names
    for at in range(0, world.K, CLIENT_ROWS):
        some = slice(at, min(world.K, at + CLIENT_ROWS))
        columns = {
            "client": np.arange(some.start, some.stop),
            "name": [population.name(i) for i in range(some.start, some.stop)],
            "group": population.groups[some],
            "group_name": [names[g] for g in population.groups[some].tolist()],
            "train_samples": population.train[some],
            "val_samples": population.val[some],
            "test_samples": population.test[some],
            "p": world.p[some],
            "sample_s": fleet.sample_s[some],
            "up_mbps": fleet.up_mbps[some],
            "down_mbps": fleet.down_mbps[some],
            "latency_s": fleet.latency_s[some],
            "dropout": fleet.dropout[some],
        }
        yield Record("clients", columns)
