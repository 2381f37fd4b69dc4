"""gifair-ray: fair federated learning under real-world systems conditions.

`run` and `run_study` run scenarios, `resume` goes on with them, `load` reads them; the science is
in the modules beside this one. Nothing is imported until it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gifair_ray.api import Run, resume, run, run_study
    from gifair_ray.errors import BadInput, Diverged, GifairError, RunFailed
    from gifair_ray.scenario import Scenario
    from gifair_ray.scenarios.load import Study, load

__all__ = [
    "BadInput",
    "Diverged",
    "GifairError",
    "Run",
    "RunFailed",
    "Scenario",
    "Study",
    "load",
    "resume",
    "run",
    "run_study",
]

_HOMES = {
    "gifair_ray.api": ("Run", "resume", "run", "run_study"),
    "gifair_ray.errors": ("BadInput", "Diverged", "GifairError", "RunFailed"),
    "gifair_ray.scenario": ("Scenario",),
    "gifair_ray.scenarios.load": ("Study", "load"),
}


def __getattr__(name: str) -> Any:
    for module, members in _HOMES.items():
        if name in members:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'gifair_ray' has no attribute {name!r}")
