"""Many runs at once: what a sweep consists of, and that a batch survives what happens to it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray.api import run_batch
from gifair_ray.cli import main
from gifair_ray.errors import BadInput
from gifair_ray.results import read_manifest
from gifair_ray.scenarios.load import load
from gifair_ray.scenarios.sweep import sweep

TABLE = {
    "name": "many",
    "data": {"source": "quadratic", "problem": "random", "clients": 4, "noise": 0.1},
    "model": {"kind": "quadratic"},
    "work": {"steps": 2, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "uniform", "cohort": 2},
    "stop": {"rounds": 3},
}

MODULE = '''
"""A weighting that does, in its second server update, what a file in the current folder says."""
import os, signal
from pathlib import Path
from typing import Literal

import numpy as np

from gifair_ray.weightings import Rule, Weighting


class Acts(Weighting):
    kind: Literal["acting:Acts"] = "acting:Acts"
    name: str = ""

    @property
    def reweighs(self):
        return True

    def start(self, population):
        return ActsRule(self.name)


class ActsRule(Rule):
    def __init__(self, name):
        self.name = name

    def memory(self):
        return {"updates": np.zeros(1, dtype=np.int64)}

    def weigh(self, update, memory):
        memory["updates"] += 1
        order = Path(f"order-{self.name}")
        if memory["updates"][0] == 2 and order.exists():
            what = order.read_text()
            if what == "break":
                raise ZeroDivisionError("by design")
            order.unlink()
            if what == "interrupt":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGKILL)
        return update.weights
'''


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("acting.py").write_text(MODULE)


def labels(*over, **more):
    return [label for label, _ in sweep(TABLE, over, **more).runs]


# What a sweep consists of


def test_all_combinations_each_on_all_seeds():
    study = sweep(TABLE, ["work.steps=1,5", "sampling.scheme=uniform,all"], seed=3, seeds=2)
    assert study.name == "many"
    assert [(label, s.seed) for label, s in study.runs] == [
        (f"steps={steps}, scheme={scheme}", seed)
        for steps in (1, 5)
        for scheme in ("uniform", "all")
        for seed in (3, 4)
    ]
    for label, scenario in study.runs:
        assert label == f"steps={scenario.work.steps}, scheme={scenario.sampling.scheme}"


@pytest.mark.parametrize(
    ("over", "key", "values"),
    [
        ("weighting.t=-1,0.5,2e-1", lambda s: s.weighting.t, [-1.0, 0.5, 0.2]),
        ("model.init=[1.0, -2.0, 3.0],0.5", lambda s: s.model.init, [[1.0, -2.0, 3.0], 0.5]),
        ('algorithm="term"', lambda s: s.algorithm, ["term"]),
        ("algorithm=term,q-ffl,fedmgda+", lambda s: s.algorithm, ["term", "q-ffl", "fedmgda+"]),
        ("solver.keep=true,false", lambda s: s.solver.keep, [True, False]),
        (" work.steps = 1 , 2 ", lambda s: s.work.steps, [1, 2]),
        ("policy.timeout_s=60,inf", lambda s: s.policy.timeout_s, [60.0, float("inf")]),
        (
            'devices.sample_s={dist="lognormal", median=0.1, sigma=1.0},0.5',
            lambda s: s.devices.sample_s.dist,
            ["lognormal", "constant"],
        ),
        ("weighting.name='a,b',\"c'd\"", lambda s: s.weighting.name, ["a,b", "c'd"]),
        ('weighting.name="x\\"y\\\\z",""', lambda s: s.weighting.name, ['x"y\\z', ""]),
    ],
)
def test_values_are_toml_or_plain_words(over, key, values):
    table = TABLE
    if "weighting.t" in over:
        table = TABLE | {"algorithm": "term"}
    if "weighting.name" in over:
        table = TABLE | {"weighting": {"kind": "acting:Acts"}}
    study = sweep(table, [over])
    assert [key(scenario) for _, scenario in study.runs] == values
    assert len({label for label, _ in study.runs}) == len(values)


def test_labels_are_short():
    assert labels("algorithm=term,afl") == ["term", "afl"]
    assert labels('algorithm="term","afl"') == ["term", "afl"]
    assert labels("data.noise=0.1,1", "work.steps=1") == ["noise=0.1, steps=1", "noise=1, steps=1"]


def test_the_variants_of_a_study_are_combined_with_the_values():
    variants = {"A": {"algorithm": "fedavg"}, "B": {"algorithm": "term"}}
    study = sweep(TABLE | {"study": {"variants": variants, "seeds": 2}}, ["work.steps=1,2"])
    found = [label for label, _ in study.runs]
    assert found == [f"{v}, steps={n}" for n in (1, 2) for v in "AB" for _ in range(2)]


def test_a_variants_own_value_is_not_swept_under_another_name():
    """Its value stands, so that a label with another one would be wrong."""
    variants = {"A": {"work": {"steps": 5}}, "B": {}}
    study = TABLE | {"study": {"variants": variants}}
    with pytest.raises(BadInput, match=r"'A, steps=1' and 'A, steps=2' are the same scenario .*="):
        sweep(study, ["work.steps=1,2"])
    with pytest.raises(BadInput, match=r"'noise=1' and 'noise=1\.0' are the same scenario$"):
        sweep(TABLE, ["data.noise=1,1.0"])
    found = [label for label, _ in sweep(study, ["work.steps=1,2"], ["study.variants="]).runs]
    assert found == ["steps=1", "steps=2"]


def test_a_key_that_not_every_variant_has_is_refused_with_a_way_out(capsys):
    over = ["--over", "weighting.lambda_fraction=0,0.5"]
    assert main(["sweep", "quickstart", *over, "--backend", "local"]) == 2
    told = capsys.readouterr().err
    assert "variant 'FedAvg': unknown key weighting.lambda_fraction" in told
    assert "--set study.variants= and name an --set algorithm=" in told
    study = sweep("quickstart", over[1:], ["study.variants=", "algorithm=gifair-global"])
    assert [s.weighting.lambda_fraction for _, s in study.runs] == [0.0] * 5 + [0.5] * 5


@pytest.mark.parametrize(
    ("over", "told"),
    [
        (["work.steps=1,2,1"], r"--over work.steps lists 1 twice"),
        (["work.steps=1,2", "work.steps=3"], r"--over work.steps is given twice"),
        (["algorithm=term,term"], "lists term twice"),
        (["work.steps"], "--over takes key=v1,v2"),
        (["work.steps="], "--over takes key=v1,v2"),
        (["=1"], "--over takes key=v1,v2"),
        (["work.steps=,"], "lists no values"),
        (["work.steps=1\n]\nother=[2"], "on one line"),
        (["work.stpes=1"], "did you mean 'steps'"),
        (["work.steps=0,1"], r"work.steps = 0"),
        (["weighting.name=a b,a_b"], "'name=a b' and 'name=a_b' would share a folder"),
        (["weighting.name=a,'a'"], "'name=a' and 'name=a' would share a folder"),
        (["sampling.scheme=all,1979-05-27"], "which a TOML file cannot hold|scheme"),
    ],
)
def test_what_is_no_sweep_is_refused(over, told):
    table = TABLE
    if "weighting" in over[0]:
        table = TABLE | {"weighting": {"kind": "acting:Acts"}}
    with pytest.raises(BadInput, match=told):
        sweep(table, over)


@examples(30)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=4, unique=True))
def test_numbers_come_back_bit_for_bit(values):
    study = sweep(TABLE, ["data.noise=" + ",".join(map(repr, values))])
    assert [scenario.data.noise for _, scenario in study.runs] == values


# A batch in this process, and on workers


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.ray)])
def backend(request):
    if request.param == "ray":
        request.getfixturevalue("ray_on_this_machine")
    return request.param


def acting(seeds=1):
    table = TABLE | {"weighting": {"kind": "acting:Acts"}}
    return sweep(table, ["weighting.name=a,b,c"], seeds=seeds)


def order(name, what):
    Path(f"order-{name}").write_text(what)


def manifests(out="out"):
    return {path.name: read_manifest(path) for path in sorted(Path(out).iterdir())}


def test_a_batch_gives_the_digests_of_run_study(backend):
    study = sweep(TABLE, ["algorithm=term,fedavg"], seeds=2)
    expected = [run.digest for run in gifair_ray.run_study(study, backend="local")]
    told = []
    runs = run_batch(study, "out", backend=backend, watch=told.append)
    assert [run.error for run in runs] == [None] * 4
    assert [read_manifest(run.folder)["digest"] for run in runs] == expected
    assert [(run.label, run.scenario.seed) for run in runs] == [
        (label, scenario.seed) for label, scenario in study.runs
    ]
    assert told == sorted(told)
    assert told[-1] == 4
    assert main(["digest", "out"]) == 0  # what is on disk is what was computed


def test_finished_runs_are_not_run_again(backend):
    study = acting()
    run_batch(study, "out", backend=backend)
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
    order("a", "break")  # were it run again, it would fail
    runs = run_batch(study, "out", backend=backend)
    assert [run.error for run in runs] == [None] * 3
    after = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*") if path.is_file()}
    assert before == after


def test_a_run_that_fails_does_not_stop_the_others_and_is_made_again(backend):
    order("b", "break")
    runs = run_batch(acting(), "out", backend=backend)
    assert [run.error for run in runs] == [None, "ZeroDivisionError: by design", None]
    found = manifests()
    assert [m["status"] for m in found.values()] == ["done", "failed", "done"]
    assert "by design" in found["name_b-seed0"]["error"]
    Path("order-b").unlink()
    runs = run_batch(acting(), "out", backend=backend)
    assert [run.error for run in runs] == [None] * 3
    again = manifests()
    assert {m["status"] for m in again.values()} == {"done"}
    for name in ("name_a-seed0", "name_c-seed0"):
        assert again[name] == found[name]


@pytest.mark.ray
def test_a_worker_that_is_killed_in_the_middle_begins_its_run_again(ray_on_this_machine):
    clean = run_batch(acting(), "clean", backend="local")
    order("a", "kill")
    order("c", "kill")
    runs = run_batch(acting(), "out", backend="ray")
    assert [run.error for run in runs] == [None] * 3
    assert not list(Path().glob("order-*"))  # they were carried out
    for one, other in zip(clean, runs, strict=True):
        assert read_manifest(one.folder)["digest"] == read_manifest(other.folder)["digest"]


def test_a_batch_that_was_interrupted_goes_on_where_it_was():
    order("b", "interrupt")
    with pytest.raises(KeyboardInterrupt):
        run_batch(acting(), "out", backend="local")
    found = manifests()
    assert {name: m["status"] for name, m in found.items()} == {
        "name_a-seed0": "done",
        "name_b-seed0": "interrupted",
    }
    runs = run_batch(acting(), "out", backend="local")
    assert [run.error for run in runs] == [None] * 3
    assert manifests()["name_a-seed0"] == found["name_a-seed0"]
    assert {m["status"] for m in manifests().values()} == {"done"}


def test_a_run_whose_process_died_is_gone_on_with():
    first = run_batch(acting(), "out", backend="local")[0]
    digest = read_manifest(first.folder)["digest"]
    manifest = first.folder / "manifest.json"
    manifest.write_text(json.dumps(read_manifest(first.folder) | {"status": "running"}))
    owner = {"pid": _dead_pid(), "host": os.uname().nodename, "since": "then"}
    (first.folder / "lock").write_text(json.dumps(owner))
    runs = run_batch(acting(), "out", backend="local")
    assert runs[0].error is None
    assert read_manifest(first.folder)["digest"] == digest
    assert read_manifest(first.folder)["status"] == "done"


def _dead_pid():
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_a_folder_in_use_is_left_alone_and_the_others_go_on():
    used = Path("out/name_b-seed0")
    used.mkdir(parents=True)
    owner = {"pid": os.getpid(), "host": os.uname().nodename, "since": "now"}
    (used / "lock").write_text(json.dumps(owner))
    errors = [run.error for run in run_batch(acting(), "out", backend="local")]
    assert (errors[0], errors[2]) == (None, None)
    assert "is in use by process" in errors[1]
    assert (used / "lock").exists()


def test_a_folder_of_something_else_is_never_removed():
    other = Path("out/name_b-seed0")
    other.mkdir(parents=True)
    (other / "thesis.tex").write_text("years of work")
    errors = [run.error for run in run_batch(acting(), "out", backend="local")]
    assert "is not empty" in errors[1]
    assert (other / "thesis.tex").read_text() == "years of work"


def test_another_scenario_in_the_folder_is_refused_before_anything_is_run(backend):
    study = sweep(TABLE, ["work.steps=1"])
    run_batch(study, "out", backend=backend)
    kept = manifests()
    more = sweep(TABLE | {"stop": {"rounds": 4}}, ["work.steps=2,1"])
    with pytest.raises(BadInput, match="holds a run of another scenario; choose another --out"):
        run_batch(more, "out", backend=backend)
    assert manifests() == kept


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"workers": 0}, "workers = 0 is less than 1"),
        ({"backend": "cloud"}, "backend = 'cloud' is neither"),
    ],
)
def test_a_batch_refuses_what_it_cannot_compute_on(options, told):
    with pytest.raises(BadInput, match=told):
        run_batch(load(TABLE), "out", **options)
    assert not Path("out").exists()


def test_what_does_not_fit_the_population_is_refused_before_anything_is_run():
    weighting = {"weighting": {"kind": "gifair", "lambda_value": 5.0}}
    with pytest.raises(BadInput, match="λ"):
        run_batch(sweep(TABLE | weighting, ["work.steps=1,2"]), "out", backend="local")
    assert not Path("out").exists()


# The command


def swept(*arguments):
    Path("many.toml").write_text(
        """
        data = {source = "quadratic", problem = "random", clients = 4}
        model = {kind = "quadratic"}
        work = {steps = 2, schedule = {lr = 0.05}}
        stop = {rounds = 3}
        weighting = {kind = "acting:Acts"}
        """
    )
    over = ["--over", "weighting.name=a,b"]
    return main(
        ["sweep", "many.toml", *over, "--out", "out", "--backend", "local", "--quiet", *arguments]
    )


def test_the_command_compares_what_it_has_run(capsys):
    assert swept("--seeds", "2") == 0
    told = capsys.readouterr().out
    assert "name=a" in told
    assert "name=b" in told
    assert "More: gifair compare out" in told
    assert len(manifests()) == 4


def test_the_command_ends_with_1_if_a_run_failed_and_runs_only_that_again(capsys):
    order("a", "break")
    assert swept() == 1
    told = capsys.readouterr()
    assert "name=b" in told.out
    assert "1 of 2 runs failed, the first of them name=a, seed 0: ZeroDivisionError" in told.err
    kept = manifests()["name_b-seed0"]
    Path("order-a").unlink()
    assert swept() == 0
    assert manifests()["name_b-seed0"] == kept
    assert {m["status"] for m in manifests().values()} == {"done"}


def test_the_command_line_starts_without_the_heavy_modules():
    import subprocess

    code = (
        "import sys, gifair_ray.cli as c; c._parser(); "
        "print(sorted({'numpy','torch','pyarrow','pydantic','ray','rich'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
