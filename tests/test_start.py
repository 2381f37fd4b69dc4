"""Ray as it is started by hand on several machines (docs/cluster.md): `ray start`, `ray job`.

The machines are processes in a network of their own, which has nothing but a loopback interface:
whatever they listen on, nobody else hears it, and ports are as in the documentation.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import faulty
import pytest

import gifair_ray
from gifair_ray.folder import folder_digest
from gifair_ray.results import read_manifest
from gifair_ray.scenarios.load import load
from gifair_ray.scenarios.show import dump

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

CASE = ("fedbuff", "GIFAIR-Per")
FIRST = "127.0.0.1"
RAY = (sys.executable, "-m", "ray.scripts.scripts")
GIFAIR = (sys.executable, "-m", "gifair_ray")
JOBS = importlib.util.find_spec("aiohttp_cors") is not None
HIDE = 'mount -t tmpfs none "$0" && exec "$@"'
needs_jobs = pytest.mark.skipif(not JOBS, reason="ray job submit needs ray[default]")


@dataclass(frozen=True)
class Machines:
    """Where commands are typed: `inside` leads to the network, `env` opens the cluster."""

    inside: tuple[str, ...]
    env: dict[str, str]

    def typed(self, *command, cwd=None):
        """What has become of a command."""
        return subprocess.run(
            [*self.inside, *map(str, command)],
            cwd=cwd, env=self.env, capture_output=True, text=True, timeout=180,
        )  # fmt: skip

    @contextlib.contextmanager
    def machine(self, *how, hidden=None):
        """Another machine, for as long as the block lasts. It finds the folder `hidden` empty.

        `ray stop` is not for tests: it ends all that is called Ray, whoever started it.
        """
        folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # Ray wants a short name
        own = (f"--temp-dir={folder}", "--num-cpus=1", f"--object-store-memory={80 << 20}")
        begin = [*RAY, "start", *how, *own, "--disable-usage-stats", "--block"]
        if hidden is not None:
            begin = ["unshare", "--mount", "--", "sh", "-c", HIDE, str(hidden), *begin]
        command = [*self.inside, *begin]
        with open(folder / "said", "w") as said:
            process = subprocess.Popen(
                command, env=self.env, stdout=said, stderr=said, start_new_session=True
            )
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)

    def wait_for(self, machines):
        """Until there are so many."""
        for _ in range(30):
            status = self.typed(*RAY, "status", "--address", f"{FIRST}:6379")
            if status.stdout.partition("Pending:")[0].count("node_") == machines:
                return
            time.sleep(1.0)
        raise AssertionError(f"{machines} machines did not come: {status}")


@pytest.fixture(scope="module")
def network():
    """A command that leads into a network of its own, for as long as the tests last."""
    command = ["unshare", "--map-root-user", "--net", "--", "sh", "-c", "ip link set lo up; cat"]
    try:
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            target = f"--target={process.pid}"
            enter = ("nsenter", "--user", "--preserve-credentials", "--net", target, "--")
            looked = [*enter, "ip", "address", "show", "dev", "lo", "up"]
            for _ in range(50):
                found = subprocess.run(looked, capture_output=True, text=True)
                if "inet 127.0.0.1" in found.stdout or process.poll() is not None:
                    break
                time.sleep(0.1)
            if "inet 127.0.0.1" not in found.stdout:
                pytest.skip("a network of one's own cannot be made here")
            yield enter
            process.stdin.close()
    except FileNotFoundError:
        pytest.skip("a network of one's own takes unshare, nsenter and ip")


@pytest.fixture(scope="module")
def machines(network):
    """A head node and another, by `ray start`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    found = Machines(network, env)
    with found.machine("--head", "--port=6379", f"--include-dashboard={JOBS}"):
        found.wait_for(1)
        with found.machine(f"--address={FIRST}:6379"):
            found.wait_for(2)
            yield found


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "s.toml").write_text(dump(load(faulty.scenario(*CASE).table())))
    return tmp_path


def _same_digest(run):
    manifest = read_manifest(run)
    assert manifest["digest"] == faulty.undisturbed(*CASE)
    assert folder_digest(run) == manifest["digest"]


