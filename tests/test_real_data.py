"""Real samples, where GIFAIR_DATA says they are: what an import makes of them, and what is learnt.

The long ones are nightly: models trained centrally, by one client that holds everything, show that
the learners are sound.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import gifair_ray
from gifair_ray.data.pooled import Pooled
from gifair_ray.data.table import Table
from gifair_ray.imports.emnist import import_emnist
from gifair_ray.imports.roles import import_roles

DATA = Path(os.environ.get("GIFAIR_DATA", "/nonexistent"))
EMNIST = DATA / "emnist_byclass_62x200" / "emnist_byclass_62x200.npz"
WRITERS = DATA / "chars74k_hnd_55writers" / "chars74k_hnd_55writers.npz"
ROLES = DATA / "shakespeare" / "shakespeare_roles.parquet"


def needs(file):
    return pytest.mark.skipif(
        not file.is_file(), reason=f"GIFAIR_DATA has no {file.relative_to(file.parents[1])}"
    )


CENTRAL = {
    "algorithm": "fedavg",
    "sampling": {"scheme": "all"},
    "evaluation": {"every": 0, "splits": ["test"]},
    "audit": {"every": 0},
}


def accuracy(run):
    """On the test split at the end, in %; shown by `pytest -s`."""
    last = run.table("evaluations").to_pylist()[-1]
    reached = 100 * last["correct"] / last["samples"]
    print(f"{run.scenario.model.kind}: {reached:.1f} % of {last['samples']} test samples")
    return reached


@needs(EMNIST)
def test_the_sample_of_emnist_is_balanced_and_white_on_black(tmp_path):
    out = tmp_path / "emnist.arrow"
    assert import_emnist(str(EMNIST), str(out)).rows == 62 * 200
    shard = Pooled(path=str(out), clients=20, samples=62).build(0).shard(3)
    assert shard.train.x.shape == (44, 784)
    assert shard.train.x.max() == 1.0
    corners = shard.train.x.reshape(-1, 28, 28)[:, [0, -1], :][:, :, [0, -1]]
    assert corners.mean() < 0.05


@needs(WRITERS)
def test_writers_are_clients(tmp_path):
    out = str(tmp_path / "writers.arrow")
    done = import_emnist(str(WRITERS), out)
    assert (done.rows, done.clients) == (3410, 55)
    federation = Table(path=out).build(0)
    assert federation.task.classes == 62
    population = federation.population
    assert (population.train + population.val + population.test == 62).all()


@needs(ROLES)
def test_roles_of_shakespeare_by_gender(tmp_path):
    out = str(tmp_path / "roles.arrow")
    done = import_roles(str(ROLES), out)
    assert done.clients + done.left_out == 1410
    scenario = "paper-shakespeare-gender"
    data = (
        f'data={{source="table", path="{out}", clients={{MALE=3, FEMALE=2}}, '
        "at_least=2000, at_most=40}"
    )
    tiny = ["stop.rounds=2", "evaluation.every=0", "model.hidden=8", "sampling.cohort=2", data]
    run = gifair_ray.run(scenario, sets=tiny, backend="local")
    assert run.scenario.data.build(0).population.group_names == ("FEMALE", "MALE")
    assert run.table("clients")["group"].to_pylist().count(0) == 2


@pytest.mark.nightly
@needs(EMNIST)
def test_the_cnn_trained_centrally_knows_two_thirds_of_emnist(tmp_path):
    """A plain script reaches 69 %; pairs such as c and C cap it."""
    import_emnist(str(EMNIST), str(tmp_path / "emnist.arrow"))
    run = gifair_ray.run(
        CENTRAL
        | {
            "data": {"source": "pooled", "path": str(tmp_path / "emnist.arrow"), "val": 0.0},
            "model": {"kind": "cnn"},
            "work": {"epochs": 1, "batch_size": 32, "schedule": {"lr": 0.05}},
            "stop": {"rounds": 10},
        },
        backend="local",
    )
    assert accuracy(run) >= 67


@pytest.mark.nightly
@needs(ROLES)
def test_the_lstm_trained_centrally_guesses_characters_of_shakespeare(tmp_path):
    """10,000 steps of 10 windows of the 60 largest roles; a plain script reaches 43 to 44 %."""
    roles = pq.read_table(ROLES)
    largest = pc.sort_indices(roles, sort_keys=[("n_chars", "descending")])[:60]
    pq.write_table(roles.take(largest), tmp_path / "sixty.parquet")
    import_roles(str(tmp_path / "sixty.parquet"), str(tmp_path / "sixty.arrow"), split=False)
    path = str(tmp_path / "sixty.arrow")
    data = {"source": "pooled", "path": path, "samples": 125_000, "val": 0.0}
    run = gifair_ray.run(
        CENTRAL
        | {
            "data": data,
            "model": {"kind": "lstm"},
            "work": {"steps": 10_000, "batch_size": 10, "schedule": {"lr": 0.8}},
            "stop": {"rounds": 1},
        },
        backend="local",
    )
    assert accuracy(run) >= 42
