"""The report: what it says, and that a real browser shows it."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import time
from itertools import product
from pathlib import Path

import pytest
from browser import Browser, chromium
from by_hand import small_run

import gifair_ray
from gifair_ray.analysis import RunTables, open_runs
from gifair_ray.analysis.report import content, page, report
from gifair_ray.cli import main
from gifair_ray.errors import BadInput
from gifair_ray.tables import TABLES

SWEEP = """\
[data]
source = "prototypes"
majority = 8
minority = 3
classes = 4
features = 6
train = 20
val = 5
test = 30

[model]
kind = "softmax"

[work]
steps = 4

[sampling]
cohort = 5

[devices]
sample_s = {dist = "lognormal", median = 0.01, sigma = 0.5}
dropout = 0.2

[stop]
rounds = 12

[evaluation]
every = 3

[study]
seeds = 4
"""
VARIANTS = {"FedAvg": ("fedavg", None), **{f"λ {f}": ("gifair-global", f) for f in (0.3, 0.6, 0.9)}}
SECTIONS = ["summary", "over-time", "clients", "lambda", "ranks", "timeline", "participation"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Results of partial-participation, shortened, and of a sweep over λ."""
    folder = tmp_path_factory.mktemp("runs")
    text = SWEEP
    for label, (algorithm, fraction) in VARIANTS.items():
        text += f'\n[study.variants."{label}"]\nalgorithm = "{algorithm}"\n'
        text += f"weighting = {{lambda_fraction = {fraction}}}\n" if fraction else ""
    (folder / "lambda.toml").write_text(text, encoding="utf-8")
    common = ["--backend", "local", "--quiet", "--out"]
    short = ["--set", "stop.rounds=12", "--set", "evaluation.every=4", "--set", "study.seeds=2"]
    assert main(["run", "partial-participation", *short, *common, str(folder / "pp")]) == 0
    assert main(["run", str(folder / "lambda.toml"), *common, str(folder / "lambda")]) == 0
    return {"partial-participation": folder / "pp", "lambda": folder / "lambda"}


@pytest.fixture(scope="module")
def pages(folders, tmp_path_factory):
    """The two reports, as the command writes them."""
    made = {}
    for name, folder in folders.items():
        made[name] = tmp_path_factory.mktemp("report") / f"{name}.html"
        assert main(["report", str(folder), "-o", str(made[name])]) == 0
    return made


# --- what it says ---------------------------------------------------------------------------------


def sections(told):
    return {section["id"]: section for section in told["sections"]}


def test_a_sweep_has_every_section_and_every_figure_its_table_and_a_sentence(folders):
    told = sections(content(open_runs(folders["lambda"])))
    assert list(told) == [*SECTIONS, "cost", "repeat"]
    for name, section in told.items():
        assert len(section["read"]) > 80, name
        if name != "repeat":
            assert section["tables"], name
            assert all(table["rows"] for table in section["tables"]), name
        if name not in ("summary", "repeat"):
            assert section["plots"], name
    assert "lambda" not in sections(content(open_runs(folders["partial-participation"])))


def test_the_answer_comes_first(folders):
    page_ = content(open_runs(folders["lambda"]))
    first, *more = page_["sections"][0]["answer"]
    told = r"(Fairest is “λ 0\.\d”|No setting is fairer than “FedAvg”), with \d+\.\d points "
    assert re.match(told, first)
    assert "over 4 seeds that both were run with" in more[0]
    assert "95 % interval" in more[0]
    alone = content(open_runs(folders["lambda"] / "FedAvg-seed0"))
    assert re.match(
        r"“FedAvg”: \d+\.\d points .* mean of clients", alone["sections"][0]["answer"][0]
    )


def test_one_run_is_enough(folders):
    told = sections(content([open_runs(folders["lambda"])[-1]]))
    assert "cost" not in told
    assert {"over-time", "clients", "timeline", "participation", "repeat"} <= told.keys()


