"""Edges from the definitions of a file to the names that they use, resolved as far as that file can tell.

A name resolves to an import, to a definition of the file in a scope around it, or through the object itself to a member
of the class around it. What stays unknown is kept by its last name, or as it is written where a type stands before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.ingest.chunks import Reference, ReferenceKind, SymbolKind
from services.ingest.extraction.captures import Captured, Use, name_parts
from services.ingest.extraction.definitions import Definition
from services.ingest.extraction.grammars import Grammar
from services.ingest.extraction.importing import Binding, rust_path
from services.ingest.extraction.partition import Naming
from services.ingest.extraction.syntax import Syntax

_ANCESTORS = frozenset({"super", "base", "parent"})
# Of Terraform: what a reference begins with, and the kind of block that it means.
_BLOCKS = {"var": ("variable",), "local": ("local",), "module": ("module",), "data": ("data",)}


@dataclass(slots=True)
class Linker:
    """Resolves what one file uses."""

    language: str
    path: str
    grammar: Grammar
    naming: Naming
    captured: Captured
    syntax: Syntax
    bindings: list[Binding]
    _bound: dict[str, Binding] = field(default_factory=dict)
    _defined: set[tuple[str, ...]] = field(default_factory=set)
    _members: set[tuple[str, ...]] = field(default_factory=set)  # methods, which need an object before them

    def references(self) -> tuple[Reference, ...]:
        """Return every edge in the order of lines."""
        for binding in self.bindings:
            if binding.local:
                self._bound.setdefault(binding.local, binding)
        for definition in [*self.syntax.root.walk(), *self.syntax.symbols]:
            if definition.kind is not SymbolKind.VARIABLE and definition.names:
                self._defined.add(definition.names)
            if definition.kind is SymbolKind.METHOD:
                self._members.add(definition.names)
        found = dict.fromkeys(self._edges())
        return tuple(sorted(found, key=lambda one: (one.line, one.source, one.kind, one.target)))

    def _edges(self) -> Iterator[Reference]:
        """Sweep over uses and imports with the definitions that are open at each."""
        events: list[Binding | Use] = sorted([*self.bindings, *self.captured.uses], key=lambda one: one.byte)
        spans = self.syntax.spans
        open_spans: list[tuple[int, Definition]] = []
        place = 0
        for event in events:
            while place < len(spans) and spans[place][0] <= event.byte:
                start, end, definition = spans[place]
                while open_spans and open_spans[-1][0] <= start:
                    open_spans.pop()
                open_spans.append((end, definition))
                place += 1
            while open_spans and open_spans[-1][0] <= event.byte:
                open_spans.pop()
            around = [definition for _, definition in open_spans if definition.kind is not SymbolKind.MODULE]
            names = around[-1].names if around else ()
            source = self.naming.qualified(names)
            if isinstance(event, Binding):
                yield Reference(source, ReferenceKind.IMPORT, event.target, event.resolved, event.row + 1)
                continue
            within = open_spans[-1][1].names if open_spans else ()
            target = self._resolve(event, within, around)
            if target is not None and target[0]:
                yield Reference(source, event.kind, *target, event.row + 1)

    def _resolve(self, use: Use, within: tuple[str, ...], around: list[Definition]) -> tuple[str, bool] | None:
        if self.language == "hcl":
            return self._block(use)
        parts = name_parts(use.name, self.grammar.separator)
        if not parts:
            return None
        if use.receiver:
            return self._resolve_member(use, parts, within, around)
        if use.is_member:
            return parts[-1], False
        if use.name in self.grammar.selves:
            owner = _class_around(around)
            return (self.naming.qualified(owner), True) if owner and use.name not in _ANCESTORS else None
        bound = self._bound.get(parts[0])
        if bound is not None:
            return ".".join([bound.target, *parts[1:]]), bound.resolved
        known = self._lookup(parts, within) or self._lookup_full(parts)
        if known is not None:
            return self.naming.qualified(known), True
        if self.grammar.known_calls_only and "_" not in parts[-1]:
            return None  # a command, most likely
        return ".".join(parts), False

    def _resolve_member(
        self, use: Use, parts: tuple[str, ...], within: tuple[str, ...], around: list[Definition]
    ) -> tuple[str, bool]:
        if use.receiver in self.grammar.selves:
            owner = _class_around(around)
            if owner is None or use.receiver in _ANCESTORS:
                return parts[-1], False
            member = (*owner, *parts)
            return self.naming.qualified(member), member in self._defined
        before = name_parts(use.receiver.lstrip("$"), self.grammar.separator)
        if not before:
            return parts[-1], False
        bound = self._bound.get(before[0])
        if bound is not None:
            return ".".join([bound.target, *before[1:], *parts]), bound.resolved
        if self.language == "rust" and before[0] in ("crate", "self", "super"):
            return ".".join([*rust_path(self.path, self.naming, self._modules(within), list(before)), *parts]), True
        known = self._lookup((*before, *parts), within)
        if known is not None:
            return self.naming.qualified(known), True
        # By convention, what is capitalised is a type.
        written = use.is_path or before[-1][:1].isupper()
        return (".".join([*before, *parts]) if written else parts[-1]), False

    def _modules(self, within: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the modules of a file, out of those of a definition and what is around it."""
        size = next((size for size in range(len(within)) if within[: size + 1] in self._defined), len(within))
        return within[:size]

    def _lookup(self, parts: tuple[str, ...], within: tuple[str, ...]) -> tuple[str, ...] | None:
        """Find what a name means in the innermost scope that defines it."""
        for size in range(len(within), -1, -1):
            names = (*within[:size], *parts)
            if names in self._defined and (self.grammar.implicit_self or len(parts) > 1 or names not in self._members):
                # A constructor stands for its class.
                return names[:-1] if len(names) > 1 and names[-1] == names[-2] and len(parts) == 1 else names
        return None

    def _lookup_full(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """Find a definition of the file by its full name."""
        prefix = tuple(self.naming.prefix.split("."))
        names = parts[len(prefix) :]
        return names if parts[: len(prefix)] == prefix and names in self._defined else None

    def _block(self, use: Use) -> tuple[str, bool] | None:
        """Resolve a reference of Terraform, whose blocks are known to all files of a folder."""
        # Types of resources have an underscore; what has none is an iterator.
        if not use.receiver or (use.receiver not in _BLOCKS and "_" not in use.receiver):
            return None
        names = use.name.split(".")
        parts = [*_BLOCKS.get(use.receiver, ("resource", use.receiver)), *names]
        kept = 3 if parts[0] in ("resource", "data") else 2
        return self.naming.qualified(parts[:kept]), True


def _class_around(around: list[Definition]) -> tuple[str, ...] | None:
    for definition in reversed(around):
        if definition.kind is SymbolKind.CLASS:
            return definition.names
        if definition.kind is SymbolKind.METHOD and len(definition.names) > 1:
            return definition.names[:-1]
    return None
