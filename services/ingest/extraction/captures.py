"""What the query of a grammar captures in one file, as plain values: what is defined, used, imported and commented."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tree_sitter import Node, Parser, QueryCursor, Tree, TreeCursor

from services.ingest.chunks import ReferenceKind
from services.ingest.extraction.grammars import Grammar, parser_of

# More states at once than any real file needs; a hostile one loses matches, not time.
_MATCH_LIMIT = 20_000
# Nothing is captured below. The query cursor counts depth in 16 bits, and from there on takes quadratic time.
_MAX_DEPTH = 2000
_MAX_NAME_BYTES = 200
_MAX_SOURCE_BYTES = 20_000
_MAX_ERRORS = 1000
# Steps of the parser, of about a hundred operations each. Real files take less than 200, and one per 60 bytes; recovery
# from an error can take steps without end (tree-sitter/tree-sitter#3393).
_MIN_STEPS = 2000
_BYTES_PER_STEP = 4
_BLOCK_BYTES = 1 << 16
# An error with more parts is no code; looking for siblings in it takes quadratic time.
_MAX_ERROR_PARTS = 5000
_TEMPLATE_ARGUMENTS = re.compile(r"<[^<>]*>|\([^()]*\)$")
_OPERATOR = re.compile(r"\boperator\b")
_QUOTES = "\"'`[]"
_USES = {
    "reference.call": ReferenceKind.CALL,
    "reference.member": ReferenceKind.CALL,
    "reference.inherit": ReferenceKind.INHERIT,
    "reference.decorate": ReferenceKind.DECORATE,
}

Captures = dict[str, list[Node]]


@dataclass(frozen=True, slots=True)
class Mark:
    """A comment or an attribute. Points are row and column, in bytes, both from 0."""

    start_byte: int
    end_byte: int
    start_point: tuple[int, int]
    end_point: tuple[int, int]


@dataclass(slots=True)
class Found:
    """A definition as captured. Bytes are offsets into the file, rows count from 0."""

    order: int  # of its pattern in the query
    kind: str
    is_declaration: bool
    parts: tuple[str, ...]  # of its name, the owner that the name itself shows first
    scope: tuple[str, ...]  # the owner that is named elsewhere
    is_global: bool  # the owner is that, and nothing around it
    start_byte: int
    end_byte: int
    start_row: int
    end_row: int
    name_row: int
    body_byte: int | None
    body_row: int
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """A name that is called, inherited from, or decorates."""

    kind: ReferenceKind
    name: str
    receiver: str  # what stands before the name: an object, or with ``is_path`` a type or module
    is_path: bool
    is_member: bool  # of something, whether or not ``receiver`` says of what
    byte: int
    row: int


@dataclass(frozen=True, slots=True)
class Import:
    """One name, or one file, that a file imports, as it is written."""

    source: str
    name: str
    alias: str
    everything: bool
    is_path: bool
    statement: str  # its first word
    byte: int
    row: int


@dataclass(slots=True)
class Captured:
    """All that was captured in a file."""

    definitions: list[Found] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    imports: list[Import] = field(default_factory=list)
    comments: list[Mark] = field(default_factory=list)
    attributes: list[Mark] = field(default_factory=list)
    package: tuple[str, ...] = ()
    doc: str = ""
    errors: list[int] = field(default_factory=list)  # rows of what could not be parsed
    statements: list[tuple[int, int]] = field(default_factory=list)  # row and depth of what begins a line
    is_cut: bool = False  # more matches than the limit


def capture(data: bytes, grammar: Grammar) -> Captured:
    """Parse a file and run its grammar's query over it."""
    parser, query = parser_of(grammar)
    if grammar.unknown is not None:
        data = grammar.unknown.sub(lambda match: b" " * len(match[0]), data)
    found = Captured()
    tree = _parse(parser, data)
    if tree is None:
        found.errors = [0]
        return found
    root = tree.root_node
    cursor = QueryCursor(query, match_limit=_MATCH_LIMIT)
    cursor.set_max_start_depth(_MAX_DEPTH)
    definitions: dict[tuple[int, int], Found] = {}
    uses: dict[tuple[int, ReferenceKind], Use] = {}
    if root.has_error:
        errors = list(islice(_errors(root.walk()), _MAX_ERRORS))
        found.errors = [node.start_point[0] for node in errors]
        if any(node.child_count > _MAX_ERROR_PARTS for node in errors):
            return found
    for pattern, captures in cursor.matches(root):
        for name, nodes in captures.items():
            if name == "comment":
                found.comments += map(_mark, nodes)
            elif name == "attribute":
                found.attributes += map(_mark, nodes)
            elif name == "package":
                found.package = name_parts(_text(nodes[0]), grammar.separator)
            elif name == "module_doc":
                found.doc = _text(nodes[0], 4 * _MAX_NAME_BYTES)
            elif name in _USES:
                use = _use(_USES[name], captures, is_member=name == "reference.member")
                if use is not None:
                    known = uses.get((use.byte, use.kind))
                    if known is None or (use.receiver and not known.receiver):
                        uses[use.byte, use.kind] = use
            elif name == "reference.import":
                found.imports.append(_import(nodes[0], captures))
            elif name.startswith(("definition.", "declaration.")):
                settings = query.pattern_settings(pattern)
                _add(definitions, _found(pattern, name, nodes[0], captures, settings, grammar))
    found.definitions = list(definitions.values())
    decorating = {byte for byte, kind in uses if kind is ReferenceKind.DECORATE}
    found.uses = [use for use in uses.values() if use.kind is ReferenceKind.DECORATE or use.byte not in decorating]
    found.is_cut = cursor.did_exceed_match_limit
    found.statements = list(_statements(root.walk()))
    return found


