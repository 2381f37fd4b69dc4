"""From which public files the tables of the paper's experiments are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gifair_ray.data._places import find
from gifair_ray.errors import BadInput
from gifair_ray.imports import Imported
from gifair_ray.imports.emnist import import_emnist
from gifair_ray.imports.leaf import import_leaf
from gifair_ray.imports.roles import import_roles

SOURCES: Mapping[str, tuple[Callable[[str, str], Imported], tuple[str, ...]]] = {
    "emnist.arrow": (
        import_emnist,
        ("emnist_byclass_62x200.npz", "emnist", "emnist_byclass_62x200/emnist_byclass_62x200.npz"),
    ),
    "roles.arrow": (
        import_roles,
        ("shakespeare_roles.parquet", "shakespeare/shakespeare_roles.parquet"),
    ),
    "femnist.arrow": (import_leaf, ("femnist", "leaf/data/femnist/data/all_data")),
}
"""Table → how it is made, and what it may be made of, in the data folder."""


def make_table(name: str, folder: Path) -> None:
    """See that one of the tables is in a folder; one from the data folder is linked there."""
    if (folder / name).exists():
        return
    make, sources = SOURCES[name]
    source = next((s for s in (name, *sources) if find(s).exists()), None)
    if source is None:
        raise BadInput(
            f"{name} is not there, nor {', '.join(sources)} to make it from; say where the data "
            "are with --data-dir or GIFAIR_DATA"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if source == name:
        (folder / name).symlink_to(find(name))
    else:
        make(str(find(source)), str(folder / name))
