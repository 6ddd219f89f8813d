from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.documents import pdf
from services.ingest.documents.layout import mend_words, without_repeated
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings, run
from tests.support.chunks import codes, outline, symbols, taken
from tests.support.extraction import assert_whole
from tests.support.pdfs import assembled, make_pdf, stream

_KEY = "11" * 32
GUIDE = make_pdf(
    [
        ["Field guide", "Preface of it."],
        ["Contents stand here.", "1. Birds", "Birds have wings.", "1.1 Owls", "Owls hunt at night."],
        ["They also sleep."],
    ],
    title="Microsoft Word - Field Guide",
    bookmarks=[(0, "Birds", 1), (1, "1.1 Owls", 1), (0, "Elsewhere", 2)],
)


def test_each_page_is_a_section_and_so_is_each_heading_that_a_bookmark_names() -> None:
    outcome = taken(GUIDE, "docs/guide.PDF")
    assert outcome.file.text == (
        "Field guide\nPreface of it.\n\nContents stand here.\n\n1. Birds\nBirds have wings.\n\n"
        "1.1 Owls\nOwls hunt at night.\n\nThey also sleep.\n"
    )
    assert outline(outcome.extraction) == [
        ("guide.PDF > page 1", 1, 2),
        ("guide.PDF > page 2", 4, 4),
        ("guide.PDF > Birds > page 2", 6, 7),
        ("guide.PDF > Birds > 1.1 Owls > page 2", 9, 10),
        ("guide.PDF > Elsewhere > page 3", 12, 12),
    ]
    assert symbols(outcome.extraction) == [("Birds", 6, 12), ("Birds/1.1 Owls", 9, 12)]
    assert {chunk.language for chunk in outcome.extraction.chunks} == {"pdf"}
    assert codes(outcome.extraction) == []


def test_a_title_that_no_page_shows_is_the_first_line() -> None:
    outcome = taken(make_pdf([["Words."]], title="On Words, at length"), "w.pdf")
    assert outcome.file.text == "On Words, at length\n\nWords.\n"
    assert outline(outcome.extraction) == [("w.pdf", 1, 1), ("w.pdf > page 1", 3, 3)]
    assert taken(make_pdf([["Words."]], title="untitled"), "w.pdf").file.text == "Words.\n"


def test_words_broken_at_line_ends_are_mended_in_the_file() -> None:
    text = taken(make_pdf([["A regen-", "eration of well-", "known things; it is well known."]]), "w.pdf").file.text
    assert text == "A regeneration\nof well-known\nthings; it is well known.\n"


@pytest.mark.parametrize(
    ("line", "elsewhere", "mended"),
    [
        ("exam\x02ple one", "", ["example", "one"]),
        ("exam\x02ple", "", ["example"]),
        ("an exam\x02ple, exam\x02ple.", "", ["an example,", "example."]),
        ("re\x02sign now", "they re-sign it", ["re-sign", "now"]),
        ("well\x02known", "known well", ["well-known"]),
        ("together\x02ness", "togetherness is well-known", ["togetherness"]),
        ("ABC\x02DEF 2010\x022020", "", ["ABC-DEF", "2010-2020"]),
        ("a\x02b\x02c", "", ["abc"]),
        ("\x02", "", ["-"]),
    ],
)
def test_a_hyphen_goes_only_where_the_document_does_not_speak_for_it(
    line: str, elsewhere: str, mended: list[str]
) -> None:
    assert mend_words([[line], [elsewhere]])[0] == mended


def test_lines_that_pages_repeat_at_their_edges_stay_once() -> None:
    pages = [["ACME report", f"Text {page * 7} of it", f"{page} " * 3, f"Page {page + 3} of 9"] for page in range(6)]
    kept, left_out = without_repeated(pages)
    assert kept[0] == pages[0]
    assert kept[1:] == [pages[page][1:3] for page in range(1, 6)]
    assert left_out == ["ACME report", "Page 4 of 9"]
    outcome = taken(make_pdf(pages), "r.pdf")
    assert outcome.file.text.count("ACME") == 1
    assert codes(outcome.extraction) == ["repeated_lines_left_out"]


def test_lines_of_few_pages_and_numbers_that_are_no_page_numbers_stay() -> None:
    pages = [[f"Invoice {page * page}", "paid", "in full", "thanks"] for page in range(3)]
    assert without_repeated(pages) == (pages, [])
    invoices = [[f"Invoice {100 + page * page}", f"{page * 31} EUR"] for page in range(30)]
    assert without_repeated(invoices) == (invoices, [])


