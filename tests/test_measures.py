"""The measures by their identities, and every figure of a comparison by hand."""

import itertools
import json
import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gifair_ray.analysis import RunTables, compare, measures, render, summarise
from gifair_ray.errors import BadInput
from gifair_ray.tables import TABLES

NAN = math.nan


def array(*values):
    return np.array(values, dtype=float)


@st.composite
def populations(draw, smallest=1, fewest_samples=1):
    """Clients as (correct, samples, group), with several clients and groups of any size."""
    samples = draw(st.lists(st.integers(fewest_samples, 60), min_size=smallest, max_size=25))
    correct = [draw(st.integers(0, n)) for n in samples]
    groups = [draw(st.integers(0, 4)) for _ in samples]
    n = np.array(samples)
    return np.array(correct) / n, n, np.array(groups)


FIGURES = {
    "mean": lambda a, n, g: measures.mean_accuracy(a),
    "weighted": lambda a, n, g: measures.weighted_accuracy(a, n),
    "loss": lambda a, n, g: measures.mean_loss(a),
    "variance": lambda a, n, g: measures.variance(a),
    "deviation": lambda a, n, g: measures.deviation(a),
    "floor": lambda a, n, g: measures.noise_floor(a, n),
    "corrected variance": lambda a, n, g: measures.corrected_variance(a, n),
    "corrected deviation": lambda a, n, g: measures.corrected_deviation(a, n),
    "weighted variance": lambda a, n, g: measures.weighted_variance(a, n),
    "weighted floor": lambda a, n, g: measures.noise_floor(a, n, weighted=True),
    "weighted corrected": lambda a, n, g: measures.corrected_variance(a, n, weighted=True),
    "unlike by Jain": lambda a, n, g: 1 - measures.jain(a),
    "Gini": lambda a, n, g: measures.gini(a),
    "lowest decile": lambda a, n, g: measures.deciles(a)[0],
    "median": lambda a, n, g: measures.deciles(a)[4],
    "worst tenth": lambda a, n, g: measures.worst_tenth(a),
    "best tenth": lambda a, n, g: measures.best_tenth(a),
    "group variance": lambda a, n, g: measures.group_variance(a, g),
    "worst group": lambda a, n, g: measures.worst_group(a, g),
    "discrepancy": lambda a, n, g: measures.discrepancy(a, g),
    "loss spread": lambda a, n, g: measures.loss_spread(a, g),
}
LEVELS = {"mean", "weighted", "loss", "worst tenth", "best tenth", "worst group", "median"}
LEVELS |= {"lowest decile"}

each_figure = pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)


@each_figure
@given(data=st.data(), people=populations())
def test_the_order_of_the_clients_does_not_matter(figure, data, people):
    order = np.array(data.draw(st.permutations(range(len(people[0])))))
    there, here = figure(*people), figure(*(column[order] for column in people))
    assert there == here or (math.isnan(there) and math.isnan(here))


@each_figure
@given(people=populations(fewest_samples=2))
def test_every_figure_of_accuracies_is_a_fraction(figure, people):
    assert -1e-12 <= figure(*people) <= 1 + 1e-12


@each_figure
def test_no_clients_have_no_figures(figure):
    assert math.isnan(figure(array(), np.array([], int), np.array([], int)))


@each_figure
def test_an_undefined_accuracy_makes_every_figure_undefined(figure):
    assert math.isnan(figure(array(0.5, NAN, 1.0), np.array([4, 4, 4]), np.array([0, 0, 1])))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("samples", [1, 9])
def test_one_client_is_the_level_and_has_no_spread(name, samples):
    value = FIGURES[name](array(1.0), np.array([samples]), np.array([3]))
    assert value == (1.0 if name in LEVELS else 0.0)


@given(populations())
def test_the_levels_are_ordered(people):
    a, _, g = people
    worst, mean, best = measures.worst_tenth(a), measures.mean_accuracy(a), measures.best_tenth(a)
    assert worst <= mean + 1e-12
    assert mean <= best + 1e-12
    assert a.min() - 1e-12 <= measures.worst_group(a, g) <= a.max() + 1e-12


