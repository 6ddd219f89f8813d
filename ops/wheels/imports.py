"""What a set must be able to import, read from the code that its image runs, and the proof that it can.

The proof is a fresh interpreter that sees the standard library, our own packages and one folder with the set installed:
what the resolver and ``pip check`` call fine may still not import.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ops.wheels.locks import Locks, RequirementSet
from services.core.errors import NotReady

_SOURCE_ROOTS = ("", "proto")
_OWN_PACKAGES = ("services", "undercroft")
_DYNAMIC = ("import_module", "find_spec")
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """A module of somebody else's, or a name in it, and where we import it."""

    module: str
    name: str  # "" for the module itself
    where: str


@dataclass(frozen=True, slots=True)
class Needs:
    """The modules of ours that a set serves, and what they import."""

    own: tuple[str, ...]
    foreign: tuple[Import, ...]

    def top_levels(self) -> list[str]:
        return sorted({found.module.partition(".")[0] for found in self.foreign})


def read_needs(locks: Locks, wanted: RequirementSet) -> Needs:
    """Follow the imports from a set's packages through all that is ours, those inside functions included.

    A module that is imported by a name in a variable counts where that name, as a string of the same file, is that of
    a requirement of pyproject.toml: grammars are loaded so.
    """
    modules = _own_modules(locks.root)
    requirements = {name.replace("-", "_") for name in locks.direct(locks.extras())}
    waiting = sorted(name for name in modules if _is_below(name, wanted.modules))
    own: set[str] = set()
    foreign = {Import(locks.build_backend(), "", "pyproject.toml")} if "build" in wanted.extras else set()
    while waiting:
        name = waiting.pop()
        if name in own or _is_below(name, wanted.without):
            continue
        own.add(name)
        path = modules[name]
        where = str(path.relative_to(locks.root))
        parents = name.split(".")
        waiting += [parent for end in range(1, len(parents)) if (parent := ".".join(parents[:end])) in modules]
        for module, member, line in _imports(path.read_text("utf-8"), requirements):
            top = module.partition(".")[0]
            if top in _OWN_PACKAGES:
                waiting += [found for found in (module, f"{module}.{member}") if found in modules]
            elif top not in sys.stdlib_module_names:
                foreign.add(Import(module, member, f"{where}:{line}"))
    first = {(found.module, found.name): found for found in sorted(foreign, reverse=True)}
    return Needs(tuple(sorted(own)), tuple(sorted(first.values())))


def prove_imports(locks: Locks, wanted: RequirementSet, needs: Needs, target: Path | None) -> list[str]:
    """Import all of it in a fresh process; returns in words what failed.

    With ``target`` that folder is all that the process sees besides the standard library; without one it sees what is
    installed where this runs, as inside an image.
    """
    work = {
        "paths": [*([str(target)] if target else []), *(str(locks.root / root) for root in _SOURCE_ROOTS)],
        # A package of ours may have to come before what it imports: the embed service shuts doors first.
        "first": sorted({name for name in wanted.modules if name in needs.own}),
        "foreign": [[found.module, found.name, found.where] for found in needs.foreign],
        "own": [name for name in needs.own if not name.endswith("__main__") and ".migrations." not in name],
    }
    # Without site-packages and the environment: what this interpreter has besides is no part of the set.
    flags = ["-I", "-S", "-B"] if target else ["-P", "-B"]
    run = subprocess.run(
        [sys.executable, *flags, str(Path(__file__).with_name("importing.py"))],
        input=json.dumps(work),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if run.returncode:
        raise NotReady(f"{wanted.name}: the import test ended with {run.returncode}: {run.stderr[-500:]}")
    return [f"{wanted.name}: {line}" for line in json.loads(run.stdout.splitlines()[-1])]


def _own_modules(root: Path) -> dict[str, Path]:
    found = {}
    for source_root in _SOURCE_ROOTS:
        for package in _OWN_PACKAGES:
            base = root / source_root
            for path in (base / package).rglob("*.py"):
                parts = path.relative_to(base).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def _is_below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _imports(text: str, requirements: set[str]) -> Iterator[tuple[str, str, int]]:
    tree = ast.parse(text)
    dynamic = False
    waiting: list[ast.AST] = [tree]
    strings: list[tuple[str, int]] = []
    while waiting:
        node = waiting.pop()
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            children = list(node.orelse)
        waiting += children
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.Attribute | ast.Name):
            dynamic |= (node.attr if isinstance(node, ast.Attribute) else node.id) in _DYNAMIC
        elif isinstance(node, ast.Constant) and node.value in requirements:
            strings.append((str(node.value), node.lineno))
    if dynamic:
        yield from ((value, "", line) for value, line in strings)