def test_one_without_text_is_found_by_its_name_and_says_what_is_known() -> None:
    outcome = taken(make_pdf([[], []], title="Plan of the house"), "scans/plan.pdf")
    assert outcome.file.text == (
        "plan.pdf\nPDF document, not readable: none of its pages has text: scanned, or drawn\n"
        "Title: Plan of the house\nPages: 2\n"
    )
    (chunk,) = outcome.extraction.chunks
    assert (chunk.kind.value, chunk.title, chunk.language) == ("text", "scans > plan.pdf", "pdf")
    assert codes(outcome.extraction) == ["document_unreadable"]


def test_pages_without_text_among_others_are_told() -> None:
    notes = taken(make_pdf([["text"], [], ["more"], []]), "mixed.pdf").extraction.notes
    assert [(note.code, note.detail) for note in notes] == [("pages_without_text", "2 pages: 2, 4")]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (make_pdf([["x"]], trailer=f"/ID[<00><00>]/Encrypt<</Filter/Standard/V 1/R 2/P 0/O<{_KEY}>/U<{_KEY}>>>"),
         "it is encrypted and opens with a password only"),
        (make_pdf([["x"]], trailer="/ID[<00><00>]/Encrypt<</Filter/Certificates/V 9/R 9>>"),
         "it is encrypted in a way that is not supported"),
        (b"%PDF-1.7\n" + bytes(range(256)) * 20, "it is damaged"),
        (b"", "it has no PDF header"),
        (b"<html>404</html>", "it has no PDF header"),
        (make_pdf([]), "it is damaged"),
    ],
)  # fmt: skip
def test_one_that_does_not_open_says_why(data: bytes, reason: str) -> None:
    outcome = taken(data, "locked.pdf")
    assert outcome.file.text == f"locked.pdf\nPDF document, not readable: {reason}\n"
    assert codes(outcome.extraction) == ["document_unreadable"]


def test_a_file_whose_table_of_objects_is_wrong_is_repaired() -> None:
    shifted = GUIDE.replace(b"%PDF-1.7\n", b"%PDF-1.7\n% a comment put in later\n")
    assert taken(shifted, "guide.pdf").file.text == taken(GUIDE, "guide.pdf").file.text


def test_pages_beyond_the_limits_are_counted_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "MAX_PAGES", 3)
    outcome = taken(make_pdf([[f"text {number}"] for number in range(10)]), "long.pdf")
    assert outcome.file.text.endswith("text 2\n\n… 7 more pages\n")
    assert [(note.code, note.detail) for note in outcome.extraction.notes] == [
        ("document_cut", "3 of 10 pages are read")
    ]
    monkeypatch.setattr(pdf, "MAX_CHARACTERS", 10)
    assert taken(make_pdf([["123456"]] * 10), "long.pdf").file.text == "123456\n\n123456\n\n… 8 more pages\n"


def test_page_counts_and_outlines_that_lie_cost_nothing() -> None:
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>"
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
    text = stream(zlib.compress(b"BT /F 1 Tf 1 5 Td (word) Tj ET"), b"/Filter/FlateDecode")
    pages = b"<</Type/Pages/Count 2000000000/Kids[3 0 R 2 0 R 2 0 R]>>"
    loop = b"<</Title(x)/First 6 0 R/Next 6 0 R/Dest[3 0 R/Fit]>>"
    data = assembled([b"<</Type/Catalog/Pages 2 0 R/Outlines 6 0 R>>", pages, page, text, font, loop])
    assert taken(data, "lies.pdf").file.text.startswith("word\n")


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_damaged_file_is_text_or_a_stub(data: st.DataObject) -> None:
    damaged = bytearray(GUIDE)
    for place in data.draw(st.lists(st.integers(0, len(GUIDE) - 1), max_size=12)):
        damaged[place] = data.draw(st.integers(0, 255))
    whole = bytes(damaged[: data.draw(st.integers(0, len(GUIDE)))])
    outcome = run(Job("d.pdf", whole), WorkerSettings(64), estimate_tokens)
    assert isinstance(outcome, Extracted)
    assert outcome.extraction.chunks
    assert_whole(outcome.extraction, outcome.file.text, 64)
