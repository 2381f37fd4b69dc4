"""What a user can get wrong: every mistake is refused in one line, before anything is written.

The line names the value, its limit and the way out; tests look for these parts of it.
"""

from __future__ import annotations

import copy
import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
import tomllib
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from pydantic import BaseModel

import gifair_ray
from gifair_ray import toml
from gifair_ray.cli import main
from gifair_ray.errors import BadInput
from gifair_ray.federation import DataSource
from gifair_ray.models import Model
from gifair_ray.parts import nearest
from gifair_ray.policies import Policy
from gifair_ray.results import read_table
from gifair_ray.scenario import Scenario, merge, parse
from gifair_ray.scenarios.load import load, names, text
from gifair_ray.weightings import Weighting

PROTOTYPES = {
    "data": {
        "source": "prototypes", "majority": 4, "minority": 2, "classes": 3, "features": 4,
        "train": 6, "val": 2, "test": 5,
    },
    "model": {"kind": "softmax"},
    "work": {"steps": 2},
    "stop": {"rounds": 2},
}  # fmt: skip
QUADRATIC = {
    "data": {"source": "quadratic"},
    "model": {"kind": "quadratic"},
    "work": {"steps": 2},
    "stop": {"rounds": 2},
}
GIFAIR = {"algorithm": "gifair-global", "weighting": {"lambda_fraction": 0.5}}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused(capsys):
    """Run a scenario that must be refused; what was said, which has to be one line."""

    def refuse(scenario, *arguments, out="out", code=2):
        if isinstance(scenario, dict):
            Path("scenario.toml").write_text(as_toml(scenario), encoding="utf-8")
            scenario = "scenario.toml"
        there = sorted(Path().rglob("*"))
        run = ["run", str(scenario), "--backend", "local", "--quiet", "--out", out]
        assert main([*run, *arguments]) == code
        said = capsys.readouterr()
        assert not said.out
        assert said.err.startswith("gifair: ")
        assert said.err.count("\n") == 1
        assert sorted(Path().rglob("*")) == there  # nothing was written
        return said.err.removeprefix("gifair: ").rstrip("\n")

    return refuse


def as_toml(table):
    return "\n".join(f"{toml.key(key)} = {toml.literal(value)}" for key, value in table.items())


def has(message, *parts):
    for part in parts:
        assert part in message, message


# λ


def test_lambda_at_its_bound(refused):
    # equal p_k: λ_max = min_k p_k |A_k| / (d − 1) = (1/6)·2
    for value in (1 / 3, 0.5, 1e300):
        message = refused(merge(PROTOTYPES, merge(GIFAIR, {"weighting": {"lambda_value": value}})),
                          "--set", "weighting.lambda_fraction=")  # fmt: skip
        has(message, f"λ = {value:.6g}", "λ_max = 0.333333", "lambda_fraction in [0, 1)")


def test_lambda_fraction_of_one(refused):
    message = refused(merge(PROTOTYPES, GIFAIR), "--set", "weighting.lambda_fraction=1.0")
    has(message, "weighting.lambda_fraction = 1.0", "less than 1")


@pytest.mark.parametrize("option", ["lambda_fraction", "lambda_value"])
def test_negative_lambda(refused, option):
    weighting = {"weighting": {"kind": "gifair", option: -0.1}}
    has(refused(merge(PROTOTYPES, weighting)), f"weighting.{option} = -0.1", "0 or more")


@pytest.mark.parametrize("given_too", [{}, {"lambda_fraction": 0.5, "lambda_value": 0.1}])
def test_neither_lambda_or_both(refused, given_too):
    message = refused(merge(PROTOTYPES, {"weighting": {"kind": "gifair"} | given_too}))
    has(message, "weighting", "either lambda_fraction or lambda_value")


def test_lambda_with_nobody_to_compare_with(refused):
    message = refused(
        merge(PROTOTYPES, GIFAIR) | {"data": {"source": "synthetic", "clients": 5, "groups": 1}}
    )
    has(message, "one group", "λ must be 0")


# Data


def own(**changes):
    data = {
        "source": "quadratic", "problem": "own", "A": [[[1.0]]] * 3, "b": [[0.0], [1.0], [2.0]],
        "sizes": [1, 2, 3], "groups": [0, 1, 1],
    }  # fmt: skip
    return QUADRATIC | {"data": data | changes}


