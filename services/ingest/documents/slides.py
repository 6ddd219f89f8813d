"""PPTX by python-pptx: a section per slide, titled by it, with what its shapes say and the speaker's notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pptx.opc.constants import RELATIONSHIP_TYPE
from pptx.oxml import parse_xml
from pptx.package import Package
from pptx.parts.presentation import PresentationPart

from services.ingest.chunks import Note
from services.ingest.documents.document import Document, Unreadable
from services.ingest.documents.packages import OutlineBuilder, office_file, one_line

if TYPE_CHECKING:
    from lxml.etree import _Element
    from pptx.slide import Slide

MAX_SLIDES = 5_000
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
# Of a master: dates, page numbers and the like, the same on every slide.
_DECORATION = frozenset({"dt", "ftr", "sldNum", "hdr"})
_MAX_NAME_CHARACTERS = 200


def read_slides(data: bytes, path: str) -> Document:
    """Convert one PPTX, PPTM, POTX, PPSX or PPSM. Raises ``Unreadable``."""
    part = Package.open(office_file(data)).main_document_part
    if not isinstance(part, PresentationPart):
        raise Unreadable(f"it holds no presentation but {part.content_type[:100]}")
    outline = OutlineBuilder()
    title = one_line(part.core_properties.title or "")[:_MAX_NAME_CHARACTERS]
    slides = part.presentation.slides
    damaged: list[str] = []
    has_text = False
    for number, slide in enumerate(slides, 1):
        if outline.is_full or number > MAX_SLIDES:
            outline.begin(())
            outline.add(f"… {len(slides) - number + 1:,} more slides")
            outline.notes.append(Note("document_cut", f"{number - 1:,} of {len(slides):,} slides are read"))
            break
        before = outline.characters
        _add(outline, slide, number, damaged)
        has_text = has_text or outline.characters > before
    if not has_text:
        raise Unreadable("no slide has text", *([f"Title: {title}"] if title else []), f"Slides: {len(slides):,}")
    if damaged:
        outline.notes.append(Note("slides_damaged", "; ".join(damaged)[:400]))
    return outline.document("pptx")


def _add(outline: OutlineBuilder, slide: Slide, number: int, damaged: list[str]) -> None:
    root = slide._element
    is_hidden = root.get("show") in ("0", "false")
    bodies = list(_bodies(root))
    name = next((one_line(" ".join(lines)) for is_title, lines in bodies if is_title and lines), "")
    label = f"slide {number}{' (hidden)' if is_hidden else ''}"
    shown = name[:_MAX_NAME_CHARACTERS]
    outline.begin((shown,) if shown else (), label=label, is_heading=bool(shown))
    if name:
        outline.add(name)
    for is_title, lines in bodies:
        if not is_title:
            outline.add("\n".join(lines))
    try:
        for lines in _diagrams(slide):
            outline.add("\n".join(lines))
        if slide.has_notes_slide:
            notes = [lines for is_title, lines in _bodies(slide.notes_slide._element) if not is_title]
            said = "\n".join(line for lines in notes for line in lines)
            if said.strip():
                outline.add("Notes: " + said)
    except Exception as error:  # what a damaged part of one slide makes the library raise
        damaged.append(f"{number}: {type(error).__name__}")


def _bodies(root: _Element) -> Iterator[tuple[bool, list[str]]]:
    """Yield the lines of each shape of a slide, in the order of the file, and whether it is the title."""
    titled = False
    stack = [iter(root.iterchildren())]
    while stack:
        element = next(stack[-1], None)
        if element is None:
            stack.pop()
        elif element.tag == _P + "sp":
            kind = _placeholder(element)
            if kind not in _DECORATION and (lines := list(_lines(element.iter(_A + "p")))):
                is_title = kind in ("title", "ctrTitle") and not titled
                titled = titled or is_title
                yield is_title, lines
        elif element.tag == _A + "tbl":
            rows = [" | ".join(_cells(row)) for row in element.iter(_A + "tr")]
            yield False, [row for row in rows if row.strip(" |")]
        elif element.tag != _FALLBACK:
            stack.append(iter(element.iterchildren()))


def _placeholder(shape: _Element) -> str:
    placeholder = shape.find(f"{_P}nvSpPr/{_P}nvPr/{_P}ph")
    return (placeholder.get("type") or "body") if placeholder is not None else ""


def _cells(row: _Element) -> list[str]:
    return [one_line(" ".join(_lines(cell.iter(_A + "p")))) for cell in row.iter(_A + "tc")]


def _lines(paragraphs: Iterable[_Element]) -> Iterator[str]:
    for paragraph in paragraphs:
        properties = paragraph.find(_A + "pPr")
        level = (properties.get("lvl") or "0") if properties is not None else "0"
        parts = [
            "\n" if element.tag == _A + "br" else element.text or "" for element in paragraph.iter(_A + "t", _A + "br")
        ]
        text = "".join(parts).replace("\v", "\n").strip()
        if text:
            yield "  " * int(level if level in "12345678" else 0) + text


def _diagrams(slide: Slide) -> Iterator[list[str]]:
    """Yield what the diagrams (SmartArt) of a slide say, which stands in parts of their own."""
    for relation in slide.part.rels.values():
        if relation.reltype == RELATIONSHIP_TYPE.DIAGRAM_DATA and not relation.is_external:
            lines = list(_lines(parse_xml(relation.target_part.blob).iter(_A + "p")))
            if lines:
                yield lines
