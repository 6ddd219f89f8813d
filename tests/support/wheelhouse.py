"""A checkout and a mirror made small: real wheels, real requirement sets, real pip."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ops.wheels.files import sha256_of
from ops.wheels.index import write_index
from ops.wheels.locks import Locks, Pin, format_lock
from ops.wheels.mirror import Problem, Selection, find_problems
from ops.wheels.platforms import PLATFORMS, Platform, WheelName, platform_named

PYPROJECT = """
[build-system]
requires = ["hatchling==1.0"]
build-backend = "hatchling.build"
[project]
name = "undercroft"
dependencies = ["base==1.0"]
[project.optional-dependencies]
search = ["alpha==1.0", "grammar-go==1.0"]
models = ["undercroft[search]", "torch==2.0"]
dev = ["undercroft[search]", "tool[fast]==3.0"]
"""
SETS = """
[workstation.dev]
extras = ["dev"]
[image.search]
extras = ["search"]
modules = ["services.search"]
without = ["services.search.training"]
[image.models]
extras = ["models"]
modules = ["services.search"]
"""
SEARCH = """
from typing import TYPE_CHECKING
import alpha.words
from base import ANSWER
if TYPE_CHECKING:
    import tool
"""
GRAMMARS = """
import importlib
MODULES = ["grammar_go", "no_requirement"]
def load(name):
    import beta
    return importlib.import_module(name)
"""


def make_wheel(
    folder: Path,
    project: str,
    version: str = "1.0",
    *,
    files: Mapping[str, str] | None = None,
    requires: Iterable[str] = (),
    tags: str = "py3-none-any",
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """Write a wheel that pip installs; equal arguments give equal bytes."""
    stem = f"{project.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    contents = dict(files if files is not None else {f"{project.replace('-', '_')}/__init__.py": ""})
    headers = ["Metadata-Version: 2.1", f"Name: {project}", f"Version: {version}", "Requires-Python: >=3.8"]
    contents[f"{info}/METADATA"] = "\n".join([*headers, *(f"Requires-Dist: {line}" for line in requires)]) + "\n"
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tags}\n"
    record = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{stem}-{tags}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name), text, compression)
    return path


@dataclass(frozen=True, slots=True)
class SmallHouse:
    """A checkout with one service, and the mirror that serves it."""

    root: Path
    mirror: Path
    platform: Platform

    @property
    def locks(self) -> Locks:
        return Locks.open(self.root)

    @property
    def other_platform(self) -> Platform:
        return next(found for found in PLATFORMS.values() if found != self.platform)

    def selection(self, *names: str, with_models: bool = False) -> Selection:
        return Selection.of(self.locks, self.platform, names, with_models=with_models)

    def problems(self, *names: str) -> list[Problem]:
        return find_problems(self.selection(*names), self.mirror)

    def wheel(self, project: str) -> Path:
        (found,) = self.mirror.glob(f"{project.replace('-', '_')}-*.whl")
        return found

    def lock(self, name: str, wheels: Iterable[Path], *, hashes: Iterable[str] = ()) -> None:
        """Write a set of an image, or with more hashes one that allows other files too."""
        wanted = self.locks.sets.get(name)
        pins = []
        for path in wheels:
            parsed = WheelName.parse(path.name)
            pins.append(Pin(parsed.project, parsed.version, frozenset({sha256_of(path), *hashes}), file=path.name))
        of_platform = self.platform if name == "torch" or (wanted and wanted.for_images) else None
        target = self.locks.path(name, of_platform)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((self.locks.head(wanted) if wanted else "") + format_lock(pins), "utf-8")
        self.locks.seal(target)


def make_house(folder: Path) -> SmallHouse:
    """Make a checkout and its mirror, complete and indexed."""
    house = SmallHouse(folder / "checkout", folder / "mirror", platform_named(None))
    house.mirror.mkdir(parents=True)
    (house.root / "offline-wheels").mkdir(parents=True)
    (house.root / "pyproject.toml").write_text(PYPROJECT, "utf-8")
    (house.root / "offline-wheels" / "sets.toml").write_text(SETS, "utf-8")
    search = house.root / "services" / "search"
    search.mkdir(parents=True)
    (house.root / "services" / "__init__.py").write_text("", "utf-8")
    (search / "__init__.py").write_text(SEARCH, "utf-8")
    (search / "grammars.py").write_text(GRAMMARS, "utf-8")
    (search / "training.py").write_text("import torch\n", "utf-8")
    base = make_wheel(house.mirror, "base", files={"base.py": "ANSWER = 42\n"})
    beta = make_wheel(house.mirror, "beta")
    files = {"alpha/__init__.py": "", "alpha/words.py": ""}
    alpha = make_wheel(house.mirror, "alpha", files=files, requires=["beta>=1"])
    grammar = make_wheel(house.mirror, "grammar-go", tags=f"py3-none-manylinux_2_17_{house.platform.machine}")
    tool = make_wheel(house.mirror, "tool", "3.0")
    model = make_wheel(house.mirror, "demo-model", requires=["torch>=2"])
    house.lock("search", [base, alpha, beta, grammar])
    house.lock("dev", [base, alpha, beta, grammar, tool])
    house.lock("model", [model])
    write_index(house.mirror)
    return house


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
