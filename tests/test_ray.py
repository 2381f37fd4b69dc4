"""One run has one answer: in process, and on Ray with any number and kind of actors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

import gifair_ray
from gifair_ray.errors import BadInput, Diverged, RunFailed

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_on_this_machine")]

SMALL = {
    "data": {"source": "synthetic", "clients": 8, "features": 7, "classes": 3, "groups": 2},
    "model": {"kind": "softmax"},
    "work": {"epochs": 2, "batch_size": 10, "schedule": {"lr": 0.05}},
    "sampling": {"scheme": "p-replace", "cohort": 5},
    "devices": {
        "sample_s": {"dist": "lognormal", "median": 0.01, "sigma": 1.0},
        "jitter": 0.3,
        "dropout": 0.2,
    },
    "stop": {"rounds": 6},
    "evaluation": {"every": 2},
    "audit": {"every": 2},
}
VARIANTS = {
    "fedavg": {"algorithm": "fedavg"},
    "estimated": {
        "algorithm": "gifair-global",
        "weighting": {"lambda_fraction": 0.8, "ranks": "estimated"},
    },
    "exact": {
        "algorithm": "gifair-global",
        "weighting": {"lambda_fraction": 0.8, "ranks": "exact"},
        "availability": {"kind": "blocks", "block_s": 30.0, "offline": 0.2},
    },
    "deadline": {
        "algorithm": "gifair-per",
        "weighting": {"lambda_fraction": 0.8},
        "policy": {"kind": "deadline", "quantile": 0.6, "partial": True, "discarded": "kept"},
    },
    "carried": {"policy": {"kind": "deadline", "quantile": 0.4, "late": "carry"}},
    "overselect": {"policy": {"kind": "overselect", "factor": 1.5, "failures": "corrected"}},
    "fedbuff": {
        "algorithm": "gifair-global",
        "weighting": {"lambda_fraction": 0.8, "ranks": "received"},
        "policy": {"kind": "fedbuff", "concurrency": 6, "buffer": 3, "rates": "empirical"},
    },
    "fedbuff, plain": {"policy": {"kind": "fedbuff", "concurrency": 4, "buffer": 4}},
    "fedbuff, exact": {
        "algorithm": "gifair-global",
        "weighting": {"lambda_fraction": 0.8, "ranks": "exact"},
        "policy": {"kind": "fedbuff", "concurrency": 6, "buffer": 3, "exact": "pipelined"},
        "availability": {"kind": "markov", "on_s": 20.0, "off_s": 5.0},
    },
    "fedasync": {"algorithm": "fedasync", "sampling": {"scheme": "all"}},
    "tiers": {"policy": {"kind": "tiers", "tiers": 2}},
    "per, mlp": {
        "algorithm": "gifair-per",
        "weighting": {"lambda_fraction": 0.8},
        "model": {"kind": "mlp", "hidden": [5]},
    },
    "per, wide": {
        "algorithm": "gifair-per",
        "weighting": {"lambda_fraction": 0.8},
        "model": {"kind": "mlp", "hidden": [2100]},
    },
    "fedbuff, wide": {
        "policy": {"kind": "fedbuff", "concurrency": 6, "buffer": 3},
        "model": {"kind": "mlp", "hidden": [2100]},
    },
    "ditto, wide": {"algorithm": "ditto", "model": {"kind": "mlp", "hidden": [2100]}},
    "ditto": {"algorithm": "ditto", "policy": {"kind": "fedbuff", "concurrency": 6, "buffer": 4}},
    "afl": {"algorithm": "afl"},
    "q-ffl": {
        "algorithm": "q-ffl",
        "policy": {"kind": "fedbuff", "concurrency": 6, "buffer": 3, "rates": "empirical"},
    },
    "fedmgda+": {"algorithm": "fedmgda+", "solver": {"kind": "ditto"}},
}


@pytest.fixture(scope="module")
def local_digests():
    return {name: gifair_ray.run(SMALL | v, backend="local").digest for name, v in VARIANTS.items()}


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_and_their_timing_do_not_matter(workers, local_digests):
    from gifair_ray.actors.cluster import cluster

    with cluster(workers=workers) as actors:
        for name, variant in VARIANTS.items():
            scenario = gifair_ray.load(SMALL | variant).runs[0][1]
            session = actors.start(scenario, None, delay_s=0.02)
            while not session.advance(1.0).finished:
                pass
            assert session.finish().digest == local_digests[name], name


@pytest.mark.parametrize("algorithm", ["q-ffl", "fedmgda+"])
def test_sums_over_a_million_parameters_do_not_depend_on_whose_threads_they_are(algorithm):
    # Here a BLAS has all cores, in an actor it has one.
    images = {"source": "prototypes", "majority": 3, "minority": 1, "features": 784, "train": 4}
    network = {
        "algorithm": algorithm,
        "data": images | {"val": 0, "test": 2},
        "model": {"kind": "cnn"},
        "work": {"steps": 1, "batch_size": 4},
        "sampling": {"scheme": "uniform", "cohort": 3},
        "stop": {"rounds": 2},
        "evaluation": {"every": 0},
        "audit": {"every": 0},
    }
    local, ray = gifair_ray.run(network, backend="local"), gifair_ray.run(network, workers=2)
    norms = local.table("rounds")["step_norm"].to_pylist()
    assert norms == ray.table("rounds")["step_norm"].to_pylist()
    assert local.outcome.theta.size > 1_000_000
    assert local.digest == ray.digest


@pytest.mark.parametrize("clients_per_actor", [1, 3, 8])
def test_who_plays_which_client_does_not_matter(clients_per_actor, local_digests):
    run = gifair_ray.run(SMALL | VARIANTS["estimated"], clients_per_actor=clients_per_actor)
    assert run.digest == local_digests["estimated"]


def test_a_killed_client_actor_does_not_change_the_results(local_digests):
    import ray

    from gifair_ray.actors.cluster import cluster

    with cluster(workers=2) as actors:
        scenario = gifair_ray.load(SMALL | VARIANTS["per, mlp"]).runs[0][1]
        session = actors.start(scenario, None)
        session.advance(0.0)
        os.kill(ray.get(actors.clients[0].ready.remote()), signal.SIGKILL)
        while not session.advance(1.0).finished:
            pass
        assert session.finish().digest == local_digests["per, mlp"]


def test_what_a_client_raises_arrives_as_it_was_raised():
    wild = SMALL | {"work": {"steps": 50, "batch_size": 10, "schedule": {"lr": 1e300}}}
    with pytest.raises(Diverged, match=r"client \d+ diverged .* learning rate 1e\+300"):
        gifair_ray.run(wild | {"devices": {}})


def test_results_on_disk_are_those_in_memory(tmp_path, local_digests):
    run = gifair_ray.run(SMALL | VARIANTS["per, mlp"], out=tmp_path / "run")
    assert run.digest == local_digests["per, mlp"]
    from gifair_ray.folder import folder_digest

    assert folder_digest(tmp_path / "run") == run.digest


def test_actors_without_clients_are_refused():
    with pytest.raises(BadInput, match="clients_per_actor = 0"):
        gifair_ray.run(SMALL, clients_per_actor=0)
    with pytest.raises(BadInput, match="workers = 0"):
        gifair_ray.run(SMALL, workers=0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999999", "nonsense", ":", "a:b"])
def test_an_address_where_no_cluster_is(address, tmp_path):
    command = _gifair("run", "quickstart", "--address", address, mark="none", cwd=tmp_path)
    _, err = command.communicate(timeout=120)
    assert command.returncode == 2
    assert address in err
    assert len(err.splitlines()) <= 2


def test_ray_that_does_not_start_is_told_of(monkeypatch):
    import ray

    from gifair_ray.actors.start import start_ray

    def init(**options):
        raise Exception("The node timed out.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(RunFailed, match=r"Ray did not start .* timed out\. Try again"):
        start_ray(1)


# Processes


def _marked(mark: str) -> list[int]:
    """Processes whose environment carries the mark: all that a command has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if mark.encode() in environment and not zombie:
                found.append(int(entry.name))
    return found


