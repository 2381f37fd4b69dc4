"""A run that was stopped goes on, and ends as one that never was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from socket import gethostname

import faulty
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray import checkpoint, draws, folder, runner
from gifair_ray.errors import BadInput, GifairError, RunFailed
from gifair_ray.recorder import FolderRecorder
from gifair_ray.results import read_manifest
from gifair_ray.scenarios.load import load
from gifair_ray.scenarios.show import dump

cases = st.sampled_from(faulty.CASES)


@pytest.fixture(autouse=True, scope="module")
def one_event_at_a_time():
    """Runs advance event by event, and a checkpoint is on disk before the next."""

    def at_once(self, do, afterwards=FolderRecorder.afterwards):
        done = threading.Event()

        def do_and_tell(written):
            do(written)
            done.set()

        afterwards(self, do_and_tell)
        while not (done.wait(0.002) or self._failure or self._closed):
            pass

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "STEP_S", 0.0)
        patched.setattr(FolderRecorder, "afterwards", at_once)
        yield


class Countdown:
    """Watches a run and does something after so many events."""

    def __init__(self, events, do):
        self.left, self.do = events, do

    def __call__(self, label, scenario, progress):
        self.left -= 1
        if self.left == 0 and not progress.finished:
            self.do()


def stop():
    raise KeyboardInterrupt


def run(scenario, out, **options):
    return gifair_ray.run(scenario.table(), out=out, backend="local", **options)


def resume(out, **options):
    return gifair_ray.resume(out, backend="local", **options)


def interrupt(scenario, out, events, rounds=2):
    """Stop a run after so many events; whether it was still going on then."""
    try:
        run(scenario, out, checkpoint_rounds=rounds, watch=Countdown(events, stop))
    except KeyboardInterrupt:
        return True
    return False


# Where it was stopped does not matter


@examples(25, at_night=400)
@given(case=cases, stops=st.lists(st.integers(1, 30), min_size=1, max_size=4))
def test_a_run_that_is_interrupted_at_any_event_ends_as_if_it_had_not_been(
    case, stops, tmp_path_factory
):
    out = tmp_path_factory.mktemp("runs") / "run"
    going = interrupt(faulty.scenario(*case), out, stops[0])
    for events in stops[1:]:
        if going:
            assert read_manifest(out)["status"] == "interrupted"
            try:
                resume(out, watch=Countdown(events, stop))
                going = False
            except KeyboardInterrupt:
                pass
    if going:
        resume(out)
    manifest = read_manifest(out)
    assert (manifest["status"], manifest["digest"]) == ("done", faulty.undisturbed(*case))
    assert folder.folder_digest(out) == manifest["digest"]
    assert not (out / "lock").exists()
    assert not (out / "writer").exists()


def stopped_dead(scenario, out, copy, events, rounds):
    """A run's folder as the disk has it after a power cut at that event."""

    def snapshot():
        shutil.copytree(out, copy)
        (copy / "lock").unlink()  # its process, which is this one, has died

    run(scenario, out, checkpoint_rounds=rounds, watch=Countdown(events, snapshot))
    return copy.exists()


@examples(15, at_night=400)
@given(case=cases, events=st.integers(1, 30), rounds=st.integers(1, 4))
def test_a_run_that_dies_at_any_event_goes_on_from_its_last_checkpoint(
    case, events, rounds, tmp_path_factory
):
    root = tmp_path_factory.mktemp("runs")
    if stopped_dead(faulty.scenario(*case), root / "run", root / "copy", events, rounds):
        assert resume(root / "copy").digest == faulty.undisturbed(*case)


def test_a_checkpoint_that_is_half_written_is_none(tmp_path):
    case = ("sync", "GIFAIR-Per")
    assert stopped_dead(faulty.scenario(*case), tmp_path / "run", tmp_path / "copy", 9, 1)
    (tmp_path / "copy" / "checkpoints" / "999999.partial").write_text("{")
    (tmp_path / "copy" / "tables" / "rounds" / "000099.partial").write_bytes(b"ARROW1")
    assert resume(tmp_path / "copy").digest == faulty.undisturbed(*case)


