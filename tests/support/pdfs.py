"""PDF files as small as they can be: lines of Helvetica on pages, a title, bookmarks."""

from __future__ import annotations

from collections.abc import Sequence

_FONT = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"


def make_pdf(
    pages: Sequence[Sequence[str]],
    *,
    title: str = "",
    bookmarks: Sequence[tuple[int, str, int]] = (),
    trailer: str = "",
) -> bytes:
    """Make a PDF; bookmarks are (level, title, page), levels and pages from 0."""
    objects = [b"", b"", _FONT]
    kids = [_add_page(objects, lines) for lines in pages]
    objects[1] = b"<</Type/Pages/Count %d/Kids[%s]>>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    outlines = _add_outline(objects, bookmarks, kids) if bookmarks else 0
    objects[0] = b"<</Type/Catalog/Pages 2 0 R%s>>" % (b"/Outlines %d 0 R" % outlines if outlines else b"")
    if title:
        objects.append(b"<</Title %s>>" % _string(title))
        trailer += f"/Info {len(objects)} 0 R"
    return assembled(objects, trailer)


def assembled(objects: Sequence[bytes], trailer: str = "") -> bytes:
    """Write numbered objects, of which the first is the catalogue, with a table of where they are."""
    out = bytearray(b"%PDF-1.7\n")
    offsets: list[int] = []
    for number, value in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, value)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer <</Size %d/Root 1 0 R%s>>\n" % (len(objects) + 1, trailer.encode())
    return bytes(out + b"startxref\n%d\n%%%%EOF\n" % table)


def stream(body: bytes, entries: bytes = b"") -> bytes:
    return b"<</Length %d%s>>stream\n%s\nendstream" % (len(body), entries, body)


def _add_page(objects: list[bytes], lines: Sequence[str]) -> int:
    shown = b"".join(b"%s Tj 0 -14 Td\n" % _string(line) for line in lines)
    objects.append(stream(b"BT /F 10 Tf 50 780 Td\n%sET" % shown))
    resources = b"/Resources<</Font<</F 3 0 R>>>>"
    content = len(objects)
    objects.append(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents %d 0 R%s>>" % (content, resources))
    return len(objects)


def _add_outline(objects: list[bytes], bookmarks: Sequence[tuple[int, str, int]], kids: Sequence[int]) -> int:
    root = len(objects) + 1
    numbers = [root + 1 + place for place in range(len(bookmarks))]
    objects.append(b"<</Type/Outlines/First %d 0 R/Last %d 0 R>>" % (numbers[0], numbers[-1]))
    for place, (level, title, page) in enumerate(bookmarks):
        links = b""
        later = bookmarks[place + 1 :]
        if later and later[0][0] > level:
            links += b"/First %d 0 R/Last %d 0 R" % (numbers[place + 1], numbers[place + 1])
        for ahead, (other, _, _) in enumerate(later, 1):
            if other <= level:
                links += b"/Next %d 0 R" % numbers[place + ahead] if other == level else b""
                break
        objects.append(b"<</Title %s/Dest[%d 0 R/Fit]%s>>" % (_string(title), kids[page], links))
    return root


def _string(text: str) -> bytes:
    return b"<%s>" % text.encode("cp1252").hex().encode()