@given(populations())
def test_variance_is_half_the_mean_squared_difference_of_two_clients(people):
    a, _, _ = people
    pairs = (a[:, None] - a[None, :]) ** 2
    assert measures.variance(a) == pytest.approx(pairs.mean() / 2, abs=1e-12)
    assert measures.variance(a) <= 0.25 + 1e-12
    assert measures.deviation(a) ** 2 == pytest.approx(measures.variance(a), abs=1e-12)


@given(populations())
def test_with_a_group_per_client_group_fairness_is_individual_fairness(people):
    a, _, _ = people
    own = np.arange(len(a))
    assert measures.group_variance(a, own) == measures.variance(a)
    assert measures.discrepancy(a, own) == a.max() - a.min()


@given(populations())
def test_one_group_has_no_spread_between_groups(people):
    a, _, _ = people
    alone = np.full(len(a), 7)
    assert measures.group_variance(a, alone) == 0
    assert measures.discrepancy(a, alone) == 0
    assert measures.worst_group(a, alone) == measures.mean_accuracy(a)


@given(populations())
def test_between_groups_is_never_more_than_between_clients_of_equal_groups(people):
    a, _, _ = people
    a = np.repeat(a, 2)
    pairs = np.arange(len(a)) // 2
    inside = a + np.tile([0.1, -0.1], len(a) // 2)
    assert measures.group_variance(inside, pairs) <= measures.variance(inside) + 1e-12


@given(populations())
def test_equal_test_sets_make_weighted_and_unweighted_equal(people):
    a, _, _ = people
    same = measures.weighted_accuracy(a, np.full(len(a), 12))
    assert same == pytest.approx(measures.mean_accuracy(a), abs=1e-12)


@given(populations(smallest=2))
def test_the_corrected_variance_is_between_zero_and_the_raw_one(people):
    a, n, _ = people
    corrected = measures.corrected_variance(a, n)
    if (n < 2).all():
        assert math.isnan(corrected)
    else:
        assert 0 <= corrected <= measures.variance(a)
        rest = measures.variance(a) - measures.noise_floor(a, n)
        assert corrected == max(0.0, rest)


@given(populations(smallest=2, fewest_samples=2))
def test_the_correction_is_the_mean_binomial_variance(people):
    a, n, _ = people
    K = len(a)
    sample_variance = np.var(a, ddof=1)
    noise = (a * (1 - a) / (n - 1)).mean()
    expected = (K - 1) / K * (sample_variance - noise)
    rest = measures.variance(a) - measures.noise_floor(a, n)
    assert rest == pytest.approx(expected, abs=1e-12)


@given(populations())
def test_infinite_test_sets_need_no_correction(people):
    a, _, _ = people
    many = np.full(len(a), 10**9)
    raw = measures.variance(a)
    assert measures.corrected_variance(a, many) == pytest.approx(raw, abs=1e-8)


@pytest.mark.parametrize("sizes", [(2, 40), (1, 10)], ids=["several samples", "also one sample"])
def test_the_corrected_variance_is_unbiased_before_it_is_cut_off(sizes):
    """Binomial counts with known π_k; with n_k = 1 too, where all clients share π(1 − π)."""
    draw = np.random.default_rng(20)
    K, repeats = 30, 4000
    truth = draw.choice([0.3, 0.7], K) if sizes[0] == 1 else draw.uniform(0.4, 1.0, K)
    n = draw.integers(sizes[0], sizes[1] + 1, K)
    a = draw.binomial(n, truth, (repeats, K)) / n
    raw = np.array([measures.variance(row) for row in a])
    rest = raw - np.array([measures.noise_floor(row, n) for row in a])
    error = rest.std() / math.sqrt(repeats)
    assert abs(rest.mean() - np.var(truth)) < 4 * error
    assert raw.mean() - np.var(truth) > 20 * error  # which the raw variance is not


def test_a_client_with_one_sample_borrows_the_noise_of_the_others():
    # π(1 − π) from the client with four samples: 1/2 · 1/2 · 4/3 = 1/3; s² = 1/12 and 1/3
    floor = measures.noise_floor(array(0.5, 1.0), np.array([4, 1]))
    assert floor == pytest.approx(1 / 2 * (1 / 12 + 1 / 3) / 2)
    assert math.isnan(measures.noise_floor(array(0.0, 1.0), np.array([1, 1])))
    assert math.isnan(measures.corrected_deviation(array(0.0, 1.0), np.array([1, 1])))


def test_a_client_without_samples_is_refused():
    for measure in (measures.weighted_accuracy, measures.noise_floor):
        with pytest.raises(BadInput, match="leave it out"):
            measure(array(0.5, 0.5), np.array([3, 0]))
    with pytest.raises(BadInput, match="2 values but 1"):
        measures.group_means(array(0.5, 0.5), np.array([0]))


@pytest.mark.parametrize(("clients", "tail"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_a_tenth_of_the_clients_is_rounded_up(clients, tail):
    a = np.arange(clients) / 100
    assert measures.worst_tenth(a) == pytest.approx(a[:tail].mean())
    assert measures.best_tenth(a) == pytest.approx(a[-tail:].mean())


@given(populations())
def test_jain_and_gini_are_bounded_do_not_heed_the_scale_and_agree_on_equality(people):
    a, _, _ = people
    K = len(a)
    assert 1 / K - 1e-12 <= measures.jain(a) <= 1 + 1e-12
    assert 0 <= measures.gini(a) <= 1 - 1 / K + 1e-12
    assert measures.jain(a / 4) == pytest.approx(measures.jain(a))
    assert measures.gini(a / 4) == pytest.approx(measures.gini(a), abs=1e-12)
    if a.any():
        pairs = np.abs(a[:, None] - a[None, :]).sum() / (2 * K * a.sum())
        assert measures.gini(a) == pytest.approx(pairs, abs=1e-12)
    same = np.full(K, 0.3)
    assert (measures.jain(same), measures.gini(same)) == (pytest.approx(1), pytest.approx(0))


def test_one_client_with_everything_is_as_unequal_as_can_be():
    a = array(0, 0, 0, 1)
    assert (measures.jain(a), measures.gini(a)) == (0.25, 0.75)
    assert (measures.jain(array(0, 0)), measures.gini(array(0, 0))) == (1, 0)


@given(populations())
def test_equal_test_sets_make_weighted_and_unweighted_variances_equal(people):
    a, _, _ = people
    n = np.full(len(a), 12)
    assert measures.weighted_variance(a, n) == pytest.approx(measures.variance(a), abs=1e-12)
    floors = measures.noise_floor(a, n), measures.noise_floor(a, n, weighted=True)
    assert floors[0] == pytest.approx(floors[1], abs=1e-12)


def test_the_weighted_corrected_variance_is_unbiased_too():
    draw = np.random.default_rng(21)
    K, repeats = 30, 4000
    truth, n = draw.uniform(0.4, 1.0, K), draw.integers(2, 41, K)
    w = n / n.sum()
    wanted = (w * (truth - w @ truth) ** 2).sum()
    a = draw.binomial(n, truth, (repeats, K)) / n
    rest = np.array(
        [
            measures.weighted_variance(row, n) - measures.noise_floor(row, n, weighted=True)
            for row in a
        ]
    )
    assert abs(rest.mean() - wanted) < 4 * rest.std() / math.sqrt(repeats)


@given(populations())
def test_deciles_rise_from_the_worst_to_the_best_client(people):
    a, _, _ = people
    ladder = [a.min(), *measures.deciles(a), a.max()]
    assert all(low <= high + 1e-12 for low, high in itertools.pairwise(ladder))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=8), st.data())
def test_wrong_signs_are_the_pairs_that_change_places(exact, data):
    exact = np.array(exact, dtype=float)
    assert measures.wrong_signs(exact, exact) == 0
    assert measures.wrong_signs(3 * exact - 1, exact) == 0
    order = np.array(data.draw(st.permutations(range(len(exact)))))
    used = np.array(
        data.draw(st.lists(st.integers(0, 5), min_size=len(exact), max_size=len(exact)))
    )
    share = measures.wrong_signs(used.astype(float), exact)
    assert 0 <= share <= 1
    assert share == measures.wrong_signs(used[order].astype(float), exact[order])
    if len(set(exact)) == len(exact):
        assert measures.wrong_signs(-exact, exact) == 1
        assert measures.wrong_signs(np.full(len(exact), NAN), exact) == 0.5


def test_wrong_signs_by_hand():
    # pairs: (0,1) swapped, (0,2) right, (1,2) tied though they differ
    assert measures.wrong_signs(array(2, 1, 1), array(1, 2, 0)) == pytest.approx((1 + 0 + 0.5) / 3)
    assert math.isnan(measures.wrong_signs(array(1), array(1)))


def test_losses_that_are_not_finite():
    groups = np.array([0, 1])
    assert measures.loss_spread(array(1.0, math.inf), groups) == math.inf
    assert measures.loss_spread(array(math.inf, math.inf), groups) == math.inf
    assert math.isnan(measures.loss_spread(array(1.0, NAN), groups))


# --- one run, several runs ------------------------------------------------------------------------


def table(name, rows):
    return pa.Table.from_pylist([dict.fromkeys(TABLES[name].names) | r for r in rows], TABLES[name])


def evaluation(number, results, model="global", split="test", selected=True):
    """`results`: (client, loss, samples, correct[, selected ever])."""
    return [
        {
            "evaluation": number,
            "version": 10 * number,
            "time_s": 3600.0 * number,
            "client": client,
            "split": split,
            "model": model,
            "loss": loss,
            "samples": samples,
            "correct": correct,
            "selected_ever": ever[0] if ever else selected,
        }
        for client, loss, samples, correct, *ever in results
    ]


def make_run(rows, label="FedAvg", seed=0, groups=(0, 0, 1), **manifest):
    clients = [
        {"client": k, "group": g, "group_name": "ab"[g]} for k, g in reversed([*enumerate(groups)])
    ]
    tables = {"evaluations": table("evaluations", rows), "clients": table("clients", clients)}
    return RunTables.of(tables, {"label": label, "name": label, "seed": seed, **manifest})


# clients 0 and 1 in group a with accuracies .5 and 1, client 2 in group b with accuracy .25
LAST = [(0, 1.0, 2, 1), (1, 2.0, 4, 4), (2, 4.0, 8, 2)]


def test_a_summary_by_hand():
    rows = evaluation(1, [(k, 9.0, 2, 0) for k in range(3)]) + evaluation(3, LAST)
    rows += evaluation(4, LAST, split="train")
    (row,) = summarise(make_run(rows)).rows
    mean = (0.5 + 1 + 0.25) / 3
    raw = ((0.5 - mean) ** 2 + (1 - mean) ** 2 + (0.25 - mean) ** 2) / 3
    noise = (0.5 * 0.5 / 1 + 0 + 0.25 * 0.75 / 7) / 3 * 2 / 3
    # by samples: mean 1/2, weights 1/7, 2/7, 4/7
    weighted = 2 / 7 * 0.5**2 + 4 / 7 * 0.25**2
    weighted_noise = 1 / 7 * 6 / 7 * 0.25 + 4 / 7 * 3 / 7 * 0.25 * 0.75 / 7
    hand = {
        "rounds": 30,
        "virtual_hours": 3.0,
        "clients": 3,
        "never_selected": 0,
        "without_samples": 0,
        "mean_accuracy": mean,
        "weighted_accuracy": 7 / 14,
        "std_clients": math.sqrt(raw),
        "std_clients_corrected": math.sqrt(raw - noise),
        "std_noise": math.sqrt(noise),
        "variance_clients": raw,
        "variance_clients_corrected": raw - noise,
        "variance_weighted": weighted,
        "std_weighted": math.sqrt(weighted),
        "variance_weighted_corrected": weighted - weighted_noise,
        "std_weighted_corrected": math.sqrt(weighted - weighted_noise),
        "jain": 1.75**2 / (3 * (0.25 + 1 + 0.0625)),
        "gini": (0.25 + 0.5 + 0.75) * 2 / (2 * 3 * 1.75),
        "variance_groups": 0.25**2,  # the groups have .75 and .25
        "worst_tenth": 0.25,
        "best_tenth": 1.0,
        "worst_group": 0.25,
        "discrepancy": 0.5,
        "mean_loss": 7 / 3,
        "loss_spread": 2.5,  # the groups have 1.5 and 4
    }
    for name, value in hand.items():
        assert getattr(row, name) == pytest.approx(value), name
    # sorted .25, .5, 1: from .25 to .5 up to the median, from .5 to 1 above it
    expected = [0.25 + 0.05 * i for i in range(1, 6)] + [0.5 + 0.1 * i for i in range(1, 5)]
    assert row.deciles == pytest.approx(expected)
    assert row.model == "global"
    assert [(g.number, g.name, g.clients, g.accuracy, g.loss) for g in row.groups] == [
        (0, "a", 2, 0.75, 1.5),
        (1, "b", 1, 0.25, 4.0),
    ]


def test_personal_models_of_clients_that_never_took_part_are_left_out_and_counted():
    personal = [(0, 1.0, 2, 2, True), (1, 5.0, 4, 0, False), (2, 3.0, 8, 4, True)]
    rows = evaluation(1, LAST) + evaluation(1, personal, "personal")
    glob, own = summarise(make_run(rows)).rows
    assert (glob.model, glob.clients, glob.never_selected) == ("global", 3, 0)
    assert (own.model, own.clients, own.never_selected) == ("personal", 2, 1)
    assert own.mean_accuracy == 0.75
    assert own.loss_spread == 2.0
    nobody = evaluation(1, LAST) + evaluation(1, LAST, "personal", selected=False)
    _, own = summarise(make_run(nobody)).rows
    assert (own.clients, own.never_selected, own.groups) == (0, 3, ())
    assert math.isnan(own.mean_accuracy)


def test_clients_without_samples_are_left_out_and_counted():
    rows = evaluation(1, [*LAST[:2], (2, None, 0, 0)])
    (row,) = summarise(make_run(rows)).rows
    assert (row.clients, row.without_samples, row.mean_accuracy) == (2, 1, 0.75)
    (note,) = json.loads(compare([make_run(rows)]).schema.metadata[b"notes"])
    assert "without 1 of 3 clients, which have no test samples" in note


def test_a_summary_refuses_what_it_cannot_know():
    with pytest.raises(BadInput, match=r"'dev'.*train, val, test"):
        summarise(make_run(evaluation(1, LAST)), "dev")
    with pytest.raises(BadInput, match="clients that its table `clients` does not list"):
        summarise(make_run(evaluation(1, LAST), groups=(0, 0)))
    assert summarise(make_run([])).rows == ()


def test_a_comparison_by_hand():
    better = [(0, 1.0, 2, 2), (1, 1.0, 4, 4), (2, 2.0, 8, 6)]
    runs = [
        make_run(evaluation(2, LAST), "FedAvg", 0),
        make_run(evaluation(2, LAST), "GIFAIR", 0),
        make_run(evaluation(4, better) + evaluation(4, better, "personal"), "GIFAIR", 1),
    ]
    result = compare(runs)
    assert result.select(["label", "model", "seeds"]).to_pylist() == [
        {"label": "FedAvg", "model": "global", "seeds": 1},
        {"label": "GIFAIR", "model": "global", "seeds": 2},
        {"label": "GIFAIR", "model": "personal", "seeds": 1},
    ]
    single, both, _ = result.to_pylist()
    two = [summarise(run).rows[0] for run in runs[1:]]
    of_row = [f.name for f in result.schema if hasattr(two[0], f.name) and f.name != "model"]
    assert len(of_row) > 20
    for figure in of_row:
        name = f"{figure}_sd"
        first, second = (getattr(row, figure) for row in two)
        assert single[figure] == pytest.approx(first)
        assert single[name] is None
        assert both[figure] == pytest.approx((first + second) / 2)
        assert both[name] == pytest.approx(abs(first - second) / math.sqrt(2))
    assert (both["rounds"], both["virtual_hours"]) == (30, 3.0)
    assert both["discrepancy"] == pytest.approx((0.5 + 0.25) / 2)
    assert both["variance_groups"] == pytest.approx((1 / 16 + 1 / 64) / 2)


def notes(*runs):
    return json.loads(compare(runs).schema.metadata[b"notes"])


def test_a_comparison_notes_what_a_reader_must_know():
    good = evaluation(1, LAST)
    assert notes(make_run(good, "A", 1), make_run(good, "B", 1)) == []
    (paired,) = notes(make_run(good, "A", 1), make_run(good, "B", 2))
    assert "different seeds" in paired
    (twice,) = notes(make_run(good, "A", 3), make_run(good, "A", 3))
    assert "several runs of seed 3" in twice
    for status in ("running", "interrupted", "failed"):
        (unfinished,) = notes(make_run(good, "A", 5, status=status))
        assert unfinished.startswith(f"A (seed 5): {status}")
    (empty,) = notes(make_run(good, "A"), make_run([], "B"))
    assert empty == "B (seed 0): left out, has no evaluation of split test"
    half = evaluation(1, LAST, "personal", selected=False)
    (left,) = notes(*(make_run(good + half, "A", seed) for seed in (1, 0)))
    assert left.startswith("A (seed 0, 1): personal: without 3 of 3 clients")


def test_a_comparison_of_nothing_is_refused():
    for runs in ([], [make_run([])]):
        with pytest.raises(BadInput, match=f"none of the {len(runs)} runs has evaluated"):
            compare(runs)


def shown(*runs):
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(render(compare(runs)))
    return capture.get()


def test_the_terminal_shows_percent_with_the_deviation_over_seeds():
    better = [(0, 1.0, 2, 2), (1, 1.0, 4, 4), (2, 2.0, 8, 6)]
    runs = [make_run(evaluation(2, r), "[b]GIFAIR", s) for s, r in enumerate((LAST, better))]
    text = shown(*runs, make_run(evaluation(2, LAST), "FedAvg" * 6, status="running"))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert "…" not in text
    row = next(i for i, line in enumerate(lines) if "[b]GIFAIR" in line)
    assert "75.0" in lines[row]  # mean of 58.3 and 91.7
    assert "(23.6)" in lines[row + 1]
    assert "390.6" in lines[row]  # (1/16 + 1/64)/2 in %²
    assert "running" in text


def test_the_terminal_fits_full_columns_in_120():
    wide = [(0, 123.456, 2, 2), (1, 99.9, 4, 4), (2, 1e5, 8, 0)]
    rows = [evaluation(2000, wide), evaluation(2000, [(k, 1.5, 9, 0) for k in range(3)])]
    every = [row + [{**r, "model": "personal"} for r in row] for row in rows]
    text = shown(*(make_run(r, "GIFAIR λ = 0.9 λmax", s) for s, r in enumerate(every)))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 120
    for figure in ("20000", "2000", "50.0", "personal"):
        assert figure in text


def test_a_task_without_accuracies_shows_its_losses():
    rows = evaluation(1, [(k, loss, n, None) for k, loss, n, _ in LAST])
    line = compare([make_run(rows)]).to_pylist()[0]
    assert (line["mean_loss"], line["loss_spread"]) == (pytest.approx(7 / 3), 2.5)
    undefined = {name for name, value in line.items() if value is None and name[-3:] != "_sd"}
    never = {
        "wasted_share",
        "wrong_signs",
        "loss_age",
        "delta",
        "lambda_fraction",
    }  # no such tables
    assert undefined - never == {
        *(f"decile_{i}" for i in range(1, 10)),
        *(f"{name}_to_target" for name in ("rounds", "hours", "megabytes")),
        *(f"{name}_weighted{end}" for name in ("std", "variance") for end in ("", "_corrected")),
        "variance_clients",
        "variance_clients_corrected",
        "jain",
        "gini",
        "mean_accuracy",
        "weighted_accuracy",
        "std_clients",
        "std_clients_corrected",
        "std_noise",
        "variance_groups",
        "worst_tenth",
        "best_tenth",
        "worst_group",
        "discrepancy",
    }
    row = next(line for line in shown(make_run(rows)).splitlines() if "FedAvg" in line)
    assert row.split()[-10:] == ["-"] * 7 + ["2.333", "2.500", "-"]


def test_the_package_does_not_import_matplotlib_until_a_figure_is_asked_for():
    code = (
        "import sys, gifair_ray.analysis as a; assert 'matplotlib' not in sys.modules;"
        "a.group_losses; assert 'matplotlib' in sys.modules; assert callable(a.load)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
