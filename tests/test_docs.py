"""The documentation: what it tells a reader to type works, and it says everything there is.

On a page, a block that begins with a comment `# name.ext` is that file. Blocks of `console` hold
commands after `$ `, blocks of `python` that are no file are run; in the order of the page, in one
folder.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import io
import re
import shlex
import subprocess
import sys
import webbrowser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pydantic import BaseModel

from gifair_ray.analysis.columns import GROUPS, LABELS
from gifair_ray.cli import _parser, main
from gifair_ray.parts import Part
from gifair_ray.scenario import Scenario
from gifair_ray.tables import TABLES

DOCS = Path(__file__).parent.parent / "docs"
README = DOCS.parent / "README.md"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w-]+\.(?:py|toml|csv))\n")


def blocks(page):
    return BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))


def steps(page):
    """(what, name or text, text) of everything on a page that can be done."""
    for language, text in blocks(page):
        named = FILE.match(text)
        if named:
            content = text[named.end() :] if named[1].endswith(".csv") else text
            yield "file", named[1], content
        elif language == "console":
            lines = text.splitlines()
            assert all(line.startswith("$ ") for line in lines), page
            yield from (("command", line[2:], "") for line in lines)
        elif language == "python":
            yield "python", "", text


RUNNABLE = [page for page in PAGES if any(what == "command" for what, *_ in steps(page))]


def do(command):
    """A line that a reader types; results are the same in process, and start at once."""
    words = [w for word in shlex.split(command) for w in (sorted(glob.glob(word)) or [word])]
    if words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], check=True)
        return
    assert words[0] == "gifair"
    local = ["--backend", "local"] if words[1] in ("run", "whatif", "sweep") else []
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = main([*words[1:], *local])
    assert code == 0, f"{command}: {out.getvalue()}"


@pytest.mark.parametrize("page", RUNNABLE)
def test_what_a_page_says_can_be_done(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    for what, name, text in steps(page):
        if what == "file":
            Path(name).write_text(text, encoding="utf-8")
        elif what == "command":
            extra = re.search(r"--to (duckdb|tensorboard)", name)
            package = {"duckdb": "duckdb", "tensorboard": "tensorboardX"}.get(
                extra[1] if extra else ""
            )
            if package and not importlib.util.find_spec(package):
                continue  # test_export says so, visibly
            do(name)
        elif all(
            map(importlib.util.find_spec, re.findall(r"^import (pandas|polars)$", text, re.M))
        ):
            exec(compile(text, page, "exec"), {})
    for name in (n for what, n, _ in steps(page) if what == "file" and n.endswith(".py")):
        sys.modules.pop(name.removesuffix(".py"), None)
    assert bool(opened) == any(
        "--open" in name for what, name, _ in steps(page) if what == "command"
    )


def test_there_is_something_to_do_on_the_pages():
    assert {"tutorial.md", "results.md", "own-data.md", "own-model.md"} <= set(RUNNABLE)


def typed(text):
    """Every line of a page that is a call of gifair."""
    for _, block in BLOCK.findall(text):
        for line in block.splitlines():
            called = re.search(r"(?:^|\$ |-- |python -m )gifair(?:_ray)? (.*)", line)
            if called:
                yield called[1]


@pytest.mark.parametrize("page", [*(DOCS / page for page in PAGES), README], ids=lambda p: p.name)
def test_every_command_in_the_text_can_be_typed(page):
    text = page.read_text(encoding="utf-8")
    for line in typed(text):
        told = re.split(r"\s{2,}", line)[0]  # what comes after is a remark
        _parser().parse_args(shlex.split(told, comments=True))
    (chosen,) = (a for a in _parser()._actions if hasattr(a, "choices") and a.choices)
    for word in re.findall(r"(?:^|`|\$ )gifair ([a-z]+)", text, re.MULTILINE):
        assert word in chosen.choices, word


def test_the_job_file_says_what_kuberay_needs():
    (text,) = (block for language, block in blocks("cluster.md") if language == "yaml")
    job = pytest.importorskip("yaml").safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    shell, option, script = shlex.split(job["spec"]["entrypoint"])
    assert (shell, option) == ("sh", "-c")
    tidied, _, command = script.partition("; exec gifair ")
    asked = _parser().parse_args(command.split())
    assert tidied == f"rm -f {asked.out}/lock {asked.out}/*/lock"
    cluster = job["spec"]["rayClusterSpec"]
    head, workers = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    (container,) = head["template"]["spec"]["containers"]
    (volume,) = container["volumeMounts"]
    assert asked.out.startswith(volume["mountPath"])
    assert asked.resume
    cpus = [
        group["replicas"] * int(one["resources"]["limits"]["cpu"])
        for group in workers
        for one in group["template"]["spec"]["containers"]
    ]
    assert sum(cpus) == asked.workers


# --- the README -----------------------------------------------------------------------------------

MODELS = """
from torch import nn