def test_an_empty_group(refused):
    has(refused(own(groups=[0, 2, 2])), "group '1' has no clients", "leave it out")


def test_a_client_without_data(refused):
    has(refused(own(sizes=[3, 0, 3])), "client 1", "no training data", "leave it out")
    half = {"source": "synthetic", "clients": 3, "samples": 2, "val": 0.0, "test": 0.99}
    assert load(PROTOTYPES | {"data": half})  # 1 of 2 samples is left
    has(refused(PROTOTYPES | {"data": half | {"val": 0.02}}), "val + test = 1.01", "nothing")


def table(u):
    """A scenario on a file of our own, with this feature."""
    rows = {"client": ["a", "a", "b", "b"], "y": [0, 1, 0, 1], "u": u}
    pq.write_table(pa.table(rows), "my.parquet")
    return PROTOTYPES | {"data": {"source": "table", "path": "my.parquet"}}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_feature_that_is_no_number(refused, value):
    message = refused(table([1.0, 2.0, value, 4.0]))
    has(message, "my.parquet", "'u'", "row 3", "'b'", str(value), "replace")


def test_a_file_that_is_not_there_or_is_none(refused):
    has(refused(PROTOTYPES | {"data": {"source": "table", "path": "no.csv"}}), "no.csv", "check")
    Path("folder.csv").mkdir()
    scenario = PROTOTYPES | {"data": {"source": "table", "path": "folder.csv"}}
    has(refused(scenario), "folder.csv", "single")
    has(refused(PROTOTYPES | {"data": {"source": "table"}}), "data.path is missing")


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"source": "table", "path": "endless.csv"}},
        {"data": {"source": "pooled", "path": "endless.csv"}},
        {"availability": {"kind": "trace", "path": "endless.csv"}},
    ],
    ids=["table", "pooled", "trace"],
)
def test_a_file_without_end(changes):
    """In a process of its own, because one that reads it does not come back."""
    os.symlink("/dev/zero", "endless.csv")
    Path("scenario.toml").write_text(as_toml(PROTOTYPES | changes), encoding="utf-8")
    run = ["run", "scenario.toml", "--backend", "local", "--quiet", "--out", "out"]
    command = [sys.executable, "-m", "gifair_ray", *run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    has(done.stderr, "gifair: ", "endless.csv", "is no file", "name ")
    assert not Path("out").exists()


def test_devices_that_never_finish(capsys):
    Path("s.toml").write_text(as_toml(PROTOTYPES | {"devices": {"sample_s": 1e308}}))
    run = ["run", "s.toml", "--backend", "local", "--quiet", "--out", "out", "--set"]
    assert main([*run, "work.steps=99"]) == 1
    has(capsys.readouterr().err, "inf s", "slow", "devices", "policy.timeout_s")


# Names


@pytest.mark.parametrize(
    ("changes", "key", "hint"),
    [
        ({"modle": {}}, "modle", "'model'"),
        ({"seeds": 3}, "seeds", "'seed'"),
        ({"schema_": 1}, "schema_", "'schema'"),
        ({"stop": {"round": 3}}, "stop.round", "'rounds'"),
        ({"work": {"schedule": {"learning_rate": 1}}}, "work.schedule.learning_rate", "lr"),
        ({"work": {"schedule": {"dekay": 1}}}, "work.schedule.dekay", "'decay'"),
        ({"data": {"mayority": 3}}, "data.mayority", "'majority'"),
        ({"model": {"dtyp": "float64"}}, "model.dtyp", "'dtype'"),
        ({"model": {"hidden": 3}}, "model.hidden", "'cnn'"),
        ({"weighting": {"lambda_fraction": 0.5}}, "weighting.lambda_fraction", "'gifair'"),
        ({"policy": {"timeout": 3}}, "policy.timeout", "'timeout_s'"),
        ({"devices": {"sample": 3}}, "devices.sample", "'sample_s'"),
        ({"devices": {"jitter": {"dist": "uniform", "lo": 3}}}, "devices.jitter.lo", "'low'"),
        ({"devices": {"groups": {"x y": {"dropot": 1}}}}, 'groups."x y".dropot', "'dropout'"),
        ({"rounds": 3}, "rounds", "'stop.rounds'"),
        ({"stop": {"lr": 3}}, "stop.lr", "'work.schedule.lr'"),
        ({"a\nb": 3}, r"\nb", "known: "),
        ({"λ": {"μ": 1}}, '"λ"', "known: "),
        ({"": 3}, '""', "known: "),
        ({"x" * 10_000: 3}, "xxx", "known: "),
    ],
)  # fmt: skip
def test_unknown_keys_at_every_level(refused, changes, key, hint):
    has(refused(merge(PROTOTYPES, changes)), "unknown key ", key, hint)


def test_a_key_that_the_algorithm_has_no_use_for(refused):
    Path("s.toml").write_text(as_toml(PROTOTYPES))
    message = refused("s.toml", "--set", "solver.mu=0.5")
    has(message, "unknown key solver.mu", "'proximal'")


def test_many_problems_are_told_three_at_a_time(refused):
    message = refused(merge(PROTOTYPES, {"a": 1, "b": 2, "stop": {"rounds": -1}, "c": 3, "d": 4}))
    has(message, "stop.rounds = -1", "unknown key a", "unknown key b", "and 2 more")
    assert "unknown key c" not in message


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"algorithm": "gifair"}, ["unknown algorithm 'gifair'", "'gifair-"]),
        ({"algorithm": "xyz"}, ["unknown algorithm 'xyz'", "known: ", "fedavg"]),
        ({"algorithm": 3}, ["unknown algorithm 3", "known: "]),
        ({"algorithm": ["fedavg"]}, ["unknown algorithm ['fedavg']", "'fedavg'"]),
        ({"data": {"source": "sintetic"}}, ["unknown data source 'sintetic'", "'synthetic'"]),
        ({"data": {"source": 3}}, ["data source", "3", "known: ", "synthetic"]),
        ({"data": {}}, ["say which data source", "source", "known: ", "synthetic"]),
        ({"model": {"kind": "softmacs"}}, ["unknown model 'softmacs'", "'softmax'"]),
        ({"weighting": {"kind": "fair"}}, ["unknown weighting 'fair'", "'gifair'"]),
        ({"solver": {"kind": "adam"}}, ["unknown solver 'adam'", "known: ", "sgd"]),
        ({"aggregator": {"kind": "mode"}}, ["unknown aggregator 'mode'", "'mean'"]),
        ({"policy": {"kind": "synch"}}, ["unknown policy 'synch'", "'sync'"]),
        ({"availability": {"kind": "block"}}, ["unknown availability 'block'", "'blocks'"]),
        ({"availability": {"kind": "_x"}}, ["unknown availability '_x'", "known: "]),
    ],
)
def test_unknown_names_of_parts(refused, changes, parts):
    has(refused(PROTOTYPES | changes), *parts)


