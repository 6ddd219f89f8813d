"""What reStructuredText names: roles of Sphinx, the objects that directives document, links, and literals.

Labels (``:ref:``) belong to the whole project, which one file cannot see, and are no edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.ingest.chunks import Reference, ReferenceKind
from services.ingest.extraction.prose import joined, reference_to_code, reference_to_file
from services.ingest.extraction.sections import Heading, qualified_section

_INLINE = re.compile(
    r"""(?<![\w`\\])(?:
        :(?P<role>[A-Za-z][\w.+:-]*):`(?P<content>[^`\n]*(?:\n[^`\n]+)?)`
      | ``(?P<literal>[^\n]+?)``(?!`)
      | `(?P<text>[^`<\n]*(?:\n[^`<\n]+)?)<(?P<link>[^`>\n]+)>`__?
      | `(?P<default>[^`\n]+)`(?![_`])
    )""",
    re.VERBOSE,
)
_TARGET = re.compile(r"[ ]*\.\.[ ]+_(?:`[^`]+`|(?:[^:\\`]|\\.)+):[ ]+(?P<link>\S+)[ ]*$")
_EXPLICIT_TARGET = re.compile(r"(?P<text>.*?)\s*(?<!\\)<(?P<target>[^<>]+)>$", re.DOTALL)
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_NAMES = frozenset(
    {
        "class", "func", "function", "meth", "method", "mod", "module", "attr", "attribute", "exc", "exception",
        "data", "const", "obj", "object", "any", "type", "decorator", "property", "macro", "member", "struct",
        "enum", "enumerator", "var", "c", "cpp", "js",
    }
)  # fmt: skip
_FILES = frozenset({"file", "source", "src", "download", "program", "script"})
_DOCUMENTS = frozenset({"doc"})
# Directives that describe objects, by their last name; "auto" stands before some of them.
_OBJECTS = frozenset(
    {
        "class", "function", "method", "module", "attribute", "exception", "data", "decorator", "property",
        "staticmethod", "classmethod", "coroutinefunction", "currentmodule", "decoratormethod",
    }
)  # fmt: skip
_INCLUDES = frozenset({"include", "literalinclude", "image", "figure"})
_TOCTREE = frozenset({"toctree"})
_DOCUMENT_SUFFIX = ".rst"


@dataclass(frozen=True, slots=True)
class Directive:
    name: str  # in lower case, with its domain
    argument: str
    line: int  # from 0
    indent: int


def references(
    path: str, lines: Sequence[str], prose: Sequence[bool], directives: Sequence[Directive], headings: Sequence[Heading]
) -> Iterator[Reference]:
    """Yield the edges of a document in the order of its lines; code and comments name nothing."""
    found = [*_of_prose(path, lines, prose), *_of_directives(path, lines, directives)]
    found.sort(key=lambda reference: reference.line)
    place = -1
    for reference in found:
        while place + 1 < len(headings) and headings[place + 1].start_line <= reference.line:
            place += 1
        source = qualified_section(path, headings[place].names) if place >= 0 else path
        yield Reference(source, reference.kind, reference.target, reference.resolved, reference.line)


def _of_prose(path: str, lines: Sequence[str], prose: Sequence[bool]) -> Iterator[Reference]:
    for number, line in enumerate(lines):
        if not prose[number]:
            continue
        target = _TARGET.match(line) if "_" in line else None
        if target is not None:
            reference = reference_to_file(path, "", target["link"], number + 1)
            if reference is not None:
                yield reference
        elif "`" in line:
            # Roles and links may end on the line below.
            text = f"{line}\n{lines[number + 1].strip()}" if number + 1 < len(lines) and prose[number + 1] else line
            for match in _INLINE.finditer(text):
                if match.start() >= len(line):
                    break
                reference = _of_match(path, match, number + 1)
                if reference is not None:
                    yield reference


def _of_match(path: str, match: re.Match[str], line: int) -> Reference | None:
    if match["role"]:
        return _of_role(path, match["role"].lower(), match["content"].replace("\n", " "), line)
    if match["link"]:
        link = match["link"].strip()
        return None if link.endswith("_") else reference_to_file(path, "", link, line)
    span = match["literal"] or match["default"] or ""
    return reference_to_code(path, "", span.strip(), line)


def _of_role(path: str, role: str, content: str, line: int) -> Reference | None:
    explicit = _EXPLICIT_TARGET.match(content)
    target = (explicit["target"] if explicit else content).strip()
    name = role.rpartition(":")[2]
    if name in _DOCUMENTS:
        return _to_document(path, target, line)
    if name == "download":
        return _to_file(path, target, line)
    if name in _FILES:
        return reference_to_code(path, "", target, line)
    return _mention(target.lstrip("~!."), line) if name in _NAMES else None


def _of_directives(path: str, lines: Sequence[str], directives: Sequence[Directive]) -> Iterator[Reference]:
    module = ""
    for directive in directives:
        name = directive.name.rpartition(":")[2].removeprefix("auto")
        reference: Reference | None = None
        if name in _OBJECTS:
            reference = _mention(directive.argument.lstrip("~!."), directive.line + 1, module)
            if name in ("module", "currentmodule"):
                module = reference.target if reference else ""
        elif name in _INCLUDES:
            reference = _to_file(path, directive.argument, directive.line + 1)
        elif name in _TOCTREE:
            yield from _of_toctree(path, lines, directive)
        if reference is not None:
            yield reference


def _of_toctree(path: str, lines: Sequence[str], directive: Directive) -> Iterator[Reference]:
    for number in range(directive.line + 1, len(lines)):
        entry = lines[number].strip()
        if not entry:
            continue
        if len(lines[number]) - len(lines[number].lstrip()) <= directive.indent:
            break
        explicit = _EXPLICIT_TARGET.match(entry)
        target = explicit["target"] if explicit else entry
        if not entry.startswith(":") and target != "self" and "*" not in target:
            reference = _to_document(path, target, number + 1)
            if reference is not None:
                yield reference


def _to_document(path: str, target: str, line: int) -> Reference | None:
    """Link a document, which Sphinx names without its suffix; one from the top, whose place is unknown, as a guess."""
    if "://" in target:
        return None
    suffix = "" if target.endswith((".rst", ".md", ".txt")) else _DOCUMENT_SUFFIX
    return _to_file(path, target + suffix, line)


def _to_file(path: str, target: str, line: int) -> Reference | None:
    if not target or "://" in target or target.startswith("<"):
        return None
    below = joined(path, target, relative=True)
    return Reference("", ReferenceKind.LINK, below, not target.startswith("/"), line) if below else None


def _mention(text: str, line: int, module: str = "") -> Reference | None:
    """Name an object; in a module that the document has set, as Sphinx's Python domain does."""
    match = _DOTTED.match(text)
    if match is None or len(match[0]) < 2:
        return None
    name = f"{module}.{match[0]}" if module and not f"{match[0]}.".startswith(f"{module}.") else match[0]
    return Reference("", ReferenceKind.MENTION, name, False, line)
