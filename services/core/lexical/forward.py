"""Forward files: for each document of a batch, which terms it has and how often. Exact scoring reads them.

Layout, little-endian, every array padded to 8 bytes::

    magic 8 bytes | u64 × 4: documents, entries, terms, bytes of text
    ids u64[documents] | offsets u64[documents + 1] | term_offsets u64[terms + 1]
    lengths u32[documents] | frequencies u32[terms] | entry_terms u32[entries] | entry_counts u16[entries]
    text: the terms in UTF-8, sorted by bytes, end to end

Entries of document ``d`` are ``offsets[d]:offsets[d + 1]``; an entry names its term by its place in the sorted text;
``frequencies`` counts the documents that have a term, the dead ones too.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from services.core.errors import DataLoss, InvalidArgument

Indices = npt.NDArray[np.int64]

_MAGIC = b"UCFWD\x00\x00\x01"
_HEADER_BYTES = 8 + 4 * 8
_MAX_TERM_BYTES = 1024

_Number = TypeVar("_Number", np.uint64, np.uint32, np.uint16)


class _Numbers(dict[str, int]):
    """Numbers terms in the order in which they come."""

    def __missing__(self, term: str) -> int:
        if term.split() != [term] or len(term.encode()) > _MAX_TERM_BYTES:
            raise InvalidArgument(f"{term[:80]!r} is not a term.", remedy="Index terms of the tokenizer only.")
        self[term] = len(self)
        return self[term]


class ForwardBuilder:
    """Collects the documents of one forward file: in memory 6 bytes for each distinct term of a document."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._offsets = array("Q", [0])
        self._lengths = array("I")
        self._entry_terms = array("I")
        self._entry_counts = array("H")
        self._numbers = _Numbers()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, document_id: int, counts: Mapping[str, int]) -> None:
        """Append a document; its row is the number of documents before it.

        Raises ``InvalidArgument`` for a term that is empty, has white space or exceeds 1,024 bytes.
        """
        self._entry_terms.extend(map(self._numbers.__getitem__, counts))
        self._entry_counts.extend(counts.values())
        self._ids.append(document_id)
        self._lengths.append(sum(counts.values()))
        self._offsets.append(len(self._entry_terms))

    def write(self, path: Path) -> None:
        """Write the file. The caller makes it durable."""
        encoded = [term.encode() for term in self._numbers]
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        rank = np.zeros(len(order), dtype=np.uint32)
        rank[order] = np.arange(len(order), dtype=np.uint32)
        entry_terms = rank[np.array(self._entry_terms, dtype=np.uint32)]
        term_ends = np.cumsum([len(encoded[number]) for number in order], dtype=np.uint64)
        text = b"".join(encoded[number] for number in order)
        with path.open("wb") as file:
            file.write(_MAGIC)
            for values in (
                np.array([len(self._ids), len(entry_terms), len(order), len(text)], dtype=np.uint64),
                np.array(self._ids, dtype=np.uint64),
                np.array(self._offsets, dtype=np.uint64),
                np.append(np.zeros(1, dtype=np.uint64), term_ends),
                np.array(self._lengths, dtype=np.uint32),
                np.bincount(entry_terms, minlength=len(order)).astype(np.uint32),
                entry_terms,
                np.array(self._entry_counts, dtype=np.uint16),
            ):
                data = values.tobytes()
                file.write(data + bytes(-len(data) % 8))
            file.write(text)


@dataclass(frozen=True, slots=True, eq=False)
class ForwardFile:
    """One forward file, mapped from local disk (never from the shared volume, where a mapping can die)."""

    ids: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.uint64]
    term_offsets: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.uint32]
    frequencies: npt.NDArray[np.uint32]
    entry_terms: npt.NDArray[np.uint32]
    entry_counts: npt.NDArray[np.uint16]
    text: memoryview

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map ``path``. Raises ``DataLoss`` where it is absent, cut or not a forward file of this format."""
        try:
            with path.open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            reader = _Reader(data)
            documents, entries, terms, text_bytes = (int(n) for n in reader.take(np.uint64, 4))
            forward = cls(
                ids=reader.take(np.uint64, documents),
                offsets=reader.take(np.uint64, documents + 1),
                term_offsets=reader.take(np.uint64, terms + 1),
                lengths=reader.take(np.uint32, documents),
                frequencies=reader.take(np.uint32, terms),
                entry_terms=reader.take(np.uint32, entries),
                entry_counts=reader.take(np.uint16, entries),
                text=data[reader.position :],
            )
        except (OSError, ValueError) as error:
            raise DataLoss(
                f"{path.name} cannot be read as a forward file: {error}.",
                remedy="Rebuild the lexical index of the project.",
            ) from error
        if len(forward.text) != text_bytes:
            raise DataLoss(f"{path.name} is cut.", remedy="Rebuild the lexical index of the project.")
        return forward

    def __len__(self) -> int:
        return len(self.ids)

    def term(self, number: int) -> str:
        """Return the term at ``number``."""
        return self._term_bytes(number).decode()

    def terms(self) -> list[str]:
        """Return all terms in the order of their numbers, those of dead documents too."""
        text = bytes(self.text)
        return [text[start:end].decode() for start, end in pairwise(self.term_offsets.tolist())]

    def number(self, term: str) -> int | None:
        """Return the number of ``term``, or None where no document of this file has it."""
        wanted = term.encode()
        low, high = 0, len(self.frequencies)
        while low < high:
            middle = (low + high) // 2
            found = self._term_bytes(middle)
            if found == wanted:
                return middle
            low, high = (middle + 1, high) if found < wanted else (low, middle)
        return None

    def entries(self, rows: Indices) -> tuple[Indices, Indices]:
        """Return the positions of all entries of ``rows``, and beside each the place in ``rows`` of its document."""
        starts = self.offsets[rows].astype(np.int64)
        sizes = self.offsets[rows + 1].astype(np.int64) - starts
        owners = np.repeat(np.arange(len(rows), dtype=np.int64), sizes)
        shifts = starts - (np.cumsum(sizes) - sizes)
        return np.arange(len(owners), dtype=np.int64) + shifts[owners], owners

    def documents(self, rows: Indices) -> Iterator[tuple[int, dict[str, int]]]:
        """Yield the id and the weighted counts of each of ``rows``, as they were added."""
        terms = self.terms()
        for row in rows.tolist():
            span = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
            mine = map(terms.__getitem__, self.entry_terms[span].tolist())
            yield int(self.ids[row]), dict(zip(mine, self.entry_counts[span].tolist(), strict=True))

    def _term_bytes(self, number: int) -> bytes:
        return bytes(self.text[int(self.term_offsets[number]) : int(self.term_offsets[number + 1])])


class _Reader:
    def __init__(self, data: memoryview) -> None:
        if data[:8] != _MAGIC:
            raise ValueError("it does not begin with the mark of this format")
        self._data = data
        self.position = 8

    def take(self, dtype: type[_Number], count: int) -> npt.NDArray[_Number]:
        values = np.frombuffer(self._data, dtype, count, self.position) if count else np.empty(0, dtype)
        self.position += values.nbytes + -values.nbytes % 8
        return values