def test_unknown_scenario(refused):
    has(refused("quikstart"), "'quikstart'", "did you mean 'quickstart'?")
    has(refused("zzz"), "'zzz'", "known: ", "quickstart")
    has(refused(""), "''", "known: ", "quickstart")


def test_groups_that_the_data_does_not_have(refused):
    devices = {"devices": {"groups": {"minoriti": {"dropout": 0.1}}}}
    has(refused(PROTOTYPES | devices), "devices.groups", "'minoriti'", "'minority'")
    availability = {"availability": {"kind": "blocks", "groups": {"rural": 0.1}}}
    has(refused(PROTOTYPES | availability), "'rural'", "known: majority, minority")
    initial = merge(PROTOTYPES, merge(GIFAIR, {"weighting": {"initial": {"majority": 1.0}}}))
    has(refused(initial), "weighting.initial", "majority", "minority")


def test_a_million_known_names_are_searched_and_listed_in_part():
    known = [f"client {i}" for i in range(1_000_000)]
    assert nearest("client 77x", known) == "did you mean 'client 77'?"
    assert nearest("€", known).endswith(" and 999980 more")
    assert "zunseen" not in nearest("zunsee", ["x"] * 10_000 + ["zunseen"])


# Types and numbers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("stop.rounds=-1", "stop.rounds = -1: must be 0 or more"),
        ("stop.rounds=many", 'stop.rounds = "many": must be a whole number'),
        ('stop.rounds="5"', 'stop.rounds = "5": must be a whole number'),
        ("stop.rounds=1.5", "stop.rounds = 1.5: must be a whole number"),
        ("stop.rounds=true", "stop.rounds = true: must be a whole number"),
        ("stop.rounds=[1]", "stop.rounds = [1]: must be a whole number"),
        ("stop.rounds={a=1}", "stop.rounds = {a = 1}: must be a whole number"),
        ("stop.rounds=1979-05-27", "must be a whole number"),
        ("stop.rounds=1e400", "stop.rounds = inf: must be a finite number"),
        ("stop.rounds=9223372036854775808", "must be less than 9223372036854775808"),
        ("stop.virtual_s=inf", "stop.virtual_s = inf: must be a finite number"),
        ("stop.virtual_s=nan", "stop.virtual_s = nan: must be a finite number"),
        ("stop=7", "stop = 7: must be a table: it may have bytes, rounds, updates, virtual_s"),
        ("work=7", "work = 7: must be a table: it may have batch_size, epochs, schedule, steps"),
        ("model=softmax", 'model = "softmax": must be a table: say model.kind = …'),
        ("seed=-1", "seed = -1: must be 0 or more"),
        ("seed=9223372036854775808", "must be less than 9223372036854775808"),
        ("schema=2", "schema = 2: must be 1"),
        ("name=a/b", "name: 'a/b' is not 1 to 80 letters, digits or any of . _ + -"),
        ("name=3", "name = 3: must be text, in quotes"),
        ("work.schedule.lr=0", "work.schedule.lr = 0: must be more than 0"),
        ("work.schedule.lr=nan", "work.schedule.lr = nan: must be "),
        ("work.schedule.lr=inf", "work.schedule.lr = inf: must be a finite number"),
        ("data.scale=inf", "data.scale = inf: must be a finite number"),
        ("work.schedule.lr='fast'", 'work.schedule.lr = "fast": must be a number'),
        ("work.schedule.decay=1.5", "work.schedule.decay = 1.5: must be 1 or less"),
        ("work.schedule.kind=linear", "must be 'constant', 'geometric', 'inverse' or"),
        ("work.batch_size=0", "work.batch_size = 0: must be 1 or more"),
        ("sampling.cohort=0", "sampling.cohort = 0: must be 1 or more"),
        ("solver.keep=1", "solver.keep = 1: must be true or false"),
        ("solver.keep='off'", 'solver.keep = "off": must be true or false'),
        ("evaluation.splits=all", 'evaluation.splits = "all": must be a list'),
        ("evaluation.splits=['tests']", "evaluation.splits[0] = \"tests\": must be 'train', 'val'"),
        ("evaluation.every=inf", "evaluation.every = inf: must be a finite number"),
        ("audit.every=-1", "audit.every = -1: must be 0 or more, or 'auto'"),
        ("audit.every=often", "audit.every = \"often\": must be a whole number, or 'auto'"),
        ("data.majority=0", "data.majority = 0: must be 1 or more"),
        ("data.majority=1e20", "data.majority = 1e+20: must be a whole number"),
        ("data.majority=99999999999999999999", "must be less than 9223372036854775808"),
        ("devices.jitter={dist='normal'}", 'devices.jitter.dist = "normal": must be \'constant\''),
        ("devices.jitter={dist='uniform', low=1}", "needs low and high"),
        ("devices.jitter=nan", "devices.jitter = nan: must be a number"),
        ("devices.jitter=-1", "devices.jitter = -1"),
        ("devices.dropout=1.5", "devices.dropout = 1.5"),
        ("policy.timeout_s=0", "policy.timeout_s = 0: must be more than 0"),
        ("stop.rounds=" + "9" * 5000, "must be a whole number"),
        ("name=" + "x" * 81, "80 letters"),
        ("data={source='synthetic', groups=-99999999999999999999}", "more than -922337"),
    ],
)  # fmt: skip
def test_wrong_types_and_numbers(refused, changes, message):
    assert message in refused(PROTOTYPES, "--set", changes)


