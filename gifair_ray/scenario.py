"""A scenario: everything that decides a run's results, as one frozen, checked value."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from gifair_ray.aggregators import Aggregator
from gifair_ray.algorithms import ALGORITHMS
from gifair_ray.availability import Availability
from gifair_ray.config import Frozen
from gifair_ray.devices import Devices, GroupDevices
from gifair_ray.errors import BadInput
from gifair_ray.explain import explain
from gifair_ray.federation import DataSource, Split
from gifair_ray.models import Model
from gifair_ray.parts import Part, nearest
from gifair_ray.policies import Policy
from gifair_ray.sampling import Sampling
from gifair_ray.solvers import Solver
from gifair_ray.weightings import Weighting
from gifair_ray.work import Work

DEFAULT_ALGORITHM = "fedavg"
Unit = Literal["rounds", "updates", "virtual_s", "bytes"]


class Stop(Frozen):
    """When the run ends: as soon as any of these is reached, at the end of a round."""

    rounds: int | None = Field(
        None, ge=0, description="server updates; 100 if no limit is given at all"
    )
    updates: int | None = Field(None, ge=0, description="client updates")
    virtual_s: float | None = Field(None, ge=0, allow_inf_nan=False, description="virtual seconds")
    bytes: int | None = Field(None, ge=0, description="bytes moved")

    @model_validator(mode="before")
    @classmethod
    def _a_hundred_rounds(cls, value: Any) -> Any:
        return {"rounds": 100} if value == {} else value

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
    name: str = Field("scenario", description="what to call it; also in the results folder")
    seed: int = Field(0, ge=0, lt=2**63, description="every random draw follows from it")
    algorithm: str = Field(DEFAULT_ALGORITHM, description="a named combination of the parts below")
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

    @field_validator("name")
    @classmethod
    def _is_a_good_file_name(cls, name: str) -> str:
        if not re.fullmatch(r"[\w.+-]{1,80}", name):
            raise ValueError(f"{name!r} is not 1 to 80 letters, digits or any of . _ + -")
        return name

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_algorithm(cls, value: Any) -> Any:
        return complete(value) if isinstance(value, Mapping) else value

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
        if (self.policy.kind == "fedasync") != (self.aggregator.kind == "mixing"):
            raise ValueError(
                "policy.kind = 'fedasync' mixes models, other policies sum changes: it goes with "
                "aggregator.kind = 'mixing', and they do not (algorithm = 'fedasync' sets both)"
            )
        self.weighting.check(self)
        self.aggregator.check(self)
        return self

    def _nobody_fails(self) -> bool:
        profiles: list[Devices | GroupDevices] = [self.devices, *self.devices.groups.values()]
        always = [(p.dropout, 0.0) for p in profiles] + [(p.lifetime_s, math.inf) for p in profiles]
        never = all(s is None or (s.dist == "constant" and s.value == v) for s, v in always)
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
_NAMED_BY = {
    name: info.annotation.key
    for name, info in Scenario.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Part)
}


def complete(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the parts that its algorithm stands for; what it says itself goes first."""
    name = table.get("algorithm", DEFAULT_ALGORITHM)
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {name!r}; {nearest(str(name), list(ALGORITHMS))}")
    return merge(merge(_DEFAULT_KINDS, ALGORITHMS[name]), table)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, table by table.

    Another kind of part, or of distribution, takes nothing from the old one.
    """
    out = dict(base)
    for key, value in over.items():
        below = out.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            by = _NAMED_BY.get(key, "dist")
            another = by in value and value[by] != below.get(by)
            out[key] = dict(value) if another else merge(below, value)
        else:
            out[key] = value
    return out


def parse(table: Mapping[str, Any]) -> Scenario:
    """A scenario from plain values; BadInput says which key is wrong and what it may be."""
    try:
        return Scenario.model_validate(table)
    except ValidationError as error:
        with contextlib.suppress(ValueError):  # which is what the error is about then
            table = complete(table)
        raise BadInput(explain(error, Scenario, table)) from error