def test_it_can_be_repeated_from_what_it_shows(folders, tmp_path):
    runs = open_runs(folders["lambda"])
    told = sections(content(runs))["repeat"]
    digests = {row[4] for row in told["main"]["rows"]}
    assert digests == {run.manifest["digest"] for run in runs}
    scenario = next(text for text in told["texts"] if text["title"] == "Scenario: FedAvg")
    (tmp_path / "again.toml").write_text(scenario["text"], encoding="utf-8")
    out = tmp_path / "again"
    command = ["run", str(tmp_path / "again.toml"), "--backend", "local", "--quiet", "--out"]
    assert main([*command, str(out)]) == 0
    assert json.loads((out / "manifest.json").read_text())["digest"] in digests


def test_the_timeline_shows_the_rounds_that_are_asked_for(folders, tmp_path, capsys):
    runs = open_runs(folders["lambda"])
    table = sections(content(runs, rounds=(3, 5)))["timeline"]["tables"][0]
    assert {row[table["columns"].index("round")] for row in table["rows"]} == {3, 4, 5}
    with pytest.raises(BadInput, match="no run has dispatches for rounds 90 to 95"):
        content(runs, rounds=(90, 95))
    out = ["-o", str(tmp_path / "r.html")]
    for wrong in ("5", "a:b", "5:3", "0:2"):
        assert main(["report", str(folders["lambda"]), *out, "--rounds", wrong]) == 2
        assert "rounds" in capsys.readouterr().err


def test_tasks_without_accuracies_and_runs_without_evaluations(tmp_path, capsys):
    scenario = tmp_path / "q.toml"
    parts = ('data = {source = "quadratic"}', 'model = {kind = "quadratic"}')
    scenario.write_text("\n".join([*parts, "work = {steps = 2}", "stop = {rounds = 3}"]))
    for name, more in (("losses", []), ("nothing", ["--set", 'evaluation.splits=["test"]'])):
        command = ["run", str(scenario), "--backend", "local", "--quiet", *more, "--out"]
        assert main([*command, str(tmp_path / name)]) == 0
    told = sections(content(open_runs(tmp_path / "losses")))
    assert "of the groups' losses" in told["summary"]["answer"][0]
    assert {plot["when"]["show"] for plot in told["over-time"]["plots"]} == {"loss"}
    report(open_runs(tmp_path / "losses"))
    code = main(["report", str(tmp_path / "nothing"), "-o", str(tmp_path / "n.html")])
    assert code in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("missing", [None, *TABLES])
def test_a_table_that_is_not_there_yet_leaves_its_figures_out(missing):
    """A run may be looked at when it has written any of its tables, and no others."""
    whole = small_run()
    tables = {name: table for name, table in whole.tables.items() if name != missing}
    runs = [RunTables.of(tables, whole.manifest), small_run("b", seed=1)]
    if missing in ("clients", "evaluations"):
        with contextlib.suppress(BadInput):
            content(runs[:1])
    else:
        assert content(runs[:1])["sections"]
        assert len(content(runs)["sections"]) >= 7


def test_many_settings_are_shown_page_by_page():
    told = sections(content([small_run(f"setting {i}", seed=0) for i in range(14)]))
    for name in ("over-time", "ranks"):
        (pages_,) = (c["options"] for c in told[name]["controls"] if c["name"] == "settings")
        assert pages_ == ["1–12", "13–14"]
        assert {plot["when"]["settings"] for plot in told[name]["plots"]} == set(pages_)
    assert told["timeline"]["notes"] == ["Of 2 further settings there is no timeline here."]
    assert len(told["cost"]["plots"][0]["figure"]["data"]) == 16


def test_every_client_a_group_of_its_own(tmp_path):
    """d = K: of many groups, the worst, the median and the best are shown."""
    scenario = {
        "algorithm": "gifair-global",
        "data": {"source": "synthetic", "clients": 40, "features": 5, "classes": 3, "samples": 12},
        "model": {"kind": "softmax"},
        "work": {"steps": 2},
        "weighting": {"lambda_fraction": 0.5},
        "stop": {"rounds": 4},
        "evaluation": {"every": 2},
    }
    gifair_ray.run(scenario, backend="local", out=tmp_path / "run")
    told = sections(content(open_runs(tmp_path / "run")))
    table = told["over-time"]["tables"][0]
    assert {row[1] for row in table["rows"]} == {"worst group", "median group", "best group"}
    assert len(told["participation"]["tables"][0]["rows"]) == 40


