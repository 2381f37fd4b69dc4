"""Who may import whom, read from the source files: it holds however the package is installed."""

from __future__ import annotations

import ast
import graphlib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "gifair_ray": "gifair_ray",
    "actors": "gifair_ray.actors",
    "scenarios": "gifair_ray.scenarios",
    "analysis": "gifair_ray.analysis",
}
FACADES = ("gifair_ray", "gifair_ray.__main__", "gifair_ray.api", "gifair_ray.cli")
MOST_LINES = 300


def module_name(path: Path) -> str:
    folder, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([FOLDERS[folder], *rest]).removesuffix(".__init__")


SOURCES = {
    module_name(path): path.read_text(encoding="utf-8")
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
}


@dataclass(frozen=True)
class Import:
    """A module that is imported: when the importing one is loaded, in a function, or for types."""

    name: str
    when: str


def imports(source: str) -> Iterator[Import]:
    """Everything that a source imports."""
    yield from _imports(ast.parse(source), "load")


def _imports(node: ast.AST, when: str) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, when) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, "relative imports are banned"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            yield Import(full if full in SOURCES else str(node.module), when)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        when = "call"
    for field, value in ast.iter_fields(node):
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, ast.AST):
                types = isinstance(node, ast.If) and field == "body" and _is_for_types(node.test)
                yield from _imports(inner, "types" if types else when)


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def layer(module: str) -> str:
    """The folder that a module of ours is in; a façade is a layer of its own."""
    for folder in ("actors", "scenarios", "analysis"):
        if within(module, f"gifair_ray.{folder}"):
            return folder
    return "façade" if module in FACADES or within(module, "gifair_ray.cli") else "core"


MAY_IMPORT = {
    "core": {"core"},
    "actors": {"core", "actors"},
    "scenarios": {"core", "scenarios"},
    "analysis": {"analysis"},
    "façade": {"core", "actors", "scenarios", "analysis", "façade"},
}


def is_allowed(module: str, found: Import) -> bool:
    """Whether a module may import that."""
    name, here = found.name, layer(module)
    if within(name, "ray"):
        return here == "actors"
    if within(name, "matplotlib"):
        plots = ("plots", "lambda_plot", "speed_plot", "convergence")
        return module in [f"gifair_ray.analysis.{name}" for name in plots]
    if within(name, "plotly"):
        drawing = ("figures", "system_figures", "gantt", "style")
        return module in (f"gifair_ray.analysis.{m}" for m in drawing)
    if within(name, "torch"):
        # The loops that the engine is measured against are torch, in processes of their own.
        limits = ("gifair_ray.bench.limits", "gifair_ray.bench.processes")
        if within(module, "gifair_ray.learners", *limits):
            return True
        lazy = (
            "gifair_ray.models",
            "gifair_ray.backend",
            "gifair_ray.actors.handshake",
            "gifair_ray.actors.bench",
        )
        return found.when != "load" and within(module, *lazy)
    if within(name, "actors", "scenarios", "analysis", "tests"):
        return False  # the folders, under a name that only works here
    if not within(name, "gifair_ray"):
        return True
    if here == "analysis" and name in (f"gifair_ray.{m}" for m in ("tables", "results", "errors")):
        return True
    return layer(name) in MAY_IMPORT[here]


def violations(module: str, source: str) -> list[str]:
    return [
        f"{module} imports {found.name} ({found.when})"
        for found in imports(source)
        if not is_allowed(module, found)
    ]