def test_a_run_on_machines_that_were_started_by_hand(machines, scenario):
    how = ("--address", f"{FIRST}:6379", "--workers", 2, "--out", "run")
    done = machines.typed(*GIFAIR, "run", "s.toml", *how, cwd=scenario)
    assert done.returncode == 0, done.stderr
    _same_digest(scenario / "run")


@pytest.mark.parametrize("token", [{}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "another"}])
def test_a_command_without_the_token_is_told_of_it(token, machines, scenario):
    env = {name: value for name, value in machines.env.items() if not name.startswith("RAY_")}
    stranger = replace(machines, env=env | token)
    how = ("--address", f"{FIRST}:6379", "--out", "run")
    done = stranger.typed(*GIFAIR, "run", "s.toml", *how, cwd=scenario)
    assert done.returncode == 2, done.stderr
    assert "RAY_AUTH_TOKEN" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (scenario / "run").exists()


def test_a_machine_that_has_none_of_the_files(machines, tmp_path):
    table = faulty.table_of(tmp_path / "data.csv")
    (tmp_path / "s.toml").write_text(dump(load(table)))
    how = ("--address", f"{FIRST}:6379", "--workers", 3, "--out", "run")
    with machines.machine(f"--address={FIRST}:6379", hidden=tmp_path):
        machines.wait_for(3)
        done = machines.typed(*GIFAIR, "run", "s.toml", *how, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    whole = gifair_ray.run(table, backend="local").digest
    assert read_manifest(tmp_path / "run")["digest"] == whole
    machines.wait_for(2)


def test_a_machine_that_computes_otherwise_is_refused(machines, tmp_path):
    table = faulty.table_of(tmp_path / "data.csv")
    (tmp_path / "s.toml").write_text(dump(load(table)))
    how = ("--address", f"{FIRST}:6379", "--workers", 3, "--out", "run")
    older = replace(machines, env=machines.env | {"ATEN_CPU_CAPABILITY": "default"})
    with older.machine(f"--address={FIRST}:6379"):
        machines.wait_for(3)
        done = machines.typed(*GIFAIR, "run", "s.toml", *how, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert re.search("is not as the first.*CPU capability .*DEFAULT.*one installation", done.stderr)
    assert not (tmp_path / "run").exists()
    machines.wait_for(2)


@needs_jobs
def test_a_job(machines, scenario):
    how = ("--address", "auto", "--workers", 2, "--out", scenario / "run")
    submit = ("job", "submit", "--address", f"http://{FIRST}:8265", "--")
    done = machines.typed(*RAY, *submit, *GIFAIR, "run", scenario / "s.toml", *how)
    assert done.returncode == 0, done.stdout + done.stderr
    _same_digest(scenario / "run")


@needs_jobs
def test_a_job_that_brings_the_package_as_a_wheel(machines, tmp_path):
    """The wheel has a solver that is installed nowhere: driver and workers need it to begin."""
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "docs", "tests")
    shutil.copytree(Path(faulty.__file__).parent.parent, tree, ignore=ignored)
    solvers = tree / "gifair_ray" / "solvers"
    plain = (solvers / "sgd.py").read_text()
    (solvers / "travelled.py").write_text(plain.replace('"sgd"', '"travelled"'))
    built = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, tree)
    made = subprocess.run([sys.executable, "-m", "pip", *map(str, built)], capture_output=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    package = wheel.rename(tmp_path / "gifair.zip")

    table = faulty.scenario("sync", "AFL").table()
    assert table["solver"]["kind"] == "sgd"
    text = dump(load(table))
    assert text.count('kind = "sgd"') == 1
    (tmp_path / "s.toml").write_text(text.replace('kind = "sgd"', 'kind = "travelled"'))
    how = ("--address", "auto", "--workers", 2, "--out", tmp_path / "run")
    submit = ("job", "submit", "--address", f"http://{FIRST}:8265", "--working-dir", package, "--")
    done = machines.typed(*RAY, *submit, *GIFAIR, "run", tmp_path / "s.toml", *how)
    assert done.returncode == 0, done.stdout + done.stderr
    assert read_manifest(tmp_path / "run")["digest"] == faulty.undisturbed("sync", "AFL")
