"""The paper's experiments from the command line, at the smallest budget; their tables by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.feather as feather
import pytest
from by_hand import table as rows_of

from gifair_ray.analysis import RunTables
from gifair_ray.analysis import paper as tables
from gifair_ray.analysis.reweighting import reweighting
from gifair_ray.cli import main
from gifair_ray.cli.paper import settings
from gifair_ray.experiments import EXPERIMENTS


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_runs_from_tuning_to_its_table(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["paper", "--experiment", name, "--budget", "smoke", "--backend", "local", "--quiet"]
    assert main([*command, "--out", "out"]) == 0
    told = capsys.readouterr().out
    assert EXPERIMENTS[name].table in told
    table = feather.read_table(tmp_path / "out" / name / "table.arrow")
    assert set(EXPERIMENTS[name].algorithms) <= set(table["algorithm"].to_pylist())
    assert table["value"].null_count == 0
    # Nothing is run twice: the same command again finds all of it.
    assert main([*command, "--out", "out"]) == 0
    assert feather.read_table(tmp_path / "out" / name / "table.arrow") == table


@pytest.mark.parametrize("name", ["femnist-skewed", "shakespeare-gender"])
def test_the_figure_over_lambda(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["paper", "--experiment", name, "--budget", "smoke", "--backend", "local", "--quiet"]
    assert main([*command, "--sensitivity", "only", "--out", "out"]) == 0
    folder = tmp_path / "out" / name
    assert (folder / "sensitivity.png").read_bytes().startswith(b"\x89PNG")
    runs = {f.name for f in (folder / "sensitivity").iterdir()}
    assert runs == {"0-seed0", "estimated_0.9-seed0", "received_0.9-seed0"}
    assert "| received 0.9 − 0 |" in (folder / "sensitivity.md").read_text(encoding="utf-8")
    assert not (folder / "runs").exists()  # it is the figure alone


def test_the_discrepancy_beside_ours_is_the_one_that_follows_from_the_papers_rows():
    figures = {1: {"capitals": 1.0, "lowercase": 2.0, "both": 3.0, "discrepancy": 2.0}}
    names = ("gifair-global", "ditto")
    table = tables.paper_table(
        dict.fromkeys(names, figures), ["discrepancy"], EXPERIMENTS["femnist-3-groups"].paper
    )
    assert table["paper"].to_pylist() == pytest.approx([4.88, 9.68])  # it prints 6.07 and 9.02


def test_an_interval_is_students():
    low, high = tables.interval([1.0, 2.0, 3.0])
    assert (low, high) == pytest.approx((2 - 4.303 / math.sqrt(3), 2 + 4.303 / math.sqrt(3)))
    assert tables.interval([1.0]) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("fairer", "kept", "std", "mean"),
    [
        ("yes", "yes", (5.0, 5.1, 4.9), (80.2, 80.0, 80.1)),
        ("no", "no", (15.0, 15.1, 14.9), (70.0, 70.1, 69.9)),
        ("open", "open", (5.0, 15.0, 10.0), (90.0, 70.0, 80.0)),
    ],
)
def test_verdicts_wait_for_the_noise_to_decide(fairer, kept, std, mean):
    base = {s: {"std": 10.0, "mean": 80.0} for s in range(3)}
    other = {s: {"std": std[s], "mean": mean[s]} for s in range(3)}
    runs = {"fedavg": base, "new": other}
    assert tables.verdicts(runs, "fedavg", "std") == {"new": (fairer, kept)}


def test_the_table_has_ours_and_the_papers_side_by_side():
    rows = [
        {"algorithm": "fedavg", "row": "mean", "seeds": 2, "value": 81.0, "sd": 0.5, "paper": 79.2},
        {"algorithm": "mine", "row": "mean", "seeds": 1, "value": 82.0, "sd": None, "paper": None},
    ]
    text = tables.markdown(
        pa.Table.from_pylist(rows, tables.SCHEMA), {"mine": ("yes", "open")}, {"mine": "x = 1"}
    )
    assert text.splitlines()[2:] == [
        "| fedavg |  | 81.0 (0.5) | *79.2* |  |  |",
        "| mine | x = 1 | 82.0 |  | yes | open |",
    ]


def test_differences_are_taken_seed_by_seed_and_from_fedavgs_own_local_models():
    def runs(*means):
        return {seed: {"mean": mean} for seed, mean in enumerate(means)}

    text = tables.pairs_markdown(
        {"fedavg": runs(50, 70), "gifair-per": runs(52, 74), tables.LAST_LOCAL: runs(53, 73)},
        "fedavg",
        ["mean"],
    )
    half = 12.706 * 1  # Student's t with one degree of freedom times the standard error
    assert text.splitlines()[2:] == [
        "| fedavg | 60.0 |",
        f"| gifair-per − fedavg | +3.0 [{3 - half:+.1f}, {3 + half:+.1f}] |",
        f"| {tables.LAST_LOCAL} − fedavg | +3.0 [+3.0, +3.0] |",
        f"| gifair-per − {tables.LAST_LOCAL} | +0.0 [{-half:+.1f}, {half:+.1f}] |",
    ]


def test_figures_that_a_run_does_not_have_are_left_blank():
    nan = math.nan
    runs = {"a": {0: {"x": nan, "y": nan}}, "b": {0: {"x": 1.0, "y": nan}, 1: {"x": 2.0, "y": nan}}}
    assert tables.means_markdown(runs, ["x", "y"]).splitlines()[2:] == ["| b | 1.5 |  |"]


def test_what_no_candidate_is_as_accurate_as_fedavg_for_is_run_with_the_most_accurate_one():
    rows = [
        {"algorithm": "fedavg", "setting": "", "accuracy": 0.8, "chosen": True, "flagged": False},
        {"algorithm": "term", "setting": "t = 1", "accuracy": 0.7, "chosen": False},
        {"algorithm": "term", "setting": "t = 5", "accuracy": None, "chosen": False},
        {"algorithm": "term", "setting": "as fedavg", "accuracy": 0.8, "chosen": True,
         "flagged": True},
        {"algorithm": "q-ffl", "setting": "q = 0.1", "accuracy": 0.8, "chosen": True,
         "flagged": False},
    ]  # fmt: skip
    chosen, told = settings(pa.Table.from_pylist(rows))
    assert chosen["term"] == {"algorithm": "term", "weighting": {"t": 1.0}}
    assert chosen["q-ffl"] == {"algorithm": "q-ffl", "weighting": {"q": 0.1}}
    assert told == {"fedavg": "", "term": "t = 1 †", "q-ffl": "q = 0.1"}


def test_a_run_without_ranks_has_no_reweighting():
    run = RunTables.of({"rounds": rows_of("rounds", [{"round": 1}])})
    assert all(math.isnan(value) for value in reweighting(run).values())


def test_the_reweighting_of_a_run_by_hand():
    """Three clients in two groups: p |A| is 0.5 for the lone one, 0.5 and 1.0 for the others."""
    work = [(0, 0, 0.0, 9.0), (1, 0, 0.5, 1.0), (1, 2, -0.25, 0.5)]
    audits = [(0, 0, None, 3.0), (0, 1, None, 3.0), (1, 0, 2.0, 2.0), (1, 1, 1.0, 4.0)]
    tables = {
        "rounds": [{"round": c, "lam": 0.3, "lam_max": 0.6} for c in (1, 2)],
        "clients": [
            {"client": k, "group": group, "p": p}
            for k, group, p in ((0, 0, 0.5), (1, 1, 0.25), (2, 1, 0.5))
        ],
        "dispatches": [
            dict(zip(("version", "client", "tilt", "loss_local"), row, strict=True)) for row in work
        ],
        "ranks": [
            {"version": v, "group": i, "L_used": used, "L_exact": exact, "r_used": 0.0}
            for v, i, used, exact in audits
        ],
    }
    found = reweighting(RunTables.of({name: rows_of(name, rows) for name, rows in tables.items()}))
    assert found["cap"] == pytest.approx(50)  # f = 0.5; the median client's p |A| is the smallest
    assert found["sent"] == pytest.approx(25)
    assert found["wrong signs"] == pytest.approx(50)  # unknown but tied: right; then opposite
    assert found["loss left"] == pytest.approx(100 * 1.5 / 6)  # of the second round alone
