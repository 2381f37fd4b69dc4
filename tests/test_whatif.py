"""What if: the same seeds with one thing changed, pair by pair."""

from __future__ import annotations

import pytest

import gifair_ray
from gifair_ray import analysis
from gifair_ray.cli import main
from gifair_ray.errors import BadInput

SCENARIO = {
    "name": "pairs",
    "data": {"source": "prototypes", "majority": 4, "minority": 2, "features": 6, "classes": 3},
    "model": {"kind": "softmax"},
    "work": {"steps": 2, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "uniform", "cohort": 3},
    "devices": {"sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 0.5}, "jitter": 0.3},
    "stop": {"rounds": 4},
    "study": {"seeds": 3},
}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    out = tmp_path_factory.mktemp("whatif") / "before"
    gifair_ray.run_study(SCENARIO, out=out, backend="local")
    return out


def rows(table):
    return {row["measure"]: row for row in table.to_pylist()}


def loaded(folder):
    return [analysis.load(path) for path in analysis.find_runs(folder)]


def test_runs_paired_with_themselves_do_not_differ(before):
    for row in analysis.paired(loaded(before), loaded(before)).to_pylist():
        assert row["difference"] == row["standard_error"] == 0
        assert row["before"] == row["after"]
        assert row["seeds"] == 3


def test_differences_are_taken_seed_by_seed(before, tmp_path):
    gifair_ray.run_study(
        SCENARIO, sets=["devices.latency_s=1.0"], out=tmp_path / "after", backend="local"
    )
    found = rows(analysis.paired(loaded(before), loaded(tmp_path / "after")))
    # Two trips a round, 0.95 s longer each; whoever is slowest was so before.
    assert found["virtual_hours"]["difference"] == pytest.approx(4 * 2 * 0.95 / 3600)
    assert found["virtual_hours"]["standard_error"] == pytest.approx(0, abs=1e-12)
    assert found["discrepancy"]["difference"] == 0  # the same draws, the same models
    assert found["megabytes"]["difference"] == 0


def test_the_command_keeps_the_draws_and_changes_one_thing(before, tmp_path, capsys):
    runs = [str(path) for path in analysis.find_runs(before)]
    out = tmp_path / "after"
    options = ["--backend", "local", "--quiet", "--out", str(out)]
    assert main(["whatif", *runs, "--set", "work.steps=4", *options]) == 0
    told = capsys.readouterr().out
    assert "3 pair(s)" in told
    assert "virtual hours" in told
    for old, new in zip(loaded(before), loaded(out), strict=True):
        assert old.manifest["seed"] == new.manifest["seed"]
        asked = ("round", "client", "slots", "send_s")
        drawn = [run.table("dispatches").select(asked[:3]).to_pylist() for run in (old, new)]
        assert sorted(map(str, drawn[0])) == sorted(map(str, drawn[1]))
        assert set(new.table("dispatches")["steps"].to_pylist()) == {4}


def test_both_sides_can_be_run_on_more_seeds(before, tmp_path, capsys):
    run = str(analysis.find_runs(before)[0])
    options = ["--backend", "local", "--quiet", "--out", str(tmp_path / "both"), "--seeds", "2"]
    assert main(["whatif", run, "--set", "sampling.cohort=6", *options]) == 0
    assert "2 pair(s)" in capsys.readouterr().out
    assert len(analysis.find_runs(tmp_path / "both")) == 4


def test_what_cannot_be_asked(before, tmp_path, capsys):
    run = str(analysis.find_runs(before)[0])
    assert main(["whatif", run, "--backend", "local"]) == 2
    assert "say what to change" in capsys.readouterr().err
    with pytest.raises(BadInput, match="no seed in common"):
        analysis.paired(loaded(before)[:1], loaded(before)[1:])
    with pytest.raises(BadInput, match="several runs of seed 0"):
        analysis.paired(loaded(before)[:1] * 2, loaded(before))
    gifair_ray.run_study(
        SCENARIO | {"algorithm": "fedprox", "seed": 7}, out=tmp_path / "other", backend="local"
    )
    assert main(["whatif", run, str(tmp_path / "other"), "--set", "work.steps=3"]) == 2
    assert "give the folders of one of them" in capsys.readouterr().err
