"""Tuning: the paper's rule by hand, the noise of its figures, and the command from end to end."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pyarrow.feather as feather
import pytest
from rich.console import Console

from gifair_ray import analysis, draws
from gifair_ray.algorithms import ALGORITHMS
from gifair_ray.analysis.tuning import SCHEMA, Estimate, _estimate, choose
from gifair_ray.cli import main
from gifair_ray.cli.tune import choices, plan, render
from gifair_ray.errors import BadInput, RunFailed
from gifair_ray.grids import BASELINE, GRIDS, candidates, setting
from gifair_ray.scenarios.load import load

SCENARIO = """\
[data]
source = "prototypes"
majority = 4
minority = 2
classes = 3
features = 4
train = 6
val = 8
test = 5

[model]
kind = "softmax"

[work]
steps = 2

[sampling]
cohort = 3

[stop]
rounds = 3
"""


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SCENARIO)


# The grids


def test_the_grids_are_those_of_the_paper():
    # Section 5 of the GIFAIR paper: q and t; appendix: λ/λ_max in tenths below 1.
    assert GRIDS["q-ffl"][1] == (0, 0.001, 0.01, 0.1, 1, 2, 5, 10)
    assert GRIDS["term"][1] == (1, 2, 5)
    for name in ("gifair-global", "gifair-per"):
        assert GRIDS[name][1] == pytest.approx(np.arange(10) / 10)
    assert set(GRIDS) < set(ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_candidates_can_be_told_apart_by_their_setting(algorithm):
    found = candidates(algorithm)
    assert all(changes["algorithm"] == algorithm for changes in found)
    assert len({setting(changes) for changes in found}) == len(found)
    assert len(found) == len(GRIDS[algorithm][1] if algorithm in GRIDS else [None])


def test_settings_in_words():
    assert [setting(c) for c in candidates("term")] == ["t = 1", "t = 2", "t = 5"]
    assert setting(candidates("fedavg")[0]) == ""
    with pytest.raises(BadInput, match="did you mean 'q-ffl'"):
        candidates("qffl")


# The rule


def figures(accuracy, variance):
    return Estimate(accuracy, variance, 0.01, 0.001, 0.0005)


def chosen(results, errors=None):
    """{(algorithm, setting): [(accuracy, variance) per seed]} under the rule."""
    runs = {key: [figures(*one) for one in seeds] for key, seeds in results.items()}
    return choose(list(dict.fromkeys([*results, *(errors or {})])), runs, errors or {}, "fedavg")


def picks(table):
    return {
        row["algorithm"]: (row["setting"], row["flagged"])
        for row in table.to_pylist()
        if row["chosen"]
    }


def test_the_smallest_variance_among_those_no_less_accurate_than_fedavg():
    table = chosen(
        {
            ("fedavg", ""): [(0.80, 0.04)],
            ("term", "t = 1"): [(0.82, 0.03)],
            ("term", "t = 2"): [(0.80, 0.02)],  # as accurate: it qualifies
            ("term", "t = 5"): [(0.799, 0.001)],  # the least variance, but less accurate
            ("afl", "gamma = 0.1"): [(0.81, 0.05)],  # no drop in variance, but all there is
        }
    )
    assert picks(table) == {
        "fedavg": ("", False),
        "term": ("t = 2", False),
        "afl": ("gamma = 0.1", False),
    }
    assert table["qualifies"].to_pylist() == [True, True, True, False, True]
    assert table.schema == SCHEMA


def test_if_none_qualifies_it_is_fedavgs_own_setting_and_flagged():
    table = chosen(
        {
            ("fedavg", ""): [(0.80, 0.04)],
            ("term", "t = 1"): [(0.79, 0.03)],
            ("term", "t = 2"): [(0.70, 0.02)],
            ("afl", "gamma = 0.1"): [(0.81, 0.03)],
        }
    )
    assert picks(table)["term"] == ("as fedavg", True)
    rows = [row for row in table.to_pylist() if row["algorithm"] == "term"]
    assert [row["setting"] for row in rows] == ["t = 1", "t = 2", "as fedavg"]
    assert (rows[-1]["accuracy"], rows[-1]["variance"]) == (0.80, 0.04)
    assert choices(table)["term"] == {"algorithm": "fedavg"}
    assert choices(table)["afl"] == {"algorithm": "afl", "weighting": {"gamma": 0.1}}


def test_the_first_of_equals_is_chosen():
    same = {("term", f"t = {t}"): [(0.8, 0.02)] for t in (1, 2, 5)}
    assert picks(chosen({("fedavg", ""): [(0.8, 0.02)], **same}))["term"] == ("t = 1", False)


def test_means_and_spreads_are_over_seeds():
    table = chosen(
        {
            ("fedavg", ""): [(0.7, 0.04), (0.9, 0.06)],
            # Better on one seed only; on average it is less accurate.
            ("term", "t = 1"): [(0.95, 0.0), (0.6, 0.0)],
            ("term", "t = 2"): [(0.8, 0.03), (0.8, 0.05)],
        }
    )
    fedavg, one, two = table.to_pylist()
    assert (one["qualifies"], two["chosen"]) == (False, True)
    assert fedavg["accuracy"] == pytest.approx(0.8)
    assert fedavg["accuracy_std"] == pytest.approx(0.1 * math.sqrt(2))
    assert fedavg["variance_std"] == pytest.approx(0.01 * math.sqrt(2))
    assert fedavg["accuracy_noise"] == pytest.approx(0.01 / math.sqrt(2))
    assert fedavg["seeds"] == 2


def test_a_candidate_that_failed_is_told_and_never_chosen():
    failed = {("term", "t = 5"): "Diverged: client 3"}
    table = chosen(
        {("fedavg", ""): [(0.8, 0.04)], ("term", "t = 1"): [(0.8, 0.05)],
         ("term", "t = 5"): [(0.9, 0.0)]},
        failed,
    )  # fmt: skip
    assert picks(table)["term"] == ("t = 1", False)
    assert table.to_pylist()[-1]["error"] == "Diverged: client 3"
    assert table.to_pylist()[-1]["accuracy"] is None
    every = chosen({("fedavg", ""): [(0.8, 0.04)]}, {("afl", "gamma = 0.1"): "no"})
    assert picks(every)["afl"] == ("as fedavg", True)
    with pytest.raises(RunFailed, match="compares with fedavg, which failed: out of luck"):
        chosen({("term", "t = 1"): [(0.8, 0.05)]}, {("fedavg", ""): "out of luck"})


# The noise


def test_the_noise_of_two_groups_by_hand():
    # s² = .25/10 and .09/10; V = D²/4 with D = a_1 − a_2, whose error has variance .034, so
    # Var V = (4 δ² .034 + 2 .034²)/16, with δ² estimated by D² − .034.
    found = _estimate(np.array([0.5, 0.9]), np.array([11, 11]), np.array([0, 1]))
    assert found.accuracy == pytest.approx(0.7)
    assert found.variance == pytest.approx(0.04)
    assert found.accuracy_noise == pytest.approx(math.sqrt(0.034) / 2)
    variance = (4 * (0.16 - 0.034) * 0.034 + 2 * 0.034**2) / 16
    assert found.variance_noise == pytest.approx(math.sqrt(variance))
    assert found.variance_floor == pytest.approx(0.034 / 4)  # E[D²]/4 if δ = 0


def test_members_of_a_group_share_its_noise():
    a, n = np.array([0.5, 0.9, 0.6, 0.8]), np.full(4, 11)
    found = _estimate(a, n, np.array([0, 0, 1, 1]))
    s2 = (np.array([0.25 + 0.09, 0.24 + 0.16]) / 10) / 4  # of a mean of two
    assert found.variance == pytest.approx(0.0)
    assert found.variance_floor == pytest.approx(s2.sum() / 4)
    assert found.variance_noise == pytest.approx(math.sqrt(2 * s2.sum() ** 2 / 16))


@pytest.mark.parametrize(
    ("p", "n", "groups", "within"),
    [
        (np.linspace(0.3, 0.9, 10), np.full(10, 25), np.arange(10), 0.06),
        (np.repeat([0.6, 0.8, 0.7], 4), np.tile([10, 20, 30], 4), np.repeat([0, 1, 2], 4), 0.06),
        (np.full(10, 0.7), np.full(10, 25), np.arange(10), 0.25),  # it cannot be below its floor
    ],
)  # fmt: skip
def test_the_noise_is_what_new_validation_sets_would_show(p, n, groups, within):
    g = draws.generator(0, "validation sets")
    found = [_estimate(a, n, groups) for a in g.binomial(n, p, (3000, len(p))) / n]

    def root_mean_square(name):
        return math.sqrt(np.mean([getattr(one, name) ** 2 for one in found]))

    accuracy = np.std([one.accuracy for one in found])
    variance = np.std([one.variance for one in found])
    assert root_mean_square("accuracy_noise") == pytest.approx(accuracy, rel=0.05)
    assert root_mean_square("variance_noise") == pytest.approx(variance, rel=within)
    if len(set(p)) == 1:
        expected = np.mean([one.variance for one in found])
        assert np.mean([one.variance_floor for one in found]) == pytest.approx(expected, rel=0.05)


# The command


def tune(*arguments):
    return main(["tune", "small.toml", "--backend", "local", "--quiet", *arguments])


def last_evaluation(run):
    rows = run.table("evaluations").to_pylist()
    last = max(row["evaluation"] for row in rows)
    return [row for row in rows if row["evaluation"] == last and row["split"] == "val"]


def test_the_choice_and_all_candidates_are_stored_and_the_chosen_can_be_run(capsys):
    assert tune("--algorithms", "term,q-ffl", "--seeds", "2", "--out", "t") == 0
    told = capsys.readouterr().out
    assert "On validation data" in told
    assert "gifair run t/tuned.toml" in told
    table = feather.read_table("t/tuning.arrow")
    assert table.schema == SCHEMA
    assert table.num_rows >= 1 + 3 + 8
    assert set(table["seeds"].to_pylist()) == {2}
    assert table["error"].null_count == len(table)
    assert list(picks(table)) == ["fedavg", "term", "q-ffl"]
    study = load("t/tuned.toml")
    assert [label for label, _ in study.runs] == [a for a in picks(table) for _ in range(2)]
    assert {scenario.seed for _, scenario in study.runs} == {0, 1}
    assert all("test" in scenario.evaluation.splits for _, scenario in study.runs)
    fedavg = next(s for label, s in study.runs if label == "fedavg")
    assert fedavg.digest() == load("small.toml").runs[0][1].digest()
    for algorithm, (words, flagged) in picks(table).items():
        scenario = next(s for label, s in study.runs if label == algorithm)
        if not flagged and algorithm == "term":
            assert f"t = {scenario.weighting.t:g}" == words


def test_test_data_play_no_part_in_choosing():
    assert tune("--algorithms", "term", "--out", "t") == 0
    for run in map(analysis.load, analysis.find_runs("t")):
        assert set(run.table("evaluations")["split"].to_pylist()) == {"val"}
        assert set(run.table("groups")["split"].to_pylist()) <= {"val"}
        assert len(run.table("ranks")) == 0  # nor are there audits, on training data


def test_other_test_data_make_no_difference():
    g = draws.generator(0, "a table")
    rows = [
        (f"c{k}", f"g{k % 2}", split, *np.round(g.normal(size=2), 3), int(g.integers(0, 2)))
        for k in range(4)
        for split in ["train"] * 8 + ["val"] * 10 + ["test"] * 10
    ]
    tables = []
    for name, flip in (("ours", 0), ("flipped", 1)):
        lines = [
            ",".join(map(str, (*rest, y ^ flip if "test" in rest else y))) for *rest, y in rows
        ]
        Path(f"{name}.csv").write_text("client,group,split,a,b,y\n" + "\n".join(lines))
        data = ["--set", f'data={{source="table", path="{name}.csv"}}']
        assert tune("--algorithms", "term", "--out", name, *data) == 0
        tables.append(feather.read_table(f"{name}/tuning.arrow"))
    assert tables[0].equals(tables[1])
    assert tables[0]["variance"].to_pylist()[0] > 0


def test_the_choice_follows_from_the_validation_counts_on_disk():
    assert tune("--algorithms", "term", "--out", "t") == 0
    rows = feather.read_table("t/tuning.arrow").to_pylist()
    for run in map(analysis.load, analysis.find_runs("t")):
        a = np.array([row["correct"] / row["samples"] for row in last_evaluation(run)])
        groups = np.array([a[:4].mean(), a[4:].mean()])
        words = run.manifest["label"].partition(" ")[2]
        (row,) = [r for r in rows if r["setting"] == words and not r["flagged"]]
        assert row["accuracy"] == pytest.approx(a.mean())
        assert row["variance"] == pytest.approx(groups.var())


def test_every_candidate_has_its_algorithms_own_parts():
    table = load("small.toml").runs[0][1].table()
    del table["weighting"], table["solver"], table["aggregator"]
    base = load(
        table
        | {"weighting": {"kind": "gifair", "lambda_fraction": 0.5}, "solver": {"kind": "ditto"}}
    ).runs[0][1]
    assert base.algorithm == "fedavg"
    for label, scenario in plan(base, None, 1).runs:
        parts = ALGORITHMS[scenario.algorithm]
        for part in ("weighting", "solver", "aggregator"):
            assert getattr(scenario, part).kind == parts[part]["kind"], label
        assert scenario.evaluation.splits == ["val"]


def test_a_scenario_with_a_value_of_lambda_can_be_tuned_over_its_fraction():
    sets = ["algorithm=gifair-global", "weighting.lambda_value=0.01", "weighting.ranks=received"]
    base = load("small.toml", sets).runs[0][1]
    ours = [s for _, s in plan(base, ["gifair-global"], 1).runs if s.algorithm != BASELINE]
    assert [s.weighting.lambda_fraction for s in ours] == list(GRIDS["gifair-global"][1])
    assert {s.weighting.lambda_value for s in ours} == {None}
    assert {s.weighting.ranks for s in ours} == {"received"}  # the scenario's own options stay


def test_an_algorithm_that_is_named_twice_is_tuned_once():
    base = load("small.toml").runs[0][1]
    once, twice = (plan(base, names, 1) for names in (["term"], ["term", "fedavg", "term"]))
    assert once == twice


def test_personal_models_are_what_is_tuned_where_clients_have_them():
    assert tune("--algorithms", "ditto", "--out", "t") == 0
    table = feather.read_table("t/tuning.arrow").to_pylist()
    run = analysis.load("t/ditto_lambda_value___5-seed0")
    last = last_evaluation(run)
    accuracy = {(r["client"], r["model"]): r["correct"] / r["samples"] for r in last}
    assert any(model == "personal" for _, model in accuracy)
    own = [accuracy.get((k, "personal"), accuracy[k, "global"]) for k in range(6)]
    (row,) = [r for r in table if r["setting"] == "lambda_value = 5"]
    assert row["accuracy"] == pytest.approx(np.mean(own))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--algorithms", "trem"], "did you mean 'term'"),
        (["--set", "data.val=0"], "give the data a val split"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_run(arguments, told, capsys):
    assert tune("--out", "t", *arguments) == 2
    assert told in capsys.readouterr().err
    assert not Path("t").exists()


@pytest.mark.parametrize("seeds", ["0", "-1", "two", "²"])
def test_a_number_of_seeds_that_is_none_is_refused(seeds, capsys):
    with pytest.raises(SystemExit) as ended:
        tune("--seeds", seeds)
    assert ended.value.code == 2
    assert "not a whole number from 1 on" in capsys.readouterr().err


def test_what_is_shown_of_flagged_and_failed_candidates():
    results = {("fedavg", ""): [(0.8, 0.04)], ("afl", "gamma = 0.01"): [(0.7, 0.01)]}
    console = Console(width=100, file=io.StringIO())
    console.print(render(chosen(results, {("afl", "gamma = 0.1"): "Diverged: client 3"})))
    shown = console.file.getvalue()
    assert "80.00 ±1.00" in shown
    assert "400.0 ±10.0" in shown
    assert "less accurate" in shown
    assert "failed: Diverged: client 3" in shown
    assert "none qualifies: as fedavg" in shown
    assert "γ = 0.01" in shown