def test_a_study_goes_on_where_it_was_stopped(tmp_path):
    table = faulty.scenario("sync", "AFL").table() | {"study": {"seeds": 3}}
    whole = [r.digest for r in gifair_ray.run_study(table, backend="local")]
    counted = Countdown(30, stop)
    with pytest.raises(KeyboardInterrupt):
        gifair_ray.run_study(table, out=tmp_path / "s", backend="local", watch=counted)
    again = gifair_ray.run_study(table, out=tmp_path / "s", backend="local", resume=True)
    assert [r.digest for r in again] == whole


def test_only_the_last_two_checkpoints_are_kept(tmp_path):
    run(faulty.scenario("sync", "Ditto"), tmp_path / "run", checkpoint_rounds=1)
    kept = list((tmp_path / "run" / "checkpoints").glob("*.json"))
    assert len(kept) == checkpoint.KEPT


# Damage


def damaged(path, how, where, bit):
    data = bytearray(path.read_bytes())
    if how == "missing" or not data:
        path.unlink()
    elif how == "cut":
        path.write_bytes(bytes(data[: int(where * len(data))]))
    else:
        at = min(int(where * len(data)), len(data) - 1)
        data[at] ^= 1 << bit
        path.write_bytes(bytes(data))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """Folders of stopped runs, with two checkpoints each."""
    root, found = tmp_path_factory.mktemp("stopped"), {}
    for number, case in enumerate([("sync", "GIFAIR-Per"), ("fedbuff", "AFL"), ("tiers", "Ditto")]):
        out = root / str(number)
        assert interrupt(faulty.scenario(*case, 16), out, 12, rounds=1)
        assert len(list((out / "checkpoints").glob("*.json"))) == 2
        found[case] = out
    return found


@examples(40, at_night=1000)
@given(data=st.data())
def test_a_damaged_file_is_noticed_or_does_not_matter(stopped, data, tmp_path_factory):
    case = data.draw(st.sampled_from(list(stopped)))
    copy = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(stopped[case], copy)
    files = sorted(
        path for path in copy.rglob("*")
        if path.is_file() and path.suffix in (".json", ".pack", ".arrow", ".toml")
    )  # fmt: skip
    for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=2, unique=True)):
        how = data.draw(st.sampled_from(["flip", "cut", "missing"]))
        damaged(path, how, data.draw(st.floats(0, 1)), data.draw(st.integers(0, 7)))
    try:
        digest = resume(copy).digest
    except GifairError:
        return
    assert digest == faulty.undisturbed(*case, 16)


def checkpoints_of(out):
    return sorted((out / "checkpoints").glob("*.json"))


def test_the_checkpoint_before_serves_if_the_last_is_damaged(stopped, tmp_path):
    for case, out in stopped.items():
        copy = tmp_path / case[0]
        shutil.copytree(out, copy)
        damaged(checkpoints_of(copy)[-1], "flip", 0.5, 3)
        assert resume(copy).digest == faulty.undisturbed(*case, 16)


