"""Several machines: one is lost, another joins; what fits on them, and what does not."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import faulty
import nodes
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import gifair_ray
from gifair_ray.errors import BadInput
from gifair_ray.preflight import Needs, Node, check_places, places
from gifair_ray.protocol import Layout


def _on_two_nodes(policies):
    script = Path(nodes.__file__)
    done = subprocess.run(
        [sys.executable, str(script), *policies], cwd=script.parent, capture_output=True, text=True,
        timeout=900,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(policies) + 1, done.stderr[-3000:]
    *found, joined = map(json.loads, lines)
    for one in found:
        assert one["digest"] == faulty.undisturbed(one["policy"], "GIFAIR-Per", nodes.ROUNDS)
    assert joined == {"joined": faulty.undisturbed("sync", "AFL")}


@pytest.mark.ray
def test_a_node_is_lost_and_another_joins():
    _on_two_nodes(["fedbuff"])


@pytest.mark.ray
@pytest.mark.nightly
def test_a_node_is_lost_under_every_policy():
    _on_two_nodes(list(faulty.POLICIES))


@pytest.mark.ray
@pytest.mark.nightly
def test_the_package_travels_as_a_wheel(tmp_path):
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info")
    shutil.copytree(Path(nodes.__file__).parent.parent, tree, ignore=ignored)
    built = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path), str(tree)]
    subprocess.run([sys.executable, "-m", "pip", *built], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    program = (
        "import sys, ray; from gifair_ray.actors.shipping import code\n"
        "env = code(sys.argv[1])\n"
        "ray.init('local', num_cpus=1, include_dashboard=False, runtime_env=env)\n"
        "def where():\n"
        "    import gifair_ray\n"
        "    return gifair_ray.__file__\n"
        "print('found', ray.get(ray.remote(where).remote()))\n"
    )
    command = [sys.executable, "-c", program, str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    (found,) = [line for line in done.stdout.splitlines() if line.startswith("found")]
    assert "working_dir_files" in found


@pytest.mark.ray
@pytest.mark.nightly
def test_a_full_object_store_spills_to_disk(tmp_path):
    """Twenty replies of eight megabytes each, in a store of eighty."""
    data = {"source": "synthetic", "clients": 20, "features": 40_000, "classes": 50, "samples": 4}
    table = {
        "data": data | {"groups": 2, "val": 0.0, "test": 0.0},
        "model": {"kind": "softmax"},
        "work": {"steps": 1, "batch_size": 4, "schedule": {"lr": 0.01}},
        "sampling": {"scheme": "all"},
        "stop": {"rounds": 2},
        "evaluation": {"every": 0, "splits": ["train"]},
        "audit": {"every": 0},
    }
    program = (
        "import json, sys, gifair_ray; from gifair_ray.actors import start\n"
        "start.STORE_BYTES = 80 << 20\n"
        "run = gifair_ray.run(json.loads(sys.argv[1]), workers=2)\n"
        "print('digest', run.digest, run.outcome.theta.nbytes)\n"
    )
    command = [sys.executable, "-c", program, json.dumps(table)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    (found,) = [line for line in done.stdout.splitlines() if line.startswith("digest")]
    _, digest, size = found.split()
    assert 20 * int(size) > 80 << 20
    assert digest == gifair_ray.run(table, backend="local").digest


# Before the start

GB = 2**30


@examples(100)
@given(
    nodes=st.lists(st.tuples(st.integers(0, 16), st.integers(0, 4)), min_size=1, max_size=4),
    cpus=st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]),
    gpus=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]),
)
def test_what_fits_is_what_the_nodes_have(nodes, cpus, gpus):
    machines = [Node(f"n{i}", *has) for i, has in enumerate(nodes)]
    room = places(machines, cpus, gpus)
    for (has_cpus, has_gpus), n in zip(nodes, room, strict=True):
        assert n * cpus <= has_cpus + 1e-6
        assert n * gpus <= has_gpus + 1e-6
        assert (n + 1) * cpus > has_cpus or (n + 1) * gpus > has_gpus
    check_places(machines, sum(room), cpus, gpus)
    with pytest.raises(BadInput, match=rf"there is room for {sum(room)} "):
        check_places(machines, sum(room) + 1, cpus, gpus)


def test_more_actors_than_fit_are_refused_by_name():
    machines = [Node("anna", 4.0), Node("ben", 2.0, 1.0)]
    with pytest.raises(BadInput, match=r"3 client actors with 2 CPUs and 1 GPUs .*ben: 1 \(2 CPUs"):
        check_places(machines, 3, 2.0, 1.0)


def _needs(table, size, samples=1000, width=10, K=6):
    layout = Layout(("w",), ((size,),), size, "float32")
    return Needs.of(gifair_ray.load(table).runs[0][1], layout, samples, width, K)


def test_memory_follows_the_model_and_who_is_in_flight():
    sync = faulty.scenario("sync", "AFL").table()
    small, large = _needs(sync, 1000), _needs(sync, 10_000_000)
    assert large.server > small.server + 6 * 40_000_000
    assert large.worker > small.worker
    per = faulty.scenario("sync", "GIFAIR-Per").table()
    assert _needs(per, 10_000_000).server == large.server + 6 * 40_000_000  # one each


def test_a_run_that_has_no_room_is_refused():
    needs = _needs(faulty.scenario("sync", "AFL").table(), 500_000_000)
    needs.check([Node("big", 8.0, memory=math.inf)], 2)
    with pytest.raises(
        BadInput, match=r"needs about .* GB of memory.* and the cluster has 4\.0 GB"
    ):
        needs.check([Node("a", 2.0, memory=2 * GB), Node("b", 2.0, memory=2 * GB)], 2)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_actors_that_cannot_be_placed_are_refused_before_anything_starts(tmp_path):
    table = faulty.scenario("sync", "AFL").table()
    for wanted in ({"cpus_per_actor": 64.0}, {"gpus_per_actor": 0.5}):
        with pytest.raises(BadInput, match=r"there is room for 0 "):
            gifair_ray.run(table, out=tmp_path / "run", workers=1, **wanted)
    assert not (tmp_path / "run").exists()
