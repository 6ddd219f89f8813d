"""XLSX by openpyxl: a section per sheet, its rows as lines. Formulas are what they gave when the file was saved."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Iterator, Sequence

import openpyxl
from openpyxl.worksheet._read_only import ReadOnlyWorksheet

from services.ingest.chunks import Note
from services.ingest.documents.document import Document, Unreadable
from services.ingest.documents.packages import OutlineBuilder, office_file, one_line

MAX_CELLS = 300_000  # that hold something
_GAP = re.compile(r"(?: \| ){8,}")  # cells that hold nothing
_MAX_ROWS = 1_048_576  # of a sheet, by the format
_MAX_CELL_CHARACTERS = 32_767  # by the format
_MAX_NAME_CHARACTERS = 200


def read_workbook(data: bytes, path: str) -> Document:
    """Convert one XLSX, XLSM, XLTX or XLTM. Raises ``Unreadable``."""
    stream = office_file(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of extensions that it passes over
        for has_values in (True, False):
            book = openpyxl.load_workbook(stream, read_only=True, data_only=has_values, keep_links=False)
            try:
                document = _read(book)
                title, sheets = one_line(str(book.properties.title or "")), ", ".join(book.sheetnames)
            finally:
                book.close()
            if document is not None:
                return document
    raise Unreadable("no cell of it holds a value", *([f"Title: {title}"] if title else []), f"Sheets: {sheets[:400]}")


def _read(book: openpyxl.Workbook) -> Document | None:
    """Convert a workbook; None where no cell holds a value, as where no program has calculated its formulas."""
    outline = OutlineBuilder()
    outline.begin(())
    outline.add(one_line(str(book.properties.title or ""))[:_MAX_NAME_CHARACTERS])
    cells = 0
    unread: list[str] = []
    for sheet in book.worksheets:
        name = one_line(sheet.title)[:_MAX_NAME_CHARACTERS] or "sheet"
        outline.begin((name,), label="" if sheet.sheet_state == "visible" else "hidden", is_heading=True)
        outline.add(name)
        rows = 0
        unread.clear()
        sheet.reset_dimensions()  # files lie about them, and rows would be filled up to what they say
        for row in _rows(sheet, unread):
            line, count = _line(row)
            if not count:
                continue
            cells += count
            if cells > MAX_CELLS or outline.is_full:
                outline.add("… and more rows")
                outline.notes.append(Note("document_cut", f"{name}: only the first {rows:,} rows that say something"))
                return outline.document("xlsx")
            outline.add(line, blank_before=rows == 0)
            rows += 1
        if unread:
            outline.add("… and rows that can't be read")
            outline.notes.append(Note("document_cut", f"{name}: only the first {rows:,} rows, then {unread[0]}"))
    if unread and not cells:
        raise Unreadable(f"its cells can't be read ({unread[0]})")
    return outline.document("xlsx") if cells else None


def _rows(sheet: ReadOnlyWorksheet, unread: list[str]) -> Iterator[Sequence[object]]:
    """Yield the rows up to one that can't be read; ``unread`` then says why."""
    try:
        yield from sheet.iter_rows(max_row=_MAX_ROWS, values_only=True)
    except MemoryError:
        raise
    except Exception as error:  # of one cell: a date before time began, a text that the file does not have
        unread.append(f"{type(error).__name__}: {error}"[:200])


def _line(row: Sequence[object]) -> tuple[str, int]:
    """Join the cells of a row, and count those that hold something."""
    values = list(_values(row))
    while values and not values[-1]:
        values.pop()
    return _GAP.sub(" | … | ", " | ".join(values)), sum(1 for value in values if value)


def _values(row: Sequence[object]) -> Iterator[str]:
    for value in row:
        yield "" if value is None else one_line(_shown(value)[:_MAX_CELL_CHARACTERS])


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime.datetime):
        has_time = value.time() != datetime.time()
        return value.isoformat(" ", "seconds") if has_time else value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)
