"""A run that is small enough for every figure to be worked out by hand."""

from __future__ import annotations

import pyarrow as pa

from gifair_ray.analysis import RunTables
from gifair_ray.tables import TABLES

HOUR = 3600.0


def table(name, rows):
    return pa.Table.from_pylist([dict.fromkeys(TABLES[name].names) | r for r in rows], TABLES[name])


def dispatch(number, round_, client, outcome, times, up, **result):
    send, start, end, arrival, notice = times
    return {
        "dispatch": number,
        "round": round_,
        "client": client,
        "version": round_ - 1,
        "slots": 1,
        "send_s": send,
        "start_s": start,
        "end_s": end,
        "arrival_s": arrival,
        "notice_s": notice,
        "outcome": outcome,
        "steps": 3,
        "bytes_down": 1_000_000,
        "bytes_up": up,
        "tilt": 0.0,
        **result,
    }


# Clients 0 and 1 are group a with a quarter of the data each, client 2 is group b.
CLIENTS = [
    {"client": 0, "name": "x", "group": 0, "group_name": "a", "p": 0.25},
    {"client": 1, "name": "y", "group": 0, "group_name": "a", "p": 0.25},
    {"client": 2, "name": "z", "group": 1, "group_name": "b", "p": 0.5},
]
MB = 1_000_000
DISPATCHES = [
    dispatch(0, 1, 0, "completed", (0, 1, 3, 4, 4), MB, weight=0.5, staleness=0),
    dispatch(1, 1, 2, "dropped", (0, 1, 2, None, 5), 0),
    dispatch(2, 2, 1, "completed", (5, 6, 10, 11, 11), MB, weight=0.5, staleness=2, tilt=0.2),
    dispatch(3, 2, 2, "completed", (5, 6, 7, 9, 9), MB, weight=1.5, staleness=0, tilt=-0.4),
    dispatch(4, 2, 0, "late", (5, 6, 12, None, 11), 0),
    dispatch(5, 2, 2, "too-stale", (9, 10, 13, 14, 14), MB),
]
COUNTED = {  # of clients 0, 1, 2, as the engine would count them
    "selected": (2, 1, 3),
    "completed": (1, 1, 1),
    "offline": (0, 0, 0),
    "dropped": (0, 0, 1),
    "late": (1, 0, 0),
    "surplus": (0, 0, 0),
    "too_stale": (0, 0, 1),
    "unfinished": (0, 0, 0),
    "busy_s": (8.0, 4.0, 5.0),
    "wasted_s": (6.0, 0.0, 4.0),
    "bytes": (3 * MB, 2 * MB, 5 * MB),
    "wasted_bytes": (MB, 0, 3 * MB),
    "weight": (0.5, 0.5, 1.5),
}
ROUNDS = [
    {"round": 1, "time_s": 5.0, "bytes_down": 2 * MB, "bytes_up": MB, "lam": 0.1, "lam_max": 0.2,
     "delta": 0.0},
    {"round": 2, "time_s": HOUR, "bytes_down": 6 * MB, "bytes_up": 4 * MB, "lam": 0.1,
     "lam_max": 0.2, "delta": 0.6},
]  # fmt: skip
RANKS = [
    {"version": 0, "time_s": 0.0, "group": 0, "L_used": None, "L_exact": 3.0, "r_used": 0,
     "r_exact": 1},
    {"version": 0, "time_s": 0.0, "group": 1, "L_used": None, "L_exact": 2.0, "r_used": 0,
     "r_exact": -1},
    {"version": 1, "time_s": 5.0, "group": 0, "L_used": 1.0, "L_exact": 2.0, "r_used": -1,
     "r_exact": 1, "age_mean": 1.0},
    {"version": 1, "time_s": 5.0, "group": 1, "L_used": 2.0, "L_exact": 1.0, "r_used": 1,
     "r_exact": -1, "age_mean": 3.0},
    {"version": 2, "time_s": HOUR, "group": 0, "L_exact": 2.0, "r_exact": 1},
    {"version": 2, "time_s": HOUR, "group": 1, "L_exact": 1.0, "r_exact": -1},
]  # fmt: skip


def evaluations(courses):
    """`courses`: for each evaluation the numbers of correct answers, of 10, of clients 0, 1, 2."""
    rows = []
    for number, correct in enumerate(courses):
        for client, right in enumerate(correct):
            rows.append(
                {
                    "evaluation": number,
                    "version": number,
                    "time_s": (0.0, 5.0, HOUR)[number],
                    "client": client,
                    "split": "test",
                    "model": "global",
                    "loss": 2.0 - right / 10,
                    "samples": 10,
                    "correct": right,
                    "selected_ever": True,
                }
            )
    return rows


def groups(rows):
    out = []
    for number in sorted({row["evaluation"] for row in rows}):
        mine = {row["client"]: row for row in rows if row["evaluation"] == number}
        for group, members in ((0, (0, 1)), (1, (2,))):
            moment = {k: mine[0][k] for k in ("evaluation", "version", "time_s", "split", "model")}
            accuracy = sum(mine[k]["correct"] / 10 for k in members) / len(members)
            loss = sum(mine[k]["loss"] for k in members) / len(members)
            out.append(moment | {"group": group, "accuracy": accuracy, "loss": loss,
                                 "clients": len(members)})  # fmt: skip
    return out


COURSE = ((0, 0, 0), (8, 6, 1), (9, 7, 5))


def small_run(label="GIFAIR", seed=0, courses=COURSE, counted=True, plain=False, **manifest):
    """The run; `counted`: with its table `participation`; `plain`: without a λ, as FedAvg."""
    evaluated = evaluations(courses)
    last = [
        {"version": 2, "time_s": HOUR, "client": k} | {n: v[k] for n, v in COUNTED.items()}
        for k in range(3)
    ]
    early = [row | dict.fromkeys(COUNTED, 0) | {"version": 1, "time_s": 5.0} for row in last]
    rounds = [row | ({"lam": None, "lam_max": None} if plain else {}) for row in ROUNDS]
    tables = {
        "clients": CLIENTS,
        "dispatches": DISPATCHES,
        "rounds": rounds,
        "ranks": [] if plain else RANKS,
        "evaluations": evaluated,
        "groups": groups(evaluated),
        "participation": early + last if counted else [],
    }
    about = {"label": label, "name": "by-hand", "seed": seed, **manifest}
    return RunTables.of({name: table(name, rows) for name, rows in tables.items()}, about)
