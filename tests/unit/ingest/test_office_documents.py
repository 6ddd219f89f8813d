from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pptx import Presentation

from services.ingest.documents import packages, slides, workbooks
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings, run
from tests.support import office
from tests.support.chunks import codes, outline, symbols, taken
from tests.support.extraction import assert_whole

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_FOOTNOTES = (
    f'<w:footnotes xmlns:w="{_W}"><w:footnote w:id="-1" w:type="separator"><w:p/></w:footnote>'
    '<w:footnote w:id="7"><w:p><w:r><w:t>Seen in</w:t></w:r></w:p><w:p><w:r><w:t>1832.</w:t></w:r></w:p></w:footnote>'
    "</w:footnotes>"
).encode()


def _write_guide(document: Any) -> None:
    document.add_paragraph("Field Guide", style="Title")
    document.add_paragraph("Preface.")
    document.add_heading("Birds", 1)
    document.add_heading("Owls", 2)
    document.add_paragraph("They are:")
    document.add_paragraph("quiet", style="List Bullet")
    document.add_paragraph("large", style="List Bullet")
    table = document.add_table(rows=0, cols=2)
    for cells in (("Name", "Length"), ("Eagle owl", "70 cm"), ("", "")):
        row = table.add_row()
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    document.add_heading("Herons", 1)
    document.add_paragraph("They wade.")


GUIDE = office.make_docx(_write_guide, title="Field guide")
DECK = office.make_pptx(
    [("Why owls", "They are quiet\nThey are large", "Pause here."), ("", "Untitled slide", ""), ("End", "", "")]
)
BOOK = office.make_xlsx(
    {
        "Prices": [["Name", "Price", "From"], ["Owl", 9.5, datetime.date(2024, 2, 29)], [], ["Heron", True, None]],
        "Rates": [[datetime.datetime(2024, 2, 29, 12, 30), datetime.time(8, 5), 0.1 + 0.2, 7.0, "two\nlines"]],
        "Empty": [],
    },
    hidden=["Rates"],
    title="Price list",
)


def test_headings_lists_and_tables_of_a_word_document() -> None:
    outcome = taken(GUIDE, "docs/guide.docx")
    assert outcome.file.text == (
        "Field Guide\n\nPreface.\n\nBirds\n\nOwls\n\nThey are:\n\n- quiet\n- large\n\n"
        "Name | Length\nEagle owl | 70 cm\n\nHerons\n\nThey wade.\n"
    )
    assert outline(outcome.extraction) == [
        ("guide.docx > Field Guide", 1, 3),
        ("guide.docx > Field Guide > Birds > Owls", 5, 15),
        ("guide.docx > Field Guide > Herons", 17, 19),
    ]
    assert symbols(outcome.extraction) == [
        ("Field Guide", 1, 19),
        ("Field Guide/Birds", 5, 16),
        ("Field Guide/Birds/Owls", 7, 16),
        ("Field Guide/Herons", 17, 19),
    ]
    assert codes(outcome.extraction) == []


def test_what_the_library_itself_passes_over_is_read_and_deleted_text_is_not() -> None:
    def write(document: Any) -> None:
        box = f"<w:txbxContent><w:p>{office.docx_run('boxed')}</w:p></w:txbxContent>"
        for content in (
            f"<w:ins>{office.docx_run('put in')}</w:ins><w:del>{office.docx_run('gone', 'delText')}</w:del>",
            f"<w:moveFrom>{office.docx_run('moved')}</w:moveFrom>{office.docx_run('stays')}",
            f"<w:sdt><w:sdtContent>{office.docx_run('in a control')}</w:sdtContent></w:sdt>",
            f"<m:oMath><m:r><m:t>a+b</m:t></m:r></m:oMath><w:r><w:tab/></w:r>{office.docx_run('sum')}",
            f"<w:r><w:pict>{box}</w:pict></w:r>",
        ):
            office.docx_paragraph(document, content)
        document.add_table(rows=1, cols=3).rows[0].cells[0].merge(document.tables[0].rows[0].cells[1]).text = "merged"
        document.tables[0].rows[0].cells[2].text = "alone"

    text = taken(office.make_docx(write), "w.docx").file.text
    assert text == "put in\n\nstays\n\nin a control\n\na+b\tsum\n\nboxed\n\nmerged | alone\n"  # fmt: skip


