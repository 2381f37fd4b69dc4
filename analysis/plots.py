"""Figures for papers and READMEs, drawn with matplotlib; nothing global is touched.

Every function returns a `matplotlib.figure.Figure`: save it with `figure.savefig("name.pdf")`.
Up to eight groups have a colour each (after Okabe and Ito, told apart by all common kinds of colour
vision) and a marker; of more, the best and the worst are shown, and the range of all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from gifair_ray.analysis.load import RunTables
from gifair_ray.analysis.series import Series, group_results, loss_series, rank_series

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F6A2A")
MARKERS = "osD^v<>p"
MOST = len(COLOURS)  # groups that are shown one by one
BEST, WORST, GREY = COLOURS[0], COLOURS[1], "#8A8A8A"
WIDTH = 6.5  # inches: the text of a page
SMALL = 8.0  # points


def group_losses(run: RunTables, split: str = "train") -> Figure:
    """The groups' losses L_i of the global model, and the ranks r_i, over virtual time.

    The lower panel shows the ranks that the server used, as audited (a step lasts until the next
    audit), with a cross at the exact rank where the two differ. It is left out where there is
    none, as for a weighting without ranks.
    """
    losses, ranks = loss_series(run, split), rank_series(run)
    end_s = max(float(series.time_s.max()) for series in (losses, *(ranks or ())))
    unit, seconds = _time_unit(end_s)
    panels = 2 if ranks else 1
    figure = Figure(figsize=(WIDTH, 1.2 + 1.7 * panels), layout="constrained")
    axes = figure.subplots(panels, squeeze=False, sharex=True, height_ratios=[3, 2][:panels])[:, 0]
    colours = _draw_losses(axes[0], losses, seconds)
    axes[0].set_ylabel(f"group loss $L_i$ ({split})")
    axes[0].set_title(safe(run.manifest["label"]), fontsize=SMALL + 1, loc="left")
    if ranks:
        _draw_ranks(axes[1], *ranks, colours, seconds, end_s)
        axes[1].set_ylabel("rank $r_i$")
    axes[-1].set_xlabel(f"virtual time ({unit})")
    for ax in axes:
        plain(ax)
    return figure


def _draw_losses(ax: Axes, losses: Series, seconds: float) -> dict[int, str]:
    """Draw the lines and their legend, from the worst group down; the colours of those shown."""
    t, L, d = losses.time_s / seconds, losses.values, len(losses.groups)
    order = [int(j) for j in np.argsort(-L[-1], kind="stable")]  # nan, if any, comes last
    if d <= MOST:
        shown = [(j, COLOURS[j], "") for j in order]
    else:
        best = max(int((~np.isnan(L[-1])).sum()) - 1, 1)
        shown = [(order[0], WORST, "worst: "), (order[best], BEST, "best: ")]
        some = ~np.isnan(L).all(axis=1)
        low, middle, high = np.nanquantile(L[some], (0, 0.5, 1), axis=1)
        ax.fill_between(t[some], low, high, color=GREY, alpha=0.3, linewidth=0, label="range")
        ax.plot(t[some], middle, color="black", linestyle="--", linewidth=1, label="median")
    marker = "o" if len(t) == 1 else ""
    for j, colour, prefix in shown:
        label = safe(prefix + losses.names[j])
        ax.plot(t, L[:, j], color=colour, linewidth=1.4, marker=marker, label=label)
    _legend(ax, title=f"{d} groups" if d > MOST else None)
    return {int(losses.groups[j]): colour for j, colour, _ in shown}


def _draw_ranks(
    ax: Axes, used: Series, exact: Series, colours: Mapping[int, str], seconds: float, end_s: float
) -> None:
    t = np.append(used.time_s, end_s) / seconds
    shown = [j for j, group in enumerate(used.groups) if int(group) in colours]
    size = 4.5 if len(t) <= 80 else 2.5
    for place, j in enumerate(shown):
        colour = colours[int(used.groups[j])]
        apart = 0.12 * (place - (len(shown) - 1) / 2)  # so that ties can be seen
        r, r_exact = used.values[:, j] + apart, exact.values[:, j] + apart
        ax.hlines(r, t[:-1], t[1:], color=colour, linewidth=1.6)
        ax.step(t, np.append(r, r[-1]), where="post", color=colour, linewidth=0.6, alpha=0.5)
        wrong = r_exact != r
        ax.plot(t[:-1][wrong], r_exact[wrong], "x", color=colour, markersize=size)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    line = Line2D([], [], color=GREY, linewidth=1.6, label="used by the server")
    _legend(ax, [line, _mark("exact, if different", GREY, "x")])


def compare_groups(runs: Iterable[RunTables], split: str = "test") -> Figure:
    """The groups' accuracies (losses, where there are none) at the last evaluation, by label.

    One row per label and model: a marker per group at its mean over the seeds, a bar from the worst
    group to the best, and below it a dot per group and seed.
    """
    results = group_results(runs, split)
    names, d = results.names, len(results.names)
    if d <= MOST:
        looks = {name: (COLOURS[i], MARKERS[i], 7.0) for i, name in enumerate(names)}
        handles = [_mark(safe(name), colour, mark) for name, (colour, mark, _) in looks.items()]
    else:
        looks = dict.fromkeys(names, (GREY, "o", 5.0))
        handles = [_mark("group", GREY, "o", 5)]
        handles += [_mark("lowest group", WORST, "s"), _mark("highest group", BEST, "D")]
    handles.append(_mark("one seed", GREY, "."))

    height = max(0.9 + 0.55 * len(results.rows), 0.7 + 0.18 * len(handles))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    ax = figure.subplots()
    for y, values in enumerate(results.rows.values()):
        _draw_row(ax, y, values, looks, 100.0 if results.accuracies else 1.0)
    ax.set_yticks(range(len(results.rows)), [safe(who) for who in results.rows])
    ax.set_ylim(len(results.rows) - 0.4, -0.5)
    what = f"accuracy ({split}, %)" if results.accuracies else f"loss $L_i$ ({split})"
    ax.set_xlabel(f"group {what}")
    plain(ax)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    _legend(ax, handles, title=f"{d} groups" if d > MOST else None)
    return figure


def _draw_row(
    ax: Axes,
    y: int,
    values: Mapping[str, Sequence[float]],
    looks: Mapping[str, tuple[str, str, float]],
    scale: float,
) -> None:
    means = {name: scale * float(np.mean(seeds)) for name, seeds in values.items()}
    low, high = min(means.values()), max(means.values())
    ax.plot([low, high], [y, y], color=GREY, linewidth=4, alpha=0.35, zorder=1)
    for name, seeds in values.items():
        colour, marker, size = looks[name]
        dots = scale * np.array(seeds)
        ax.plot(dots, np.full(len(dots), y + 0.26), ".", color=colour, markersize=4, alpha=0.8)
        ax.plot(means[name], y, marker, color=colour, markersize=size, mec="white", mew=0.7)
    if len(looks) > MOST:
        ax.plot(low, y, "s", color=WORST, markersize=7, mec="white", mew=0.7)
        ax.plot(high, y, "D", color=BEST, markersize=7, mec="white", mew=0.7)


def _time_unit(longest_s: float) -> tuple[str, float]:
    for unit, seconds in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if longest_s >= 2 * seconds:
            return unit, seconds
    return "seconds", 1.0


def _mark(label: str, colour: str, marker: str, size: float = 6.0) -> Line2D:
    return Line2D(
        [], [], color=colour, marker=marker, markersize=size, linestyle="none", label=label
    )


def _legend(ax: Axes, handles: list[Line2D] | None = None, title: str | None = None) -> None:
    ax.legend(
        handles=ax.get_legend_handles_labels()[0] if handles is None else handles,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        frameon=False,
        fontsize=SMALL,
        title_fontsize=SMALL,
        alignment="left",
    )


def plain(ax: Axes) -> None:
    """The look of all axes."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, color="#E5E5E5", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=SMALL)
    ax.xaxis.label.set_fontsize(SMALL + 1)
    ax.yaxis.label.set_fontsize(SMALL + 1)


def safe(name: str) -> str:
    """A user's text: wrapped, no TeX ($), and not hidden (a leading _ removes a legend's entry)."""
    return (" " if name.startswith("_") else "") + textwrap.fill(name, 26).replace("$", r"\$")
