"""Comparisons: every figure by hand, and what is written is what was worked out."""

import csv
import io
import json
import math
import re
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from by_hand import COUNTED, MB, small_run
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from rich.console import Console

from gifair_ray.analysis import (
    by_client,
    by_group,
    compare,
    compare_by_group,
    pairs,
    render,
    render_groups,
    render_paired,
    to_csv,
    to_latex,
    to_markdown,
    write,
)
from gifair_ray.analysis.columns import GROUPS, LABELS
from gifair_ray.analysis.load import RunTables, distinct, natural
from gifair_ray.analysis.resampling import interval, sign_flip, t_quantile
from gifair_ray.cli import main
from gifair_ray.errors import BadInput
from gifair_ray.results import Written, write_segment


def shown(renderable, width=120):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


# --- figures by hand ------------------------------------------------------------------------------


def test_every_figure_of_a_comparison_by_hand():
    """Accuracies .9, .7 and .5 at the end; .8, .6, .1 in the middle."""
    (line,) = compare([small_run()]).to_pylist()
    s2 = (0.09 + 0.21 + 0.25) / 9 / 3  # mean of a(1−a)/9
    raw = (0.04 + 0 + 0.04) / 3
    noise = 2 / 3 * s2
    hand = {
        "rounds": 2,
        "virtual_hours": 1.0,
        "megabytes": 10.0,
        "lambda_fraction": 0.5,
        "clients": 3,
        "never_selected": 0,
        "without_samples": 0,
        "mean_accuracy": 0.7,
        "weighted_accuracy": 0.7,
        "std_clients": math.sqrt(raw),
        "std_clients_corrected": math.sqrt(raw - noise),
        "std_noise": math.sqrt(noise),
        "variance_clients": raw,
        "variance_clients_corrected": raw - noise,
        "std_weighted": math.sqrt(raw),
        "std_weighted_corrected": math.sqrt(raw - noise),
        "variance_weighted": raw,
        "variance_weighted_corrected": raw - noise,
        "variance_groups": 0.15**2,  # .8 and .5
        "worst_tenth": 0.5,
        "best_tenth": 0.9,
        **{f"decile_{i}": 0.5 + 0.04 * i for i in range(1, 10)},
        "worst_group": 0.5,
        "discrepancy": 0.3,
        "jain": 2.1**2 / (3 * (0.81 + 0.49 + 0.25)),
        "gini": 2 * (0.2 + 0.2 + 0.4) / (2 * 3 * 2.1),
        "mean_loss": 1.3,
        "loss_spread": 0.3,
        "rounds_to_target": 2,  # 70 %, which it reaches at the end
        "hours_to_target": 1.0,
        "megabytes_to_target": 10.0,
        **{name: sum(COUNTED[name]) for name in ("selected", "completed", "offline", "dropped")},
        **{name: sum(COUNTED[name]) for name in ("late", "surplus", "too_stale", "unfinished")},
        "busy_hours": 17 / 3600,
        "wasted_hours": 10 / 3600,
        "wasted_share": 10 / 17,
        "wasted_megabytes": 4.0,
        "wrong_signs": (0.5 + 1) / 2,  # unknown, then swapped
        "loss_age": 2.0,
        "delta": 0.3,
    }
    assert set(hand) == {column.name for column in LABELS}
    for name, value in hand.items():
        assert line[name] == pytest.approx(value), name
        assert line[f"{name}_sd"] is None


