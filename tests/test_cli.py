"""The command line: what each command prints, leaves behind and returns."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel
from safetensors.numpy import load_file

from gifair_ray import recorder
from gifair_ray.cli import commands, main
from gifair_ray.cli.progress import virtual
from gifair_ray.results import Written, read_table, write_segment
from gifair_ray.scenario import Scenario
from gifair_ray.scenarios.load import load, names
from gifair_ray.tables import TABLES

SMALL = """\
# Is this small enough to run in a moment?
[data]
source = "prototypes"
majority = 4
minority = 2
classes = 3
features = 4
train = 6
val = 2
test = 5

[model]
kind = "softmax"

[work]
steps = 2

[sampling]
cohort = 3

[stop]
rounds = 3

[evaluation]
every = 2
"""
STUDY = """
[study]
seeds = 2

[study.variants.FedAvg]
algorithm = "fedavg"

[study.variants."GIFAIR per client"]
algorithm = "gifair-per"
weighting = {lambda_fraction = 0.5}
"""
# No torch: starts in half a second.
QUADRATIC = """\
[data]
source = "quadratic"

[model]
kind = "quadratic"

[work]
steps = 2
"""


@pytest.fixture(autouse=True)
def _a_folder_with_scenarios(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL)
    Path("study.toml").write_text(SMALL + STUDY)
    Path("quadratic.toml").write_text(QUADRATIC)


def run(scenario, *more):
    return main(["run", scenario, "--backend", "local", "--out", "out", *more])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a finished study, for those who only read it."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(SMALL + STUDY)
    arguments = ["run", str(folder / "study.toml"), "--backend", "local", "--quiet"]
    assert main([*arguments, "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture
def done(study):
    return study / "FedAvg-seed0"


def copied(folder):
    """A copy that may be spoilt, in the current folder."""
    import shutil

    return Path(shutil.copytree(folder, "copy"))


def subprocess_of(*arguments, **options):
    """`python -m gifair_ray` in the current folder, with the package of this checkout."""
    return subprocess.Popen([sys.executable, "-m", "gifair_ray", *arguments], **options)


def complaint(capsys):
    """What a failed command says: one line after `gifair: `."""
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if not re.match(r"starting |\[ *\d+ %\]", line)]
    assert len(lines) == 1, said
    assert lines[0].startswith("gifair: ")
    return lines[0].removeprefix("gifair: ")


# run


def test_a_run_leaves_the_files_that_are_documented(capsys):
    assert run("small.toml", "--quiet") == 0
    files = {str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file()}
    segments = {f"tables/{name}/000000.arrow" for name in TABLES} - {
        "tables/losses/000000.arrow",  # FedAvg asks for no losses, and has no ranks
        "tables/ranks/000000.arrow",
    }
    assert files == {"manifest.json", "scenario.toml", "models/global.safetensors"} | segments
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert set(manifest) == {
        "format", "name", "label", "algorithm", "seed", "scenario_digest", "status", "digest",
        "command", "started", "ended", "versions", "cpu", "inputs", "backend", "workers",
        "clients_per_actor", "device", "layout", "rounds", "virtual_s", "remarks",
    }  # fmt: skip
    assert (manifest["status"], manifest["rounds"]) == ("done", 3)
    assert (manifest["name"], manifest["label"], manifest["seed"]) == ("small", "fedavg", 0)
    assert manifest["backend"] == "local"
    assert manifest["versions"]["gifair-ray"] == metadata.version("gifair-ray")
    assert f"digest {manifest['digest']}\n" in capsys.readouterr().out


def test_the_stored_scenario_is_the_one_that_ran(study):
    ran = load(study.parent / "study.toml")
    for label, scenario in ran.runs:
        folder = study / f"{label.replace(' ', '_')}-seed{scenario.seed}"
        assert load(folder / "scenario.toml").runs == ((scenario.algorithm, scenario),)
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["scenario_digest"] == scenario.digest()
        assert manifest["label"] == label


def test_tables_can_be_read_with_pyarrow_alone(done):
    for path in done.glob("tables/*/*.arrow"):
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        assert table.schema == TABLES[path.parent.name]
        assert table.schema.metadata[b"table"].decode() == path.parent.name
        assert all(b"unit" in field.metadata for field in table.schema)
        assert len(table)
    assert read_table(done, "rounds")["round"].to_pylist() == [1, 2, 3]


def test_a_run_may_have_more_than_a_million_segments():
    for number, what in ((1_000_000, "c"), (999_999, "b"), (0, "a")):
        row = {"wall_s": [0.0], "time_s": [0.0], "what": [what], "seconds": [0.0]}
        write_segment(Path("run"), "timings", Written(number), pa.table(row, TABLES["timings"]))
    assert read_table(Path("run"), "timings")["what"].to_pylist() == ["a", "b", "c"]


def test_where_segments_end_makes_no_difference(done, monkeypatch):
    monkeypatch.setattr(recorder, "FLUSH_ROWS", 1)
    assert run(str(done / "scenario.toml"), "--quiet") == 0
    assert len(list(Path("out/tables/rounds").iterdir())) == 3
    assert read_table(Path("out"), "rounds") == read_table(done, "rounds")
    again, before = (json.loads((f / "manifest.json").read_text()) for f in (Path("out"), done))
    assert again["digest"] == before["digest"]


def test_models_can_be_read_with_safetensors_alone(study):
    shapes = {"weight": (4, 3), "bias": (3,)}
    model = load_file(study / "FedAvg-seed0" / "models" / "global.safetensors")
    assert {name: tensor.shape for name, tensor in model.items()} == shapes
    own = study / "GIFAIR_per_client-seed0"
    personal = load_file(own / "models" / "personal-0000.safetensors")
    clients = personal.pop("__clients__")
    assert {n: t.shape for n, t in personal.items()} == {
        name: (len(clients), *shape) for name, shape in shapes.items()
    }
    took_part = read_table(own, "participation").to_pylist()
    last = max(row["version"] for row in took_part)
    ever = [row["client"] for row in took_part if row["version"] == last and row["completed"]]
    assert clients.tolist() == ever


def test_a_study_has_a_folder_for_each_run_and_ends_with_a_table(capsys):
    assert run("study.toml") == 0
    assert {path.name for path in Path("out").iterdir()} == {
        f"{label}-seed{seed}" for label in ("FedAvg", "GIFAIR_per_client") for seed in (0, 1)
    }
    said = capsys.readouterr()
    assert "FedAvg" in said.out
    assert "GIFAIR" in said.out
    assert "More: gifair compare out\n" in said.out
    lines = said.err.splitlines()
    assert lines[0] == "starting 4 run(s)"
    assert re.match(r"\[ *0 %\] FedAvg, seed 0: round 0 · 0\.0 s", lines[1])
    assert re.fullmatch(
        r"\[100 %\] GIFAIR per client, seed 1: round 3 · [\d.]+ s · loss [\d.]+ · spread [\d.e-]+",
        lines[-1],
    )


def test_what_to_type_next_can_be_typed(monkeypatch, capsys):
    """After `make run` the command is in .venv, and nowhere else."""
    common = ["run", "small.toml", "--quiet", "--backend", "local", "--out"]
    monkeypatch.setattr(sys, "argv", [".venv/bin/gifair"])
    for path, command in (("", ".venv/bin/gifair"), (str(Path(sys.executable).parent), "gifair")):
        monkeypatch.setenv("PATH", path)
        assert main([*common, f"out of {command.count('/')}"]) == 0
        told = capsys.readouterr().out
        assert f"More: {command} compare 'out of {command.count('/')}'" in told
        assert f"      {command} report 'out of {command.count('/')}' --open" in told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0.0 s"), (119.9, "119.9 s"), (120, "2.0 min"), (7200, "2.0 h"), (172_800, "2.0 d")],
)
def test_virtual_time_is_easy_to_read(seconds, told):
    assert virtual(seconds) == told


def test_quiet_says_the_result_and_nothing_else(capsys):
    assert run("small.toml", "--quiet") == 0
    said = capsys.readouterr()
    assert not said.err
    assert "global" in said.out


def test_changes_and_seeds_reach_the_run():
    sets = ["--set", "stop.rounds=1", "--set", "algorithm=fedprox", "--set", "solver.mu=0.5"]
    assert run("small.toml", "--quiet", "--seed", "7", *sets) == 0
    ((label, scenario),) = load("out/scenario.toml").runs
    assert (label, scenario.seed, scenario.stop.rounds) == ("fedprox", 7, 1)
    assert scenario.solver.pull == 0.5
    assert (
        run("study.toml", "--quiet", "--seed", "7", "--out", "two", "--set", "stop.rounds=1") == 0
    )
    assert {path.name.rpartition("seed")[2] for path in Path("two").iterdir()} == {"7", "8"}


def test_a_seed_makes_another_run_and_the_same_again(study, done):
    assert main(["digest", str(done)]) == 0
    scenario = str(done / "scenario.toml")
    assert run(scenario, "--quiet") == 0
    assert run(scenario, "--quiet", "--seed", "1", "--out", "one") == 0
    first, again, other = (
        json.loads((Path(folder) / "manifest.json").read_text())["digest"]
        for folder in (done, "out", "one")
    )
    assert first == again != other


def test_a_run_without_any_evaluation_to_show(capsys):
    assert run("quadratic.toml", "--quiet", "--set", "evaluation.splits=['val']") == 0
    assert "no evaluation to show" in capsys.readouterr().out


def test_parents_of_the_folder_are_made_and_the_default_is_by_name_and_time(capsys):
    assert run("quadratic.toml", "--quiet", "--out", "a/b/ c/größe") == 0
    assert Path("a/b/ c/größe/manifest.json").exists()
    out = capsys.readouterr().out
    assert "split train" in out  # quadratic clients have no test data
    assert "gifair compare 'a/b/ c/größe'" in out  # to be copied into a shell
    assert main(["run", "quadratic.toml", "--backend", "local", "--quiet"]) == 0
    (folder,) = Path("runs").iterdir()
    assert re.fullmatch(r"quadratic-\d{8}-\d{6}", folder.name)


def test_a_file_with_an_odd_name_and_a_byte_order_mark():
    Path("my best: λ.toml").write_text(QUADRATIC, encoding="utf-8-sig")
    assert run("my best: λ.toml", "--quiet") == 0
    assert json.loads(Path("out/manifest.json").read_text())["name"] == "my-best-λ"


def test_a_file_with_a_long_name():
    Path(f"{'x' * 200}.toml").write_text(QUADRATIC)
    assert load(f"{'x' * 200}.toml").name == "x" * 80


def test_names_that_are_no_text(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gifair", "out\udcff"])  # as Python reads a byte 0xff
    assert run("quadratic.toml", "--quiet", "--out", "out\udcff") == 0
    manifest = json.loads(Path("out\udcff/manifest.json").read_text(encoding="utf-8"))
    assert manifest["command"] == ["gifair", "out\udcff"]
    assert main(["digest", "out\udcff"]) == 0
    assert manifest["digest"] in capsys.readouterr().out


def test_a_folder_called_like_a_scenario_is_not_in_its_way():
    Path("quickstart").mkdir()
    assert main(["show", "quickstart"]) == 0


@pytest.mark.filterwarnings("default")
def test_a_warning_is_one_line(capsys):
    assert run("quadratic.toml", "--quiet", "--set", "aggregator.kind=paper-literal") == 0
    assert complaint(capsys).startswith("warning: aggregator 'paper-literal' rescales")


def test_a_label_is_shown_as_it_is_and_not_as_markup(capsys):
    variant = ["--set", 'study.variants."[/] [red]λ".stop.rounds=1']
    assert run("small.toml", "--quiet", *variant) == 0
    assert "[/] [red]λ" in capsys.readouterr().out


def test_on_a_terminal_there_is_a_bar():
    server, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    variant = ["--set", 'study.variants."[/bold]".stop.rounds=3', "--set", "study.seeds=2"]
    process = subprocess_of(
        "run", "quadratic.toml", "--backend", "local", "--out", "out", *variant,
        stdin=terminal, stdout=terminal, stderr=terminal, env=environment,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(server, 65536)
        except OSError:  # how Linux says that the other side is gone
            break
        if not piece:
            break
        shown += piece
    os.close(server)
    assert process.wait() == 0
    text = shown.decode()
    assert "━" in text
    assert "\x1b[?25l" in text  # the cursor is hidden while the bar moves
    assert "\x1b[?25h" in text
    assert "[/bold], seed 1" in text
    assert "starting 2 run(s)" not in text
    assert "More: gifair compare out" in text


# Ends that come too soon


def test_ctrl_c_keeps_what_there_is(capsys):
    process = subprocess_of(
        "run", "quadratic.toml", "--backend", "local", "--out", "out",
        "--set", "stop.rounds=1000000000", stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        for line in process.stderr:
            if "round" in line:  # it has begun
                break
        process.send_signal(signal.SIGINT)
        rest = [line for line in process.stderr.read().splitlines() if not line.startswith("[")]
    assert process.returncode == 1
    assert rest == [
        "gifair: interrupted; results so far are kept, and gifair resume goes on with them"
    ]
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    assert manifest["error"].startswith("KeyboardInterrupt")
    assert manifest["ended"]
    assert not Path("out/lock").exists()
    assert not list(Path("out").rglob("*.partial"))
    assert len(read_table(Path("out"), "clients")) == 2
    rounds = read_table(Path("out"), "rounds")["round"].to_pylist()
    assert rounds == list(range(1, len(rounds) + 1))
    assert main(["digest", "out"]) == 2
    assert "interrupted" in complaint(capsys)


def test_a_reader_that_leaves_early_sees_no_traceback():
    process = subprocess_of("show", "quickstart", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()  # long before anything is written
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_a_run_whose_progress_nobody_reads_goes_on():
    process = subprocess_of(
        "run", "quadratic.toml", "--backend", "local", "--out", "out",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stderr.close()
    assert b"digest" in process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    assert json.loads(Path("out/manifest.json").read_text())["status"] == "done"


def test_letters_that_the_terminal_does_not_have():
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = subprocess_of("show", "quickstart", stdout=subprocess.PIPE, env=environment)
    told = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    assert tomllib.loads(told.decode("ascii"))["name"] == "quickstart"


def test_a_disk_that_fails_ends_the_run_and_says_so(monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorder, "write_segment", full)
    assert run("quadratic.toml", "--quiet") == 1
    message = complaint(capsys)
    assert "out" in message
    assert "No space left" in message
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert (manifest["status"], manifest["digest"]) == ("failed", None)
    assert "No space left" in manifest["error"]
    assert not Path("out/lock").exists()


# compare, plot, digest


def test_compare_names_all_labels_and_counts_seeds(study, done, capsys):
    assert main(["compare", str(study)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"FedAvg +global +2 ", out)
    assert re.search(r"GIFAIR +.*personal +2 ", out)
    assert "virtual" in out  # the full table, with all its columns
    assert "…" not in out
    assert main(["compare", str(done), "--split", "train"]) == 0
    assert re.search(r"FedAvg +global +1 ", capsys.readouterr().out)


def test_compare_draws_groups(study, capsys):
    assert main(["compare", str(study), "--plot", "groups.png"]) == 0
    assert capsys.readouterr().out.endswith("groups.png\n")
    assert Path("groups.png").read_bytes().startswith(b"\x89PNG")


def test_plot_draws_losses(done, capsys):
    assert main(["plot", str(done), "-o", "losses.svg"]) == 0
    assert capsys.readouterr().out == "losses.svg\n"
    assert "<svg" in Path("losses.svg").read_text()


@pytest.mark.parametrize("file", ["picture.docx", "picture"])
def test_a_picture_needs_an_ending_that_can_be_drawn(done, file, capsys):
    assert main(["plot", str(done), "-o", file]) == 2
    assert file in complaint(capsys)
    assert not list(Path().glob("picture*"))


def test_plot_takes_one_run(study, capsys):
    assert main(["plot", str(study)]) == 2
    assert "manifest.json" in complaint(capsys)


def test_digest_is_the_one_that_was_written(study, capsys):
    assert main(["digest", str(study)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line in lines:
        digest, folder = line.split("  ")
        assert json.loads((Path(folder) / "manifest.json").read_text())["digest"] == digest


@pytest.mark.parametrize("table", ["rounds", "evaluations"])
def test_digest_sees_a_byte_that_was_changed(done, table, capsys):
    folder = copied(done)
    value = next(t for t in read_table(folder, table)["time_s"].to_pylist() if t)
    file = folder / "tables" / table / "000000.arrow"
    content = bytearray(file.read_bytes())
    content[content.index(struct.pack("<d", value))] ^= 1
    file.write_bytes(content)
    assert main(["digest", str(folder)]) == 1
    message = complaint(capsys)
    assert "changed" in message
    assert str(folder) in message


@pytest.mark.parametrize("what", ["tables/rounds/000000.arrow", "models/global.safetensors"])
def test_digest_sees_a_file_that_was_cut(done, what, capsys):
    folder = copied(done)
    (folder / what).write_bytes((folder / what).read_bytes()[:-9])
    assert main(["digest", str(folder)]) == 1
    assert "changed" in complaint(capsys)


def test_digest_leaves_timings_out(done, capsys):
    folder = copied(done)
    (folder / "tables" / "timings" / "000000.arrow").unlink()
    assert main(["digest", str(folder)]) == 0


# list, show


def test_list_fits_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    monkeypatch.delenv("COLUMNS")
    assert main(["list"]) == 0
    assert capsys.readouterr().out.split() == told.split()


def test_list_names_everything_there_is(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    for word in (*names(), "gifair-global", "prototypes", "softmax", "sync", "mean", "always"):
        assert re.search(rf"(^|\s){word}(\s|$)", out), word
    assert "Does GIFAIR help a minority" in out


def shown(capsys, *arguments):
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def keys_of(model: BaseModel, path=()):
    """Every key of the schema, with the table it belongs to."""
    for name, info in type(model).model_fields.items():
        key, value = info.alias or name, getattr(model, name)
        yield (*path, key)
        if isinstance(value, BaseModel) and "dist" not in type(value).model_fields:
            yield from keys_of(value, (*path, key))


def keys_in(text):
    """Every key that a TOML text has or has commented out, and its tables."""
    table = ()
    for line in text.splitlines():
        if heading := re.fullmatch(r"\[([\w.]+)\]", line):
            table = tuple(heading[1].split("."))
            yield table
        elif entry := re.match(r"(?:# )?(\w+) =", line):
            yield (*table, entry[1])


@pytest.mark.parametrize(
    "sets",
    [
        (),
        ("algorithm=gifair-per", "weighting.lambda_value=0"),
        ("data.source=synthetic", "data.minority.share=0.3"),
        ("devices.groups.minority.sample_s=0.5", "devices.jitter={dist='uniform', low=0, high=1}"),
        ("stop.rounds=", "stop.virtual_s=60", "policy.timeout_s=1e-7"),
        ("model.kind=cnn", "name=größe", 'weighting={kind="gifair", lambda_fraction=0.1}'),
        ('devices.groups."a\\u007f\\n\\"b.c".dropout=0.5', "availability.kind=blocks"),
    ],
)
def test_show_has_every_key_and_reads_back_as_the_same_scenario(sets, capsys):
    changes = [word for change in sets for word in ("--set", change)]
    text = shown(capsys, "small.toml", *changes)
    ((label, scenario),) = load("small.toml", sets).runs
    tomllib.loads(text)
    assert set(keys_in(text)) >= set(keys_of(scenario))
    Path("again.toml").write_text(text)
    assert load("again.toml").runs == ((label, scenario),)
    assert load("again.toml").runs[0][1].digest() == scenario.digest()
    assert shown(capsys, "again.toml") == text


def test_show_writes_a_constant_as_a_number(capsys):
    text = shown(capsys, "small.toml", "--set", "devices.groups.minority.sample_s=0.5")
    assert "\nup_mbps = 10.0  #" in text
    assert "\ngroups = {minority = {sample_s = 0.5}}  #" in text


@pytest.mark.parametrize("source", ["study.toml", *names()])
def test_show_of_a_study_is_that_study(source, capsys):
    text = shown(capsys, source)
    Path("again.toml").write_text(text)
    assert load("again.toml") == load(source)
    assert shown(capsys, "again.toml") == text


def test_every_key_says_what_it_means(capsys):
    text = shown(capsys, "quickstart")
    kinds = ("source", "kind")  # what these choose from is in `gifair list`
    for line in text.splitlines():
        if entry := re.match(r"(?:# )?(\w+) =", line):
            assert "  # " in line or entry[1] in kinds, line
    assert all(info.description for info in Scenario.model_fields.values())


# Exit codes


def test_exit_code_0_for_help():
    for arguments in (["--help"], ["run", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["run"], ["run", "x", "--seed", "y"], ["run", "x", "--backend", "y"]]
)
def test_exit_code_2_for_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: gifair" in capsys.readouterr().err


def test_exit_code_2_for_bad_input_and_a_traceback_when_asked_for(capsys):
    assert main(["show", "quickstart", "--set", "stop.rounds=-1"]) == 2
    assert complaint(capsys) == "stop.rounds = -1: must be 0 or more"
    assert main(["show", "quickstart", "--set", "stop.rounds=-1", "--debug"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert "BadInput: stop.rounds = -1" in said


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("odd"), "unexpected ZeroDivisionError: odd (--debug shows where)"),
        (MemoryError("no room for 7 PiB"), "not enough memory: no room for 7 PiB; make the"),
        (PermissionError(13, "Permission denied", "x"), "[Errno 13] Permission denied: 'x'"),
        (
            KeyboardInterrupt(),
            "interrupted; results so far are kept, and gifair resume goes on with them",
        ),
        (OSError("first line\n  second line"), "first line second line"),
    ],
)
def test_exit_code_1_for_everything_else(error, told, monkeypatch, capsys):
    def fail(_):
        raise error

    monkeypatch.setattr(commands, "list_all", fail)
    assert main(["list"]) == 1
    assert complaint(capsys).startswith(told)
    assert main(["list", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_warnings_are_shown_as_before_afterwards():
    import warnings

    before = warnings.showwarning
    assert main(["list"]) == 0
    assert warnings.showwarning is before


def test_the_lock_says_who_holds_it(monkeypatch):
    from gifair_ray.folder import RunFolder

    held = {}

    def look(self, *_):
        held.update(json.loads((self.path / "lock").read_text()))

    monkeypatch.setattr(RunFolder, "write_models", look)
    assert run("quadratic.toml", "--quiet") == 0
    assert (held["pid"], held["host"]) == (os.getpid(), socket.gethostname())


# Data sets


def letters(folder, rows=60):
    """A tiny npz in the form of EMNIST."""
    folder.mkdir()
    images = np.random.default_rng(0).integers(0, 256, (rows, 28, 28), dtype=np.uint8)
    np.savez(folder / "letters.npz", images=images, labels=np.arange(rows) % 3)


def test_a_data_set_is_imported_and_run_from_the_data_folder(tmp_path, capsys):
    letters(tmp_path / "raw")
    where = ["--data-dir", str(tmp_path / "raw")]
    out = str(tmp_path / "raw" / "letters.arrow")
    assert main(["data", "import", "emnist", "letters.npz", "-o", out, *where]) == 0
    assert 'source = "pooled"' in capsys.readouterr().out
    Path("letters.toml").write_text(
        """
        data = {source = "pooled", path = "letters.arrow", clients = 3}
        model = {kind = "softmax"}
        work = {steps = 1}
        stop = {rounds = 1}
        """
    )
    assert run("letters.toml", *where) == 0
    assert 'path = "letters.arrow"' in Path("out/scenario.toml").read_text()


def test_a_data_set_that_is_not_right_is_one_line(tmp_path, capsys):
    Path("bad.json").write_text('{"users": [')
    assert main(["data", "import", "leaf", "bad.json", "-o", "bad.arrow"]) == 2
    assert "bad.json, character 12" in complaint(capsys)
    assert main(["data", "import", "leaf", "bad.json", "-o", "b.arrow", "--data-dir", "none"]) == 2
    assert "there is no folder" in complaint(capsys)
