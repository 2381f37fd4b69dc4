"""Figures: that they show the numbers of the tables, and can be drawn for any run."""

import io
import math

import numpy as np
import pyarrow as pa
import pytest

from gifair_ray.analysis import RunTables, by_lambda, compare_groups, group_losses
from gifair_ray.analysis.plots import COLOURS, MOST
from gifair_ray.errors import BadInput
from gifair_ray.tables import TABLES

HOUR = 3600.0
LAMBDA = r"$\lambda\,/\,\lambda_{\max}$"


def table(name, rows):
    return pa.Table.from_pylist([dict.fromkeys(TABLES[name].names) | r for r in rows], TABLES[name])


def make_run(losses, ranks=(), exact=None, correct=None, label="GIFAIR", seed=0, names=str):
    """`losses` and `ranks`: a row per hour, a column per group; `correct`: of 10, a client each."""
    moments = [
        {"evaluation": e, "version": e, "time_s": e * HOUR, "model": "global"}
        for e in range(len(losses))
    ]
    groups = [
        m | {"split": "train", "group": i, "loss": loss}
        for m, row in zip(moments, losses, strict=True)
        for i, loss in enumerate(row)
    ]
    audits = [
        {"version": v, "time_s": v * HOUR, "group": i, "r_used": r, "r_exact": e}
        for v, (used, true) in enumerate(zip(ranks, exact or ranks, strict=True))
        for i, (r, e) in enumerate(zip(used, true, strict=True))
    ]
    d = len(losses[0])
    clients = [{"client": i, "group": i, "group_name": names(i)} for i in range(d)]
    results = [
        moments[-1]
        | {"client": i, "split": "test", "loss": losses[-1][i], "samples": 10, "correct": c}
        for i, c in enumerate(correct or [None] * d)
    ]
    tables = {"groups": groups, "ranks": audits, "clients": clients, "evaluations": results}
    manifest = {"label": label, "name": label, "seed": seed}
    return RunTables.of({name: table(name, rows) for name, rows in tables.items()}, manifest)


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def drawn(figure):
    """The figure's image, which also shows that it can be laid out and drawn without a warning."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=40)
    return buffer.getvalue()


def test_losses_and_ranks_over_virtual_time():
    run = make_run(
        [[2.0, 2.0], [1.0, 1.5], [0.5, 1.0]],
        ranks=[[0, 0], [-1, 1], [None, None]],
        exact=[[0, 0], [1, -1], [-1, 1]],
        names=lambda i: f"g{i}",
    )
    figure = group_losses(run)
    top, bottom = figure.axes
    assert texts(top.get_legend()) == ["g1", "g0"]  # the worst at the end comes first
    worst, best = top.lines
    assert worst.get_color() == COLOURS[1]
    np.testing.assert_allclose(worst.get_xydata(), [[0, 2.0], [1, 1.5], [2, 1.0]])
    np.testing.assert_allclose(best.get_xydata(), [[0, 2.0], [1, 1.0], [2, 0.5]])
    assert top.get_shared_x_axes().joined(top, bottom)
    assert bottom.get_xlabel() == "virtual time (hours)"
    step, wrong = bottom.lines[:2]
    np.testing.assert_allclose(step.get_xydata(), [[0, 0], [1, -1], [2, -1]], atol=0.1)
    np.testing.assert_allclose(wrong.get_xydata(), [[1, 1]], atol=0.1)
    assert drawn(figure).startswith(b"\x89PNG")


def test_without_ranks_there_is_one_panel():
    for ranks in ((), [[None, None]]):
        figure = group_losses(make_run([[1.0, 2.0], [1.0, 1.0]], ranks=ranks))
        assert len(figure.axes) == 1
        drawn(figure)


@pytest.mark.parametrize("d", [1, MOST, MOST + 1, 100])
def test_any_number_of_groups(d):
    draw = np.random.default_rng(d)
    losses = draw.uniform(0, 1, (6, d)).tolist()
    ranks = draw.integers(-d, d + 1, (6, d)).tolist()
    figure = group_losses(make_run(losses, ranks))
    shown = texts(figure.axes[0].get_legend())
    if d <= MOST:
        assert len(shown) == d
    else:
        worst, best = int(np.argmax(losses[-1])), int(np.argmin(losses[-1]))
        assert shown == ["range", "median", f"worst: {worst}", f"best: {best}"]
    drawn(figure)
    runs = [make_run(losses, correct=draw.integers(0, 11, d).tolist(), seed=s) for s in range(2)]
    drawn(compare_groups(runs))


@pytest.mark.parametrize("d", [3, 20])
def test_losses_that_are_not_finite_leave_a_gap(d):
    losses = [[1.0] * d, [math.nan] * d, [math.inf] + [2.0] * (d - 1), [None] + [1.5] * (d - 1)]
    drawn(group_losses(make_run(losses)))
    drawn(group_losses(make_run(losses[:2])))
    drawn(group_losses(make_run(losses[:1])))


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(1, "seconds"), (119, "seconds"), (120, "minutes"), (7200, "hours"), (172_800, "days")],
)
def test_the_unit_of_time_fits_the_run(seconds, unit):
    run = make_run([[1.0]])
    late = run.table("groups").to_pylist()[0] | {"time_s": float(seconds)}
    tables = {"groups": table("groups", [late])}
    axis = group_losses(RunTables.of(tables)).axes[0]
    assert axis.get_xlabel() == f"virtual time ({unit})"
    assert texts(axis.get_legend()) == ["group 0"]  # there is no table of clients to name it


def test_groups_by_label_show_every_seed_and_the_mean():
    losses = [[1.0, 1.0]]
    runs = [
        make_run(losses, correct=[9, 3], label="FedAvg", seed=0),
        make_run(losses, correct=[7, 5], label="FedAvg", seed=1),
        make_run(losses, correct=[6, 6], label="GIFAIR", seed=0),
    ]
    (ax,) = compare_groups(runs).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["FedAvg", "GIFAIR"]
    assert ax.get_xlabel() == "group accuracy (test, %)"
    assert texts(ax.get_legend()) == ["0", "1", "one seed"]
    bar, dots, mean, *_ = ax.lines
    np.testing.assert_allclose(bar.get_xdata(), [40, 80])
    np.testing.assert_allclose(dots.get_xdata(), [90, 70])
    np.testing.assert_allclose(mean.get_xdata(), [80])


def test_a_group_has_the_same_colour_in_both_figures():
    run = make_run([[1.0, 2.0, 3.0]], correct=[1, 2, 3], names=lambda i: "zyx"[i])
    (over_time,), (by_label,) = group_losses(run).axes, compare_groups([run]).axes
    found = [
        {
            text.get_text(): handle.get_color()
            for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
        }
        for legend in (over_time.get_legend(), by_label.get_legend())
    ]
    assert {name: found[1][name] for name in "xyz"} == found[0]


def test_a_task_without_accuracies_is_compared_by_its_losses():
    (ax,) = compare_groups([make_run([[1.0, 3.0]])]).axes
    assert ax.get_xlabel() == "group loss $L_i$ (test)"
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [1.0, 3.0])


def with_lambda(fraction, correct, seed=0):
    run = make_run([[1.0] * len(correct)], correct=correct, label=f"f {fraction}", seed=seed)
    rounds = [{"round": 1, "time_s": 1.0, "lam": fraction * 0.2 or None, "lam_max": 0.2}]
    rounds[0] |= {"bytes_down": 0, "bytes_up": 0}
    return RunTables.of(dict(run.tables) | {"rounds": table("rounds", rounds)}, run.manifest)


def test_groups_by_lambda_are_means_over_seeds_with_their_deviation():
    runs = [with_lambda(0.5, [8, 6]), with_lambda(0.0, [9, 3]), with_lambda(0.5, [8, 4], seed=1)]
    figure = by_lambda(runs)
    ax, last = figure.axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == (LAMBDA, "accuracy (test, %)")
    assert texts(figure.legends[0]) == ["0", "1"]
    first, second = (container.lines[0] for container in ax.containers)
    np.testing.assert_allclose(first.get_xydata(), [[0, 90], [0.5, 80]])
    np.testing.assert_allclose(second.get_xydata(), [[0, 30], [0.5, 50]])
    (bars,) = ax.containers[1].lines[2]
    low, high = bars.get_segments()[1][:, 1]
    assert (low, high) == pytest.approx((50 - 200**0.5, 50 + 200**0.5))
    (discrepancy,) = (container.lines[0] for container in last.containers)
    np.testing.assert_allclose(discrepancy.get_xydata(), [[0, 60], [0.5, 30]])
    by_seed = [line.get_xydata().tolist() for line in last.lines if line is not discrepancy]
    np.testing.assert_allclose(by_seed[0], [[0, 60], [0.5, 20]])
    np.testing.assert_allclose(by_seed[1], [[0.5, 40]])
    drawn(figure)


def ranked(run, folder, ranks):
    folder.mkdir()
    (folder / "scenario.toml").write_text(f'[weighting]\nranks = "{ranks}"\n')
    return RunTables(folder, run.manifest, run.tables)


def test_every_kind_of_ranks_has_a_panel_and_starts_at_lambda_0(tmp_path):
    runs = [
        ranked(with_lambda(f, correct), tmp_path / f"{ranks}{f}", ranks)
        for ranks, f, correct in (
            ("estimated", 0.0, [9, 3]), ("estimated", 0.5, [8, 4]), ("received", 0.5, [7, 6]),
        )
    ]  # fmt: skip
    figure = by_lambda(runs)
    *panels, last = figure.axes
    assert [ax.get_title() for ax in panels] == ["Estimated ranks", "Received ranks"]
    ends = [[c.lines[0].get_ydata().tolist() for c in ax.containers] for ax in panels]
    np.testing.assert_allclose(ends, [[[90, 80], [30, 40]], [[90, 70], [30, 60]]])
    assert texts(figure.legends[0]) == ["0", "1", "estimated ranks", "received ranks"]
    gaps = [container.lines[0].get_ydata().astype(float) for container in last.containers]
    np.testing.assert_allclose(gaps, [[60, 40], [60, 10]])
    drawn(figure)


def test_many_groups_by_lambda_are_the_mean_and_the_deviation_of_clients():
    axes = by_lambda([with_lambda(f, [5] * 5 + [9] * 5) for f in (0.0, 0.9)]).axes
    wanted = ["mean of clients (test, %)", "std of clients, corrected (points)"]
    assert [ax.get_ylabel() for ax in axes] == wanted
    assert axes[1].get_xlabel() == LAMBDA
    mean, std = (ax.containers[0].lines[0].get_ydata().astype(float) for ax in axes)
    np.testing.assert_allclose(mean, [70, 70])
    noise = 0.9 * (0.25 / 9 + 0.09 / 9) / 2  # (K−1)/K times the mean of a(1 − a)/(n − 1)
    np.testing.assert_allclose(std, [100 * math.sqrt(0.04 - noise)] * 2)


def test_names_are_shown_as_they_are():
    run = make_run([[1.0, 2.0]], correct=[1, 2], label=r"_cost $\frac$", names=lambda i: f"_${i}")
    drawn(group_losses(run))
    figure = compare_groups([run])
    drawn(figure)
    assert len(texts(figure.axes[0].get_legend())) == 3


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(BadInput, match="no evaluation of split 'val'"):
        group_losses(make_run([[1.0]]), "val")
    with pytest.raises(BadInput, match="no run has evaluated split 'val'"):
        compare_groups([make_run([[1.0]])], "val")