def test_names_cannot_break_the_page():
    evil = "</script><img src=x onerror=alert(1)> %{x} $\\frac"
    text = report(
        [small_run(evil), small_run("b", seed=0, courses=((0, 0, 0), (9, 9, 9), (9, 9, 9)))]
    )
    assert text.count("</script>") == page({"sections": []}).count("</script>")
    assert "onerror" not in text


# --- in a browser ---------------------------------------------------------------------------------

PROGRAM = chromium()
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on the PATH")

VISIBLE = ".plot:not([hidden]) .drawing"
DRAWN = """((section) => [...section.querySelectorAll(VISIBLE)].map((box) => ({
  id: box.id,
  marks: box.querySelectorAll(
    ".scatterlayer path, .scatterlayer .point, .barlayer path, .boxlayer path").length,
  width: box.querySelector("svg.main-svg")?.getBoundingClientRect().width || 0,
  right: box.querySelector("svg.main-svg")?.getBoundingClientRect().right || 0,
  titles: [...box.querySelectorAll(".xtitle, .ytitle")].map((node) => node.textContent),
  outside: (() => {
    const frame = box.querySelector("svg.main-svg").getBoundingClientRect();
    return [...box.querySelectorAll("text")].filter((node) => {
      const at = node.getBoundingClientRect();
      return at.width && (at.left < frame.left - 2 || at.right > frame.right + 2
        || at.top < frame.top - 2 || at.bottom > frame.bottom + 2);
    }).map((node) => node.textContent);
  })(),
  overlaps: (() => {
    const hits = [];
    const boxes = (selector) => [...box.querySelectorAll(selector)]
      .map((node) => ({ text: node.textContent, at: node.getBoundingClientRect() }))
      .filter((one) => one.at.width);
    const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
      && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    const plot = box.querySelector(".bglayer rect, .cartesianlayer .gridlayer");
    for (const kind of [".xtick text", ".ytick text", ".legendtext", ".textpoint text"]) {
      const all = boxes(kind);
      all.forEach((one, i) => all.slice(i + 1).forEach((other) => {
        if (meet(one.at, other.at)) hits.push([kind, one.text, other.text]);
      }));
    }
    const titles = boxes(".xtitle, .ytitle");
    for (const title of titles) {
      for (const tick of boxes(".xtick text, .ytick text, .legendtext")) {
        if (meet(title.at, tick.at)) hits.push([title.text, tick.text]);
      }
    }
    return hits;
  })(),
})))""".replace("VISIBLE", f"'{VISIBLE}'")
READY = """((section) => [...section.querySelectorAll(".plot:not([hidden]) .drawing")].every(
  (box) => box.querySelector(".main-svg .cartesianlayer path")))"""