def test_the_figures_of_groups_by_hand():
    a, b = compare_by_group([small_run()]).to_pylist()
    hand = {  # Σ ωm: .5·1 and .5·1.2 in a, 1.5·.6 in b
        "clients": (2, 1),
        "p": (0.5, 0.5),
        "accuracy": (0.8, 0.5),
        "loss": (1.2, 1.5),
        "selected": (3, 3),
        "completed": (2, 1),
        "offline": (0, 0),
        "dropped": (0, 1),
        "late": (1, 0),
        "surplus": (0, 0),
        "too_stale": (0, 1),
        "unfinished": (0, 0),
        "completed_share": (2 / 3, 1 / 3),
        "busy_s": (12.0, 5.0),
        "wasted_s": (6.0, 4.0),
        "bytes": (5 * MB, 5 * MB),
        "wasted_bytes": (MB, 3 * MB),
        "weight": (1.0, 1.5),
        "weight_share": (0.4, 0.6),
        "weight_ratio": (0.8, 1.2),
        "effective_weight": (1.1, 0.9),
        "effective_share": (0.55, 0.45),
        "effective_ratio": (1.1, 0.9),
        "staleness": (1.0, 0.0),
        "turnaround_s": (5.0, 4.0),
    }
    assert set(hand) == {column.name for column in GROUPS}
    for name, (of_a, of_b) in hand.items():
        assert (a[name], b[name]) == (pytest.approx(of_a), pytest.approx(of_b)), name
    assert (a["group_name"], b["group_name"], a["seeds"]) == ("a", "b", 1)


def test_the_figures_of_clients_by_hand():
    table = by_client(small_run())
    for name, values in COUNTED.items():
        assert tuple(table[name].to_pylist()) == pytest.approx(values), name
    assert table["name"].to_pylist() == ["x", "y", "z"]
    assert table["effective_weight"].to_pylist() == pytest.approx([0.5, 0.6, 0.9])
    assert table["staleness"].to_pylist() == [0, 2, 0]
    assert table["turnaround_s"].to_pylist() == [4, 6, 4]


def test_what_the_engine_counted_is_what_the_dispatches_say():
    """A run that was killed before it counted is counted from its dispatches."""
    for of in (by_client, by_group):
        assert of(small_run()).equals(of(small_run(counted=False)))


def test_a_client_that_never_took_part_has_no_turnaround():
    run = small_run(counted=False)
    without = run.table("dispatches").filter(pa.array([d != 2 for d in range(6)]))
    table = by_client(RunTables.of(dict(run.tables) | {"dispatches": without}))
    assert table["turnaround_s"].to_pylist() == [4, None, 4]
    assert table["selected"].to_pylist() == [2, 0, 3]


def test_tables_that_do_not_fit_together_are_refused():
    run = small_run()
    few = {"clients": run.table("clients").slice(0, 2)}
    with pytest.raises(BadInput, match="sent work to client 2"):
        by_group(RunTables.of(dict(run.tables) | few))
    half = {"participation": run.table("participation").slice(0, 2)}
    with pytest.raises(BadInput, match="does not end with a row for every client"):
        by_group(RunTables.of(dict(run.tables) | half))


def test_the_target_is_what_all_reach_unless_it_is_given():
    quick = ((0, 0, 0), (9, 9, 9), (9, 9, 9))
    runs = [small_run("slow"), small_run("quick", courses=quick)]
    slow, fast = compare(runs).to_pylist()
    assert (slow["rounds_to_target"], fast["rounds_to_target"]) == (2, 1)
    assert fast["hours_to_target"] == pytest.approx(5 / 3600)
    assert fast["megabytes_to_target"] == 3.0
    table = compare(runs, target=0.8)
    slow, fast = table.to_pylist()
    assert (slow["rounds_to_target"], fast["rounds_to_target"]) == (None, 1)
    assert (
        "slow: 1 run(s) did not reach an accuracy of 80 %"
        in table.schema.metadata[b"notes"].decode()
    )
    for wrong in (0.0, 1.5, -1.0):
        with pytest.raises(BadInput, match="is not an accuracy"):
            compare(runs, target=wrong)


# --- labels ---------------------------------------------------------------------------------------


def test_names_are_sorted_as_a_person_would():
    names = ["λ 0.5-seed10", "λ 0.05-seed2", "λ 0.5-seed9", "a 15", "a 5"]
    assert sorted(names, key=natural) == [
        "a 5", "a 15", "λ 0.05-seed2", "λ 0.5-seed9", "λ 0.5-seed10",
    ]  # fmt: skip