def test_a_number_that_python_itself_does_not_write_out():
    with pytest.raises(BadInput, match=r"stop\.rounds = …: must be "):
        load(merge(PROTOTYPES, {"stop": {"rounds": 10**5000}}))


def test_a_long_value_is_cut(refused):
    assert len(refused(PROTOTYPES, "--set", f"stop.rounds={[7] * 10_000}")) < 200


@pytest.mark.parametrize("missing", ["data", "model", "work"])
def test_what_cannot_be_left_out(refused, missing):
    message = refused({key: value for key, value in PROTOTYPES.items() if key != missing})
    has(message, f"{missing} is missing", "known: " if missing != "work" else "steps")


def test_more_than_memory_can_hold(refused):
    message = refused(PROTOTYPES, "--set", "data.majority=1000000000000000", code=1)
    has(message, "not enough memory", "smaller")


def test_steps_and_epochs(refused):
    message = refused(PROTOTYPES, "--set", "work.epochs=2")
    has(message, "either work.steps or work.epochs")
    has(refused(PROTOTYPES, "--set", "work.steps="), "either work.steps or work.epochs")
    assert load(PROTOTYPES, ["work.steps=", "work.epochs=2"]).runs[0][1].work.epochs == 2


def test_no_end(refused):
    with pytest.raises(BadInput, match=r"never end: give stop\.rounds"):
        load(merge(PROTOTYPES, {"stop": {"rounds": None}}))


