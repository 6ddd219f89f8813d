"""Documents from a folder to an answer: their text, their places, and what has none."""

from __future__ import annotations

from pathlib import Path

from undercroft.ingest.v1 import index_service_pb2

from tests.support import office
from tests.support.appliance import Appliance
from tests.support.pdfs import make_pdf


def test_documents_are_found_by_what_they_say_and_the_unreadable_by_their_names(
    appliance: Appliance, tmp_path: Path
) -> None:
    project = "documents"
    pages = [["Preface."], ["Feeding owls", "Barn owls swallow voles whole."]]
    (tmp_path / "owls.pdf").write_bytes(make_pdf(pages, bookmarks=[(0, "Feeding owls", 1)]))
    (tmp_path / "large.pdf").write_bytes(make_pdf([["Capercaillies display at dawn."]]) + bytes(3_000_000))
    (tmp_path / "herons.docx").write_bytes(office.make_docx(lambda document: document.add_paragraph("Egrets wade.")))
    (tmp_path / "storks.pptx").write_bytes(office.make_pptx([("Migration", "Bosporus crossing", "")]))
    (tmp_path / "prices.xlsx").write_bytes(office.make_xlsx({"Food": [["Item"], ["mealworms"]]}))
    (tmp_path / "kestrel-census.doc").write_bytes(office.OLD)
    (tmp_path / "song.mp3").write_bytes(b"ID3")
    (tmp_path / "song.mp3.md").write_text("# Nightingale\n\nFluting crescendo.\n")
    appliance.create_project(project, [tmp_path])
    report = appliance.index(project)
    assert (report.files.new, report.files.skipped) == (7, 1)
    skipped = appliance.client.index.ListSkippedFiles(
        index_service_pb2.ListSkippedFilesRequest(parent=f"projects/{project}")
    ).skipped_files
    assert [(one.path, one.detail) for one in skipped] == [
        ("song.mp3", ".mp3 is a binary format; song.mp3.md beside it is indexed")
    ]
    expected = {
        "voles": ("owls.pdf", "owls.pdf > Feeding owls > page 2", 3, 4),
        "capercaillies": ("large.pdf", "large.pdf > page 1", 1, 1),
        "egrets": ("herons.docx", "herons.docx", 1, 1),
        "bosporus": ("storks.pptx", "storks.pptx > Migration > slide 1", 1, 3),
        "mealworms": ("prices.xlsx", "prices.xlsx > Food", 1, 4),
        "kestrel census": ("kestrel-census.doc", "kestrel-census.doc", 1, 2),
        "crescendo": ("song.mp3.md", "song.mp3 (transcript) > Nightingale", 1, 3),
    }
    for query, (path, title, start, end) in expected.items():
        first = appliance.search(query, project, preset="lexical").hits[0]
        span = first.place.span
        assert (first.place.path, first.title, span.start_line, span.end_line) == (path, title, start, end)
    again = appliance.index(project, force=True)
    assert not again.published