def test_footnotes_stand_at_the_end_of_the_section_that_refers_to_them() -> None:
    def write(document: Any) -> None:
        document.add_heading("Owls", 1)
        reference = '<w:r><w:footnoteReference w:id="7"/></w:r>'
        office.docx_paragraph(document, office.docx_run("Rare") + reference)
        document.add_heading("Herons", 1)

    members = office.parts(office.make_docx(write))
    members["word/footnotes.xml"] = _FOOTNOTES
    members["[Content_Types].xml"] = members["[Content_Types].xml"].replace(
        b"</Types>",
        b'<Override PartName="/word/footnotes.xml" ContentType="application/vnd.openxmlformats-officedocument.'
        b'wordprocessingml.footnotes+xml"/></Types>',
    )
    members["word/_rels/document.xml.rels"] = members["word/_rels/document.xml.rels"].replace(
        b"</Relationships>",
        b'<Relationship Id="rId99" Target="footnotes.xml" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
        b'relationships/footnotes"/></Relationships>',
    )
    text = taken(office.packed(members), "w.docx").file.text
    assert text == "Owls\n\nRare[^7]\n\n[^7]: Seen in 1832.\n\nHerons\n"


def test_a_title_that_the_document_does_not_show_is_its_first_line() -> None:
    data = office.make_docx(lambda document: document.add_paragraph("Words."), title="On words")
    assert taken(data, "w.docx").file.text == "On words\n\nWords.\n"


def test_comments_are_counted() -> None:
    def write(document: Any) -> None:
        document.add_comment(document.add_paragraph("Words.").runs, text="why?", author="A", initials="A")

    outcome = taken(office.make_docx(write), "w.docx")
    assert [(note.code, note.detail) for note in outcome.extraction.notes] == [("comments_left_out", "1 comments")]


def test_each_slide_is_a_section_with_its_notes() -> None:
    outcome = taken(DECK, "talks/deck.pptx")
    assert outcome.file.text == (
        "Why owls\n\nThey are quiet\nThey are large\n\nNotes: Pause here.\n\nUntitled slide\n\nEnd\n"
    )
    assert outline(outcome.extraction) == [
        ("deck.pptx > Why owls > slide 1", 1, 6),
        ("deck.pptx > slide 2", 8, 8),
        ("deck.pptx > End > slide 3", 10, 10),
    ]
    assert symbols(outcome.extraction) == [("Why owls", 1, 9), ("End", 10, 10)]


def test_tables_groups_and_hidden_slides() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    slide._element.set("show", "0")
    office.add_table(slide, [["Name", "Length"], ["Owl", "70\ncm"], ["", ""]])
    group = slide.shapes.add_group_shape().shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 1, 1).text_frame.text = "deep\vdown"
    outcome = taken(office.saved(presentation), "t.pptx")
    assert outcome.file.text == "Name | Length\nOwl | 70 cm\n\ndeep\ndown\n"
    assert outline(outcome.extraction) == [("t.pptx > slide 1 (hidden)", 1, 5)]


def test_each_sheet_is_a_section_of_rows() -> None:
    outcome = taken(BOOK, "prices.xlsx")
    assert outcome.file.text == (
        "Price list\n\nPrices\n\nName | Price | From\nOwl | 9.5 | 2024-02-29\nHeron | TRUE\n\n"
        "Rates\n\n2024-02-29 12:30:00 | 08:05:00 | 0.3 | 7 | two lines\n\nEmpty\n"
    )
    assert outline(outcome.extraction) == [
        ("prices.xlsx", 1, 1),
        ("prices.xlsx > Prices", 3, 7),
        ("prices.xlsx > Rates > hidden", 9, 11),
        ("prices.xlsx > Empty", 13, 13),
    ]
    assert [name for name, _, _ in symbols(outcome.extraction)] == ["Prices", "Rates", "Empty"]


def test_a_formula_is_its_value_and_itself_only_where_no_program_has_calculated_any() -> None:
    formulas = office.make_xlsx({"S": [["=1+1"]]})
    assert taken(formulas, "f.xlsx").file.text == "S\n\n=1+1\n"
    calculated = office.changed(
        formulas, "xl/worksheets/sheet1.xml", lambda xml: re.sub(rb"<v ?/>|<v></v>", b"<v>2</v>", xml)
    )
    assert taken(calculated, "f.xlsx").file.text == "S\n\n2\n"


def test_dimensions_that_lie_cost_nothing() -> None:
    lies = office.changed(
        BOOK, "xl/worksheets/sheet1.xml", lambda xml: xml.replace(b'ref="A1:C4"', b'ref="A1:XFD1048576"')
    )
    assert lies != BOOK
    assert taken(lies, "b.xlsx").file.text == taken(BOOK, "b.xlsx").file.text


