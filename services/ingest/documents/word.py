"""DOCX by python-docx: a section per heading, with lists, tables as rows, and footnotes where they are referred to.

The library opens the package and knows styles and parts; the body is walked here, because its own view of it leaves
out content controls, insertions, text boxes and footnotes, and repeats merged cells. Deleted text is left out, and
comments are only counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from docx.opc.constants import RELATIONSHIP_TYPE
from docx.opc.oxml import parse_xml
from docx.opc.part import PartFactory
from docx.package import Package
from docx.parts.document import DocumentPart

from services.ingest.chunks import Note
from services.ingest.documents.document import Document, Unreadable
from services.ingest.documents.packages import OutlineBuilder, office_file, one_line

if TYPE_CHECKING:
    from lxml.etree import _Element

_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_MACRO = "application/vnd.ms-word"
for _type in (f"{_MAIN}.template.main+xml", f"{_MACRO}.document.macroEnabled.main+xml"):
    PartFactory.part_type_for[_type] = DocumentPart
PartFactory.part_type_for[f"{_MACRO}.template.macroEnabledTemplate.main+xml"] = DocumentPart

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_PROPERTIES = ("pPr", "rPr", "sectPr", "tblPr", "tcPr", "trPr", "sdtPr")
_PASSED_OVER = frozenset(
    {
        *(_W + name for name in ("del", "moveFrom", "instrText", *_PROPERTIES)),
        # It says what the choice before it says.
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
    }
)
_CONTAINERS = frozenset(_W + name for name in ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag"))
_CHARACTERS = {_W + "tab": "\t", _W + "br": "\n", _W + "cr": "\n", _W + "noBreakHyphen": "-", _W + "p": "\n"}
_NOTES = {_W + "footnoteReference": "", _W + "endnoteReference": "e"}
# Word's own names in every language, and what publishers make of them: HeadA, H2.
_HEADING = re.compile(r"(?:heading|head|h)[ _-]?([1-9a-e])$", re.IGNORECASE)
_TITLES = frozenset({"title", "chaptertitle", "chapter title"})
_LIST = re.compile(r"list (bullet|number|paragraph)", re.IGNORECASE)
_CODE = re.compile(r"code|preformatted|verbatim|source|listing|plain text", re.IGNORECASE)
_MAX_NAME_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class _Style:
    level: int | None = None  # of a heading, 0 for the title
    is_list: bool = False
    is_code: bool = False


@dataclass(slots=True)
class _Conversion:
    part: DocumentPart
    outline: OutlineBuilder = field(default_factory=OutlineBuilder)
    styles: dict[str, _Style] = field(default_factory=dict)
    footnotes: dict[str, str] = field(default_factory=dict)
    above: list[tuple[int, str]] = field(default_factory=list)
    referred: list[str] = field(default_factory=list)
    in_run: str = ""  # of list items or lines of code, which no blank line parts

    def run(self) -> Document:
        self.styles = _styles(self.part)
        self.footnotes = dict(_footnotes(self.part))
        self.outline.begin(())
        blocks = list(_blocks(self.part.element))
        title = one_line(self.part.core_properties.title or "")[:_MAX_NAME_CHARACTERS]
        beginning = (one_line(_text(block)).casefold() for block in blocks[:20] if block.tag == _W + "p")
        if title and title.casefold() not in beginning:
            self.outline.add(title)
        before = self.outline.characters
        for block in blocks:
            if self.outline.is_full:
                self.outline.add("… and more that is not read")
                self.outline.notes.append(
                    Note("document_cut", f"only the first {self.outline.characters:,} characters")
                )
                break
            if block.tag == _W + "tbl":
                self.table(block)
            else:
                self.paragraph(block)
        self.end_section()
        if self.outline.characters == before:
            raise Unreadable("it has no text", *([f"Title: {title}"] if title else []))
        comments = _related(self.part, RELATIONSHIP_TYPE.COMMENTS)
        count = sum(1 for _ in comments.iter(_W + "comment")) if comments is not None else 0
        if count:
            self.outline.notes.append(Note("comments_left_out", f"{count:,} comments"))
        return self.outline.document("docx")

    def paragraph(self, element: _Element) -> None:
        text = _text(element).strip("\n")
        if not text.strip():
            return
        level, style, indent = self.kind(element)
        if level is not None and (name := one_line(text)[:_MAX_NAME_CHARACTERS]):
            self.end_section()
            while self.above and self.above[-1][0] >= level:
                self.above.pop()
            self.above.append((level, name))
            self.outline.begin([name for _, name in self.above], is_heading=True)
            self.outline.add(one_line(text))
            style = _Style()
        elif style.is_list:
            self.outline.add("  " * indent + "- " + text.strip(), blank_before=self.in_run != "list")
        else:
            self.outline.add(text, blank_before=not (style.is_code and self.in_run == "code"))
        self.in_run = "list" if style.is_list else "code" if style.is_code else ""
        self.refer(element)

    def kind(self, element: _Element) -> tuple[int | None, _Style, int]:
        """Return the level of a heading, what else a paragraph is, and how deep an item of a list is nested."""
        properties = element.find(_W + "pPr")
        if properties is None:
            return None, _Style(), 0
        style = self.styles.get(_value(properties.find(_W + "pStyle")), _Style())
        numbering = properties.find(_W + "numPr")
        if numbering is not None:
            style = replace(style, is_list=True)
        own = _digit(_value(properties.find(_W + "outlineLvl")))
        level = style.level if own is None or own > 8 else own + 1
        depth = _digit(_value(numbering.find(_W + "ilvl"))) if numbering is not None else 0
        return level, style, min(depth or 0, 8)

    def table(self, element: _Element) -> None:
        first = True
        for row in _children(element, _W + "tr"):
            cells = [one_line(_text(cell)) for cell in _children(row, _W + "tc")]
            if any(cells):
                self.outline.add(" | ".join(cells), blank_before=first)
                first = False
        self.in_run = ""
        self.refer(element)

    def refer(self, element: _Element) -> None:
        for tag, mark in _NOTES.items():
            self.referred += (mark + (reference.get(_W + "id") or "") for reference in element.iter(tag))

    def end_section(self) -> None:
        """Put the notes that a section refers to at its end."""
        for first, reference in enumerate(self.referred):
            text = self.footnotes.get(reference)
            if text:
                self.outline.add(f"[^{reference}]: {text}", blank_before=first == 0)
        self.referred.clear()


def read_word(data: bytes, path: str) -> Document:
    """Convert one DOCX, DOCM, DOTX or DOTM. Raises ``Unreadable``."""
    part = Package.open(office_file(data)).main_document_part
    if not isinstance(part, DocumentPart):
        raise Unreadable(f"it holds no Word document but {part.content_type[:100]}")
    return _Conversion(part).run()


def _blocks(root: _Element) -> Iterator[_Element]:
    """Yield the paragraphs and tables of a body, whatever controls and changes they lie in."""
    stack = [iter(root.iterchildren())]
    while stack:
        element = next(stack[-1], None)
        if element is None:
            stack.pop()
        elif element.tag in (_W + "p", _W + "tbl"):
            yield element
        elif element.tag in _CONTAINERS or element.tag == _W + "body":
            stack.append(iter(element.iterchildren()))


def _children(element: _Element, tag: str) -> Iterator[_Element]:
    """Yield the rows of a table or the cells of a row, those in content controls too."""
    stack = [iter(element.iterchildren())]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
        elif child.tag == tag:
            yield child
        elif child.tag in _CONTAINERS:
            stack.append(iter(child.iterchildren()))


def _text(element: _Element) -> str:
    """Return the text of a paragraph or a cell; paragraphs within it, as of text boxes, are lines of their own."""
    parts: list[str] = []
    stack = [iter(element.iterchildren())]
    while stack:
        child = next(stack[-1], None)
        if child is None:
            stack.pop()
        elif child.tag in (_W + "t", _M + "t"):
            parts.append(child.text or "")
        elif child.tag in _NOTES:
            parts.append(f"[^{_NOTES[child.tag]}{child.get(_W + 'id') or ''}]")
        elif child.tag not in _PASSED_OVER:
            if child.tag in _CHARACTERS:
                parts.append(_CHARACTERS[child.tag])
            elif child.tag == _W + "tc":
                parts.append(" ")
            stack.append(iter(child.iterchildren()))
    return "".join(parts)


def _styles(part: DocumentPart) -> dict[str, _Style]:
    """Return what the paragraph styles mean, by their ids; a style that says nothing means what it is based on does."""
    root = _related(part, RELATIONSHIP_TYPE.STYLES)
    if root is None:
        return {}
    elements = {style.get(_W + "styleId") or "": style for style in root.iter(_W + "style")}
    found: dict[str, _Style] = {}
    for identifier in elements:
        chain = [identifier]
        while (base := _value(elements[chain[-1]].find(_W + "basedOn"))) in elements and len(chain) < 12:
            chain.append(base)
        styles = [_style(elements[one]) for one in chain]
        level = next((style.level for style in styles if style.level is not None), None)
        found[identifier] = _Style(level, any(one.is_list for one in styles), any(one.is_code for one in styles))
    return found


def _style(element: _Element) -> _Style:
    name = _value(element.find(_W + "name"))
    heading = _HEADING.match(name)
    outline = _digit(_value(element.find(f"{_W}pPr/{_W}outlineLvl")))
    if heading:
        return _Style("123456789".find(heading[1]) + 1 or "abcde".index(heading[1].lower()) + 1)
    if name.lower() in _TITLES:
        return _Style(0)
    is_list = _LIST.match(name) is not None or element.find(f"{_W}pPr/{_W}numPr") is not None
    is_code = _CODE.search(name) is not None
    return _Style(outline + 1 if outline is not None and outline < 9 else None, is_list, is_code)


def _footnotes(part: DocumentPart) -> Iterator[tuple[str, str]]:
    for kind, tag, mark in (
        (RELATIONSHIP_TYPE.FOOTNOTES, "footnote", ""),
        (RELATIONSHIP_TYPE.ENDNOTES, "endnote", "e"),
    ):
        root = _related(part, kind)
        for note in root.iter(_W + tag) if root is not None else ():
            if note.get(_W + "type") in (None, "normal"):
                yield mark + (note.get(_W + "id") or ""), one_line(_text(note))


def _related(part: DocumentPart, kind: str) -> _Element | None:
    """Return the root of a part that a document refers to."""
    for relation in part.rels.values():
        if relation.reltype == kind and not relation.is_external:
            return parse_xml(relation.target_part.blob)
    return None


def _value(element: _Element | None) -> str:
    return (element.get(_W + "val") or "") if element is not None else ""


def _digit(value: str) -> int | None:
    return int(value) if len(value) == 1 and value.isdigit() and value.isascii() else None
