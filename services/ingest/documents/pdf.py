"""PDF by pdfium: a section per page, and below it one per bookmark whose heading stands on the page.

Lines are those of the layout, in the order in which the file draws them. Words that the layout broke are mended, and
lines that most pages repeat at their edges are kept once. Pictures are not read: a document that is nothing else has no
text. Neither scripts nor attachments nor the fonts of the machine are touched.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pypdfium2
import pypdfium2.raw as pdfium

from services.ingest.chunks import Note
from services.ingest.documents.document import Document, Section, TextBuilder, Unreadable
from services.ingest.documents.layout import mend_words, without_repeated

MAX_PAGES = 5_000
MAX_CHARACTERS = 4_000_000
_MAX_BOOKMARKS = 5_000
_MAX_DEPTH = 8
_MAX_TITLE_CHARACTERS = 300

# It would look for the machine's, and what a page says must not depend on them.
pdfium.FPDF_SetSystemFontInfo(None)

_REASONS = {
    pdfium.FPDF_ERR_PASSWORD: "it is encrypted and opens with a password only",
    pdfium.FPDF_ERR_SECURITY: "it is encrypted in a way that is not supported",
}
_CONTROL = re.compile(r"[\x00-\x01\x03-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_UNTITLED = re.compile(r"(?i)(untitled|unknown|title|null)?\s*(document\s*)?\d*$")
_PROGRAM = re.compile(r"^Microsoft \w+ - ")
_NUMBERING = re.compile(r"(?i)\s*(?:(?:chapter|section|appendix|part)\s+)?[\dIVXLC]{0,6}(?:\.\d+)*[.:)]?\s+")


@dataclass(slots=True)
class _Pages:
    """What was read: the lines of each page, and how much was not."""

    count: int
    lines: list[list[str]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Bookmark:
    names: tuple[str, ...]
    page: int  # from 0


def read_pdf(data: bytes, path: str) -> Document:
    """Convert one PDF. Raises ``Unreadable`` where it is none, is encrypted or has no text."""
    start = data.find(b"%PDF-", 0, 1024)
    if start < 0:
        raise Unreadable("it has no PDF header")
    try:
        file = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(_REASONS.get(error.err_code, "it is damaged")) from error
    try:
        title = _title(file)
        pages = _read(file)
        bookmarks = _bookmarks(file)
    finally:
        file.close()
    if not any(pages.lines):
        named = [f"Title: {title}"] if title else []
        raise Unreadable("none of its pages has text: scanned, or drawn", *named, f"Pages: {pages.count:,}")
    return _document(title, pages, bookmarks)


def _read(file: pypdfium2.PdfDocument) -> _Pages:
    pages = _Pages(len(file))
    characters = 0
    for number in range(min(pages.count, MAX_PAGES)):
        try:
            text = _text(file, number)
        except pypdfium2.PdfiumError:
            pages.damaged.append(number + 1)
            text = ""
        lines = [line for line in (_CONTROL.sub("", line).rstrip() for line in text.splitlines()) if line]
        if not lines:
            pages.empty.append(number + 1)
        pages.lines.append(lines)
        characters += len(text)
        if characters > MAX_CHARACTERS:
            break
    return pages


def _text(file: pypdfium2.PdfDocument, number: int) -> str:
    page = file[number]
    try:
        text = page.get_textpage()
        try:
            return str(text.get_text_bounded())
        finally:
            text.close()
    finally:
        page.close()


def _title(file: pypdfium2.PdfDocument) -> str:
    title = " ".join(file.get_metadata_value("Title").split())[:_MAX_TITLE_CHARACTERS]
    title = _CONTROL.sub("", _PROGRAM.sub("", title))
    return "" if _UNTITLED.match(title) else title


def _bookmarks(file: pypdfium2.PdfDocument) -> list[_Bookmark]:
    """Return the outline with the pages that it points to, in their order."""
    found: list[_Bookmark] = []
    above: list[str] = []
    for bookmark in itertools.islice(file.get_toc(max_depth=_MAX_DEPTH), _MAX_BOOKMARKS):
        name = " ".join(_CONTROL.sub("", bookmark.get_title()).split())[:_MAX_TITLE_CHARACTERS]
        above[bookmark.level :] = [name]
        target = bookmark.get_dest()
        page = target.get_index() if target is not None else None
        if name and page is not None:
            found.append(_Bookmark(tuple(part for part in above if part), page))
    return sorted(found, key=lambda bookmark: bookmark.page)


def _document(title: str, pages: _Pages, bookmarks: Sequence[_Bookmark]) -> Document:
    notes = list(_notes(pages))
    mended = mend_words(pages.lines)
    kept, left_out = without_repeated(mended)
    if left_out:
        notes.append(Note("repeated_lines_left_out", "; ".join(left_out)[:400]))
    text = TextBuilder()
    sections: list[Section] = []
    if title and _plain(title) not in _plain(" ".join(kept[0])):
        text.add(title)
        sections.append(Section((), 1, 1))
    by_page = {page: list(group) for page, group in itertools.groupby(bookmarks, lambda bookmark: bookmark.page)}
    above: tuple[str, ...] = ()
    for number, lines in enumerate(kept):
        here = by_page.get(number, [])
        for names, part, is_heading in _parts(lines, here, above):
            span = text.add("\n".join(part))
            if span is not None:
                sections.append(Section(names, *span, label=f"page {number + 1}", is_heading=is_heading))
        above = here[-1].names if here else above
    unread = pages.count - len(pages.lines)
    if unread:
        text.add(f"… {unread:,} more pages")
    return Document(text.file(""), "pdf", tuple(sections), tuple(notes))


def _notes(pages: _Pages) -> Iterator[Note]:
    unread = pages.count - len(pages.lines)
    if unread:
        yield Note("document_cut", f"{len(pages.lines):,} of {pages.count:,} pages are read")
    if pages.damaged:
        yield Note("pages_damaged", _listed(pages.damaged))
    if pages.empty:
        yield Note("pages_without_text", _listed(pages.empty))


def _listed(numbers: Sequence[int]) -> str:
    return f"{len(numbers):,} pages: {', '.join(map(str, numbers[:50]))}{', …' if len(numbers) > 50 else ''}"


def _parts(
    lines: Sequence[str], bookmarks: Sequence[_Bookmark], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Sequence[str], bool]]:
    """Cut a page at the headings that bookmarks name."""
    plain = [_plain(_unnumbered(line)) for line in lines] if bookmarks else []
    cuts: list[tuple[int, tuple[str, ...]]] = []
    for bookmark in bookmarks:
        wanted = _plain(_unnumbered(bookmark.names[-1]))
        first = cuts[-1][0] + 1 if cuts else 0
        place = next((place for place in range(first, len(lines)) if wanted and _begins(plain, place, wanted)), None)
        if place is not None:
            cuts.append((place, bookmark.names))
    if not cuts:
        yield (bookmarks[0].names if bookmarks else above), lines, False
        return
    yield above, lines[: cuts[0][0]], False
    for (start, names), following in itertools.zip_longest(cuts, cuts[1:]):
        yield names, lines[start : following[0] if following else None], True


def _begins(plain: Sequence[str], place: int, wanted: str) -> bool:
    """Whether a heading begins at a line; a long one goes on in the next."""
    line = plain[place]
    return line == wanted or (
        len(line) >= 8 and wanted.startswith(line) and place + 1 < len(plain) and wanted == line + plain[place + 1]
    )


def _unnumbered(text: str) -> str:
    match = _NUMBERING.match(text)
    return text[match.end() :] if match else text


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