def test_what_is_beyond_the_limits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbooks, "MAX_CELLS", 5)
    cut = taken(BOOK, "b.xlsx")
    assert cut.file.text == "Price list\n\nPrices\n\nName | Price | From\n\n… and more rows\n"
    monkeypatch.setattr(slides, "MAX_SLIDES", 1)
    deck = taken(DECK, "d.pptx")
    assert deck.file.text.endswith("Notes: Pause here.\n\n… 2 more slides\n")
    monkeypatch.setattr(packages, "MAX_CHARACTERS", 20)
    word = taken(GUIDE, "g.docx")
    assert word.file.text == "Field Guide\n\nPreface.\n\n… and more that is not read\n"
    assert [codes(outcome.extraction) for outcome in (cut, deck, word)] == [["document_cut"]] * 3


def _with(name: str, body: bytes) -> Callable[[bytes], bytes]:
    return lambda data: office.packed({**office.parts(data), name: body})


def _strict(data: bytes) -> bytes:
    usual, strict = (
        b"http://schemas.openxmlformats.org/officeDocument/2006/",
        b"http://purl.oclc.org/ooxml/officeDocument/",
    )
    return office.changed(data, "_rels/.rels", lambda xml: xml.replace(usual, strict))


def _flagged(data: bytes) -> bytes:
    return data.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01")


@pytest.mark.parametrize("name", ["guide.docx", "deck.pptx", "book.xlsx"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda data: office.ENCRYPTED, "it is encrypted and opens with a password only"),
        (lambda data: office.OLD, "it is of the format before 2007"),
        (lambda data: b"", "it is damaged"),
        (lambda data: data[: len(data) // 2], "it is damaged"),
        (_with("media/zeros.bin", bytes(2_000_000)), "more than 2,000,000"),
        (_with("custom/big.xml", bytes(1_000_001)), "custom/big.xml unpacks to 1,000,001 bytes, more than 1,000,000"),
        (lambda data: office.packed({f"{number}": b"" for number in range(501)}), "it has 501 parts"),
        (_flagged, "it is encrypted and opens with a password only"),
        (_strict, "Strict"),
        (lambda data: office.packed({"[Content_Types].xml": b"<x/>"}), ""),
        (lambda data: office.packed({}), ""),
    ],
)  # fmt: skip
def test_one_that_does_not_open_is_a_stub_that_says_why(
    name: str, make: Callable[[bytes], bytes], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "MAX_UNPACKED_BYTES", 2_000_000)
    monkeypatch.setattr(packages, "MAX_XML_BYTES", 1_000_000)
    monkeypatch.setattr(packages, "MAX_MEMBERS", 500)
    data = {"guide.docx": GUIDE, "deck.pptx": DECK, "book.xlsx": BOOK}[name]
    outcome = taken(make(data), f"in/{name}")
    lines = outcome.file.text.splitlines()
    assert lines[0] == name
    assert ", not readable: " in lines[1]
    assert reason in lines[1]
    assert codes(outcome.extraction) == ["document_unreadable"]
    assert outline(outcome.extraction) == [(f"in > {name}", 1, 2)]


@pytest.mark.parametrize(("data", "name"), [(GUIDE, "g.pptx"), (DECK, "d.docx"), (GUIDE, "g.xlsx"), (BOOK, "b.docx")])
def test_one_under_the_name_of_another_is_a_stub(data: bytes, name: str) -> None:
    assert codes(taken(data, name).extraction) == ["document_unreadable"]


def _empty_table() -> bytes:
    presentation = Presentation()
    office.add_table(presentation.slides.add_slide(presentation.slide_layouts[6]), [["", ""], ["", ""]])
    return office.saved(presentation)


_NO_VALUE = "no cell of it holds a value\nTitle: Plan\nSheets: A, B\n"


@pytest.mark.parametrize(
    ("data", "name", "known"),
    [
        (office.make_docx(lambda document: None, title="Plan"), "e.docx", "it has no text\nTitle: Plan\n"),
        (_empty_table(), "table.pptx", "it holds no text\n"),
        (office.make_pptx([("", "", "")], title="Plan"), "e.pptx", "no slide has text\nTitle: Plan\nSlides: 1\n"),
        (office.make_xlsx({"A": [], "B": []}, title="Plan"), "e.xlsx", _NO_VALUE),
    ],
)
def test_an_empty_one_says_what_is_known(data: bytes, name: str, known: str) -> None:
    assert taken(data, name).file.text.endswith(f"not readable: {known}")


@pytest.mark.parametrize(
    ("data", "name", "part"),
    [
        (GUIDE, "g.docx", "word/document.xml"),
        (DECK, "d.pptx", "ppt/slides/slide1.xml"),
        (BOOK, "b.xlsx", "xl/worksheets/sheet1.xml"),
    ],
)
@pytest.mark.parametrize("kind", ["external", "bomb"])
def test_entities_fetch_nothing_and_multiply_nothing(
    data: bytes, name: str, part: str, kind: str, tmp_path: Any
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    entities = f'<!ENTITY e SYSTEM "{secret.as_uri()}">'
    if kind == "bomb":
        entities = '<!ENTITY a0 "swordfish">' + "".join(
            f'<!ENTITY a{number} "{f"&a{number - 1};" * 10}">' for number in range(1, 12)
        )
        entities += '<!ENTITY e "&a11;">'

    def change(xml: bytes) -> bytes:
        declaration, _, rest = xml.partition(b"?>") if xml.startswith(b"<?xml") else (b"<?xml version='1.0'", b"", xml)
        word = next(one for one in (b"Preface.", b"Why owls", b"Heron") if one in rest)
        return declaration + b"?><!DOCTYPE x [" + entities.encode() + b"]>" + rest.replace(word, b"before &e; behind")

    outcome = taken(office.changed(data, part, change), name)
    assert "swordfish" not in outcome.file.text
    assert len(outcome.file.text) < 2_000


@pytest.mark.parametrize("suffix", ["doc", "XLS", "ppt", "odt", "ods", "odp", "epub", "xlsb"])
def test_formats_without_a_reader_are_listed_by_name_alone(suffix: str) -> None:
    outcome = taken(office.OLD, f"archive/plan.{suffix}")
    assert outcome.file.text.startswith(f"plan.{suffix}\n")
    assert "no reader for this format; save it as ." in outcome.file.text
    assert codes(outcome.extraction) == ["document_unreadable"]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_damaged_one_is_text_or_a_stub(data: st.DataObject) -> None:
    name, whole = data.draw(st.sampled_from([("g.docx", GUIDE), ("d.pptx", DECK), ("b.xlsx", BOOK)]))
    if data.draw(st.booleans()):  # behind the checksums
        members = office.parts(whole)
        part = data.draw(st.sampled_from(sorted(part for part in members if part.endswith((".xml", ".rels")))))
        members[part] = _damaged(data, members[part])
        whole = office.packed(members)
    else:
        whole = _damaged(data, whole)
    outcome = run(Job(name, whole), WorkerSettings(64), estimate_tokens)
    assert isinstance(outcome, Extracted)
    assert outcome.extraction.chunks
    assert_whole(outcome.extraction, outcome.file.text, 64)


def _damaged(data: st.DataObject, whole: bytes) -> bytes:
    damaged = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=6)):
        damaged[place] = data.draw(st.integers(0, 255))
    return bytes(damaged[: data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))])


