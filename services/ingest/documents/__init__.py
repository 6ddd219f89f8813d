"""Formats whose text is not their decoded bytes: a reader makes a text of them that a person could have written.

That text is what is stored, shown and searched, and spans are lines of it. Invariants: a reader is a function of the
bytes alone, opens no file and no socket, and runs no code of the document; pictures and other data leave no trace but a
word; a reader that fails costs its own format's structure and nothing more. Each imports its library only when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.ingest.chunks import Note
from services.ingest.documents.document import Document, Section, TextBuilder, Unreadable
from services.ingest.skips import Skipped
from services.ingest.sniffing import converted, refused

__all__ = ["Document", "Section", "TextBuilder", "Unreadable", "is_document", "read_document"]

Reader = Callable[[bytes, str], Document]


@dataclass(frozen=True, slots=True)
class _Format:
    language: str
    load: Callable[[], Reader]
    is_text: bool  # whether the bytes are worth indexing as they are where the reader fails


def _notebooks() -> Reader:
    from services.ingest.documents.notebooks import read_notebook

    return read_notebook


_FORMATS = {
    ".ipynb": _Format("notebook", _notebooks, is_text=True),
}


def is_document(path: str) -> bool:
    """Whether a file of this name is read by a reader of this package."""
    return _format(path) is not None


def read_document(data: bytes, path: str) -> Document | Skipped | Note | None:
    """Convert a file, if its name is that of a document.

    None: it is none, and its bytes are its text. A note: its reader can't take it, and its bytes are its text. A binary
    document that can't be read becomes one line that says so, so that it is listed under its name.
    """
    kind = _format(path)
    if kind is None:
        return None
    skipped = refused(data, path)
    if skipped is not None:
        return skipped
    try:
        return kind.load()(data, path)
    except MemoryError:
        raise
    except Exception as error:  # whatever a parser makes of a damaged file
        detail = str(error) if isinstance(error, Unreadable) else f"{type(error).__name__}: {error}"
    note = Note("document_unreadable", detail[:400])
    return note if kind.is_text else _stub(path, kind.language, note)


def _stub(path: str, language: str, note: Note) -> Document:
    name = path.rpartition("/")[2]
    file = converted(f"{name}: no text can be read from this {language} document.\n", "")
    return Document(file, language, (Section((), 1, 1),), notes=(note,))


def _format(path: str) -> _Format | None:
    stem, dot, suffix = path.rpartition("/")[2].rpartition(".")
    return _FORMATS.get(f".{suffix.lower()}") if dot and stem else None
