"""Another torch device than the CPU: everything is moved there, or it is refused.

There is no other device to test on, so the CPU under its other name "cpu:0" plays one. To torch
the two are one memory; `Apart` keeps them apart.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_module_learner import BOTH, Toy, job, make
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gifair_ray
from gifair_ray.backend import build_learner
from gifair_ray.errors import BadInput
from gifair_ray.results import read_manifest
from gifair_ray.solvers.ditto import Ditto
from gifair_ray.solvers.proximal import Proximal

OTHER = "cpu:0"
CROSSES = {"copy_", "_to_copy"}  # what may have tensors on both sides


class Apart(TorchDispatchMode):
    """Says no to any operation on tensors of both devices, as torch does of a real device."""

    def __init__(self):
        super().__init__()
        self.there, self.kept = set(), []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        sides = {self._is_there(t) for t in given if t.dim() or self._is_there(t)}
        assert len(sides) < 2 or name in CROSSES, f"{name} of tensors on two devices"
        device = kwargs.get("device")
        moved = sides == {True} if device is None else device == torch.device(OTHER)
        found = function(*args, **kwargs)
        for t in tree_leaves(found):
            if isinstance(t, torch.Tensor) and all(t is not one for one in given):
                self._put(t, moved)
        return found

    def _is_there(self, tensor):
        return tensor.untyped_storage()._cdata in self.there

    def _put(self, tensor, moved):
        self.kept.append(tensor.untyped_storage())  # so that no other gets its address
        if moved:
            self.there.add(tensor.untyped_storage()._cdata)


class Layers(nn.Module):
    """With all that a module may have: a buffer that travels, local ones, and dropout."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))
        self.outer = nn.Linear(4, 3)
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0, 1.0]), persistent=False)

    def forward(self, x):
        return self.outer(self.inner(x) * self.mask)


def learners(factory=Layers, **options):
    """The same learner here and on the other device."""
    toy = Toy(sizes=(8, 5, 2, 11))
    here, there = (make(factory, toy, **options) for _ in range(2))
    return here, there


@pytest.mark.parametrize("solver", [None, Proximal(mu=0.5), Ditto()], ids=["sgd", "prox", "ditto"])
def test_a_learner_that_was_moved_computes_the_same_with_all_its_tensors_there(solver):
    here, there = learners(solver=solver)
    theta, jobs = here.initial(), [job(0), job(3, tilt=0.4), job(2)]
    apart = Apart()
    with apart:
        there.move(OTHER)
        moved = there.train(theta, jobs)
        measured = there.evaluate(moved.models, np.array([0, 3, 2]), "test")
    assert all(apart._is_there(t) for t in (*there._module.parameters(), *there._module.buffers()))
    trained = here.train(theta, jobs)
    evaluated = here.evaluate(trained.models, np.array([0, 3, 2]), "test")
    for name in ("models", "loss_local", "loss_received", "personal"):
        assert np.array_equal(getattr(moved, name), getattr(trained, name)), name
    assert np.array_equal(measured.loss, evaluated.loss)
    assert np.array_equal(measured.correct, evaluated.correct)
    assert np.array_equal(there.initial(), theta)


class Forgetful(nn.Module):
    """Has a tensor of which torch does not know that it is the module's."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(5, 3), torch.ones(3)

    def forward(self, x):
        return self.layer(x) * self.scale


def test_a_module_that_cannot_be_moved_is_refused_before_a_run_starts():
    _, there = learners(Forgetful)
    with Apart(), pytest.raises(BadInput, match=r"failed on a batch .*mul of tensors on two dev"):
        there.move(OTHER)


@pytest.mark.parametrize("name", ["cuda:99", "meta", "nonsense", "", "vulkan"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(
        BadInput, match=f"device = '{name}': torch cannot compute on it here"
    ) as why:
        make(reports=BOTH).move(name)
    assert len(str(why.value)) < 400


CNN = {
    "data": {"source": "prototypes", "majority": 3, "minority": 1, "features": 64, "train": 4},
    "model": {"kind": "cnn", "conv": [2, 2], "hidden": 4, "image": [1, 8, 8]},
    "work": {"steps": 2, "batch_size": 2},
    "sampling": {"scheme": "uniform", "cohort": 2},
    "stop": {"rounds": 3},
}


def test_models_that_are_computed_on_the_cpu_say_so():
    dense = CNN | {"model": {"kind": "softmax"}}
    with pytest.raises(BadInput, match=r"device = 'cuda': model.kind = 'softmax' is computed on"):
        build_learner(gifair_ray.load(dense).runs[0][1], "cuda")


def test_a_run_on_a_device_goes_on_there(tmp_path):
    whole = gifair_ray.run(CNN, backend="local")

    def stop(label, scenario, progress):
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        gifair_ray.run(CNN, out=out, backend="local", device=OTHER, watch=stop)
    assert read_manifest(out)["device"] == OTHER
    with pytest.raises(BadInput, match=f"begun on another device: go on with --device {OTHER}"):
        gifair_ray.resume(out, backend="local")
    assert gifair_ray.resume(out, backend="local", device=OTHER).digest == whole.digest


def test_a_run_whose_device_is_not_there_leaves_no_folder(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BadInput, match="device = 'cuda'"):
        gifair_ray.run(CNN, out=tmp_path / "run", backend="local", device="cuda")
    assert not (tmp_path / "run").exists()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_actors_compute_on_the_device_that_they_are_told():
    whole = gifair_ray.run(CNN, backend="local").digest
    assert gifair_ray.run(CNN, workers=2, device=OTHER).digest == whole
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(BadInput, match="device = 'cuda': torch cannot compute on it here"):
        gifair_ray.run(CNN, workers=1, device="cuda")
