"""Names of modules, and what the imports of a file stand for in them, as far as one file can tell.

All names are dotted, whatever the language writes between their parts: ``crate::net::Server`` and ``App\\Net\\Server``
are stored, and asked for, as ``net.Server`` and ``App.Net.Server``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from services.ingest.extraction.captures import Captured, Found, Import
from services.ingest.extraction.grammars import Grammar, Names
from services.ingest.extraction.partition import Naming

_SUFFIX = re.compile(r"(?<=[^/])(?:\.d)?\.(?:[cm]?[jt]sx?|json|vue|svelte|\w{1,5})$")
_SCRIPT_SUFFIX = re.compile(r"(?:\.d)?\.(?:[cm]?[jt]sx?|json)$")
_VERSION = re.compile(r"v\d+$")
_VARIABLE_FOLDER = re.compile(r".*(?:[)}]|\$\w+)/")
_RUST_TOKEN = re.compile(r"::|[{},*]|\bas\b|(?:r#)?\w+")
_MAX_NAMES = 2000  # of one statement
_MAX_SCOPES = 24


@dataclass(frozen=True, slots=True)
class Binding:
    """An import: the local name that it gives, or "", and what that stands for."""

    local: str
    target: str
    resolved: bool  # ``target`` is a full name
    byte: int
    row: int


def naming_of(path: str, grammar: Grammar, package: tuple[str, ...]) -> Naming:
    """Name the module that a file is, and what its definitions are named below."""
    module = module_name(path, grammar)
    prefix = ""
    if grammar.names is Names.PATH:
        prefix = module
    elif grammar.names is Names.FOLDER:
        prefix = _dotted(posixpath.dirname(path)) or ".".join(package)
        module = prefix or module
    elif grammar.names is Names.PACKAGE:
        prefix = ".".join(package)
    return Naming(module, prefix, path.replace(" > ", ">"))


def module_name(path: str, grammar: Grammar) -> str:
    """Name the module that a file is by its path: ``src/net/index.ts`` is ``src.net``."""
    parts = [part for part in _SUFFIX.sub("", path).split("/") if part not in grammar.silent_folders]
    if len(parts) > 1 and parts[-1] in grammar.silent_stems:
        parts.pop()
    return ".".join(part for part in parts if part) or path


def bindings_of(language: str, path: str, grammar: Grammar, naming: Naming, captured: Captured) -> list[Binding]:
    """Resolve the imports of a file, in the order of its lines."""
    resolve = _RULES.get(language)
    if resolve is None:
        return []
    found = [
        Binding(local, target, resolved, one.byte, one.row)
        for one, around in _with_namespaces(captured)
        for local, target, resolved in resolve(_Place(path, grammar, naming, around), one)
        if target.strip(".")
    ]
    found.sort(key=lambda one: (one.byte, one.target))
    return found


def _with_namespaces(captured: Captured) -> Iterator[tuple[Import, tuple[str, ...]]]:
    """Yield the imports with the names of the namespaces around each."""
    scopes = sorted(
        (one for one in captured.definitions if one.kind == "namespace" and one.parts), key=lambda one: one.start_byte
    )
    around: list[Found] = []
    place = 0
    for one in sorted(captured.imports, key=lambda one: one.byte):
        while place < len(scopes) and scopes[place].start_byte <= one.byte:
            around.append(scopes[place])
            place += 1
        while around and around[-1].end_byte <= one.byte:
            around.pop()
        yield one, tuple(part for scope in around[:_MAX_SCOPES] for part in scope.parts if one.byte < scope.end_byte)


@dataclass(frozen=True, slots=True)
class _Place:
    path: str
    grammar: Grammar
    naming: Naming
    around: tuple[str, ...]

    def module_at(self, relative: str) -> str:
        """Name the module at a path relative to the file; nothing where that leads out of the source."""
        joined = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), relative))
        return "" if joined.startswith("..") or joined == "." else module_name(joined, self.grammar)


Resolved = Iterator[tuple[str, str, bool]]


def _script(place: _Place, one: Import) -> Resolved:
    relative = one.source.startswith(".")
    if relative:
        base = place.module_at(_SCRIPT_SUFFIX.sub("", one.source) or one.source)
        base = base or _dotted(one.source.strip("./"))
    else:
        base = _dotted(re.sub(r"^[@~]/", "", _SCRIPT_SUFFIX.sub("", one.source)))
    full = relative or not re.match(r"[@~]/", one.source)
    if one.name and one.name != "default":
        yield one.alias or one.name, f"{base}.{one.name}", full
    elif relative and one.alias and not one.everything and not one.statement:
        yield one.alias, f"{base}.{one.alias}", False  # a default export has the name that it is given
    else:
        yield one.alias, base, full


def _go(place: _Place, one: Import) -> Resolved:
    parts = [part for part in one.source.split("/") if part]
    if parts:
        last = parts[-2] if len(parts) > 1 and _VERSION.match(parts[-1]) else re.sub(r"\.v\d+$", "", parts[-1])
        yield "" if one.alias in ("_", ".") else one.alias or last, ".".join(parts), True


def _dotted_names(place: _Place, one: Import) -> Resolved:
    target = re.sub(r"[\s]+", "", one.source)
    yield "" if one.everything else one.alias or target.rpartition(".")[2], target, True


def _using(place: _Place, one: Import) -> Resolved:
    yield one.alias, re.sub(r"^global::|\s+", "", one.source), True


def _php(place: _Place, one: Import) -> Resolved:
    if one.is_path:
        yield "", place.module_at(one.source.lstrip("/")), one.source.startswith("/")
        return
    target = ".".join(part for part in f"{one.source}\\{one.name}".split("\\") if part)
    yield one.alias or target.rpartition(".")[2], target, True


def _include(place: _Place, one: Import) -> Resolved:
    source = one.source.strip("<>")
    is_beside = not one.source.startswith("<") and ("/" not in source or source.startswith("."))
    yield "", place.module_at(source) if is_beside else module_name(source, place.grammar), False


def _require(place: _Place, one: Import) -> Resolved:
    relative = one.statement == "require_relative"
    yield "", place.module_at(one.source) if relative else _dotted(_SUFFIX.sub("", one.source)), relative


def _source(place: _Place, one: Import) -> Resolved:
    path = one.source.strip("\"'")
    known = "$" not in path
    yield "", place.module_at(path if known else _VARIABLE_FOLDER.sub("", path)), known


def _module_source(place: _Place, one: Import) -> Resolved:
    relative = one.source.startswith(".")
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(place.path), one.source)) if relative else one.source
    yield "", _dotted(joined.strip("./")), True


def rust_path(path: str, naming: Naming, around: Sequence[str], parts: list[str]) -> tuple[str, ...]:
    """Replace ``crate``, ``self`` and ``super`` at the beginning of a path by what they stand for."""
    own = [*naming.module.split("."), *around]
    if parts and parts[0] == "crate":
        before, source, _ = f"/{path}".partition("/src/")
        root = before if source else posixpath.dirname(path)
        return (*filter(None, root.split("/")), *parts[1:])
    base: list[str] | None = None
    while parts and parts[0] in ("self", "super"):
        base = own if base is None else base
        if parts[0] == "super":
            base = base[:-1]
        parts = parts[1:]
    return tuple(parts if base is None else [*base, *parts])


def _use(place: _Place, one: Import) -> Resolved:
    if not one.source:  # "mod name;"
        yield "", ".".join([place.naming.module, *place.around, one.name]), True
        return
    stack: list[list[str]] = [[]]
    current: list[str] = []
    alias = ""
    named = 0
    tokens = [*_RUST_TOKEN.findall(one.source), "}"]
    position = 0
    while position < len(tokens) and named < _MAX_NAMES:
        token = tokens[position]
        if token == "{":
            stack.append([*stack[-1], *current])
            current = []
        elif token in (",", "}"):
            if current:
                parts = [*stack[-1], *current]
                everything = parts[-1] == "*"
                if everything or (parts[-1] == "self" and len(parts) > 1):
                    parts.pop()
                full = rust_path(place.path, place.naming, place.around, parts)
                if full:
                    named += 1
                    yield "" if everything else alias or full[-1], ".".join(full), True
            current, alias = [], ""
            if token == "}" and len(stack) > 1:
                stack.pop()
        elif token == "as":
            position += 1
            alias = tokens[position] if position < len(tokens) else ""
        elif token != "::":
            current.append(token.removeprefix("r#"))
        position += 1


def _dotted(path: str) -> str:
    return ".".join(part for part in path.split("/") if part and part != ".")


_RULES: dict[str, Callable[[_Place, Import], Resolved]] = {
    "javascript": _script,
    "typescript": _script,
    "go": _go,
    "java": _dotted_names,
    "kotlin": _dotted_names,
    "csharp": _using,
    "php": _php,
    "c": _include,
    "cpp": _include,
    "ruby": _require,
    "shell": _source,
    "hcl": _module_source,
    "rust": _use,
    "proto": _include,
}
