"""What is installed is what is in the four folders, and nothing is imported before its time."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import gifair_ray

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
FOLDERS = {folder: name for name, folder in SETUPTOOLS["package-dir"].items()}


def contents(root: Path) -> dict[str, bytes]:
    """The files that should ship, under their names in the package."""
    return {
        "/".join([*FOLDERS[folder].split("."), *path.relative_to(root / folder).parts]): (
            path.read_bytes()
        )
        for folder in FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".toml", ".html", ".css", ".js") or path.name == "py.typed"
    }


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A clean copy of the sources with a package planted that is not listed, and its wheel."""
    copy, dist = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", PYPROJECT["project"]["readme"]):
        shutil.copy(ROOT / file, copy)
    (copy / "gifair_ray" / "planted").mkdir()
    (copy / "gifair_ray" / "planted" / "__init__.py").touch()
    here = importlib.util.find_spec("setuptools") and metadata.version("setuptools").split(".")[0]
    enough = here and int(here) >= 77  # else pip fetches one
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", dist, copy]
        + ["--no-build-isolation"] * bool(enough),
        check=True,
    )
    (wheel,) = dist.glob("*.whl")
    return copy, wheel


def test_the_wheel_holds_every_file_of_the_four_folders(build):
    copy, wheel = build
    with zipfile.ZipFile(wheel) as archive:
        shipped = {n: archive.read(n) for n in archive.namelist() if ".dist-info/" not in n}
    assert shipped == contents(ROOT)
    assert contents(copy).keys() - shipped.keys() == {"gifair_ray/planted/__init__.py"}
    assert {name.split("/")[0] for name in shipped} == {"gifair_ray"}


def test_the_version_is_the_same_everywhere(build):
    _, wheel = build
    version = PYPROJECT["project"]["version"]
    assert metadata.version("gifair-ray") == version
    assert wheel.name.startswith(f"gifair_ray-{version}-")


def test_every_path_in_pyproject_exists():
    assert (ROOT / PYPROJECT["project"]["readme"]).is_file()
    for package in SETUPTOOLS["packages"]:
        assert (place(package) / "__init__.py").is_file(), package
    for package, patterns in SETUPTOOLS["package-data"].items():
        for pattern in patterns:
            assert list(place(package).glob(pattern)), (package, pattern)
    tools = PYPROJECT["tool"]
    for folder in tools["pytest"]["ini_options"]["testpaths"]:
        assert (ROOT / folder).is_dir()
    for pattern in tools["ruff"]["lint"]["per-file-ignores"]:
        assert list(ROOT.glob(pattern)), pattern
    assert set(FOLDERS) - {"gifair_ray"} <= set(
        tools["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    )


def place(package: str) -> Path:
    """The folder of a package."""
    for name, folder in sorted(SETUPTOOLS["package-dir"].items(), key=lambda i: -len(i[0])):
        if package == name or package.startswith(f"{name}."):
            return ROOT / folder / package.removeprefix(name).replace(".", "/").lstrip("/")
    raise LookupError(package)


def test_every_module_in_pyproject_can_be_found():
    for target in PYPROJECT["project"]["scripts"].values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    mypy = PYPROJECT["tool"]["mypy"]
    named = [*mypy["plugins"], *(m for o in mypy["overrides"] for m in o["module"])]
    for module in named:
        assert importlib.util.find_spec(module.removesuffix(".*")), module


def test_make_and_ci_name_what_there_is():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (sources,) = re.findall(r"^SOURCES := (.*)$", makefile, re.MULTILINE)
    assert set(sources.split()) == set(FOLDERS)
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert set(phony.split()) == targets
    called = re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert called
    assert set(called) <= targets


def python(code: str) -> str:
    """What a fresh interpreter prints, in the root of the checkout."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_folders_cannot_be_imported_under_their_own_names():
    code = """
for name in ("actors", "scenarios", "analysis"):
    try:
        __import__(name)
    except ImportError as error:
        print(error)
"""
    assert python(code).splitlines() == [
        f"import this package as gifair_ray.{name}, not as {name}"
        for name in ("actors", "scenarios", "analysis")
    ]


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import gifair_ray", "torch ray pyarrow numpy pydantic rich matplotlib"),
        ("import gifair_ray.cli", "torch ray pyarrow numpy pydantic rich matplotlib"),
        ("import gifair_ray.scenario", "torch ray pyarrow rich matplotlib"),
        ("import gifair_ray.api", "torch ray rich matplotlib"),
        ("import gifair_ray.analysis", "torch ray matplotlib"),
        ("from gifair_ray.cli import main; main(['list'])", "torch ray pyarrow rich matplotlib"),
    ],
)
def test_nothing_is_imported_before_its_time(code, heavy):
    loaded = python(f"{code}\nimport sys\nprint([m for m in {heavy.split()} if m in sys.modules])")
    assert loaded.splitlines()[-1] == "[]"


def test_everything_that_is_offered_is_there():
    for name in gifair_ray.__all__:
        assert getattr(gifair_ray, name)
    with pytest.raises(AttributeError, match="no attribute 'fly'"):
        _ = gifair_ray.fly