def _gone(mark: str) -> bool:
    for _ in range(100):
        if not _marked(mark):
            return True
        time.sleep(0.1)
    return False


def _gifair(*arguments: str, mark: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gifair_ray", *arguments],
        cwd=cwd,
        env=os.environ | {"GIFAIR_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_command_joins_a_running_cluster_and_leaves_it_running(tmp_path):
    import ray

    address = ray.get_runtime_context().gcs_address
    arguments = ("run", "quickstart", "--set", "study.seeds=1", "--set", "stop.rounds=2")
    command = _gifair(*arguments, "--address", address, mark=uuid.uuid4().hex, cwd=tmp_path)
    out, err = command.communicate(timeout=120)
    assert command.returncode == 0, err
    assert "GIFAIR 0.9" in out
    assert ray.cluster_resources()["CPU"] == 2


def test_ctrl_c_stops_everything_that_was_started(tmp_path):
    mark = uuid.uuid4().hex
    many = ("--set", "stop.rounds=1000000", "--out", "run")
    command = _gifair("run", "quickstart", "--set", "study.seeds=1", *many, mark=mark, cwd=tmp_path)
    running = tmp_path / "run" / "FedAvg-seed0" / "tables" / "rounds" / "000000.arrow"
    for _ in range(600):
        if running.exists():
            break
        time.sleep(0.1)
    assert running.exists(), command.communicate(timeout=10)
    os.killpg(command.pid, signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert command.returncode == 1
    assert "interrupted" in err
    assert "Traceback" not in err
    assert _gone(mark), _marked(mark)
    from gifair_ray.results import read_manifest, read_table

    folder = tmp_path / "run" / "FedAvg-seed0"
    assert read_manifest(folder)["status"] == "interrupted"
    assert read_table(folder, "rounds").num_rows > 0


def test_workers_look_for_data_where_the_driver_does(tmp_path, monkeypatch):
    """Also those that were started before the driver was told where."""
    (tmp_path / "there").mkdir()
    rows = [f"c{i % 4},{i % 2},{i}.0" for i in range(40)]
    (tmp_path / "there" / "mine.csv").write_text("\n".join(["client,y,x1", *rows]))
    scenario = SMALL | {"data": {"source": "table", "path": "mine.csv"}, "stop": {"rounds": 2}}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIFAIR_DATA", str(tmp_path / "there"))
    digests = {gifair_ray.run(scenario, backend=b).digest for b in ("local", "ray")}
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("source", "model"),
    [
        ("glyphs", {"kind": "mlp", "hidden": [4]}),
        ("dialogues", {"kind": "lstm", "hidden": 4}),
    ],
)
def test_made_data_are_the_same_on_every_worker(source, model):
    data = {"source": source, "clients": 4, "samples": 12}
    scenario = SMALL | {"data": data, "model": model, "stop": {"rounds": 2}}
    digests = {gifair_ray.run(scenario, backend=b).digest for b in ("local", "ray")}
    assert len(digests) == 1


def test_jobs_arrive_as_they_were_sent():
    import numpy as np

    from gifair_ray.actors.wire import pack, unpack
    from gifair_ray.protocol import Message, TrainJob, TrainJobs

    v = np.array([1.0, 2.0])
    jobs = [
        TrainJob(7, 3, 2, Message(5, 0.1, -0.25)),
        TrainJob(8, 1, 0, Message(5, 1.5, 0.0), 4),
        TrainJob(9, 0, 0, Message(5, 0.0, 0.0), None, v),
    ]
    theta = np.array([0.5, -1.0], dtype=np.float32)
    columns = TrainJobs.of(jobs)
    there, model = unpack(pack(columns, theta), dict(columns.own), "float32")
    assert list(there) == jobs
    assert model is not None
    assert model.dtype == np.float32
    assert model.tolist() == theta.tolist()
    assert unpack(pack(columns, None), {}, "float32")[1] is None


@pytest.mark.parametrize("n", [3, 100_000])  # as bytes, and as arrays
def test_results_arrive_as_they_were_sent(n):
    import numpy as np

    from gifair_ray.actors.wire import SMALL, pack_results, unpack_results
    from gifair_ray.replies import Trained

    models = np.arange(2 * n, dtype=np.float32).reshape(2, n)
    losses = np.array([1.0, np.nan])
    for own in (None, -models):
        sent = pack_results(Trained(models, losses, -losses, own), 0.25)
        assert isinstance(sent, list) == (models.nbytes <= SMALL)
        back, seconds = unpack_results(sent, n, "float32")
        assert seconds == 0.25
        np.testing.assert_array_equal(back.models, models)
        np.testing.assert_array_equal(back.loss_local, losses)
        np.testing.assert_array_equal(back.loss_received, -losses)
        if own is None:
            assert back.personal is None
        else:
            np.testing.assert_array_equal(back.personal, own)
