"""A scenario: everything that decides a run's results, as one frozen, checked value."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, model_validator

from gifair_ray.aggregators import Aggregator
from gifair_ray.algorithms import ALGORITHMS
from gifair_ray.availability import Availability
from gifair_ray.config import Frozen
from gifair_ray.devices import Devices
from gifair_ray.errors import BadInput
from gifair_ray.federation import DataSource, Split
from gifair_ray.models import Model
from gifair_ray.parts import Part, nearest
from gifair_ray.policies import Policy
from gifair_ray.sampling import Sampling
from gifair_ray.solvers import Solver
from gifair_ray.weightings import Weighting
from gifair_ray.work import Work

Unit = Literal["rounds", "updates", "virtual_s", "bytes"]


class Stop(Frozen):
    """When the run ends: as soon as any of these is reached, at the end of a round."""

    rounds: int | None = Field(100, ge=0, description="server updates")
    updates: int | None = Field(None, ge=0, description="client updates")
    virtual_s: float | None = Field(None, ge=0, description="virtual seconds")
    bytes: int | None = Field(None, ge=0, description="bytes moved")

    @model_validator(mode="after")
    def _ends(self) -> Stop:
        if all(getattr(self, unit) is None for unit in Stop.model_fields):
            raise ValueError("the run would never end: give stop.rounds, or another limit")
        return self


class Evaluation(Frozen):
    """Measurements of all clients, at no cost in the simulated world. Start and end included."""

    every: float = Field(10, ge=0, description="how often, in `unit`; 0: start and end only")
    unit: Unit = Field("rounds", description="what `every` counts")
    splits: list[Split] = Field(["train", "val", "test"], description="which splits")


class Audit(Frozen):
    """Exact losses of everybody beside the ranks in use, at no cost in the simulated world."""

    every: Annotated[int, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="rounds between audits; 0: never; auto: about a tenth of the training work",
    )


class Scenario(Frozen):
    """One run, but for what only decides how fast it is computed."""

    schema_: Literal[1] = Field(1, alias="schema", description="version of this format")
    name: str = Field("scenario", pattern=r"^[\w.+-]{1,80}$", description="what to call it")
    seed: int = Field(0, ge=0, lt=2**63, description="every random draw follows from it")
    algorithm: str = Field("fedavg", description="a named combination of the parts below")
    data: SerializeAsAny[DataSource] = Field(description="the clients' data")
    model: SerializeAsAny[Model] = Field(description="what they train")
    work: Work = Field(description="local training")
    sampling: Sampling = Field(Sampling(), description="who takes part in a round")
    weighting: SerializeAsAny[Weighting] = Field(description="multipliers of the clients")
    solver: SerializeAsAny[Solver] = Field(description="local solver")
    aggregator: SerializeAsAny[Aggregator] = Field(description="from local models to the next")
    policy: SerializeAsAny[Policy] = Field(description="participation policy")
    devices: Devices = Field(Devices(), description="speed, network, reliability")
    availability: SerializeAsAny[Availability] = Field(description="when clients are online")
    stop: Stop = Field(Stop(), description="when the run ends")
    evaluation: Evaluation = Field(Evaluation(), description="measuring all clients")
    audit: Audit = Field(Audit(), description="checking the ranks")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_algorithm(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        name = value.get("algorithm", "fedavg")
        if name not in ALGORITHMS:
            raise ValueError(f"unknown algorithm {name!r}; {nearest(str(name), list(ALGORITHMS))}")
        return merge(merge(_DEFAULT_KINDS, ALGORITHMS[name]), value)

    @model_validator(mode="after")
    def _fits_together(self) -> Scenario:
        if (self.data.source == "quadratic") != (self.model.kind == "quadratic"):
            raise ValueError("data.source = 'quadratic' and model.kind = 'quadratic' go together")
        silent = self.policy.notice == "timeout" and math.isinf(self.policy.timeout_s)
        if silent and not self._nobody_fails():
            raise ValueError(
                "clients may drop out, and would only be missed at policy.timeout_s, which is "
                "infinite: set it, or policy.notice = 'disconnect'"
            )
        return self

    def _nobody_fails(self) -> bool:
        groups = [group.dropout for group in self.devices.groups.values() if group.dropout]
        spreads = [self.devices.dropout, *groups]
        never = all(s.dist == "constant" and s.value == 0 for s in spreads)
        return never and self.availability.reliable

    def table(self) -> dict[str, Any]:
        """Plain values, as a TOML file would have them; what is not set is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def digest(self) -> str:
        """A hash of all that decides the results: everything but the name."""
        content = {key: value for key, value in self.table().items() if key != "name"}
        text = json.dumps(content, sort_keys=True, allow_nan=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


_DEFAULT_KINDS: dict[str, Any] = {
    "policy": {"kind": "sync"},
    "availability": {"kind": "always"},
}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, table by table. Another kind of part takes nothing from the old."""
    out = dict(base)
    for key, value in over.items():
        below = out.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            replaced = any(k in value and value[k] != below.get(k) for k in ("kind", "source"))
            out[key] = dict(value) if replaced else merge(below, value)
        else:
            out[key] = value
    return out


def parse(table: Mapping[str, Any]) -> Scenario:
    """A scenario from plain values; BadInput says which key is wrong and what it may be."""
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        raise BadInput(_explain(error)) from error


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors()[:3]:
        path = ".".join(str(step) for step in problem["loc"])
        if problem["type"] == "extra_forbidden":
            valid = _keys_at(problem["loc"][:-1])
            lines.append(f"unknown key {path!r}; {nearest(str(problem['loc'][-1]), valid)}")
        elif problem["type"] == "value_error":
            lines.append(f"{path + ': ' if path else ''}{problem['ctx']['error']}")
        elif problem["type"] == "missing":
            lines.append(f"{path} is missing")
        else:
            message = problem["msg"][:1].lower() + problem["msg"][1:]
            lines.append(f"{path} = {problem['input']!r}: {message}")
    return "; ".join(lines)


def _keys_at(path: tuple[int | str, ...]) -> list[str]:
    """The keys that a table of the scenario may have; for a part, those of all its kinds."""
    models: list[type[BaseModel]] = [Scenario]
    for step in path:
        inner: list[type[BaseModel]] = []
        for model in models:
            for name, info in model.model_fields.items():
                if step in (name, info.alias):
                    inner += [
                        t
                        for t in (info.annotation, *getattr(info.annotation, "__args__", ()))
                        if isinstance(t, type) and issubclass(t, BaseModel)
                    ]
        models = [
            found
            for t in inner
            for found in ([t.find(name) for name in t.names()] if issubclass(t, Part) else [t])
        ]
    return sorted({info.alias or n for m in models for n, info in m.model_fields.items()})
