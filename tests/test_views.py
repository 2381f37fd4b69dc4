"""The tables behind the report's figures: by hand, and small whatever the size of the runs."""

import numpy as np
import pyarrow as pa
import pytest
from by_hand import CLIENTS, DISPATCHES, HOUR, small_run, table

from gifair_ray.analysis import (
    RunTables,
    compare,
    compare_by_group,
    figures,
    style,
    system_figures,
    views,
)
from gifair_ray.analysis.gantt import gantt
from gifair_ray.analysis.sensitivity import sensitivity
from gifair_ray.analysis.systems import fronts
from gifair_ray.analysis.timeline import MOST_CLIENTS, MOST_DISPATCHES, timeline
from gifair_ray.errors import BadInput

BETTER = ((0, 0, 0), (8, 6, 1), (9, 7, 7))


def test_groups_over_time_are_means_with_the_range_of_seeds():
    rows = views.over_time([small_run(seed=0), small_run(seed=1, courses=BETTER)]).to_pylist()
    assert [(row["group"], row["rounds"]) for row in rows] == [
        (group, i) for i in range(3) for group in "ab"
    ]
    last = rows[-1]
    assert (last["accuracy"], last["accuracy_low"], last["accuracy_high"]) == pytest.approx(
        (0.6, 0.5, 0.7)
    )
    assert (last["loss"], last["loss_low"], last["loss_high"]) == pytest.approx((1.4, 1.3, 1.5))
    assert (last["hours"], last["seeds"]) == (1.0, 2)


def test_a_seed_that_is_behind_counts_as_far_as_it_is():
    behind = small_run(seed=1, courses=BETTER[:2])
    rows = views.over_time([small_run(seed=0), behind]).to_pylist()
    assert [row["seeds"] for row in rows] == [2, 2, 2, 2, 1, 1]


def many_groups(groups, evaluations):
    rows = [
        {
            "evaluation": e,
            "version": e,
            "time_s": float(e),
            "split": "test",
            "model": "global",
            "group": i,
            "accuracy": i / groups,
            "loss": 1 - i / groups,
        }
        for e in range(evaluations)
        for i in range(groups)
    ]
    return RunTables.of({"groups": table("groups", rows)})


def test_many_groups_and_many_moments_make_a_small_table():
    rows = views.over_time([many_groups(50, 900)]).to_pylist()
    assert len(rows) <= 3 * views.MOMENTS
    assert rows[-1]["rounds"] == 899
    last = {row["group"]: (row["accuracy"], row["loss"]) for row in rows[-3:]}
    assert last == {
        "worst group": (0, 1),
        "median group": (pytest.approx(0.49), pytest.approx(0.51)),
        "best group": (pytest.approx(0.98), pytest.approx(0.02)),
    }


def test_clients_of_all_seeds_are_pooled():
    (row,) = views.over_clients([small_run(seed=0), small_run(seed=1, courses=BETTER)]).to_pylist()
    assert (row["clients"], row["measure"]) == (6, "accuracy")  # .5 .7 .7 .7 .9 .9
    assert (row["q0"], row["q50"], row["q100"]) == pytest.approx((0.5, 0.7, 0.9))
    assert row["mean"] == pytest.approx(4.4 / 6)


def in_folder(run, folder, scenario):
    folder.mkdir()
    (folder / "scenario.toml").write_text(scenario)
    return RunTables(folder, run.manifest, run.tables)


def with_lambda(label, fraction, folder, ranks="exact"):
    run = small_run(label, plain=fraction == 0)
    rounds = run.table("rounds").to_pylist()
    for row in rounds:
        row["lam"], row["lam_max"] = (fraction * 0.2, 0.2) if fraction else (None, None)
    run = RunTables.of(dict(run.tables) | {"rounds": table("rounds", rounds)}, run.manifest)
    weighting = f'ranks = "{ranks}"\nlambda_fraction = {fraction}' if fraction else 'kind = "plain"'
    return in_folder(run, folder, f"seed = 0\n[weighting]\n{weighting}\n")


def test_a_series_is_what_differs_in_lambda_alone(tmp_path):
    runs = [
        with_lambda("FedAvg", 0, tmp_path / "0"),
        with_lambda("exact .9", 0.9, tmp_path / "1"),
        with_lambda("exact .3", 0.3, tmp_path / "2"),
        with_lambda("received .3", 0.3, tmp_path / "3", "received"),
    ]
    rows = sensitivity(runs, compare(runs)).to_pylist()
    assert [(row["series"], row["label"], round(row["lambda_fraction"], 9)) for row in rows] == [
        ("ranks exact", "FedAvg", 0.0),
        ("ranks exact", "exact .3", 0.3),
        ("ranks exact", "exact .9", 0.9),
        ("ranks received", "FedAvg", 0.0),
        ("ranks received", "received .3", 0.3),
    ]
    assert len(sensitivity(runs[1:2], compare(runs[1:2]))) == 0


def test_ranks_are_those_of_the_audits_in_use():
    rows = views.ranks([small_run()]).to_pylist()
    assert [row["rounds"] for row in rows] == [0, 1]  # the last audit is of no round
    assert [row["wrong_signs"] for row in rows] == [0.5, 1]
    assert [row["age_mean"] for row in rows] == [None, 2]
    assert [row["delta"] for row in rows] == [0, 0.6]


def test_the_front_is_what_no_other_beats_in_both():
    comparison = compare([small_run("a"), small_run("b", courses=BETTER)])
    dear = comparison.to_pylist()
    dear[1]["virtual_hours"] = 2.0
    table_ = fronts(pa.Table.from_pylist(dear, comparison.schema))
    assert table_["front_virtual_hours"].to_pylist() == [True, True]  # cheaper, and fairer
    assert table_["front_megabytes"].to_pylist() == [False, True]  # as cheap, and fairer


