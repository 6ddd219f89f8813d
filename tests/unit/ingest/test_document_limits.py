"""Documents that are huge or hostile, in workers with the limits that they have in service."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest

from services.ingest.extraction.pool import ExtractionPool, PoolSettings
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings
from tests.support import office
from tests.support.chunks import codes
from tests.support.extraction import assert_whole
from tests.support.pdfs import assembled, make_pdf, stream

_LINE = b"BT /F 10 Tf 50 700 Td (some words) Tj ET\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[ExtractionPool]:
    with ExtractionPool(PoolSettings(WorkerSettings(254, file_timeout_s=10.0), workers=1)) as running:
        yield running


def _pdf(content: bytes, form: bytes = b"null") -> bytes:
    resources = b"/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>"
    return assembled(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R%s>>" % resources,
            stream(zlib.compress(content), b"/Filter/FlateDecode"),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            form,
        ]
    )


def _word(body: bytes) -> bytes:
    empty = office.make_docx(lambda document: None)
    return office.changed(empty, "word/document.xml", lambda xml: xml.replace(b"<w:sectPr", body + b"<w:sectPr", 1))


def _sheet(rows: bytes) -> bytes:
    def change(xml: bytes) -> bytes:
        return xml[: xml.index(b"<sheetData")] + b"<sheetData>" + rows + b"</sheetData></worksheet>"

    return office.changed(office.make_xlsx({"S": [[1]]}), "xl/worksheets/sheet1.xml", change)


_PARAGRAPH = b"<w:p><w:r><w:t>Some words of a paragraph, as long as most are.</w:t></w:r></w:p>"
_ROW = b'<row r="%d">' + b"<c><v>12.5</v></c><c t='str'><v>words</v></c>" * 10 + b"</row>"


@pytest.mark.parametrize(
    ("name", "data", "cut"),
    [
        ("pages.pdf", make_pdf([[f"Page {page}", *["some words of a line"] * 10] for page in range(5_100)]), True),
        ("paragraphs.docx", _word(_PARAGRAPH * 100_000), True),
        ("rows.xlsx", _sheet(b"".join(_ROW % row for row in range(1, 16_000))), True),
        ("columns.xlsx", _sheet(b"<row><c r='XFD1'><v>1</v></c></row>" * 500), False),
        ("row.xlsx", _sheet(b'<row r="99999999999"><c><v>1</v></c></row>'), None),
        ("nested.docx", _word(b"<w:p>" * 200 + b"<w:r><w:t>deep</w:t></w:r>" + b"</w:p>" * 200), False),
        ("tables.docx", _word(b"<w:tbl><w:tr><w:tc>" * 80 + _PARAGRAPH + b"</w:tc></w:tr></w:tbl>" * 80), False),
        ("deeper.docx", _word(b"<w:p>" * 50_000 + b"</w:p>" * 50_000), None),
        ("slides.pptx", office.make_pptx([("Title", "words\n" * 200, "notes\n" * 50)] * 60), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_huge_one_is_taken_in_half_of_the_time_and_says_what_is_cut(
    pool: ExtractionPool, name: str, data: bytes, cut: bool | None
) -> None:
    outcome = pool.run(Job(name, data))
    assert isinstance(outcome, Extracted), outcome
    assert_whole(outcome.extraction, outcome.file.text)
    found = codes(outcome.extraction)
    assert ("document_unreadable" in found) is (cut is None)
    assert ("document_cut" in found) is bool(cut)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bomb.pdf", _pdf(_LINE * 4_000_000)),
        ("loop.pdf", _pdf(b"/X Do " + _LINE, stream(
            b"/X Do " * 10 + _LINE,
            b"/Type/XObject/Subtype/Form/BBox[0 0 600 800]/Resources<</XObject<</X 6 0 R>>/Font<</F 5 0 R>>>>",
        ))),
    ],
    ids=["bomb", "loop"],
)  # fmt: skip
def test_of_one_that_needs_too_much_the_name_is_taken_and_the_next_whole(
    pool: ExtractionPool, name: str, data: bytes
) -> None:
    outcome = pool.run(Job(name, data))
    assert isinstance(outcome, Extracted)
    assert codes(outcome.extraction) == ["document_unreadable"]
    assert [chunk.text.split("\n")[0] for chunk in outcome.extraction.chunks] == [name]
    assert isinstance(pool.run(Job("next.pdf", make_pdf([["words"]]))), Extracted)
