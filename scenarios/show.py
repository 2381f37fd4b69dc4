"""A study as one TOML file that says everything: read back, it is the same study."""

from __future__ import annotations

from gifair_ray import toml
from gifair_ray.explain import dotted
from gifair_ray.scenario import Scenario
from gifair_ray.scenarios.change import PARTS_OF_AN_ALGORITHM
from gifair_ray.scenarios.load import Study


def dump(study: Study) -> str:
    """Commented TOML with every key: what all runs share, then what each variant has of its own."""
    variants: dict[str, Scenario] = {}
    for label, scenario in study.runs:
        variants.setdefault(label, scenario)  # the first seed
    first = next(iter(variants.values()))
    seeds = len(study.runs) // len(variants)
    plain = list(variants) == [first.algorithm]
    if plain and seeds == 1:
        return toml.dump(first)
    own = _differing(list(variants.values()))
    text = toml.dump(first, only=_keys() - own)
    text += f"\n[study]\nseeds = {seeds}  # from {first.seed} on\n"
    for label, scenario in {}.items() if plain else variants.items():
        text += "\n" + toml.dump(scenario, own, under=dotted(("study", "variants", label)))
    return text


def _keys() -> set[str]:
    return {info.alias or name for name, info in Scenario.model_fields.items()}


def _differing(variants: list[Scenario]) -> set[str]:
    """Keys in which variants differ. An algorithm and its parts stay together: see `vary`."""
    tables = [scenario.table() for scenario in variants]
    own = {key for key in _keys() if any(table[key] != tables[0][key] for table in tables)}
    together = {"algorithm", *PARTS_OF_AN_ALGORITHM}
    return own | together if own & together else own