# --- timeline -------------------------------------------------------------------------------------


def test_a_timeline_is_sorted_by_group_and_client():
    stretch = timeline(small_run())
    assert (stretch.first, stretch.last, stretch.updates_s) == (1, 2, (5.0, HOUR))
    rows = stretch.dispatches.to_pylist()
    assert [row["client"] for row in rows] == [0, 0, 1, 2, 2, 2]
    assert [row["name"] for row in rows[:3]] == ["x", "x", "y"]
    assert [row["until_s"] for row in rows] == [4, 12, 11, 5, 9, 14]  # a reply, or the notice
    assert timeline(small_run(), (2, 2)).dispatches["round"].to_pylist() == [2] * 4
    assert timeline(small_run(), (3, 9)) is None
    with pytest.raises(BadInput, match="rounds 3 to 2 are no stretch"):
        timeline(small_run(), (3, 2))


def crowded(clients, rounds):
    """A run in which everybody takes part in every round."""
    rows = [
        DISPATCHES[0] | {"dispatch": r * clients + k, "round": r + 1, "client": k, "send_s": r}
        for r in range(rounds)
        for k in range(clients)
    ]
    people = [CLIENTS[0] | {"client": k, "group": k % 2} for k in range(clients)]
    tables = {"dispatches": table("dispatches", rows), "clients": table("clients", people)}
    return RunTables.of(tables)


@pytest.mark.parametrize(("clients", "rounds", "last"), [(50, 30, 12), (5, 100, 40), (500, 3, 1)])
def test_a_timeline_is_no_more_than_can_be_read(clients, rounds, last):
    stretch = timeline(crowded(clients, rounds))
    assert stretch.last == last
    assert len(stretch.dispatches) <= MOST_DISPATCHES
    assert len(set(stretch.dispatches["client"].to_pylist())) == min(clients, MOST_CLIENTS)
    assert stretch.left_out == max(0, clients - MOST_CLIENTS)


def test_a_stretch_that_cannot_be_drawn_is_refused():
    with pytest.raises(BadInput, match="too many to draw"):
        timeline(crowded(200, 30), (1, 30))


# --- figures --------------------------------------------------------------------------------------


def test_figures_show_the_numbers_of_their_tables():
    runs = [small_run("A", s) for s in range(2)] + [small_run("B", s, BETTER) for s in range(2)]
    over_time = views.over_time(runs)
    figure = figures.curves(over_time, "B", "accuracy", "hours")
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [trace.name for trace in lines] == ["a", "b"]
    np.testing.assert_allclose(lines[1].y, [0, 10, 70])
    np.testing.assert_allclose(lines[1].x, [0, 5 / 60, 60])
    assert figure.layout.xaxis.title.text == "virtual time (minutes)"
    assert figure.layout.yaxis.title.text == "accuracy (%)"
    figure.update_layout(title="mine")  # it can be changed
    front = system_figures.pareto(fronts(compare(runs)), "megabytes")
    assert [trace.name for trace in front.data][:3] == ["Pareto front", "1 A", "2 B"]
    np.testing.assert_allclose(front.data[2].y, [10])  # .8 − .7, in points


def numbered(drawn):
    """The numbers beside the marks of a figure, from top to bottom."""
    texts = drawn.data[-1]
    assert texts.mode == "text"
    return [text.strip() for text in texts.text]


def test_marks_that_lie_on_each_other_share_a_text():
    """Gaps of 40, 10 and 0 points, three, two and one of them, at the same cost."""
    lasts = (9, 9, 5), (9, 9, 5), (9, 9, 5), (9, 9, 8), (9, 9, 8), (9, 9, 9)
    runs = [small_run(str(i), 0, (*BETTER[:2], last)) for i, last in enumerate(lasts)]
    table = fronts(compare(runs))
    assert numbered(system_figures.pareto(table, "megabytes")) == ["1–3", "4, 5", "6"]
    one = system_figures.participation(compare_by_group(runs), "weight_ratio")
    assert numbered(one)[-3:] == ["6", "4, 5", "1–3"]  # of group b
    assert len(one.data) == 3
    many = [small_run(f"label {i}", 0) for i in range(7)]
    assert len(system_figures.participation(compare_by_group(many)).data) == 2  # hover tells


def test_a_gantt_chart_has_two_bars_for_a_dispatch_and_tells_outcomes_and_groups_apart():
    stretch = timeline(small_run())
    outcome, group = gantt(stretch, "outcome"), gantt(stretch, "group")
    for chart, names in (
        (outcome, {"completed", "dropped", "late", "too-stale"}),
        (group, set("ab")),
    ):
        assert {trace.name for trace in chart.data} == names
        assert sum(len(trace.y) for trace in chart.data) == 2 * 6
        assert len({trace.marker.color for trace in chart.data}) == 2 * len(names)
    assert list(outcome.layout.yaxis.ticktext) == ["x · a", "y · a", "z · b"]
    patterns = {trace.marker.pattern.shape for trace in outcome.data if trace.showlegend}
    assert len(patterns) == 4  # not by colour alone


def test_long_labels_are_cut_and_told_apart():
    first, second = style.told_apart(["x" * 90 + "1", "x" * 90 + "2"], 20)
    assert first != second
    assert max(map(len, first.split("<br>"))) <= 24
    assert style.wrapped("<b>a</b>") == "&lt;b&gt;a&lt;/b&gt;"