def test_no_good_checkpoint_is_an_error_that_names_the_files(stopped, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(stopped["sync", "GIFAIR-Per"], copy)
    for path in checkpoints_of(copy):
        damaged(path, "cut", 0.7, 0)
    with pytest.raises(BadInput, match=r"no checkpoint of .* can be used: .*000\d\d\d\.json"):
        resume(copy)
    assert len(checkpoints_of(copy)) == 2  # they are not ours to remove


def test_a_lost_segment_is_noticed(stopped, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(stopped["sync", "GIFAIR-Per"], copy)
    (copy / "tables" / "clients" / "000000.arrow").unlink()
    with pytest.raises(BadInput, match=r"clients.000000\.arrow cannot be read"):
        resume(copy)


def test_a_checkpoint_of_another_format(stopped, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(stopped["sync", "GIFAIR-Per"], copy)
    for path in checkpoints_of(copy):
        body = path.read_text().partition("\n")[2]
        body = body.replace('"format": 1', '"format": 99', 1)
        path.write_text(f"{checkpoint._checksum(body)}\n{body}")
    with pytest.raises(BadInput, match="has format 99, and this gifair-ray reads 1"):
        resume(copy)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
)


@examples(100)
@given(data=st.data())
def test_what_has_the_right_checksum_and_makes_no_sense_is_refused(stopped, data, tmp_path_factory):
    """Somebody may write a checkpoint by hand: it builds nothing but plain state, or is refused."""
    case = ("fedbuff", "AFL")
    copy = tmp_path_factory.mktemp("forged") / "run"
    copy.mkdir()
    shutil.copytree(stopped[case] / "tables", copy / "tables")
    shutil.copytree(stopped[case] / "checkpoints", copy / "checkpoints")
    for path in checkpoints_of(copy):
        content = json.loads(path.read_text().partition("\n")[2])
        at, key = _somewhere(content, data)
        at[key] = data.draw(values)
        body = json.dumps(content)
        path.write_text(f"{checkpoint._checksum(body)}\n{body}")
    try:
        restored = checkpoint.Checkpoints(copy, faulty.scenario(*case, 16)).restore()
    except BadInput:
        return
    assert restored is not None


def _somewhere(content, data):
    """A container within a JSON value, and a key of it."""
    while True:
        keys = list(content) if isinstance(content, dict) else list(range(len(content)))
        key = data.draw(st.sampled_from(keys))
        if (
            not isinstance(content[key], dict | list)
            or not content[key]
            or data.draw(st.booleans())
        ):
            return content, key
        content = content[key]


def test_no_saved_state_can_name_code_of_others(tmp_path):
    from gifair_ray.codec import decode

    for name in ("os:path", "subprocess:Popen", "gifair_ray.api:run", "builtins:object", "os:"):
        with pytest.raises(BadInput, match="is not of this gifair-ray"):
            decode({"@object": name, "fields": {}}, lambda place: np.zeros(0), set())


def test_a_run_that_was_killed_before_it_began_begins(tmp_path):
    scenario = faulty.scenario("sync", "AFL")
    (tmp_path / "run" / "tables").mkdir(parents=True)
    (tmp_path / "run" / "lock").write_text(json.dumps({"pid": 2**22 + 1, "host": gethostname()}))
    with pytest.raises(BadInput, match="an unfinished run that had not begun yet"):
        run(scenario, tmp_path / "run")
    assert run(scenario, tmp_path / "run", resume=True).digest == faulty.undisturbed("sync", "AFL")


# Refusals


def test_a_run_goes_on_only_with_what_it_was_begun_with(stopped, tmp_path, monkeypatch):
    case = ("sync", "GIFAIR-Per")
    copy = tmp_path / "run"
    shutil.copytree(stopped[case], copy)
    text = (copy / "scenario.toml").read_text()
    (copy / "scenario.toml").write_text(text.replace("steps = 4", "steps = 5"))
    with pytest.raises(BadInput, match="holds a run of another scenario"):
        resume(copy)
    (copy / "scenario.toml").write_text(text)
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_versions", lambda: {"torch": "0.1"})
        with pytest.raises(BadInput, match=r"other versions \(.*torch .* → 0\.1"):
            resume(copy)
    with monkeypatch.context() as patched:
        patched.setattr(folder, "_cpu", lambda: "abacus")
        with pytest.raises(BadInput, match="begun on another processor"):
            resume(copy)
    assert resume(copy).digest == faulty.undisturbed(*case, 16)
    with pytest.raises(BadInput, match="is finished"):
        resume(copy)


def test_a_run_does_not_go_on_with_other_data(tmp_path):
    table = faulty.table_of(tmp_path / "data.csv")
    whole = gifair_ray.run(table, backend="local").digest
    scenario = load(table).runs[0][1]
    assert interrupt(scenario, tmp_path / "run", 2, rounds=1)
    text = (tmp_path / "data.csv").read_text()
    (tmp_path / "data.csv").write_text(text.replace("0,0.0,0.0,0", "0,0.0,0.5,0"))
    with pytest.raises(BadInput, match="begun with other files"):
        resume(tmp_path / "run")
    (tmp_path / "data.csv").write_text(text)
    assert resume(tmp_path / "run").digest == whole


def test_an_error_in_the_simulated_world_can_be_gone_on_with_too(tmp_path, monkeypatch):
    from gifair_ray.backend import LocalBackend

    collect, calls = LocalBackend.collect, []

    def fails(self, ids):
        calls.append(ids)
        if len(calls) == 6:
            raise RunFailed("a cable was pulled")
        return collect(self, ids)

    monkeypatch.setattr(LocalBackend, "collect", fails)
    with pytest.raises(RunFailed, match="cable"):
        run(faulty.scenario("sync", "AFL"), tmp_path / "run", checkpoint_rounds=1)
    assert read_manifest(tmp_path / "run")["status"] == "failed"
    assert resume(tmp_path / "run").digest == faulty.undisturbed("sync", "AFL")


# Ctrl-C


def pressed(monkeypatch, times, wait_s=0.0):
    """Ctrl-C, so many times, in the middle of the sixth event that waits for results."""
    from gifair_ray.backend import LocalBackend

    collect, calls = LocalBackend.collect, []

    def interrupted(self, ids):
        calls.append(ids)
        for _ in range(times if len(calls) == 6 else 0):
            signal.raise_signal(signal.SIGINT)
            time.sleep(wait_s)
        return collect(self, ids)

    monkeypatch.setattr(LocalBackend, "collect", interrupted)


def test_ctrl_c_in_the_middle_of_an_event_saves_the_run_after_it(tmp_path, monkeypatch):
    case = ("sync", "AFL")
    pressed(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        run(faulty.scenario(*case), tmp_path / "run")
    assert read_manifest(tmp_path / "run")["status"] == "interrupted"
    (saved,) = checkpoints_of(tmp_path / "run")
    saved = checkpoint.Checkpoints(tmp_path / "run", faulty.scenario(*case)).restore()
    assert saved.state.state.version > 0  # not from the start
    assert resume(tmp_path / "run").digest == faulty.undisturbed(*case)


def test_who_has_to_wait_is_told_why(tmp_path, monkeypatch):
    from gifair_ray import patience

    monkeypatch.setattr(patience, "SAID_S", 0.0)
    pressed(monkeypatch, 1, wait_s=0.5)
    with pytest.warns(UserWarning, match="once more"), pytest.raises(KeyboardInterrupt):
        run(faulty.scenario("sync", "AFL"), tmp_path / "run")


def test_a_second_ctrl_c_does_not_wait(tmp_path, monkeypatch):
    pressed(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        run(faulty.scenario("sync", "AFL"), tmp_path / "run")
    assert read_manifest(tmp_path / "run")["status"] == "interrupted"
    assert not checkpoints_of(tmp_path / "run")
    assert resume(tmp_path / "run").digest == faulty.undisturbed("sync", "AFL")


def test_ctrl_c_while_results_are_written_ends_a_study_after_that_run(tmp_path, monkeypatch):
    from gifair_ray.folder import RunFolder

    def write_models(self, *models, write=RunFolder.write_models):
        signal.raise_signal(signal.SIGINT)
        write(self, *models)

    table = faulty.scenario("sync", "AFL").table() | {"study": {"seeds": 2}}
    with monkeypatch.context() as patched:
        patched.setattr(RunFolder, "write_models", write_models)
        with pytest.raises(KeyboardInterrupt):
            gifair_ray.run_study(table, out=tmp_path / "s", backend="local")
    (only,) = (tmp_path / "s").iterdir()
    assert read_manifest(only)["status"] == "done"
    whole = [r.digest for r in gifair_ray.run_study(table, backend="local")]
    again = gifair_ray.run_study(table, out=tmp_path / "s", backend="local", resume=True)
    assert [r.digest for r in again] == whole


def test_ctrl_c_before_a_run_has_begun_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folder, "inputs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(faulty.scenario("sync", "AFL"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# The disk


@pytest.fixture
def small_disk(tmp_path):
    """A disk of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    options = ["-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if not mounted or subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture
def read_only(small_disk):
    """Makes a folder of the disk read-only, and as it was."""
    over = small_disk / "over"

    def switch(folder, on):
        if on:
            shutil.copytree(folder, over)
            subprocess.run(["mount", "--bind", str(over), str(folder)], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        else:
            subprocess.run(["umount", str(folder)], check=True)

    return switch


def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(small_disk):
    case = ("sync", "GIFAIR-Per")
    ballast, out = small_disk / "ballast", small_disk / "run"

    def fill():
        with open(ballast, "wb") as file:
            try:
                while True:
                    file.write(bytes(4096))
                    file.flush()
            except OSError:
                pass

    with pytest.raises(RunFailed, match=r"No space left on device.* gifair resume .*run"):
        run(faulty.scenario(*case), out, checkpoint_rounds=1, watch=Countdown(8, fill))
    ballast.unlink()
    assert read_manifest(out)["status"] in ("running", "failed")
    assert resume(out).digest == faulty.undisturbed(*case)


def test_a_disk_that_becomes_read_only(small_disk, read_only):
    case = ("sync", "GIFAIR-Per")
    out = small_disk / "run"
    change = Countdown(8, lambda: read_only(out, True))
    with pytest.raises(RunFailed, match=r"Read-only file system"):
        run(faulty.scenario(*case), out, checkpoint_rounds=1, watch=change)
    with pytest.raises(GifairError, match="Read-only file system"):
        resume(out)
    read_only(out, False)
    assert resume(out).digest == faulty.undisturbed(*case)


# The driver


LONG = ("fedbuff", "GIFAIR-Per")
ROUNDS = 400


def _gifair(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, "-m", "gifair_ray", *map(str, arguments), "--quiet"],
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _killed_and_resumed(root, moments, how):
    """Kill a command at these moments after it began to write, and go on; the digest in the end.

    A moment is a signal and a share of a second.
    """
    out = root / "run"
    (root / "s.toml").write_text(dump(_study(LONG)))
    common = (*how, "--checkpoint-rounds", "5")
    command = _gifair("run", "s.toml", "--out", out, *common, cwd=root)
    for number, share in moments:
        _wait_until_it_writes(command, out)
        time.sleep(share)
        command.send_signal(number)
        _, err = command.communicate(timeout=120)
        assert "Traceback" not in err
        begun = (out / "manifest.json").exists()
        if command.returncode == 0 or (begun and read_manifest(out)["status"] == "done"):
            break
        assert command.returncode == (1 if number != signal.SIGKILL else -9), err
        again = ("resume", out) if begun else ("run", "s.toml", "--out", out, "--resume")
        command = _gifair(*again, *common, cwd=root)
    _, err = command.communicate(timeout=300)
    manifest = read_manifest(out)
    assert manifest["status"] == "done", err
    assert folder.folder_digest(out) == manifest["digest"]
    return manifest["digest"]


def _study(case):
    return load(faulty.scenario(*case, rounds=ROUNDS).table())


def _wait_until_it_writes(command, out):
    """Until its process has the folder."""
    for _ in range(2400):
        if command.poll() is not None:
            return
        try:
            if json.loads((out / "lock").read_text())["pid"] == command.pid:
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.05)


@pytest.mark.parametrize("seed", range(2))
def test_a_driver_that_is_killed(seed, tmp_path):
    share = 0.4 * seed + 0.2
    plan = [(signal.SIGKILL, share), (signal.SIGTERM, share), (signal.SIGINT, share)][: seed + 2]
    digest = _killed_and_resumed(tmp_path, plan, ("--backend", "local"))
    assert digest == faulty.undisturbed(*LONG, rounds=ROUNDS)


@pytest.mark.ray
def test_a_driver_on_ray_that_is_told_to_stop(tmp_path):
    """Ray would have it die at once; it saves the run instead."""
    how = ("--backend", "ray", "--workers", "1")
    digest = _killed_and_resumed(tmp_path, [(signal.SIGTERM, 5.0)], how)
    assert digest == faulty.undisturbed(*LONG, rounds=ROUNDS)


@pytest.mark.nightly
@pytest.mark.parametrize("moment", range(50))
@pytest.mark.parametrize("backend", ["local", "ray"])
def test_a_driver_that_is_killed_at_a_random_moment(backend, moment, tmp_path):
    """One of fifty; of a run that is over by then, an earlier one."""
    how = ("--backend", backend, *(("--workers", "2") if backend == "ray" else ()))
    how += ("--checkpoint-rounds", "5", "--out", "run")
    (tmp_path / "s.toml").write_text(dump(_study(LONG)))
    seconds = draws.uniform(moment, "moment", 0)[0] * (3.0 if backend == "local" else 8.0)
    while True:
        command = _gifair("run", "s.toml", *how, cwd=tmp_path)
        _wait_until_it_writes(command, tmp_path / "run")
        time.sleep(seconds)
        command.kill()
        _, err = command.communicate()
        if command.returncode == -signal.SIGKILL:
            break
        assert command.returncode == 0, err
        shutil.rmtree(tmp_path / "run")
        seconds /= 2
    begun = list((tmp_path / "run" / "checkpoints").glob("*.json"))
    print(f"killed after {seconds:.2f} s, {len(begun)} checkpoints")
    again = _gifair("run", "s.toml", *how, "--resume", cwd=tmp_path)
    _, err = again.communicate()
    assert again.returncode == 0, err
    manifest = read_manifest(tmp_path / "run")
    assert manifest["digest"] == faulty.undisturbed(*LONG, rounds=ROUNDS)
    assert folder.folder_digest(tmp_path / "run") == manifest["digest"]
