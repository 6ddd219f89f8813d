"""Office files as they come: ZIP archives of XML parts, judged before any library unpacks them.

The libraries read every part into memory, so what the archive says of its sizes decides whether they may; ``zipfile``
unpacks no more of a member than it was said to have. Their XML parsers expand no entities and fetch nothing.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.ingest.chunks import Note
from services.ingest.documents.document import Document, Section, TextBuilder, Unreadable

MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 256 * 1024 * 1024
MAX_XML_BYTES = 64 * 1024 * 1024  # of one part: as a tree it takes about eight times that
MAX_CHARACTERS = 4_000_000
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_RELATIONS = "_rels/.rels"
_STRICT = b"http://purl.oclc.org/ooxml/"  # ISO 29500 Strict, whose names the libraries do not know
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")


def office_file(data: bytes) -> io.BytesIO:
    """Return a stream of an office file that may be unpacked. Raises ``Unreadable``."""
    if data.startswith(_OLE):
        is_encrypted = _ENCRYPTED in data
        raise Unreadable(
            "it is encrypted and opens with a password only" if is_encrypted else "it is of the format before 2007"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check(members)
            is_strict = _RELATIONS in archive.namelist() and _STRICT in archive.read(_RELATIONS)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise Unreadable(f"it is damaged: {error}") from error
    if is_strict:
        raise Unreadable("it is of the Strict variant of its format; save it as the usual one")
    return io.BytesIO(data)


def _check(members: Sequence[zipfile.ZipInfo]) -> None:
    if len(members) > MAX_MEMBERS:
        raise Unreadable(f"it has {len(members):,} parts, more than {MAX_MEMBERS:,}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > MAX_UNPACKED_BYTES:
        raise Unreadable(f"its parts unpack to {unpacked:,} bytes, more than {MAX_UNPACKED_BYTES:,}")
    for member in members:
        if member.flag_bits & 1:
            raise Unreadable("it is encrypted and opens with a password only")
        if member.file_size > MAX_XML_BYTES and member.filename.endswith((".xml", ".rels")):
            name, size = member.filename[:100], member.file_size
            raise Unreadable(f"{name} unpacks to {size:,} bytes, more than {MAX_XML_BYTES:,}")


@dataclass(slots=True)
class OutlineBuilder:
    """Grows the text of an office document, and a section for each heading, slide or sheet."""

    text: TextBuilder = field(default_factory=TextBuilder)
    notes: list[Note] = field(default_factory=list)
    characters: int = 0
    _sections: list[Section] = field(default_factory=list)
    _open: tuple[tuple[str, ...], str, bool, int] | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more of the document is to be read."""
        return self.characters > MAX_CHARACTERS

    def begin(self, names: Sequence[str], *, label: str = "", is_heading: bool = False) -> None:
        """Begin a section with what is added next; a heading is that."""
        self._end()
        self._open = tuple(names), label, is_heading, len(self.text.lines)

    def add(self, text: str, *, blank_before: bool = True) -> None:
        self.characters += len(text) + 1
        self.text.add(text, blank_before=blank_before)

    def document(self, language: str) -> Document:
        self._end()
        return Document(self.text.file(""), language, tuple(self._sections), tuple(self.notes))

    def _end(self) -> None:
        if self._open is None:
            return
        names, label, is_heading, before = self._open
        start = next(self._filled(before), None)
        if start is not None:
            end = len(self.text.lines)
            self._sections.append(Section(names, start, end, label=label, is_heading=is_heading))
        self._open = None

    def _filled(self, before: int) -> Iterator[int]:
        lines = self.text.lines
        return (number + 1 for number in range(before, len(lines)) if lines[number].strip())


def one_line(text: str) -> str:
    """Return a text with single spaces and no line end."""
    return " ".join(text.split())
