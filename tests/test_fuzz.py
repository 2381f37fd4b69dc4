"""Files that were damaged, cut or made up: a clear error or a right result, and nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tomllib
from pathlib import Path

import faulty
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from pyarrow import feather, parquet

import gifair_ray
from gifair_ray.cli import main
from gifair_ray.errors import GifairError
from gifair_ray.federation import Population
from gifair_ray.folder import folder_digest
from gifair_ray.scenarios.load import folder_name, load, names
from gifair_ray.scenarios.show import dump


@st.composite
def mutations(draw):
    """Something that befalls bytes."""
    kind = draw(st.sampled_from(["flip", "cut", "insert", "repeat", "swap"]))
    where, length = draw(st.floats(0, 1)), draw(st.integers(1, 40))
    inserted = draw(st.binary(max_size=8) | st.sampled_from([b"9" * 400, b"[" * 300, b"../../"]))

    def mutate(data):
        at = min(int(where * len(data)), max(len(data) - 1, 0))
        if kind == "flip" and data:
            return data[:at] + bytes([data[at] ^ (1 << length % 8)]) + data[at + 1 :]
        if kind == "cut":
            return data[:at] + data[at + length :]
        if kind == "insert":
            return data[:at] + inserted + data[at:]
        if kind == "repeat":
            return data[:at] + data[at : at + length] * 3 + data[at + length :]
        return data[:at] + data[at : at + length][::-1] + data[at + length :]

    return mutate


def mutated(data, several):
    for mutate in several:
        data = mutate(data)
    return data


some = st.lists(mutations(), min_size=1, max_size=3)


def tree(root):
    """All files under a folder."""
    return {str(path.relative_to(root)) for path in root.rglob("*")}


# Scenarios

SHIPPED = {name: Path(gifair_ray.__file__).parent.parent / "scenarios" / f"{name}.toml"
           for name in names()}  # fmt: skip


@examples(80)
@given(name=st.sampled_from(sorted(SHIPPED)), several=some)
def test_a_damaged_scenario_file_loads_or_is_refused(name, several, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "s.toml"
    path.write_bytes(mutated(SHIPPED[name].read_bytes(), several))
    with contextlib.suppress(GifairError):
        study = load(path)
        again = tomllib.loads(dump(study))
        assert load(again).runs[0][1] == study.runs[0][1]


odd = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12),
    st.sampled_from([10**30, -1, 0, 1e308, -1e-308, "../../x", "a" * 5000, [], {}, [[[[]]]]]),
    st.recursive(st.integers(-3, 3), lambda inner: st.lists(inner, max_size=2), max_leaves=4),
)  # fmt: skip


@examples(60)
@given(case=st.sampled_from(faulty.CASES), data=st.data())
def test_a_scenario_with_an_odd_value_runs_or_is_refused(case, data):
    table = json.loads(json.dumps(faulty.scenario(*case).table()))
    at = table
    while True:
        key = data.draw(st.sampled_from(sorted(at)))
        if not isinstance(at[key], dict) or not at[key] or data.draw(st.integers(0, 3)) == 0:
            break
        at = at[key]
    at[key] = data.draw(odd)
    with contextlib.suppress(GifairError):
        scenario = load(table).runs[0][1]
        short = scenario.table() | {"stop": {"rounds": 1}}
        if key not in ("clients", "dim", "steps", "epochs", "cohort", "concurrency"):  # or for ever
            gifair_ray.run(short, backend="local")


@pytest.mark.parametrize(
    "label", ["../../escaped", "/escaped", "a/../../escaped", "..", ".", "~", "a\\..\\b", "x" * 300]
)
def test_no_name_leads_out_of_the_output_folder(label, tmp_path, monkeypatch):
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(inside)
    with contextlib.suppress(GifairError):
        assert "/" not in folder_name(label)
        table = faulty.scenario("sync", "AFL").table() | {
            "stop": {"rounds": 1}, "study": {"seeds": 2, "variants": [{"label": label}]},
        }  # fmt: skip
        gifair_ray.run_study(table, out="results", backend="local")
    assert {name.split(os.sep)[0] for name in tree(inside)} <= {"results"}
    assert tree(tmp_path) == {"inside"} | {f"inside/{name}" for name in tree(inside)}


# Traces


def trace(suffix, path):
    begin, end = [0.0, 1.0, 0.0, 50.0], [9.0, 4.0, 3.0, 60.0]
    table = pa.table({"client": ["0", "1", "2", "2"], "from": begin, "until": end})
    if suffix == "csv":
        path.write_text(
            "client,from,until\n"
            + "".join(f"{r['client']},{r['from']},{r['until']}\n" for r in table.to_pylist())
        )
    elif suffix == "parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path)


@examples(80)
@given(suffix=st.sampled_from(["csv", "parquet", "arrow"]), several=some)
def test_a_damaged_trace_is_read_or_refused(suffix, several, tmp_path_factory):
    from gifair_ray.availability.trace import Trace

    path = tmp_path_factory.mktemp("fuzz") / f"trace.{suffix}"
    trace(suffix, path)
    path.write_bytes(mutated(path.read_bytes(), several))
    n = np.array([2, 2, 2])
    population = Population(np.zeros(3, dtype=np.int64), ("all",), n, n, n)
    with contextlib.suppress(GifairError):
        calendar = Trace(path=str(path)).build(0, population)
        clients = np.arange(3)
        online = calendar.online(clients, 2.0)
        assert online.shape == (3,)
        assert calendar.next_online(0.0) >= 0.0


# Results


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("done") / "run"
    table = faulty.scenario("sync", "GIFAIR-Per").table()
    return gifair_ray.run(table, out=out, backend="local").folder


def said(*arguments):
    """What a command prints, and its exit code; it must not end in an error nobody foresaw."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    assert "unexpected" not in err.getvalue(), err.getvalue()
    assert (code == 0) == (not err.getvalue()) or "warning" in err.getvalue()
    return code


@examples(50)
@given(data=st.data(), several=some)
def test_results_that_were_damaged_are_shown_right_or_refused(
    data, several, done, tmp_path_factory
):
    copy = tmp_path_factory.mktemp("fuzz") / "run"
    shutil.copytree(done, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files))
    before = path.read_bytes()
    path.write_bytes(mutated(before, several))
    present = tree(copy.parent)
    command = data.draw(st.sampled_from(["compare", "digest", "resume", "plot"]))
    if command == "plot":
        picture = copy.parent / "x.png"
        if said("plot", copy, "-o", picture) == 0:
            assert picture.exists()
        picture.unlink(missing_ok=True)
    elif command == "resume":
        said("resume", copy, "--backend", "local", "--quiet")
        return
    else:
        code = said(command, copy)
        if command == "digest" and code == 0:
            assert folder_digest(copy) == folder_digest(done)
    assert tree(copy.parent) == present
