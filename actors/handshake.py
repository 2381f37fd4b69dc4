"""What a client actor shows before it may take part: that it would compute the same bits.

A digest holds for one kind of CPU and one set of library versions, so a worker that differs from
the first one in any of them is refused.
"""

from __future__ import annotations

import platform
import socket
import sys
from dataclasses import dataclass, field, fields
from importlib import metadata
from typing import Any

import numpy as np

from gifair_ray.errors import BadInput
from gifair_ray.federation import Population
from gifair_ray.protocol import CPU, Layout


@dataclass(frozen=True)
class Credentials:
    """What decides the bits of a worker's results, besides its jobs."""

    gifair: str = field(metadata={"called": "gifair-ray"})
    python: str = field(metadata={"called": "Python"})
    numpy: str = field(metadata={"called": "numpy"})
    torch: str = field(metadata={"called": "torch"})
    capability: str = field(metadata={"called": "CPU capability"})
    build: str | None = field(metadata={"called": "torch build"})
    kernels: str | None = field(metadata={"called": "CPU capability of torch"})
    threads: int | None = field(metadata={"called": "torch threads"})
    data: str = field(metadata={"called": "data fingerprint"})
    device: str = field(metadata={"called": "torch device"})
    host: str = field(compare=False, metadata={"called": "host"})

    @staticmethod
    def mine(data: str, device: str = CPU) -> Credentials:
        """Those of this process; None for what it has no use for."""
        build, kernels, threads = None, None, None
        if "torch" in sys.modules:  # some models do without
            import torch

            build = f"{torch.__version__} ({str(torch.version.git_version)[:8]})"
            kernels = torch.backends.cpu.get_cpu_capability()
            threads = torch.get_num_threads()
        if device != CPU:
            from gifair_ray.learners._device import described

            device = described(device)
        return Credentials(
            metadata.version("gifair-ray"),
            platform.python_version(),
            metadata.version("numpy"),
            metadata.version("torch"),
            _numpys_capability(),
            build,
            kernels,
            threads,
            data,
            device,
            socket.gethostname(),
        )


def _numpys_capability() -> str:
    """The processor's instructions that numpy makes use of, and its BLAS by the same signs."""
    about: Any = np.show_config(mode="dicts")
    return " ".join([platform.machine(), *about["SIMD Extensions"].get("found", [])])


@dataclass(frozen=True)
class Hello:
    """The answer of an actor to a run: what it sees of it, and what it is."""

    population: Population
    layout: Layout
    width: int
    """Values of one input."""
    credentials: Credentials
    node: str = ""
    """Of Ray."""
    line: str | None = None
    """Where it listens, for those on its machine (see `gifair_ray.actors.line`)."""


def check(said: Credentials, first: Credentials) -> None:
    """Refuse a worker that is not as the first one.

    What one of them does without, the run does: the other has it from an earlier one.
    """
    values = [
        (f.metadata["called"], getattr(said, f.name), getattr(first, f.name))
        for f in fields(Credentials)
        if f.compare
    ]
    told = ", ".join(
        f"{called} {one} against {other}"
        for called, one, other in values
        if one != other and None not in (one, other)
    )
    if told:
        raise BadInput(
            f"a worker on {said.host} is not as the first, on {first.host}: {told}. Results would "
            "depend on who computed them: give all nodes one installation and the same data"
        )