@pytest.mark.parametrize(
    "unreliable",
    [
        {"devices": {"dropout": 0.1}},
        {"devices": {"groups": {"minority": {"dropout": 0.1}}}},
        {"availability": {"kind": "blocks", "offline": 0.1}},
    ],
)
def test_dropouts_that_nobody_would_notice(refused, unreliable):
    scenario = merge(PROTOTYPES, unreliable | {"policy": {"notice": "timeout"}})
    has(refused(scenario), "policy.timeout_s", "infinite", "policy.notice = 'disconnect'")
    assert load(merge(scenario, {"policy": {"timeout_s": 9}}))


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ({"kind": "quadratic"}, ["data.source = 'quadratic'", "model.kind = 'quadratic'"]),
        ({"kind": "lstm"}, ["model.kind = 'lstm'", "tokens", "(4,)"]),
        ({"kind": "cnn"}, ["model.image = (1, 28, 28)", "(4,)"]),
    ],
)
def test_a_model_that_does_not_fit_the_data(refused, model, parts):
    has(refused(PROTOTYPES | {"model": model}), *parts)


# Modules of the user's own


@pytest.mark.parametrize(
    ("content", "name", "parts"),
    [
        (None, "not_there:Thing", ["No module named 'not_there'", "current folder"]),
        (None, "not.there:Thing", ["No module named 'not'", "current folder"]),
        (None, ":", ["':'", "module:object"]),
        (None, ".a:b", ["'.a:b'", "module:object"]),
        ("", "{}:Thing", ["has no 'Thing'"]),
        ("", "{}:", ["has no ''"]),
        ("def f(:", "{}:Thing", ["SyntaxError"]),
        ("import not_there_either", "{}:Thing", ["not_there_either"]),
        ("1 / 0", "{}:Thing", ["ZeroDivisionError: division by zero"]),
        ("raise AttributeError('mine')", "{}:Thing", ["AttributeError: mine"]),
        ("import sys; sys.exit('bye')", "{}:Thing", ["SystemExit: bye"]),
        ("Thing = 3", "{}:Thing", ["not a subclass of", "Policy"]),
        ("class Thing: pass", "{}:Thing", ["not a subclass of", "Policy"]),
    ],
)
def test_a_module_that_cannot_be_used(refused, content, name, parts, monkeypatch):
    module = f"mine_{zlib.crc32(repr((content, name)).encode())}"  # an import is remembered
    if content is not None:
        Path(f"{module}.py").write_text(content)
    name = name.format(module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    has(refused(PROTOTYPES | {"policy": {"kind": name}}), repr(name), *parts)


# TOML and --set


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("schema = 1\n[data\n", ["line 2"]),
        ("a = 1\na = 2\n", ["line 2"]),
        ("a = \n", ["line 1", "column 5"]),
        ("a = 'ä", ["end of document"]),
        ("a = 1" + "0" * 5000, ["digits"]),
    ],
)
def test_toml_that_is_none(refused, content, parts):
    Path("s.toml").write_text(content, encoding="utf-8")
    has(refused("s.toml"), "'s.toml'", "not valid TOML", *parts)


