"""A torch device other than the CPU: whether it is there, its generators, and what it is."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

from gifair_ray import draws
from gifair_ray.errors import BadInput

CPU = torch.device("cpu")


def found(name: str) -> torch.device:
    """The device of this name, if this process can compute on it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()
    except Exception as error:  # every kind of device has its own
        why = str(error).partition(". ")[0].splitlines()[0]  # some go on for pages
        raise BadInput(
            f"device = {name!r}: torch cannot compute on it here ({why}); leave --device out for "
            "the CPU, or give actors a GPU with --gpus-per-actor"
        ) from error
    return device


def described(name: str) -> str:
    """The device and, of a GPU, its kind: what decides the bits of its results."""
    if name.partition(":")[0] != "cuda":
        return name
    return f"{name} ({torch.cuda.get_device_name(name)})"


def own_generators(device: torch.device) -> AbstractContextManager[None]:
    """The caller's generators are as they were when the block ends."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device], device_type=device.type)


def seed_generators(device: torch.device, seed: int, purpose: str, *keys: int) -> None:
    """By name. Of the CPU and this device alone: torch.manual_seed queues work for all others."""
    value = int(draws.bits(seed, purpose, *keys)[0])
    torch.default_generator.manual_seed(value)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(value)
