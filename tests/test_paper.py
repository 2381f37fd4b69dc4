"""The paper's experiments from the command line, at the smallest budget; their tables by hand."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.feather as feather
import pytest

from gifair_ray.analysis import paper as tables
from gifair_ray.cli import main
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