def net(task, width):
    return nn.Sequential(nn.Linear(task.input_shape[0], width), nn.ReLU(),
                         nn.Linear(width, task.classes))
"""


def test_what_the_readme_says_about_data_model_and_python_works(tmp_path, monkeypatch):
    """Its scenario with data and a model of one's own, and its lines of Python, as they stand."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = BLOCK.findall(README.read_text(encoding="utf-8"))
    (scenario,) = (block for language, block in found if language == "toml")
    (lines,) = (b for language, b in found if language == "python" and "import gifair_ray" in b)
    Path("mine.toml").write_text(scenario, encoding="utf-8")
    Path("mymodels.py").write_text(MODELS, encoding="utf-8")
    people = [{"client": f"c{i}", "group": ("rural", "urban")[i % 2]} for i in range(12)]
    rows = [who | {"y": j % 2, "x": [float(j % 2), 1.0]} for who in people for j in range(20)]
    pa.parquet.write_table(pa.Table.from_pylist(rows), "mine.parquet")
    for name in ("a", "b"):
        short = ["--set", "stop.rounds=2", "--backend", "local", "--quiet"]
        assert main(["run", "mine.toml", *short, "--out", f"runs/{name}"]) == 0
    names = {}
    try:
        exec(compile(lines, "README.md", "exec"), names)
    finally:
        sys.modules.pop("mymodels", None)
    assert len(names["run"].digest) == 32
    assert names["run"].table("groups")["version"].to_pylist()[-1] == 50


# --- the reference --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keys(model, path=""):
    for name, field in model.model_fields.items():
        key = f"{path}{field.alias or name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Part) and "family" in vars(kind):
            for member in kind.names():
                yield from keys(kind.find(member), f"{key}.") if not path else [key]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and kind.__name__ != "Spread":
            yield from keys(kind, f"{key}.")
        else:
            yield key


def test_every_scenario_key_is_told_with_its_meaning(generated):
    page = generated.scenario_page()
    rows = dict(re.findall(r"^\| `([^`]+)` \| .* \| ([^|]*) \|$", page, re.MULTILINE))
    for key in set(keys(Scenario)):
        name = key.rpartition(".")[2]
        if name in ("kind", "source") and key.count(".") == 1:
            assert re.search(rf"### `{re.escape(key)} = |`{re.escape(key)}` is one of", page), key
        else:
            assert rows.get(key), key
    assert "<class" not in page
    assert "typing." not in page


def test_every_table_and_column_is_told(generated):
    page = generated.tables_page()
    for name, schema in TABLES.items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        for field in schema:
            about = field.metadata[b"description"].decode().replace("|", "\\|")
            unit = field.metadata[b"unit"].decode()
            assert f"| `{field.name}` | {field.type} | {unit} | {about} |" in section


def test_every_figure_and_every_option_is_told(generated):
    measures, commands = generated.measures_page(), generated.commands_page()
    assert all(f"| `{column.name}` |" in measures for column in (*LABELS, *GROUPS))
    for option in ("--set", "--table", "--rounds", "--port", "--to", "--backend"):
        assert f"`{option}`" in commands
    assert "| `quickstart` | Does GIFAIR help" in commands


def test_the_site_is_built_without_warnings(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    command = ["-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [sys.executable, *command, "-d", tmp_path / "trees", DOCS, tmp_path / "html"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    index = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert "Ten minutes" in index