def test_files_that_are_no_text(refused):
    Path("s.toml").write_bytes("schema = 1\n".encode("utf-16"))
    has(refused("s.toml"), "'s.toml'", "cannot read")
    Path("folder.toml").mkdir()
    has(refused("folder.toml"), "'folder.toml'", "directory")
    Path("folder").mkdir()
    has(refused("folder"), "unknown scenario 'folder'")
    has(refused("./folder"), "'./folder'", "directory")
    has(refused("nothing.toml"), "no file 'nothing.toml'", "gifair list")
    has(refused("a/b"), "no file 'a/b'")
    has(refused("a\0.toml"), "null byte")
    has(refused("x" * 5000), "too long")
    Path("large.toml").touch()
    os.truncate("large.toml", 11 << 20)
    has(refused("large.toml"), "'large.toml'", "more than 10 MB")


@pytest.mark.parametrize("content", ["x = " + "[" * 9999, "x = " + "{a=" * 9999])
def test_nesting_without_end(refused, content):
    Path("s.toml").write_text(content)
    has(refused("s.toml"), "too deeply")
    has(refused("quickstart", "--set", content), "too deeply")


def test_a_key_without_end(refused):
    Path("s.toml").write_text("a." * 1999 + "a = 1")
    has(refused("s.toml"), "missing")
    has(refused("quickstart", "--set", "a." * 99_999 + "a=1"), "unknown key a")


@pytest.mark.parametrize(
    "change",
    [
        "",
        "=",
        "=3",
        "a",
        ".=1",
        "a.=1",
        ".a=1",
        "a..b=1",
        "a b=1",
        "#a=1",
        "[a]=1",
        "a\n=1",
        "[a]\nb=1",
    ],
)
def test_a_change_that_is_none(refused, change):
    has(refused("quickstart", "--set", change), "key=value", "work.steps=5", "quotes")


@pytest.mark.parametrize(
    "change", ["stop={rounds=x}", "stop=[", "name='a", 'name="a', "name={a = b}"]
)
def test_a_table_or_text_that_is_not_closed(refused, change):
    has(refused("quickstart", "--set", change), change.replace('"', '\\"'), "not a TOML value")


def test_two_keys_in_one_change(refused):
    has(refused("quickstart", "--set", "seed=1\nname='b'"), "one key at a time")


def test_taking_away_what_is_not_there(refused):
    has(refused("quickstart", "--set", "work.step="), "work.step", "there is none")
    has(refused("quickstart", "--set", "work.steps.a="), "work.steps.a", "there is none")


def test_a_change_that_no_run_would_feel(refused):
    has(refused("quickstart", "--set", "algorithm={a=1}"), "algorithm", "change nothing")
    message = refused("quickstart", "--set", "algorithm=fedprox")
    has(message, "algorithm", "change nothing", "study.variants.FedAvg.algorithm", "--set study=")
    sets = ["--set", "study.variants.FedAvg=", "--set", "weighting={ranks='exact'}"]
    message = refused("quickstart", *sets)
    has(message, 'study.variants."GIFAIR 0.6".weighting', "--set study=")
    variants = {"study": {"variants": {"a": {"algorithm": "fedprox"}}}}
    has(refused(merge(PROTOTYPES, GIFAIR | variants)), "[weighting]", "nothing", "in the variants")


# Studies


@pytest.mark.parametrize(
    ("study", "parts"),
    [
        (3, ["study = 3", "table"]),
        ({"seed": 3}, ["study.seed", "'seeds'"]),
        ({"seeds": 0}, ["study.seeds = 0", "from 1 to 10000"]),
        ({"seeds": 10**9}, ["study.seeds = 1000000000", "from 1 to 10000"]),
        ({"seeds": 1.5}, ["study.seeds = 1.5", "whole number"]),
        ({"seeds": True}, ["study.seeds = true", "whole number"]),
        ({"variants": 3}, ["study.variants = 3", "table"]),
        ({"variants": {"a": 3}}, ["study.variants.a = 3", "table"]),
        ({"variants": {"a": {"seed": 3}}}, ["study.variants.a", "seed", "outside"]),
        ({"variants": {"a": {"study": {}}}}, ["study.variants.a", "study"]),
        ({"variants": {"": {}}}, ["''", "name"]),
        ({"variants": {"a\nb": {}}}, ["'a\\nb'", "name"]),
        ({"variants": {"x" * 81: {}}}, ["80 characters"]),
        ({"variants": {"a b": {}, "a_b": {}}}, ["'a b'", "'a_b'", "share", "rename"]),
        ({"variants": {"ok": {}, "b": {"stop": {"rounds": -1}}}}, ["variant 'b'", "stop.rounds"]),
    ],
)
def test_studies_that_are_none(refused, study, parts):
    has(refused(PROTOTYPES | {"study": study}), *parts)


