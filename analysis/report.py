"""One page that shows runs: what it says, section by section, and the page itself.

The page is one file without links to anywhere: the plotting library, the figures and the tables
behind them are in it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata, resources
from typing import Any

from gifair_ray.analysis import sections, systems
from gifair_ray.analysis.compare import compare, compare_by_group
from gifair_ray.analysis.load import RunTables, distinct
from gifair_ray.analysis.paired import pairs
from gifair_ray.analysis.section import About
from gifair_ray.analysis.style import plotting_library
from gifair_ray.analysis.summary import default_split
from gifair_ray.errors import BadInput

Content = dict[str, Any]


def content(
    runs: Iterable[RunTables], split: str | None = None, rounds: tuple[int, int] | None = None
) -> Content:
    """What the page shows of these runs, as plain values.

    The split is that of `summary.default_split`, unless given; `rounds` are the first and the last
    of the timeline.
    """
    runs = distinct(runs)
    if not runs:
        raise BadInput("there are no runs to report on")
    split = split or default_split(runs)
    comparison, groups = compare(runs, split), compare_by_group(runs, split)
    about = About(runs, split, comparison, groups, _pairs(runs, split))
    shown = [
        sections.summary(about),
        sections.over_time(about),
        sections.clients(about),
        sections.sensitivity(about),
        sections.ranks(about),
        systems.timeline(about, rounds),
        systems.participation(about),
        systems.cost(about),
        systems.repeat(about),
    ]
    names = dict.fromkeys(run.manifest["name"] for run in runs)
    version = metadata.version("gifair-ray")
    return {
        "title": f"{', '.join(names)}: {_counted(runs)}",
        "made": f"Made by gifair-ray {version} from the tables of {len(runs)} run(s).",
        "sections": [section for section in shown if section is not None],
    }


def _pairs(runs: Sequence[RunTables], split: str) -> Any:
    try:
        return pairs(runs, None, split)
    except BadInput:  # several runs of one seed: there are no pairs
        return None


def _counted(runs: Sequence[RunTables]) -> str:
    labels = len({run.manifest["label"] for run in runs})
    seeds = len({run.manifest["seed"] for run in runs})
    told = f"{labels} setting{'s' * (labels > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    return (
        told if len(runs) > 1 else f"{runs[0].manifest['label']}, seed {runs[0].manifest['seed']}"
    )


def page(told: Content) -> str:
    """The page with this content, as HTML."""
    text = json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "STYLE": _file("page.css"),
        "SCRIPT": _file("page.js"),
        "LIBRARY": _library(),
        "CONTENT": _packed(text),
    }
    html = _file("page.html")
    for name, part in parts.items():
        before, _, after = html.partition(f"/*{name}*/")
        html = before + part + after
    return html


def report(
    runs: Iterable[RunTables], split: str | None = None, rounds: tuple[int, int] | None = None
) -> str:
    """A page about these runs as HTML, one file that needs no network; arguments as `content`."""
    return page(content(runs, split, rounds))


@cache
def _library() -> str:
    return _packed(plotting_library())


def _packed(text: str) -> str:
    """A text in a few letters that mean nothing to HTML: a third of its size, and less."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _file(name: str) -> str:
    return (resources.files("gifair_ray.analysis") / name).read_text(encoding="utf-8")
