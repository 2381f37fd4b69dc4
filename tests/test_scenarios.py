"""Scenarios: the files that come along, studies, and what changes do to them."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray.algorithms import ALGORITHMS
from gifair_ray.errors import BadInput
from gifair_ray.scenario import Scenario, merge, parse
from gifair_ray.scenarios.change import REMOVE, parse_set
from gifair_ray.scenarios.load import Study, load, names, summary, text
from gifair_ray.scenarios.show import dump

BASE = {
    "data": {"source": "quadratic"},
    "model": {"kind": "quadratic"},
    "work": {"steps": 2, "schedule": {"kind": "geometric", "lr": 0.3}},
}
SHRUNK = ["stop.rounds=2", "study.seeds=1", "evaluation.every=0"]


def one(study: Study) -> Scenario:
    ((_, scenario),) = study.runs
    return scenario


# The files that come along


@pytest.mark.parametrize("name", names())
class TestShipped:
    def test_it_asks_a_question(self, name):
        question = summary(name)
        assert question.endswith("?")
        assert text(name).startswith(f"# {question}\n")

    def test_it_says_its_schema_and_nothing_twice(self, name):
        assert tomllib.loads(text(name))["schema"] == 1

    def test_it_runs(self, name, tmp_path):
        runs = gifair_ray.run_study(name, sets=SHRUNK, backend="local", out=tmp_path / "out")
        assert {run.label for run in runs} == {label for label, _ in load(name).runs}
        for run in runs:
            assert run.table("rounds")["round"].to_pylist() == [1, 2]
            assert len(run.table("evaluations"))
            assert load(run.folder / "scenario.toml").runs[0][1] == run.scenario

    def test_what_show_prints_is_the_same_study(self, name, tmp_path):
        (tmp_path / "again.toml").write_text(dump(load(name)), encoding="utf-8")
        assert load(tmp_path / "again.toml") == load(name)


def test_the_quickstart_compares_fedavg_with_gifair():
    study = load("quickstart")
    assert [label for label, _ in study.runs[::5]] == ["FedAvg", "GIFAIR 0.6", "GIFAIR 0.9"]
    assert [s.seed for _, s in study.runs] == [0, 1, 2, 3, 4] * 3
    assert [s.algorithm for _, s in study.runs[::5]] == ["fedavg", *["gifair-global"] * 2]
    assert {s.name for _, s in study.runs} == {study.name} == {"quickstart"}


# A scenario as a value


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_is_its_parts(algorithm):
    options = {"weighting": {"lambda_fraction": 0.5}} if "gifair" in algorithm else {}
    scenario = one(load(merge(BASE, {"algorithm": algorithm}) | options))
    for part, chosen in ALGORITHMS[algorithm].items():
        assert {key: getattr(scenario, part).model_dump()[key] for key in chosen} == chosen
    assert parse(scenario.table()) == scenario


def test_a_scenario_cannot_be_changed_and_its_name_is_no_part_of_its_digest():
    scenario = parse(BASE)
    with pytest.raises(ValueError, match="frozen"):
        scenario.seed = 3
    assert parse(BASE | {"name": "other"}).digest() == scenario.digest()
    assert parse(BASE | {"seed": 1}).digest() != scenario.digest()
    assert parse(merge(BASE, {"work": {"steps": 3}})).digest() != scenario.digest()


@pytest.mark.parametrize(
    ("stop", "rounds"), [({}, 100), ({"rounds": 7}, 7), ({"virtual_s": 60.0}, None)]
)
def test_a_hundred_rounds_are_the_limit_only_where_there_is_no_other(stop, rounds):
    scenario = parse(BASE | {"stop": stop})
    assert scenario.stop.rounds == rounds
    assert parse(scenario.table()) == scenario
    assert parse(tomllib.loads(dump(Study("x", (("fedavg", scenario),))))) == scenario


def test_parts_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "parts_of_mine.py").write_text(
        "from pydantic import Field\n"
        "from gifair_ray.aggregators.mean import Mean\n"
        "class Half(Mean):\n"
        "    kind: str = 'half'\n"
        "    share: float = Field(0.5, description='of the step')\n"
        "    def combine(self, theta, models, bases, weights, decay):\n"
        "        whole = super().combine(theta, models, bases, weights, decay)\n"
        "        return theta + self.share * (whole - theta)\n"
    )
    own = {"aggregator": {"kind": "parts_of_mine:Half", "share": 0.25}, "stop": {"rounds": 1}}
    mine = gifair_ray.run(BASE | own, backend="local")
    plain = gifair_ray.run(BASE | {"stop": {"rounds": 1}}, backend="local")
    assert mine.model()["theta"] == pytest.approx(0.25 * plain.model()["theta"])
    (tmp_path / "again.toml").write_text(dump(load(BASE | own)))
    assert one(load("again.toml")) == mine.scenario
    with pytest.raises(BadInput, match=r"aggregator\.shar: did you mean 'share'"):
        load(BASE | {"aggregator": {"kind": "parts_of_mine:Half", "shar": 1}})


# Merging


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"x": 1}}, {"a": 2}, {"a": 2}),
        ({"a": 2}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        # the same kind keeps its options, another takes none of them
        (
            {"model": {"kind": "cnn", "hidden": 3}},
            {"model": {"kind": "cnn", "conv": [1, 2]}},
            {"model": {"kind": "cnn", "hidden": 3, "conv": [1, 2]}},
        ),
        (
            {"model": {"kind": "cnn", "hidden": 3}},
            {"model": {"kind": "lstm"}},
            {"model": {"kind": "lstm"}},
        ),
        (
            {"data": {"source": "table", "path": "x"}},
            {"data": {"source": "synthetic"}},
            {"data": {"source": "synthetic"}},
        ),
        (
            {"devices": {"jitter": {"dist": "uniform", "low": 0, "high": 1}}},
            {"devices": {"jitter": {"dist": "lognormal", "median": 1, "sigma": 1}}},
            {"devices": {"jitter": {"dist": "lognormal", "median": 1, "sigma": 1}}},
        ),
        # a schedule is no part: all its kinds have the same options
        (
            {"work": {"schedule": {"kind": "geometric", "lr": 0.3}}},
            {"work": {"schedule": {"kind": "constant"}}},
            {"work": {"schedule": {"kind": "constant", "lr": 0.3}}},
        ),
    ],
)
def test_merging(base, over, merged):
    assert merge(base, over) == merged


tables = st.recursive(
    st.integers(),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
roots = st.dictionaries(st.sampled_from("abc"), tables, max_size=3)


@examples(100)
@given(roots, roots)
def test_merging_again_changes_nothing_and_merges_leave_their_input_alone(base, over):
    before = repr((base, over))
    merged = merge(base, over)
    assert merge(merged, over) == merged
    assert merge(base, {}) == base
    assert merge({}, over) == over
    assert repr((base, over)) == before


# --set


@pytest.mark.parametrize(
    ("change", "keys", "value"),
    [
        ("a=1", ("a",), 1),
        ("a.b=1.5", ("a", "b"), 1.5),
        (" a . b = true ", ("a", "b"), True),
        ("a=x y", ("a",), "x y"),
        ("a='1'", ("a",), "1"),
        ("a=gifair-global", ("a",), "gifair-global"),
        ("a=b=c", ("a",), "b=c"),
        ("a=inf", ("a",), float("inf")),
        ("a={b = 1}", ("a",), {"b": 1}),
        ("a=[1, 2]", ("a",), [1, 2]),
        ("a=", ("a",), REMOVE),
        ('a=""', ("a",), ""),
        ('a."b.c".d=1', ("a", "b.c", "d"), 1),
        ("a.'λ = 0.6'.d=1", ("a", "λ = 0.6", "d"), 1),
        ("größe.λ=1", ("größe", "λ"), 1),
        ("a-b.c_d.3=1", ("a-b", "c_d", "3"), 1),
        ("a=C:\\data.csv", ("a",), "C:\\data.csv"),
        ("a=1 # a comment", ("a",), 1),
    ],
)
def test_what_a_change_means(change, keys, value):
    assert parse_set(change) == (keys, value)


def test_changes_reach_where_they_point():
    sets = ["work.steps=9", "devices.groups.0.dropout=0.5", "name=x", "policy.timeout_s=inf"]
    scenario = one(load(BASE, sets))
    assert scenario.work.steps == 9
    assert scenario.devices.groups["0"].dropout.value == 0.5
    assert scenario.name == "x"
    assert BASE["work"]["steps"] == 2  # ours is as it was


def test_a_key_can_be_taken_away():
    assert one(load(BASE, ["work.steps=", "work.epochs=3"])).work.epochs == 3
    assert one(load(BASE, ["work.schedule.lr="])).work.schedule.lr == 0.1
    assert len(load("quickstart", ["study.variants.FedAvg="]).runs) == 10
    assert one(load("quickstart", ["study="])).algorithm == "fedavg"


def test_the_last_word_counts_and_the_seed_is_the_very_last():
    assert one(load(BASE, ["seed=1", "seed=2"])).seed == 2
    assert one(load(BASE, ["seed=1"], seed=3)).seed == 3


def test_another_algorithm_takes_nothing_of_the_old_parts():
    base = BASE | {
        "algorithm": "gifair-per",
        "weighting": {"lambda_fraction": 0.5, "ranks": "exact"},
        "aggregator": {"kind": "paper-literal"},
        "policy": {"timeout_s": 9.0},
    }
    scenario = one(load(base, ["algorithm=fedprox"]))
    assert scenario.weighting.kind == "plain"
    assert (scenario.solver.kind, scenario.solver.keep) == ("proximal", False)
    assert scenario.aggregator.kind == "mean"
    assert scenario.policy.timeout_s == 9.0  # which is no part of an algorithm
    same = one(load(base, ["algorithm=gifair-per"]))
    assert same.weighting.ranks == "exact"


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_changes_does_not_matter(turned):
    sets = ["algorithm=gifair-global", "weighting.lambda_fraction=0.25"]
    scenario = one(load(BASE, sets[::-1] if turned else sets))
    assert scenario.weighting.lambda_fraction == 0.25


def test_naming_the_kind_that_an_algorithm_has_anyway_keeps_its_options():
    base = BASE | {"algorithm": "gifair-global", "weighting": {"lambda_fraction": 0.5}}
    assert one(load(base, ["weighting.kind=gifair"])).weighting.lambda_fraction == 0.5
    assert one(load(base, ["weighting.kind=plain"])).weighting.kind == "plain"


# Studies

STUDY = BASE | {
    "seed": 4,
    "study": {
        "seeds": 3,
        "variants": {
            "plain": {},
            "fair": {"algorithm": "gifair-global", "weighting": {"lambda_fraction": 0.5}},
            "short": {"work": {"steps": 1}, "name": "quick"},
        },
    },
}


def test_a_study_is_every_variant_with_every_seed():
    study = load(STUDY)
    assert [(label, s.seed) for label, s in study.runs] == [
        (label, seed) for label in ("plain", "fair", "short") for seed in (4, 5, 6)
    ]
    by_label = dict(study.runs)
    assert by_label["plain"].weighting.kind == "plain"
    assert by_label["fair"].weighting.lambda_fraction == 0.5
    assert [by_label[label].work.steps for label in by_label] == [2, 2, 1]
    assert [s.seed for _, s in load(STUDY, seed=9).runs[:3]] == [9, 10, 11]
    first, second, _ = (s for label, s in study.runs if label == "fair")
    assert first.model_copy(update={"seed": 5}) == second


def test_a_plain_scenario_is_a_study_of_one():
    assert load(BASE).runs == (("fedavg", parse(BASE)),)
    seeds = load(BASE | {"study": {"seeds": 2}}).runs
    assert [(label, s.seed) for label, s in seeds] == [("fedavg", 0), ("fedavg", 1)]


def test_a_change_reaches_all_variants_but_not_what_makes_them_one():
    by_label = dict(load(STUDY, ["work.steps=7", "aggregator.kind=paper-literal"]).runs)
    assert [by_label[label].work.steps for label in by_label] == [7, 7, 1]
    assert {s.aggregator.kind for s in by_label.values()} == {"paper-literal"}
    by_label = dict(load(STUDY, ["study.variants.fair.weighting.lambda_fraction=0.1"]).runs)
    assert by_label["fair"].weighting.lambda_fraction == 0.1
    assert "new" in dict(load(STUDY, ["study.variants.new.work.steps=3"]).runs)


def test_a_change_that_only_some_variants_can_take_is_refused_by_name():
    with pytest.raises(BadInput, match=r"variant 'plain': unknown key weighting\.ranks"):
        load(STUDY, ["weighting.ranks=exact"])


@pytest.mark.parametrize(
    "table",
    [
        STUDY,
        BASE | {"study": {"seeds": 2}},
        BASE | {"study": {"variants": {"one": {}}}},
        BASE | {"study": {"variants": {"fedavg": {"solver": {"keep": True}}}}},
        merge(STUDY, {"solver": {"keep": True}}),
        BASE | {"study": {"variants": {  # the same solver, which another algorithm would replace
            name: {"algorithm": name, "solver": {"kind": "proximal", "mu": 0.3}}
            for name in ("fedavg", "fedprox")
        }}},
        BASE | {"study": {"variants": {"a.b [c] \"λ\"": {}, "#": {"stop": {"bytes": 3}}}}},
        {key: value for key, value in BASE.items() if key != "work"}
        | {"study": {"variants": {"s": {"work": {"steps": 1}}, "e": {"work": {"epochs": 1}}}}},
    ],
)  # fmt: skip
def test_what_show_prints_of_a_study_is_that_study(table):
    study = load(table)
    again = load(tomllib.loads(dump(study)))
    assert again.runs == study.runs
    assert dump(again) == dump(study)
