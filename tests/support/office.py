"""Office files for tests: made by the libraries, and changed part by part."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import docx
import openpyxl
import pptx
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from pptx.util import Inches

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ENCRYPTED = OLE + bytes(1024) + "EncryptedPackage".encode("utf-16-le") + bytes(512)
OLD = OLE + bytes(2048)


def make_docx(write: Callable[[Any], object], title: str = "") -> bytes:
    document = docx.Document()
    document.core_properties.title = title
    write(document)
    return saved(document)


def docx_run(text: str, tag: str = "t") -> str:
    return f"<w:r><w:{tag}>{text}</w:{tag}></w:r>"


def docx_paragraph(document: Any, content: str) -> None:
    """Append a paragraph of raw WordprocessingML."""
    document.element.body.insert(-1, parse_xml(f"<w:p {nsdecls('w', 'm')}>{content}</w:p>"))


def make_pptx(slides: Sequence[tuple[str, str, str]], title: str = "") -> bytes:
    """Make slides of title, text and notes."""
    presentation = pptx.Presentation()
    presentation.core_properties.title = title
    for heading, text, notes in slides:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = heading
        slide.placeholders[1].text = text
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    return saved(presentation)


def add_table(slide: Any, rows: Sequence[Sequence[str]]) -> None:
    shape = slide.shapes.add_table(len(rows), len(rows[0]), Inches(1), Inches(1), Inches(4), Inches(1))
    for number, row in enumerate(rows):
        for column, text in enumerate(row):
            shape.table.cell(number, column).text = text


def make_xlsx(
    sheets: Mapping[str, Sequence[Sequence[object]]], *, hidden: Sequence[str] = (), title: str = ""
) -> bytes:
    book = openpyxl.Workbook()
    book.remove(book.active)
    book.properties.title = title
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
        sheet.sheet_state = "hidden" if name in hidden else "visible"
    return saved(book)


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def changed(data: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change one part of a package."""
    members = parts(data)
    members[name] = change(members[name])
    return packed(members)


def saved(document: Any) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()
