"""Jupyter notebooks, formats 3 and 4: the sources of the cells in order, each with the beginning of what it printed.

Markdown cells are cut at their headings; a code cell is a section of its own below the last heading. Of outputs, only
printed text is kept, and little of it: pictures, widgets and HTML say nothing to a reader of text. A mark stands where
something was left out.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from services.ingest.chunks import ChunkKind, Note
from services.ingest.documents.document import Document, Section, TextBuilder, Unreadable
from services.ingest.extraction.markdown import markdown_titles
from services.ingest.skips import Skipped
from services.ingest.sniffing import TextFile, converted, decoded

OUTPUT_LINES = 20
OUTPUT_CHARACTERS = 1_000
_LEAD_LINES = 3

_DATA_OF_FORMAT_3 = ("png", "jpeg", "svg", "html", "javascript", "pdf")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OBJECT = re.compile(r"<[^<>\n]*>\s*")  # the repr of what is shown as a picture
_LANGUAGES = {"ipython": "python", "python3": "python", "c++": "cpp", "c#": "csharp", "f#": "fsharp", "bash": "shell"}
# Cell magics whose body is Python all the same.
_TRANSPARENT = re.compile(r"%%(time|timeit|capture|prun|memit|mprun|heat)\b")
_MAGIC = re.compile(
    r"(?P<indent>[ \t]*)(?:[\w, \t.]+=[ \t]*)?(?:[%!]|\?{1,2}[\w%])|(?P<asked>[ \t]*)[\w.%]+\?{1,2}[ \t]*$"
)


def read_notebook(data: bytes, path: str) -> Document:
    """Convert one notebook. Raises ``Unreadable`` where it is none."""
    file = decoded(data, path)
    if isinstance(file, Skipped):
        raise Unreadable(file.detail)
    try:
        notebook = json.loads(file.text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"no JSON: {error or 'nested too deeply'}") from error
    return _Conversion(notebook).document(file)


class _Conversion:
    """Grows the text of one notebook and its outline."""

    def __init__(self, notebook: object) -> None:
        if not isinstance(notebook, dict):
            raise Unreadable("no notebook: its JSON is no object")
        self._cells = list(_cells(notebook))
        self._language = _language(notebook)
        self._text = TextBuilder()
        self._sections: list[Section] = []
        self._above: list[tuple[int, str]] = []
        self._cells_here = 0
        self._python: dict[int, str] = {}  # by line number
        self._left_out: Counter[str] = Counter()
        self._notes: list[Note] = []

    def document(self, file: TextFile) -> Document:
        for cell in self._cells:
            kind = cell.get("cell_type")
            source = _joined(cell.get("source", cell.get("input")))
            if kind == "heading":  # format 3
                level = cell.get("level")
                level = min(max(level, 1), 6) if isinstance(level, int) else 1
                self._markdown("#" * level + " " + " ".join(source.split()))
            elif kind == "markdown":
                self._markdown(source)
            elif kind == "code":
                self._code(cell, source)
            else:
                self._section(source, ChunkKind.TEXT)
        if self._left_out:
            listed = ", ".join(f"{count} {what}" for what, count in sorted(self._left_out.items()))
            self._notes.append(Note("outputs_left_out", listed[:400]))
        lines = self._text.lines
        python = "\n".join(self._python.get(number, "") for number in range(1, len(lines) + 1)) if self._python else ""
        return Document(
            self._text.file(file.encoding, file.notes),
            "notebook",
            tuple(self._sections),
            tuple(self._notes),
            python=python,
        )

    def _names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self._above)

    def _section(self, source: str, kind: ChunkKind, *, language: str = "", label: str = "") -> None:
        span = self._text.add(source)
        if span is not None:
            self._sections.append(Section(self._names(), *span, kind=kind, language=language, label=label))

    def _markdown(self, source: str) -> None:
        source = converted(source, "").text
        span = self._text.add(source)
        if span is None:
            return
        first, last = span
        titles = markdown_titles(source)
        starts = [first + title.start_line - 1 for title in titles]
        if not starts or starts[0] > first:
            self._go_on(first, starts[0] - 1 if starts else last)
        for title, start, following in zip(titles, starts, [*starts[1:], last + 1], strict=False):
            while self._above and self._above[-1][0] >= title.level:
                self._above.pop()
            self._above.append((title.level, title.name))
            self._cells_here = 0
            self._sections.append(Section(self._names(), start, following - 1, language="markdown", is_heading=True))

    def _go_on(self, start: int, end: int) -> None:
        """Add prose to that of the cell above, where that is of the same section."""
        before = self._sections[-1] if self._sections else None
        if before is not None and before.language == "markdown" and before.names == self._names():
            self._sections[-1] = replace(before, end_line=end)
        else:
            self._sections.append(Section(self._names(), start, end, language="markdown"))

    def _code(self, cell: dict[str, object], source: str) -> None:
        source = converted(source, "").text
        span = self._text.add(source)
        printed = self._printed(cell)
        if span is None and not printed:
            return
        language = _known(cell.get("language")) or self._language
        first = span[0] if span else len(self._text.lines) + 2
        if span is not None and language == "python":
            self._keep_python(source, first)
        if printed:
            self._text.add("Out:\n" + printed)
        self._cells_here += 1
        last = len(self._text.lines)
        label = f"cell {self._cells_here}"
        first = self._lead(first)
        self._sections.append(
            Section(self._names(), min(first, last), last, ChunkKind.MODULE, language=language, label=label)
        )

    def _lead(self, first: int) -> int:
        """Take the short paragraph that leads to a cell: alone it says little, and the cell more with it."""
        before = self._sections[-1] if self._sections else None
        leads = before is not None and before.language == "markdown" and before.names == self._names()
        if before is None or not leads or before.is_heading or before.end_line - before.start_line >= _LEAD_LINES:
            return first
        self._sections.pop()
        return before.start_line

    def _keep_python(self, source: str, first: int) -> None:
        lines = source.split("\n")
        error = _fault(lines)
        if error is not None:
            lines = _without_magics(lines)
            error = _fault(lines)
        if error is None:
            self._python.update((first + number, line) for number, line in enumerate(lines) if line)
        else:
            self._notes.append(Note("cell_not_parsed", f"{type(error).__name__}: {error}"[:400], first))

    def _printed(self, cell: dict[str, object]) -> str:
        """Return the beginning of what a cell printed."""
        outputs = cell.get("outputs")
        listed = outputs if isinstance(outputs, list) else []
        texts = [_ANSI.sub("", self._text_of(one)) for one in listed if isinstance(one, dict)]
        text = "\n".join(one.strip("\n") for one in texts if one.strip())
        kept = "\n".join(text.split("\n")[:OUTPUT_LINES])[:OUTPUT_CHARACTERS]
        if len(kept) < len(text):
            self._left_out["long outputs"] += 1
            kept += f"\n… {len(text) - len(kept):,} more characters"
        return kept

    def _text_of(self, output: dict[str, object]) -> str:
        kind = output.get("output_type")
        if kind == "stream":
            return _joined(output.get("text"))
        if kind in ("error", "pyerr"):
            return f"{_joined(output.get('ename'))}: {_joined(output.get('evalue'))}"
        data = output.get("data", output)  # format 3 has the data beside the rest
        if not isinstance(data, dict):
            return ""
        others = [name for name in data if "/" in str(name) and name != "text/plain"]
        others += [name for name in _DATA_OF_FORMAT_3 if name in data]
        self._left_out.update(str(name)[:60] for name in others)
        text = _joined(data.get("text/plain", data.get("text") if data is output else None))
        return "" if others and _OBJECT.fullmatch(text) else text


def _cells(notebook: dict[str, object]) -> Iterator[dict[str, object]]:
    groups = [notebook]
    if "cells" not in notebook:
        sheets = notebook.get("worksheets")
        if not isinstance(sheets, list):
            raise Unreadable("no notebook: it has no cells")
        groups = [sheet for sheet in sheets if isinstance(sheet, dict)]
    for group in groups:
        cells = group.get("cells")
        if not isinstance(cells, list):
            raise Unreadable("no notebook: its cells are no list")
        yield from (cell for cell in cells if isinstance(cell, dict))


def _language(notebook: dict[str, object]) -> str:
    metadata = notebook.get("metadata")
    if isinstance(metadata, dict):
        for place, name in (("language_info", "name"), ("kernelspec", "language")):
            described = metadata.get(place)
            if isinstance(described, dict) and (language := _known(described.get(name))):
                return language
    return "python"


def _known(language: object) -> str:
    name = language.strip().lower()[:40] if isinstance(language, str) else ""
    return _LANGUAGES.get(name, name)


def _joined(value: object) -> str:
    """Return a multi-line string, which the format also writes as a list of lines."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _fault(lines: Sequence[str]) -> Exception | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes of other people's code
        try:
            ast.parse("\n".join(lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return error
    return None


def _without_magics(lines: Sequence[str]) -> list[str]:
    """Replace what IPython alone understands, line by line."""
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%") and not _TRANSPARENT.match(first):
        return [""] * len(lines)
    kept: list[str] = []
    for line in lines:
        match = _MAGIC.match(line)
        kept.append((match["indent"] or match["asked"] or "") + "pass" if match else line)
    return kept