CHOOSE = """((section, choice) => choice.forEach((at, i) => {
  const control = section.querySelectorAll(".controls fieldset")[i];
  const select = control.querySelector("select");
  if (!select) { control.querySelectorAll("button")[at].click(); return; }
  select.selectedIndex = at;
  select.dispatchEvent(new Event("change"));
}))"""
OPTIONS = """((section) => [...section.querySelectorAll(".controls fieldset")].map(
  (control) => control.querySelectorAll("button, option").length))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = Browser(PROGRAM, tmp_path_factory.mktemp("profile"))
    yield driver
    driver.close()


def shown(browser, address, width, dark=False):
    browser.window(width, dark=dark)
    browser.open(address)
    browser.until("document.documentElement?.dataset.ready")


def check_figures(browser, section, width):
    """Every figure that is to be seen has marks, titled axes with room, and no texts that meet."""
    browser.until(f"{READY}({section})")
    found = browser.js(f"{DRAWN}({section})")
    for figure in found:
        assert figure["marks"] > 0, figure
        assert 0 < figure["width"] <= width, figure
        assert figure["right"] <= width, figure
        assert figure["titles"], figure
        assert figure["outside"] == [], figure
        assert figure["overlaps"] == [], figure
    return {figure["id"] for figure in found}


@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
@pytest.mark.parametrize("name", ["partial-participation", "lambda"])
def test_every_figure_is_drawn(browser, pages, name, width, dark):
    shown(browser, pages[name].as_uri(), width, dark)
    seen = set()
    for i in range(browser.js("document.querySelectorAll('main > section').length")):
        section = f"document.querySelectorAll('main > section')[{i}]"
        for choice in product(*map(range, browser.js(f"{OPTIONS}({section})"))):
            browser.js(f"{CHOOSE}({section}, {list(choice)})")
            seen |= check_figures(browser, section, width)
    assert seen == set(browser.js("[...document.querySelectorAll('.drawing')].map((b) => b.id)"))
    assert len(seen) > 20
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.errors == []
    local = ("data:", "blob:", pages[name].as_uri())
    assert all(address.startswith(local) for address in browser.requests)


@needs_chromium
def test_the_timeline_zooms_and_comes_back(browser, pages):
    shown(browser, pages["lambda"].as_uri(), 1280)
    browser.js("document.getElementById('timeline-0').scrollIntoView({behavior: 'instant'})")
    time.sleep(0.3)
    at = browser.js(
        "(({left, top, width, height}) => [left, top, width, height])("
        "document.querySelector('#timeline-0 .nsewdrag').getBoundingClientRect())"
    )
    span = "document.getElementById('timeline-0')._fullLayout.xaxis.range.map(Number)"
    before = browser.js(span)
    left, top, width, height = at
    y = top + min(height / 2, 200)
    browser.drag(left + 0.3 * width, y, left + 0.5 * width, y + 40)
    browser.until(f"({span})[1] - ({span})[0] < {0.5 * (before[1] - before[0])}")
    after = browser.js(span)
    assert after[1] - after[0] == pytest.approx(0.2 * (before[1] - before[0]), rel=0.05)
    browser.js("document.querySelector('#timeline-0 [data-attr=zoom][data-val=reset]').click()")
    browser.until(f"Math.abs(({span})[1] - {before[1]}) < 1e-6")
    assert browser.errors == []


@needs_chromium
def test_every_table_can_be_downloaded(browser, folders, pages, tmp_path):
    shown(browser, pages["lambda"].as_uri(), 1280)
    browser.do("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    files = browser.js("[...document.querySelectorAll('button.csv')].map((b) => b.dataset.file)")
    told = content(open_runs(folders["lambda"]))
    tables = {
        t["name"]: t
        for s in told["sections"]
        for t in [*s.get("tables", []), *filter(None, [s.get("main")])]
    }
    assert {f"{name}.csv" for name in tables} == set(files)
    for i, file in enumerate(files):
        browser.js(f"document.querySelectorAll('button.csv')[{i}].click()")
        deadline = time.monotonic() + 20
        while not (tmp_path / file).exists():
            assert time.monotonic() < deadline, file
            time.sleep(0.05)
        time.sleep(0.1)
        rows = list(csv.reader((tmp_path / file).read_text(encoding="utf-8").splitlines()))
        table = tables[Path(file).stem]
        assert rows[0] == table["columns"]
        assert len(rows) == len(table["rows"]) + 1
        for row, expected in zip(rows[1:], table["rows"], strict=True):
            for cell, value in zip(row, expected, strict=True):
                if isinstance(value, float):
                    assert float(cell) == value
                else:
                    assert cell.lower() == ("" if value is None else str(value).lower())


@needs_chromium
def test_dark_mode_follows_the_system_and_the_button(browser, pages):
    brightness = """(() => {
      const light = (text) =>
        text.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3;
      const label = document.querySelector("#clients-0 .xtitle");
      return [light(getComputedStyle(document.body).backgroundColor),
              light(getComputedStyle(document.body).color), light(getComputedStyle(label).fill)];
    })()"""
    shown(browser, pages["lambda"].as_uri(), 1280, dark=True)
    ground, text, label = browser.js(brightness)
    assert ground < 60
    assert min(text, label) > 180
    browser.js("document.getElementById('theme').click()")
    browser.until(f"{brightness}[2] < 80")
    ground, text, label = browser.js(brightness)
    assert ground > 200
    assert max(text, label) < 80
    assert browser.errors == []
