"""YAML by the events of libyaml: no node is composed, so aliases cost nothing, and depth costs no stack.

Each document of a stream is an entry of the root, named by its kind and name where it is an object of Kubernetes. What
does not parse because it is a template (Helm, Jinja) is parsed once more with the template's actions masked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml

from services.ingest.chunks import Note
from services.ingest.extraction.config import NotParsed
from services.ingest.extraction.config.entries import MAX_DEPTH, Entry, Scan, root_entry

# libyaml ends lines where we do not; and it takes no control characters.
_OTHER_ENDS = re.compile("[\x85\u2028\u2029]")
# Bounded, since each may begin at every character of a hostile text.
_ACTION = re.compile(
    r"\{\{-?[ \t]*/\*.{0,2000}?\*/[ \t]*-?\}\}|\{\{(?:(?!\{\{)[^\n]){0,400}?\}\}"
    r"|\{%[^\n]{0,400}?%\}|\{\#[^\n]{0,400}?\#\}",
    re.DOTALL,
)
_ACTION_LINE = re.compile(r"(?m)^[ \t]*(?:\x00[^\n\x00]*\x00[ \t]*)+(?:#[^\n]*)?$")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_NAME_CHARACTERS = 200


@dataclass(slots=True)
class _Frame:
    """An open collection. ``owner`` is the entry whose value it is, where its keys can be entries."""

    is_mapping: bool
    is_flow: bool
    owner: Entry | None
    key: str | None = None
    entry: Entry | None = None
    expects_key: bool = True


def scan_yaml(text: str, lines: list[str]) -> Scan:
    """Find the keys of mappings. Raises ``NotParsed``."""
    text = _OTHER_ENDS.sub(" ", text)
    try:
        return _Scanner(text, lines).scan()
    except yaml.YAMLError as error:
        masked = _masked(text)
        if masked is not None:
            try:
                scan = _Scanner(masked, lines, is_masked=True).scan()
            except yaml.YAMLError:
                pass
            else:
                scan.notes.append(Note("template_masked", "parsed without the actions of its template"))
                return scan
        mark = getattr(error, "problem_mark", None)
        detail = getattr(error, "problem", None) or str(error)
        raise NotParsed(str(detail), mark.line + 1 if mark is not None else 0) from error


def _masked(text: str) -> str | None:
    """Blank out the actions of a template, keeping every line where it is; None where there are none."""
    marked = _ACTION.sub(_mask, text)
    if marked == text:
        return None
    return _ACTION_LINE.sub("", marked).replace("\x00", "x")


def _mask(match: re.Match[str]) -> str:
    newlines = match[0].count("\n")
    return "\x00" + "x" * max(0, len(match[0]) - 2 - newlines) + "\x00" + "\n" * newlines


class _Scanner:
    def __init__(self, text: str, lines: list[str], *, is_masked: bool = False) -> None:
        self._text = text
        self._is_masked = is_masked
        self._lines = lines
        self._scan = Scan(root_entry(lines), {}, "#")
        self._stack: list[_Frame] = []
        self._document = self._scan.root
        self._documents: list[tuple[Entry, str, str]] = []  # with kind and name

    def scan(self) -> Scan:
        last_line = 0
        for event in yaml.parse(self._text, Loader=_LOADER):
            start, end = event.start_mark, event.end_mark
            if start is None or end is None:
                continue
            if isinstance(event, yaml.ScalarEvent):
                value = event.value
                if self._is_masked and start.line == end.line:
                    value = self._line(start.line)[start.column : end.column].strip("\"' ")
                self._begin(start.line, start.column, value[:_MAX_NAME_CHARACTERS].replace("\0", "\ufffd"))
                # A block scalar ends at the margin of the line behind it.
                self._reach(end.line + 1 if end.column or end.line == start.line else end.line)
                self._value_ends()
            elif isinstance(event, yaml.CollectionStartEvent):
                owner = self._begin(start.line, start.column, "")
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                self._stack.append(_Frame(is_mapping, bool(event.flow_style), owner if is_mapping else None))
            elif isinstance(event, yaml.CollectionEndEvent):
                if self._stack.pop().is_flow:
                    self._reach(end.line + 1)
                self._value_ends()
            elif isinstance(event, yaml.AliasEvent):
                self._begin(start.line, start.column, "")
                self._reach(end.line + 1)
                self._value_ends()
            elif isinstance(event, yaml.DocumentStartEvent):
                line = max(start.line if event.explicit else 0, last_line) + 1
                self._document = Entry((), min(line, len(self._lines)), line, 0)
                self._documents.append((self._document, "", ""))
            elif isinstance(event, yaml.DocumentEndEvent):
                last_line = end.line if event.explicit else max(self._document.last_line, last_line)
        self._name_documents()
        return self._scan

    def _begin(self, row: int, column: int, value: str) -> Entry | None:
        """Take the beginning of a key, a value or an element; return the entry that it is the value of."""
        if not self._stack:
            return self._document
        frame = self._stack[-1]
        if not frame.is_mapping or frame.expects_key:
            before = self._line(row)[:column]
            if not before.strip(" \t-?") and row < len(self._lines):
                self._scan.cuts.setdefault(row + 1, len(self._stack))
            if frame.is_mapping:
                frame.key = value
                frame.entry = self._entry(frame, value, row + 1) if not before.strip() else None
            return None
        self._note_object(frame, value)
        return frame.entry

    def _line(self, row: int) -> str:
        """Return a line; what is empty at the end of a stream stands behind the last."""
        return self._lines[row] if row < len(self._lines) else ""

    def _entry(self, frame: _Frame, key: str, line: int) -> Entry | None:
        owner = frame.owner
        if owner is None or frame.is_flow or owner.depth >= MAX_DEPTH:
            return None
        entry = Entry((*owner.names, key), line, line, owner.depth + 1)
        owner.children.append(entry)
        return entry

    def _value_ends(self) -> None:
        if self._stack and self._stack[-1].is_mapping:
            frame = self._stack[-1]
            frame.expects_key = not frame.expects_key

    def _reach(self, line: int) -> None:
        """Note a line that holds content: every entry that is open reaches to it."""
        line = min(line, len(self._lines))
        self._document.last_line = max(self._document.last_line, line)
        for frame in self._stack:
            if frame.entry is None:
                break
            frame.entry.last_line = max(frame.entry.last_line, line)

    def _note_object(self, frame: _Frame, value: str) -> None:
        if len(self._stack) > 2 or not value:
            return
        document, kind, name = self._documents[-1]
        if len(self._stack) == 1 and frame.key == "kind":
            self._documents[-1] = (document, value, name)
        elif len(self._stack) == 2 and frame.key == "name" and self._stack[0].key == "metadata":
            self._documents[-1] = (document, kind, value)

    def _name_documents(self) -> None:
        """Hang the documents below the root; a single one without a name is the root itself."""
        named = [(entry, (kind, name) if kind and name else ()) for entry, kind, name in self._documents]
        root = self._scan.root
        if len(named) == 1 and not named[0][1]:
            root.children = named[0][0].children
            return
        for entry, names in named:
            entry.names, entry.is_table = names, True
            self._scan.cuts[entry.line] = 0
            pending = [(entry, names)]
            while pending:
                owner, prefix = pending.pop()
                for child in owner.children:
                    child.names = (*prefix, *child.names)
                    pending.append((child, prefix))
        root.children = [entry for entry, _ in named]
        self._scan.is_divided = len(named) > 1
