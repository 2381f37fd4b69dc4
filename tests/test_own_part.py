"""What the documentation says about a part of your own works as it stands there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from gifair_ray import analysis
from gifair_ray.cli import main

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own-algorithm.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S)
    return [block for of, block in found if of == language]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The page's files, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for language in ("python", "toml"):
        (block,) = blocks(PAGE, language)
        Path(block.split()[1]).write_text(block, encoding="utf-8")
    yield tmp_path
    sys.modules.pop("mine", None)


def commands():
    listed, shown = blocks(PAGE, "")
    lines = [shlex.split(line) for line in listed.splitlines()]
    assert [line[:2] for line in lines] == [["gifair", c] for c in ("run", "sweep", "verify")]
    return [line[1:] for line in lines], shown


def test_the_page_can_be_followed_to_its_end(files, capsys):
    (run, sweep, verify), shown = commands()
    assert main([*run, "--quiet"]) == 0
    runs = {(r.manifest["label"], r.manifest["seed"]): r.manifest for r in loaded("runs/mine")}
    assert set(runs) == {(label, seed) for label in ("FedAvg", "Smoothed") for seed in (0, 1)}
    assert runs["FedAvg", 0]["digest"] != runs["Smoothed", 0]["digest"]
    assert main([*sweep, "--quiet"]) == 0
    labels = {run.manifest["label"] for run in loaded("runs/strengths")}
    assert labels == {"strength=0.5", "strength=1", "strength=2"}
    capsys.readouterr()
    assert main(verify) == 0
    weights = r"from \S+ to [^;]+;"  # their last digits are the machine's
    assert re.sub(weights, "", capsys.readouterr().out) == re.sub(weights, "", shown)


def loaded(folder):
    return [analysis.load(path) for path in analysis.find_runs(folder)]


def test_its_table_lists_the_checks_in_order(files):
    _, shown = commands()
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.M)
    assert rows == [line.split()[1] for line in shown.splitlines()[1:]]


def test_the_example_of_the_readme_conforms_and_tilts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (code,) = (block for block in blocks(README, "python") if "class MyWeighting" in block)
    Path("mymodule.py").write_text(code, encoding="utf-8")
    try:
        assert main(["verify", "--part", "mymodule:MyWeighting"]) == 0
    finally:
        sys.modules.pop("mymodule", None)
    told = capsys.readouterr().out
    assert "✗" not in told
    low, high = map(float, re.search(r"tilts from (\S+) to ([^;]+);", told).groups())
    assert low < 0 < high
