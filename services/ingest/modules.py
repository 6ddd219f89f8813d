"""Dotted module names from paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

PYTHON_SUFFIXES = (".py", ".pyi", ".pyw")
_SOURCE_FOLDERS = frozenset({"src", "lib", "python"})


@dataclass(frozen=True, slots=True)
class ModuleRoots:
    """Which folders of a source are Python packages.

    A file of a package is named from the topmost folder of the unbroken chain of packages above it, so ``src`` layouts
    need no configuration. ``root_package`` names the root itself where that is a package (``site-packages/requests``).
    """

    packages: frozenset[str]  # folders that hold __init__.py; "" is the root
    root_package: str = ""
    # Names before that of a file, by its folder and whether it stands for that folder.
    _enclosing: dict[tuple[str, bool], str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, paths: Iterable[str], root_name: str = "") -> ModuleRoots:
        """Learn the packages from the paths of a source; ``root_name`` is the name of its root folder."""
        folders = {path.rpartition("/")[0] for path in paths if path.endswith(("__init__.py", "__init__.pyi"))}
        return cls(frozenset(folders), re.sub(r"\W", "_", root_name) if "" in folders else "")

    def module(self, path: str) -> str:
        """Return the dotted name of a Python file; ``pkg/__init__.py`` is ``pkg``."""
        folder, _, name = path.rpartition("/")
        stem = name.rpartition(".")[0] or name
        place = (folder, stem == "__init__")
        enclosing = self._enclosing.get(place)
        if enclosing is None:
            enclosing = self._enclosing[place] = ".".join(self._names(*place))
        if stem == "__init__":
            return enclosing
        return f"{enclosing}.{stem}" if enclosing else stem

    def _names(self, folder: str, is_package: bool) -> list[str]:
        """Return the names that come before that of a file of a folder; of the folder itself, its own is the last."""
        packages: list[str] = []
        while folder and folder in self.packages:
            folder, _, package = folder.rpartition("/")
            packages.insert(0, package)
        outside = folder.split("/") if folder else []
        if not folder and "" in self.packages and self.root_package:
            return [self.root_package, *packages]
        source = next((place for place, part in enumerate(outside) if part in _SOURCE_FOLDERS), None)
        if packages or is_package or not outside:
            # A package below folders that are none is imported by its own name, except under a namespace in src/.
            return [*(outside[source + 1 :] if source is not None else []), *packages]
        return outside[source + 1 :] if source is not None else outside


def is_package(path: str) -> bool:
    """Whether a Python file is that of a package itself."""
    return path.rpartition("/")[2].rpartition(".")[0] == "__init__"