@pytest.mark.parametrize(
    ("cell", "cause"),
    [
        (b'<c r="A2" t="s"><v>99</v></c>', "IndexError"),
        (b'<c r="A2" t="d"><v>never</v></c>', "ValueError"),
    ],
)
def test_one_cell_that_cannot_be_read_costs_the_rows_behind_it(cell: bytes, cause: str) -> None:
    sheets = {"A": [["first"], ["second"], ["third"]], "B": [["other"]]}

    def spoil(sheet: bytes) -> bytes:
        start = sheet.index(b'<c r="A2"')
        return sheet[:start] + cell + sheet[sheet.index(b"</c>", start) + 4 :]

    outcome = taken(office.changed(office.make_xlsx(sheets), "xl/worksheets/sheet1.xml", spoil), "a.xlsx")
    (note,) = outcome.extraction.notes
    assert note.code == "document_cut"
    assert "A: only the first 1 rows" in note.detail
    assert cause in note.detail
    assert "first" in outcome.file.text
    assert "other" in outcome.file.text


def test_a_workbook_of_cells_that_cannot_be_read_is_listed() -> None:
    book = office.changed(
        office.make_xlsx({"A": [[1]]}),
        "xl/worksheets/sheet1.xml",
        lambda sheet: sheet.replace(b't="n"', b't="s"').replace(b"<v>1</v>", b"<v>9</v>"),
    )
    outcome = taken(book, "a.xlsx")
    assert codes(outcome.extraction) == ["document_unreadable"]
    assert "can't be read" in outcome.file.text