def _parse(parser: Parser, data: bytes) -> Tree | None:
    """Parse a file, or give up after a number of steps: counted, so that it does not depend on the machine."""
    steps = 0
    most = _MIN_STEPS + len(data) // _BYTES_PER_STEP

    def is_too_much(offset: int, has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > most

    try:
        tree = parser.parse(
            lambda offset, point: data[offset : offset + _BLOCK_BYTES], encoding="utf8", progress_callback=is_too_much
        )
    except ValueError:  # "Parsing failed"; where it stopped must be forgotten, or the next file begins there
        parser.reset()
        return None
    # Nodes of a tree that was parsed through a callback ask it for their text; this tree, of the same nodes, has it.
    return parser.parse(data, old_tree=tree)


def name_parts(text: str, separator: str) -> tuple[str, ...]:
    """Split a name at the separators of its language, without type arguments, quotes and white space."""
    operator = _OPERATOR.search(text) if separator == "::" else None
    head, tail = (text[: operator.start()], text[operator.start() :]) if operator else (text, "")
    if separator == "::":
        before = ""
        while head != before and "<" in head:
            before, head = head, _TEMPLATE_ARGUMENTS.sub("", head)
    parts = [_plain(part) for part in re.split(r"[.:]+" if separator == "." else re.escape(separator), head)]
    if tail:
        called = tail.find("(", len("operator()") if tail.startswith("operator()") else 0)
        parts.append(_plain(re.sub(r"\s+(?=\W)|(?<=\W)\s+", "", tail[: called if called > 0 else None])))
    return tuple(part for part in parts if part)


def _plain(part: str) -> str:
    stripped = " ".join(part.split())
    if stripped[:1] in _QUOTES and len(stripped) > 2:
        stripped = stripped.strip(_QUOTES)
    return stripped.replace(" > ", ">")


def _text(node: Node, limit: int = _MAX_NAME_BYTES) -> str:
    """Return the source of a node, or nothing where it is too long to be a name."""
    if node.end_byte - node.start_byte > limit:
        return ""
    return (node.text or b"").decode("utf-8", "replace")


def _first(captures: Captures, name: str, limit: int = _MAX_NAME_BYTES) -> str:
    nodes = captures.get(name)
    return _text(nodes[0], limit) if nodes else ""


def _mark(node: Node) -> Mark:
    return Mark(node.start_byte, node.end_byte, node.start_point, node.end_point)


def _use(kind: ReferenceKind, captures: Captures, *, is_member: bool) -> Use | None:
    nodes = captures.get("name")
    if not nodes:
        return None
    name, receiver, owner = (_first(captures, one) for one in ("name", "receiver", "owner"))
    if "member" in captures:
        name = f"{name}.{_first(captures, 'member')}"
    if not name:
        return None
    place = (nodes[0].start_byte, nodes[0].start_point[0])
    return Use(kind, name, owner or receiver, bool(owner), is_member or bool(owner or receiver), *place)


def _import(node: Node, captures: Captures) -> Import:
    return Import(
        _first(captures, "source", _MAX_SOURCE_BYTES) or _first(captures, "path"),
        _first(captures, "name"),
        _first(captures, "alias"),
        "all" in captures,
        "path" in captures,
        _first(captures, "_require"),
        node.start_byte,
        node.start_point[0],
    )


def _found(
    order: int, capture_name: str, node: Node, captures: Captures, settings: Mapping[str, str | None], grammar: Grammar
) -> tuple[tuple[int, int], Found]:
    whole, _, kind = capture_name.partition(".")
    named = captures.get("name") or captures.get("block") or []
    fixed_name, owner = settings.get("name"), settings.get("owner")
    parts: tuple[str, ...] = (fixed_name,) if fixed_name else ()
    if "block" in captures:
        parts = tuple(_plain(_text(part)) for part in [*named, *captures.get("label", ())])
    elif named:
        parts = name_parts((settings.get("prefix") or "") + _text(named[0]), grammar.separator)
    key = (named[0].start_byte, named[0].end_byte) if named else (node.start_byte, node.end_byte)
    body = node.child_by_field_name("body")
    return key, Found(
        order=order,
        kind=kind,
        is_declaration=whole == "declaration",
        parts=parts,
        scope=(owner,) if owner else _scope(captures, grammar),
        is_global=owner is not None,
        start_byte=node.start_byte,
        end_byte=node.end_byte,
        start_row=node.start_point[0],
        end_row=last_row(node),
        name_row=named[0].start_point[0] if named else node.start_point[0],
        body_byte=body.start_byte if body is not None else None,
        body_row=body.start_point[0] if body is not None else node.start_point[0],
        doc=_first(captures, "doc", 4 * _MAX_NAME_BYTES),
    )


def _scope(captures: Captures, grammar: Grammar) -> tuple[str, ...]:
    text = _first(captures, "scope")
    if not text or (grammar.separator == "." and not re.fullmatch(r"[\w$.]+", text)):
        return ()
    return tuple(part for part in name_parts(text, grammar.separator) if part not in grammar.silent_scopes)


def _add(definitions: dict[tuple[int, int], Found], item: tuple[tuple[int, int], Found]) -> None:
    """Keep one definition per name: what the first pattern says, over the widest span."""
    key, new = item
    known = definitions.get(key)
    if known is None:
        definitions[key] = new
        return
    first, second = (new, known) if new.order < known.order else (known, new)
    first.scope = first.scope or second.scope
    first.doc = first.doc or second.doc
    if second.start_byte < first.start_byte:
        first.start_byte, first.start_row = second.start_byte, second.start_row
    if second.end_byte > first.end_byte:
        first.end_byte, first.end_row = second.end_byte, second.end_row
    if first.body_byte is None:
        first.body_byte, first.body_row = second.body_byte, second.body_row
    definitions[key] = first


def last_row(node: Node) -> int:
    """Return the last row that a node has text in; some end behind the line end."""
    row, column = node.end_point
    return row - 1 if column == 0 and row > node.start_point[0] else row


def _errors(cursor: TreeCursor) -> Iterator[Node]:
    """Yield the topmost nodes that are errors; only branches that hold one are entered."""

    def enter(node: Node) -> bool:
        return node.has_error and not node.is_error and not node.is_missing

    return (node for node, _ in _walk(cursor, enter) if node.is_error or node.is_missing)


def _statements(cursor: TreeCursor) -> Iterator[tuple[int, int]]:
    """Yield row and depth of the topmost node that begins in each row; nodes of one row are not entered."""
    seen = -1

    def enter(node: Node) -> bool:
        return node.end_point[0] > node.start_point[0]

    for node, depth in _walk(cursor, enter):
        row = node.start_point[0]
        if row > seen and node.is_named and depth:
            seen = row
            yield row, depth - 1


def _walk(cursor: TreeCursor, enter: Callable[[Node], bool]) -> Iterator[tuple[Node, int]]:
    """Yield nodes with their depth from the top down, without recursion."""
    depth = 0
    while True:
        node = cursor.node
        assert node is not None
        yield node, depth
        if enter(node) and cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def rows_of(marks: Iterable[Mark], lines: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield first and last row of the marks that have their rows to themselves."""
    for mark in marks:
        row, column = mark.start_point
        last, end = mark.end_point
        if row < len(lines) and not lines[row][:column].strip():
            if (end and last < len(lines) and lines[last][end:].strip()) or (end == 0 and last > row):
                last -= 1
            if last >= row:
                yield row, last