def test_one_label_for_several_settings_is_told_apart(tmp_path):
    runs = []
    for i, steps in enumerate((5, 5, 10)):
        folder = tmp_path / str(i)
        folder.mkdir()
        text = f'name = "n{i}"\nseed = {i}\n[work]\nsteps = {steps}\n[data]\nsource = "q"\n'
        (folder / "scenario.toml").write_text(text)
        run = small_run("FedAvg", seed=i)
        runs.append(RunTables(folder, run.manifest, run.tables))
    labels = [run.manifest["label"] for run in distinct(runs)]
    assert labels == ["FedAvg, work.steps=5"] * 2 + ["FedAvg, work.steps=10"]
    assert distinct(distinct(runs))[0].manifest["label"] == labels[0]
    assert [line["seeds"] for line in compare(runs).to_pylist()] == [2, 1]


# --- pairs ----------------------------------------------------------------------------------------

BETTER = ((0, 0, 0), (8, 6, 1), (9, 7, 7))


def test_pairs_by_hand():
    runs = [small_run("FedAvg", seed=s, plain=True) for s in range(5)]
    runs += [small_run("GIFAIR", seed=s, courses=BETTER) for s in range(1, 6)]
    table = pairs(runs)
    rows = {row["measure"]: row for row in table.to_pylist()}
    assert {row["against"] for row in table.to_pylist()} == {"FedAvg"}
    worst = rows["worst_group"]
    assert (worst["seeds"], worst["label"]) == (4, "GIFAIR")  # seeds 1 to 4 are on both sides
    for name, value in {"before": 50, "after": 70, "difference": 20, "low": 20, "high": 20}.items():
        assert worst[name] == pytest.approx(value), name
    assert worst["standard_error"] == pytest.approx(0, abs=1e-9)
    assert worst["p_value"] == 2 / 2**4
    assert rows["megabytes"]["difference"] == 0
    assert rows["megabytes"]["p_value"] == 1
    assert {row["against"] for row in pairs(runs, "GIFAIR").to_pylist()} == {"GIFAIR"}
    with pytest.raises(BadInput, match="no label 'x': the labels are FedAvg, GIFAIR"):
        pairs(runs, "x")
    assert len(pairs([small_run("A", 0), small_run("B", 1)])) == 0


def test_few_seeds_have_no_interval():
    runs = [small_run(label, seed=s) for label in ("A", "B") for s in range(3)]
    row = pairs(runs).to_pylist()[0]
    assert (row["low"], row["high"]) == (None, None)
    assert row["standard_error"] == 0
    one = pairs([small_run("A"), small_run("B")]).to_pylist()[0]
    assert (one["standard_error"], one["p_value"]) == (None, None)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (30, 2.04227)]
)
def test_students_quantiles(freedom, quantile):
    """From the tables of any textbook."""
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-5)


@examples(15)
@given(st.lists(st.floats(-10, 10), min_size=4, max_size=5))
def test_an_interval_is_that_of_all_resamples(values):
    """The convolution on a grid against all n^n resamples, one by one."""
    n = len(values)
    means = np.sort([np.mean(resample) for resample in product(values, repeat=n)])
    z = math.sqrt(n / (n - 1)) * t_quantile(0.975, n - 1)
    tail = 0.5 * math.erfc(z / math.sqrt(2))
    low, high = interval(values)
    grid = (max(values) - min(values)) / 4096 + 1e-9
    at = math.floor(tail * n**n)  # values equal to within the grid may stand in another order
    near = [means[max(0, at - 1)] - grid, means[min(at + 1, len(means) - 1)] + grid]
    assert near[0] <= low <= near[1]
    far = [means[-1 - min(at + 1, len(means) - 1)] - grid, means[-max(at, 1)] + grid]
    assert far[0] <= high <= far[1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=40), st.floats(-100, 100))
def test_an_interval_holds_the_mean_and_moves_with_the_values(values, shift):
    low, high = interval(values)
    scale = max(1.0, *map(abs, values))
    assert min(values) - 1e-9 * scale <= low <= np.mean(values) + 1e-3 * scale
    assert np.mean(values) - 1e-3 * scale <= high <= max(values) + 1e-9 * scale
    moved = interval([value + shift for value in values])
    assert moved == pytest.approx((low + shift, high + shift), abs=2e-3 * scale + 0.3)
    mirrored = interval([-value for value in values])
    assert mirrored == pytest.approx((-high, -low), abs=2e-3 * scale)