def test_a_problem_that_all_variants_share_is_told_once(refused):
    variants = {"study": {"variants": {"a": {}, "b": {}}}}
    message = refused(merge(PROTOTYPES, variants), "--set", "stop.rounds=-1")
    assert message == "stop.rounds = -1: must be 0 or more"


def test_seeds_beyond_the_last(refused):
    message = refused(PROTOTYPES | {"study": {"seeds": 3}}, "--seed", str(2**63 - 2))
    has(message, "seed = 9223372036854775808", "less than 9223372036854775808")


def test_workers_and_actors(refused):
    has(refused(PROTOTYPES, "--workers", "0"), "workers = 0")
    has(refused(PROTOTYPES, "--clients-per-actor", "0"), "clients_per_actor = 0")


# The output folder


def locked_by(pid, host=None):
    Path("out").mkdir()
    owner = {"pid": pid, "host": host or socket.gethostname(), "since": "2026-01-01T00:00:00"}
    Path("out/lock").write_text(json.dumps(owner))


def test_a_folder_that_is_in_use(refused):
    locked_by(os.getpid())
    has(refused(QUADRATIC), "out", "in use", str(os.getpid()), "another --out")


def test_a_folder_that_was_left_by_a_process_that_died(refused):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    locked_by(process.pid)
    has(refused(QUADRATIC), "out", "unfinished", "another --out", "remove it")


def test_a_folder_that_another_machine_writes_to(refused):
    locked_by(1, "elsewhere")
    has(refused(QUADRATIC), "in use", "elsewhere", "another --out")


@pytest.mark.parametrize("lock", ["", "{", "[]", "3", '{"pid": "x", "host": 3}', "\udcff"])
def test_a_lock_that_cannot_be_read(refused, lock):
    Path("out").mkdir()
    Path("out/lock").write_bytes(lock.encode("utf-8", "surrogateescape"))
    has(refused(QUADRATIC), "in use", "another --out")


@pytest.mark.parametrize("pid", [0, -1, 2**70])
def test_a_lock_of_no_process(refused, pid):
    locked_by(pid)
    has(refused(QUADRATIC), "unfinished", "remove it")


def test_a_folder_that_is_not_empty(refused):
    Path("out").mkdir()
    Path("out/thesis.txt").write_text("precious")
    has(refused(QUADRATIC), "out", "not empty", "another --out")


@pytest.mark.parametrize("out", ["file", "file/below"])
@pytest.mark.parametrize("seeds", [1, 2])
def test_a_file_in_the_way(refused, out, seeds):
    Path("file").write_text("precious")
    message = refused(QUADRATIC | {"study": {"seeds": seeds}}, out=out)
    has(message, out, "another --out")


def test_a_study_one_of_whose_folders_is_in_use(refused):
    locked_by(os.getpid())
    Path("out").rename("fedavg-seed1")
    Path("out").mkdir()
    Path("fedavg-seed1").rename("out/fedavg-seed1")
    message = refused(QUADRATIC | {"study": {"seeds": 3}})
    has(message, "fedavg-seed1", "in use", str(os.getpid()), "another --out")


def test_a_study_one_of_whose_folders_is_a_file(refused):
    Path("out").mkdir()
    Path("out/fedavg-seed1").write_text("precious")
    has(refused(QUADRATIC | {"study": {"seeds": 3}}), "fedavg-seed1", "another --out")


def test_a_study_one_of_whose_folders_is_taken(refused):
    Path("out/fedavg-seed1").mkdir(parents=True)
    Path("out/fedavg-seed1/thesis.txt").write_text("precious")
    has(refused(QUADRATIC | {"study": {"seeds": 3}}), "fedavg-seed1", "not empty", "another --out")


# Divergence


