"""Formats whose text is not their decoded bytes: a reader makes a text of them that a person could have written.

That text is what is stored, shown and searched, and spans are lines of it. Invariants: a reader is a function of the
bytes alone, opens no file and no socket, and runs no code of the document; pictures and other data leave no trace but a
word; a reader that fails costs its own format's structure and nothing more. Each imports its library only when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from services.ingest.chunks import ChunkKind, Note
from services.ingest.documents.document import Document, Section, TextBuilder, Unreadable
from services.ingest.skips import Skipped
from services.ingest.sniffing import refused

__all__ = ["Document", "Section", "TextBuilder", "Unreadable", "is_document", "read_document"]

Reader = Callable[[bytes, str], Document]


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    language: str
    load: Callable[[], Reader]
    is_text: bool = False  # whether the bytes are worth indexing as they are where the reader fails


def _notebooks() -> Reader:
    from services.ingest.documents.notebooks import read_notebook

    return read_notebook


def _pdf() -> Reader:
    from services.ingest.documents.pdf import read_pdf

    return read_pdf


def _word() -> Reader:
    from services.ingest.documents.word import read_word

    return read_word


def _slides() -> Reader:
    from services.ingest.documents.slides import read_slides

    return read_slides


def _workbooks() -> Reader:
    from services.ingest.documents.workbooks import read_workbook

    return read_workbook


def _unread(instead: str) -> Callable[[], Reader]:
    """Stand for the reader of a format that has none."""

    def refuse(_data: bytes, _path: str) -> Document:
        raise Unreadable(f"no reader for this format; save it as {instead} beside it")

    return lambda: refuse


_FORMATS = {
    ".ipynb": _Format("Jupyter notebook", "notebook", _notebooks, is_text=True),
    ".pdf": _Format("PDF document", "pdf", _pdf),
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), _Format("Word document", "docx", _word)),
    **dict.fromkeys(
        (".pptx", ".pptm", ".potx", ".potm", ".ppsx", ".ppsm"), _Format("PowerPoint presentation", "pptx", _slides)
    ),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx", ".xltm"), _Format("Excel workbook", "xlsx", _workbooks)),
    ".doc": _Format("Word 97 document", "doc", _unread(".docx or .pdf")),
    ".xls": _Format("Excel 97 workbook", "xls", _unread(".xlsx")),
    ".xlsb": _Format("Excel binary workbook", "xls", _unread(".xlsx")),
    ".ppt": _Format("PowerPoint 97 presentation", "ppt", _unread(".pptx or .pdf")),
    ".odt": _Format("OpenDocument text", "odt", _unread(".docx or .pdf")),
    ".ods": _Format("OpenDocument spreadsheet", "ods", _unread(".xlsx")),
    ".odp": _Format("OpenDocument presentation", "odp", _unread(".pptx or .pdf")),
    ".epub": _Format("EPUB book", "epub", _unread(".pdf or .md")),
    ".mobi": _Format("Mobipocket book", "mobi", _unread(".pdf or .md")),
    ".djvu": _Format("DjVu document", "djvu", _unread(".pdf")),
}


def is_document(path: str) -> bool:
    """Whether a file of this name is read by a reader of this package."""
    return _format(path) is not None


def read_document(data: bytes, path: str, *, unread_because: str = "") -> Document | Skipped | Note | None:
    """Convert a file, if its name is that of a document; ``unread_because`` says why its reader is not even tried.

    None: it is none, and its bytes are its text. A note: its reader can't take it, and its bytes are its text. A binary
    document that can't be read becomes a few lines that say so, so that it is found and listed under its name.
    """
    kind = _format(path)
    if kind is None:
        return None
    skipped = refused(data, path)
    if skipped is not None:
        return skipped
    detail, known = unread_because, tuple[str, ...]()
    if not unread_because:
        reader = kind.load()  # a library that is missing is no fault of the file
        try:
            document = reader(data, path)
            if document.file.text.strip() or kind.is_text:
                return document
            detail, known = "it holds no text", ()
        except MemoryError:
            raise
        except Exception as error:  # whatever a parser makes of a damaged file
            detail, known = _told(error)
    note = Note("document_unreadable", detail[:400])
    return note if kind.is_text else _stub(path, kind, note, known)


def _told(error: Exception) -> tuple[str, tuple[str, ...]]:
    if isinstance(error, Unreadable):
        return str(error), error.known
    return f"it is damaged ({type(error).__name__}: {error})", ()


def _stub(path: str, kind: _Format, note: Note, known: Sequence[str]) -> Document:
    """Make a document of what is known of one that has no text, so that it is found by its name."""
    text = TextBuilder()
    reason = " ".join(note.detail.split())
    for line in (path.rpartition("/")[2], f"{kind.name}, not readable: {reason}", *known):
        text.add(" ".join(line.split()), blank_before=False)
    return Document(text.file(""), kind.language, (Section((), 1, len(text.lines), ChunkKind.TEXT),), notes=(note,))


def _format(path: str) -> _Format | None:
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return _FORMATS.get(f".{suffix.lower()}") if dot and stem else None