def test_intervals_cover_what_they_promise():
    draw = np.random.default_rng(4)
    for n, least in ((5, 0.88), (10, 0.92)):
        spans = [interval(row) for row in draw.normal(size=(500, n)).tolist()]
        assert np.mean([low <= 0 <= high for low, high in spans]) > least


@examples(30)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=7))
def test_a_sign_flip_test_looks_at_all_flips(values):
    total = abs(sum(values))
    flips = [abs(sum(v * s for v, s in zip(values, signs, strict=True)))
             for signs in product((1, -1), repeat=len(values))]  # fmt: skip
    assert sign_flip(values) == pytest.approx(sum(f >= total for f in flips) / len(flips))


def test_sign_flips_of_many_values_come_from_the_normal_distribution():
    draw = np.random.default_rng(5)
    few, many = draw.normal(0.4, 1, 20).tolist(), draw.normal(0.4, 1, 21).tolist()
    z = abs(sum(few)) / math.sqrt(sum(v * v for v in few))
    assert sign_flip(few) == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.02)
    assert 0 < sign_flip(many) < 1
    assert math.isnan(sign_flip([]))


# --- formats --------------------------------------------------------------------------------------


@pytest.fixture
def two():
    return [small_run("Fed|Avg & 100 %", plain=True), small_run("GIFAIR_λ", courses=BETTER)]


def test_csv_has_every_figure_in_full(two):
    table = compare(two)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["label"] for row in rows] == ["Fed|Avg & 100 %", "GIFAIR_λ"]
    for row, line in zip(rows, table.to_pylist(), strict=True):
        for name, value in line.items():
            assert row[name] == ("" if value is None else str(value)), name


def test_markdown_and_latex_show_the_same_figures(two):
    table = compare([*two, small_run("GIFAIR_λ", seed=1)])
    markdown, latex = to_markdown(table), to_latex(table)
    row = next(line for line in markdown.splitlines() if "worst group" in line)
    assert row == "| worst group (%) | 50.0 | 60.0 (14.1) |"
    assert r"Fed\|Avg & 100 %" in markdown
    assert r"worst group (\%) & 50.0 & 60.0 (14.1) \\" in latex
    assert r"Fed|Avg \& 100 \%, global & GIFAIR\_$\lambda$, global \\" in latex
    assert latex.startswith(r"\begin{tabular}{lrr}")
    columns = {len(re.findall(r"(?<!\\)&", line)) for line in latex.splitlines() if "&" in line}
    assert columns == {2}
    groups = to_markdown(compare_by_group(two))
    assert "| wasted s (s) | 6 | 4 | 6 | 4 |" in groups
    assert "sign" not in to_latex(pairs(two))


def test_files_are_written_by_their_endings(two, tmp_path):
    table = compare(two)
    for ending in ("csv", "md", "tex", "arrow"):
        write(table, tmp_path / f"t.{ending}")
    assert (tmp_path / "t.csv").read_text(encoding="utf-8") == to_csv(table)
    with pa.memory_map(str(tmp_path / "t.arrow")) as source:
        back = pa.ipc.open_file(source).read_all()
        assert back.equals(table, check_metadata=True)
        assert json.loads(back.schema.metadata[b"notes"]) == []
    with pytest.raises(BadInput, match=r"\.csv, \.md, \.tex, \.arrow"):
        write(table, tmp_path / "t.xls")


def test_what_rounding_leaves_is_shown_as_nothing():
    runs = [small_run("A", s) for s in range(2)] + [small_run("B", s, BETTER) for s in range(2)]
    table = pairs(runs)
    assert table["measure"].to_pylist()[0] == "mean_accuracy"
    for error, told in ((1.8e-15, "+6.67 (0)"), (0.02, "+6.67 (0.02)")):
        rows = [row | {"standard_error": error} for row in table.to_pylist()]
        assert told in shown(render_paired(pa.Table.from_pylist(rows, table.schema)))


