"""The paper's experiments: what each table compares, and the figures that it prints.

An experiment is a scenario (`gifair show NAME` has its settings) on which all algorithms of a
table are tuned and run. The *budgets* are how much of it:

    smoke   two rounds of a few clients with narrow models, for tests
    small   samples per client capped, narrower models, 100 to 200 rounds, two candidates of every
            grid, tried over half the rounds; 3 seeds
    paper   everything, 5 seeds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gifair_ray.scenario import merge

Budget = Literal["smoke", "small", "paper"]
Data = Literal["embedded", "real"]
Figures = Mapping[str, Mapping[str, float]]

SEEDS: Mapping[Budget, int] = {"smoke": 1, "small": 3, "paper": 5}


@dataclass(frozen=True)
class Experiment:
    """One table of the paper."""

    scenario: str
    table: str
    """Where it stands in the paper."""
    paper: Figures
    """Its figures in percent: algorithm → row of the table → mean over its five repetitions."""
    kind: Literal["images", "text"]
    groups: tuple[str, ...] = ()
    """The groups whose accuracies it shows; none where every client is a group."""
    real: Mapping[str, Any] = field(default_factory=dict)
    """The data of the scenario, from real files instead."""
    small: Mapping[Data, Mapping[str, Any]] = field(default_factory=dict)
    """What the small budget makes of the data."""
    rounds: int = 100
    """Of the small budget."""
    exact: bool = True
    """Whether the small budget tries exact ranks: asking many for losses outweighs all training."""

    @property
    def algorithms(self) -> list[str]:
        """Those of the table."""
        return list(self.paper)


def _rows(rows: tuple[str, ...], **columns: tuple[float, ...]) -> Figures:
    names = {"q_ffl": "q-ffl", "fedmgda": "fedmgda+", "per": "gifair-per"}
    names["global_"] = "gifair-global"
    return {names.get(k, k): dict(zip(rows, v, strict=True)) for k, v in columns.items()}


_CLIENTS = ("mean", "std")
_THREE = ("capitals", "lowercase", "both")

EXPERIMENTS: Mapping[str, Experiment] = {
    "femnist-skewed": Experiment(
        "paper-femnist-skewed",
        "Table 1, FEMNIST-skewed (d = 100)",
        _rows(
            _CLIENTS,
            fedavg=(79.2, 22.3), q_ffl=(84.6, 18.5), term=(84.2, 13.8), fedmgda=(85.0, 14.9),
            ditto=(92.5, 14.3), global_=(87.9, 5.7), per=(93.0, 6.2),
        ),
        "images",
        real={"source": "pooled", "path": "emnist.arrow", "clients": 100, "classes": ["a-j"],
              "classes_per_client": 5},
        small={"embedded": {"samples": 100}, "real": {}},
        rounds=200,
    ),
    "femnist-original": Experiment(
        "paper-femnist-original",
        "Table 2, FEMNIST-original (d = 500)",
        _rows(
            _CLIENTS,
            fedavg=(80.4, 11.1), q_ffl=(80.9, 10.6), term=(81.0, 10.3), afl=(82.4, 9.85),
            ditto=(83.7, 10.1), global_=(83.2, 5.2), per=(84.1, 4.5),
        ),
        "images",
        real={"source": "table", "path": "femnist.arrow", "clients": 500, "groups": "each"},
        small={"embedded": {"samples": 50}, "real": {"at_most": 50}},
        exact=False,
    ),
    "femnist-3-groups": Experiment(
        "paper-femnist-3-groups",
        "Table 3, FEMNIST-3-groups (d = 3)",
        _rows(
            _THREE,
            fedavg=(79.72, 90.93, 80.21), q_ffl=(81.15, 88.24, 80.93),
            term=(81.29, 88.08, 81.84), fedmgda=(81.03, 89.12, 81.33),
            ditto=(82.37, 92.05, 83.03), global_=(83.41, 88.29, 84.37), per=(83.96, 91.05, 84.98),
        ),
        "images",
        groups=_THREE,
        real={"source": "pooled", "path": "emnist.arrow"},
        small={
            data: {"groups": {"capitals": {"samples": 44}, "lowercase": {"samples": 55},
                              "both": {"samples": 33}}}
            for data in ("embedded", "real")
        },
        rounds=150,
        exact=False,
    ),
    "shakespeare": Experiment(
        "paper-shakespeare",
        "Table 4, Shakespeare (d = 31)",
        _rows(
            _CLIENTS,
            fedavg=(53.21, 9.25), q_ffl=(53.90, 7.52), afl=(54.58, 8.44), ditto=(60.74, 8.32),
            global_=(57.04, 3.14), per=(61.58, 4.33),
        ),
        "text",
        real={"source": "table", "path": "roles.arrow", "clients": 31, "at_least": 2000,
              "groups": "each"},
        small={"embedded": {"samples": {"dist": "lognormal", "median": 75, "sigma": 0.6}},
               "real": {"at_most": 150}},
    ),
    "shakespeare-gender": Experiment(
        "paper-shakespeare-gender",
        "Table 5, Shakespeare by gender (d = 2)",
        _rows(
            ("male", "female"),
            fedavg=(72.95, 40.39), q_ffl=(67.14, 43.26), fedmgda=(67.07, 43.85),
            ditto=(74.19, 45.73), global_=(67.42, 52.04), per=(73.95, 54.88),
        ),
        "text",
        groups=("male", "female"),
        real={"source": "table", "path": "roles.arrow", "clients": {"MALE": 25, "FEMALE": 10},
              "at_least": 2000},
        small={
            "embedded": {"groups": {
                "male": {"samples": {"dist": "lognormal", "median": 150, "sigma": 0.5}},
                "female": {"samples": {"dist": "lognormal", "median": 75, "sigma": 0.5}}}},
            "real": {"at_most": 150},
        },
    ),
}  # fmt: skip

NARROW: Mapping[Budget, Mapping[str, Mapping[str, Any]]] = {
    "smoke": {"images": {"conv": [4, 8], "hidden": 8}, "text": {"hidden": 8}},
    "small": {"images": {"conv": [16, 32], "hidden": 128}, "text": {"hidden": 64}},
}
"""Widths of the models: a fifth and a half of the arithmetic of those in the scenarios."""


def table_for(
    experiment: Experiment, base: Mapping[str, Any], data: Data, budget: Budget
) -> dict[str, Any]:
    """The scenario's table with real data in place of the embedded, and cut to a budget."""
    table = dict(base)
    if data == "real":
        kept = ("groups",) if experiment.real["source"] == "pooled" else ()
        fractions = {
            key: base["data"][key] for key in ("val", "test", *kept) if key in base["data"]
        }
        table["data"] = fractions | dict(experiment.real)
    if budget != "paper":
        table = merge(table, {"data": experiment.small.get(data, {})})
        table = merge(table, {"model": NARROW[budget][experiment.kind]})
        rounds = experiment.rounds if budget == "small" else 2
        table["stop"] = {"rounds": rounds}
        table["evaluation"] = {"every": max(1, rounds // 4), "splits": ["val", "test"]}
        table["work"] = dict(table["work"]) | {"schedule": _schedule(experiment, table, budget)}
    if budget == "smoke":
        table = merge(table, {"data": _few(table["data"]), "sampling": {"cohort": 3}})
    return table


def _schedule(experiment: Experiment, table: Mapping[str, Any], budget: Budget) -> dict[str, Any]:
    """The paper's, whose 0.95 per round would have stopped all learning after some 60 rounds."""
    schedule = dict(table["work"]["schedule"])
    if experiment.kind == "text" and budget == "small":
        schedule["decay"] = 0.99
    return schedule


def _few(data: Mapping[str, Any]) -> dict[str, Any]:
    """A handful of clients with a handful of samples."""
    groups = data.get("groups")
    if data["source"] == "table":
        clients = data["clients"]
        few: Any = dict.fromkeys(clients, 2) if isinstance(clients, Mapping) else 4
        return {"clients": few, "at_most": 30}
    if isinstance(groups, Mapping):
        return {"groups": {name: {"clients": 2, "samples": 30} for name in groups}}
    return {"clients": 6, "samples": 30}