@pytest.mark.parametrize("scenario", [PROTOTYPES, QUADRATIC], ids=["softmax", "quadratic"])
@pytest.mark.parametrize("lr", ["1e+38", "1e+200"])
def test_divergence_names_who_when_and_the_learning_rate(scenario, lr, capsys):
    Path("s.toml").write_text(as_toml(scenario))
    sets = ["--set", f"work.schedule.lr={lr}", "--set", "work.steps=5", "--set", "stop.rounds=9"]
    run = ["run", "s.toml", "--backend", "local", "--quiet", "--out", "out", *sets]
    assert main(run) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    has(said, "client ", "version ", f"learning rate {lr}", "lower work.schedule.lr")
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert manifest["error"].startswith("Diverged: client ")
    assert manifest["digest"] is None
    assert not Path("out/lock").exists()
    assert len(read_table(Path("out"), "clients"))


# Whatever comes


def leaf_keys():
    keys = {"kind", "source", "dist", "study", "seeds", "variants", "FedAvg", ""}
    models: list[type[BaseModel]] = [Scenario]
    for family in (DataSource, Model, Weighting, Policy):
        models += [family.find(name) for name in family.names()]
    for model in models:
        keys |= {info.alias or name for name, info in model.model_fields.items()}
    return sorted(keys)


# No colon: it would import modules.
words = st.text(st.characters(exclude_characters=":", exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(leaf_keys()) | words
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | words
    | st.sampled_from(["softmax", "gifair", "constant", "auto", "each", "train", "blocks", "q3"])
    | st.dates()
    | st.just(datetime.time(7, 32))
)
garbage = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
bases = st.sampled_from(
    [PROTOTYPES, QUADRATIC, merge(PROTOTYPES, GIFAIR), tomllib.loads(text("quickstart"))]
)


@st.composite
def spoilt_scenarios(draw):
    """A scenario in which some values, anywhere, have been replaced, added or removed."""
    scenario = copy.deepcopy(draw(bases))
    for _ in range(draw(st.integers(1, 3))):
        place = scenario
        while True:
            inner = [key for key, value in place.items() if isinstance(value, dict)]
            if not inner or draw(st.booleans()):
                break
            place = place[draw(st.sampled_from(inner))]
        key = draw(st.sampled_from(sorted(place)) if place and draw(st.booleans()) else keys)
        if draw(st.integers(0, 4)):
            place[key] = draw(garbage)
        else:
            place.pop(key, None)
    return scenario


def loads_or_is_refused(source, sets=()):
    runs, said = (), "nothing"
    try:
        runs = load(source, sets).runs
    except BadInput as error:
        said = str(error)
    assert said
    assert "\n" not in said
    for _, scenario in runs:
        again = parse(tomllib.loads(toml.dump(scenario)))
        assert again == scenario
        assert again.digest() == scenario.digest()


@examples(150)
@given(st.dictionaries(keys, garbage, max_size=5) | spoilt_scenarios())
def test_any_table_loads_or_is_refused(table):
    loads_or_is_refused(table)


@examples(150)
@given(
    st.lists(
        st.text(max_size=20)
        | st.builds(
            lambda path, value: ".".join(path) + "=" + value,
            st.lists(keys.filter(str.isidentifier), min_size=1, max_size=3),
            st.text(max_size=10)
            | garbage.map(str)
            | st.sampled_from(["", "1", "-1", "0.5", "'x'", "[1]", "{a=1}", "{kind='sgd'}"]),
        ),
        max_size=3,
    ),
    st.sampled_from(names()),
)
def test_any_changes_load_or_are_refused(sets, name):
    if not any(":" in change for change in sets):  # which would import modules
        loads_or_is_refused(name, sets)


@examples(150)
@given(st.data())
def test_any_text_loads_or_is_refused(data):
    content = text("quickstart")
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 20)))
        piece = data.draw(
            st.text(max_size=5)
            | st.sampled_from(['"', "[", "]", "=", "\n", "-", "1e9", "true", "inf", "[[a]]\n"])
        )
        content = content[:start] + piece + content[end:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spoilt.toml"
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
        if ":" not in content.partition("schema")[2]:
            loads_or_is_refused(path)


@pytest.mark.parametrize("option", ["workers", "clients_per_actor"])
def test_going_on_with_nobody_is_refused_as_beginning_is(option, tmp_path):
    with pytest.raises(BadInput, match=f"{option} = 0 is less than 1"):
        gifair_ray.run("quickstart", sets=["study="], **{option: 0})
    with pytest.raises(BadInput, match=f"{option} = 0 is less than 1"):
        gifair_ray.resume(tmp_path, **{option: 0})