def test_terminal_tables_tell_groups_and_pairs(two):
    groups = shown(render_groups(compare_by_group(two)))
    assert "too_s" in groups
    assert "offli" not in groups  # which never happened
    assert "Fed|Avg" in groups
    narrow = shown(render_groups(compare_by_group(two), 80), 80)
    for heading in re.findall(r"[a-z_.-]+", groups.partition("─")[0].partition("waste")[2]):
        assert heading in narrow, heading  # none is cut off
    assert max(map(len, narrow.splitlines())) <= 80
    assert "Against Fed|Avg & 100 %, seed by seed" in shown(render_paired(pairs(two)))
    everything = shown(render(compare(two), everything=True), 100)
    for column in LABELS:
        assert column.name.replace("_", " ") in everything


def test_no_figure_of_a_group_is_cut_off(two):
    """Ten million of everything: what does not fit is in two parts, each of them whole."""
    table = compare_by_group(two)
    counts = ("selected", "completed", "offline", "dropped", "late", "surplus", "unfinished")
    rows = [row | dict.fromkeys(counts, 10_000_000) for row in table.to_pylist()]
    many = pa.Table.from_pylist(rows, table.schema)
    told = shown(render_groups(many, 120), 120)
    assert told.count("10000000") == len(rows) * len(counts)
    assert "effect" in told


# --- the command ----------------------------------------------------------------------------------


def stored(run, folder):
    """The run in a folder, as the engine would leave it."""
    for name, table in run.tables.items():
        if len(table):
            write_segment(folder, name, Written(), table)
    (folder / "manifest.json").write_text(json.dumps(dict(run.manifest)), encoding="utf-8")
    return str(folder)


def test_the_command_shows_settings_groups_and_pairs(tmp_path, capsys):
    folder = tmp_path / "study"
    for seed in range(2):
        stored(small_run("FedAvg", seed, plain=True), folder / f"a{seed}")
        stored(small_run("GIFAIR", seed, BETTER), folder / f"b{seed}")
    assert main(["compare", str(folder)]) == 0
    out = capsys.readouterr().out
    for title in ("Last evaluation, split test", "Groups: results", "Against FedAvg, seed by seed"):
        assert title in out
    assert main(["compare", str(folder), "--against", "GIFAIR", "--table", "pairs"]) == 0
    assert "Against GIFAIR" in capsys.readouterr().out
    assert main(["compare", str(folder / "a0")]) == 0
    out = capsys.readouterr().out
    assert "Groups: results" in out
    assert "--table clients" in out
    assert "Against" not in out
    assert main(["compare", str(folder / "a0"), "--table", "clients"]) == 0
    assert "wasted s" in capsys.readouterr().out
    assert main(["compare", str(folder), "--table", "clients"]) == 2
    assert "there are 4: name one" in capsys.readouterr().err
    assert main(["compare", str(folder), "--against", "x"]) == 2
    assert "no label 'x'" in capsys.readouterr().err


def test_the_command_writes_any_table_in_any_format(tmp_path, capsys):
    folder = stored(small_run(), tmp_path / "run")
    assert main(["compare", folder, "--format", "csv", "--table", "groups"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["group_name"] for row in rows] == ["a", "b"]
    for ending in ("csv", "md", "tex", "arrow"):
        file = tmp_path / f"t.{ending}"
        assert main(["compare", folder, "-o", str(file)]) == 0
        assert capsys.readouterr().out == f"{file}\n"
        assert file.stat().st_size > 500
    assert main(["compare", folder, "-o", "t.xls"]) == 2


def test_runs_of_one_seed_are_compared_without_pairs(tmp_path, capsys):
    folders = [stored(small_run(label), tmp_path / f"{label}{i}") for label in "AB" for i in (0, 1)]
    assert main(["compare", *folders]) == 0
    out = capsys.readouterr().out
    assert "several runs of seed 0" in out
    assert "seed by seed" not in out