def cycle(sources: dict[str, str]) -> list[str]:
    """Modules that import each other when they are loaded; none, it is hoped."""
    graph = {
        module: {i.name for i in imports(source) if i.when == "load" and i.name in sources}
        for module, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


# The code


def test_all_source_files_are_looked_at():
    assert len(SOURCES) > 70
    assert {layer(module) for module in SOURCES} == set(MAY_IMPORT)


@pytest.mark.parametrize("module", SOURCES)
def test_imports_point_the_right_way(module):
    assert violations(module, SOURCES[module]) == []


def test_nothing_imports_in_a_circle():
    assert cycle(SOURCES) == []


@pytest.mark.parametrize("module", SOURCES)
def test_modules_are_short(module):
    assert len(SOURCES[module].splitlines()) <= MOST_LINES


def test_ray_and_torch_are_imported_where_they_should_be():
    importers = {
        library: {m for m, s in SOURCES.items() if any(within(i.name, library) for i in imports(s))}
        for library in ("ray", "torch", "matplotlib")
    }
    assert all(importers.values())
    assert {layer(module) for module in importers["ray"]} == {"actors"}


# The checker


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gifair_ray.engine", "import ray"),
        ("gifair_ray.engine", "def f():\n    from ray import get"),
        ("gifair_ray.engine", "class A:\n    import ray.exceptions"),
        ("gifair_ray.engine", "if True:\n    pass\nelse:\n    import ray"),
        ("gifair_ray.engine", "try:\n    import ray\nexcept ImportError:\n    pass"),
        ("gifair_ray.engine", "from gifair_ray.actors.pool import RayBackend"),
        ("gifair_ray.engine", "from gifair_ray import actors"),
        ("gifair_ray.engine", "from gifair_ray.scenarios.load import load"),
        ("gifair_ray.engine", "import gifair_ray.analysis"),
        ("gifair_ray.engine", "from gifair_ray.api import run"),
        ("gifair_ray.engine", "from gifair_ray.cli.progress import virtual"),
        ("gifair_ray.engine", "from gifair_ray import run"),
        ("gifair_ray.engine", "import gifair_ray"),
        ("gifair_ray.engine", "import torch"),
        ("gifair_ray.engine", "def f():\n    import torch"),
        ("gifair_ray.engine", "import matplotlib.pyplot"),
        ("gifair_ray.data.table", "import torch"),
        ("gifair_ray.models.cnn", "import torch"),
        ("gifair_ray.models.cnn", "if torch:\n    from torch import nn"),
        ("gifair_ray.backend", "from torch import nn"),
        ("gifair_ray.api", "import ray"),
        ("gifair_ray.cli.commands", "def f():\n    import ray"),
        ("gifair_ray.actors.pool", "from gifair_ray.scenarios.load import load"),
        ("gifair_ray.actors.pool", "from gifair_ray.analysis import load"),
        ("gifair_ray.actors.pool", "from gifair_ray.api import run"),
        ("gifair_ray.actors.handshake", "import torch"),
        ("gifair_ray.actors.server", "def f():\n    import torch"),
        ("gifair_ray.scenarios.load", "from gifair_ray.actors.pool import RayBackend"),
        ("gifair_ray.scenarios.load", "from gifair_ray.api import run"),
        ("gifair_ray.scenarios.load", "import ray"),
        ("gifair_ray.analysis.load", "from gifair_ray.scenario import Scenario"),
        ("gifair_ray.analysis.load", "from gifair_ray import objective"),
        ("gifair_ray.analysis.load", "import matplotlib"),
        ("gifair_ray.analysis.views", "import plotly.graph_objects as go"),
        ("gifair_ray.engine", "import plotly"),
        ("gifair_ray.analysis.load", "import actors"),
        ("gifair_ray.api", "from analysis.load import load"),
    ],
)
def test_the_checker_sees_what_is_wrong(module, source):
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gifair_ray.engine", "import numpy as np\nfrom gifair_ray import draws"),
        ("gifair_ray.engine", "from rayon import x\nimport torchlight"),
        ("gifair_ray.api", "from gifair_ray.actors.cluster import cluster"),
        ("gifair_ray.cli.commands", "from gifair_ray.analysis import load"),
        ("gifair_ray.actors.pool", "import ray\nfrom gifair_ray.backend import Backend"),
        ("gifair_ray.actors.handshake", "def f():\n    import torch"),
        ("gifair_ray.learners.softmax", "import torch\nfrom torch import nn"),
        ("gifair_ray.models.cnn", "if TYPE_CHECKING:\n    from torch import nn"),
        ("gifair_ray.models.cnn", "class A:\n    def f(self):\n        from torch import nn"),
        ("gifair_ray.scenarios.load", "from gifair_ray.scenario import Scenario"),
        ("gifair_ray.analysis.load", "from gifair_ray.tables import TABLES"),
        ("gifair_ray.analysis.plots", "from matplotlib.figure import Figure"),
    ],
)
def test_the_checker_lets_pass_what_is_right(module, source):
    assert violations(module, source) == []


def test_the_checker_sees_a_circle_but_not_in_functions_or_for_types():
    def sources(in_b):
        source = textwrap.dedent(in_b)
        return SOURCES | {
            "gifair_ray.clock": "from gifair_ray.draws import bits",
            "gifair_ray.draws": source,
        }

    assert set(cycle(sources("from gifair_ray import clock"))) == {
        "gifair_ray.clock",
        "gifair_ray.draws",
    }
    assert cycle(sources("def f():\n    import gifair_ray.clock")) == []
    assert cycle(sources("if TYPE_CHECKING:\n    import gifair_ray.clock")) == []
