"""Converted documents by the outline that their reader made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from services.ingest.chunks import (
    Budget,
    ChunkKind,
    Extraction,
    Reference,
    Symbol,
    SymbolKind,
    Unit,
    bounded,
    structural_key,
)
from services.ingest.documents import Document, Section
from services.ingest.extraction.sections import Heading, qualified_section, section_symbols
from services.ingest.extraction.text import cut_ranks
from services.ingest.sniffing import split_lines


def extract_sections(path: str, document: Document, *, budget: Budget) -> Extraction:
    """Extract a document: a unit per section, symbols of its headings, and of its Python where it holds some."""
    lines = split_lines(document.file.text)
    units = [_unit(path, section) for section in _joined(_gapless(document.sections, lines), lines)]
    chunks, notes = bounded(units, lines, cut_ranks(lines), budget, path=path, language=document.language, module="")
    symbols = section_symbols(path, _headings(document.sections, len(lines)), lines)
    references: tuple[Reference, ...] = ()
    if document.python:
        definitions, references = _python(path, document, budget)
        symbols = tuple(sorted((*symbols, *definitions), key=lambda symbol: (symbol.start_line, -symbol.end_line)))
    return Extraction(path, document.language, "", chunks, symbols, references, (*document.notes, *notes))


def _gapless(sections: Sequence[Section], lines: Sequence[str]) -> Iterator[Section]:
    """Fill what an outline leaves out."""
    following = 1
    for section in sections:
        if section.start_line < following or section.end_line < section.start_line:
            raise ValueError(f"sections overlap at line {section.start_line}")
        yield from _gap(lines, following, section.start_line - 1)
        yield section
        following = section.end_line + 1
    yield from _gap(lines, following, len(lines))


def _gap(lines: Sequence[str], start: int, end: int) -> Iterator[Section]:
    if any(line.strip() for line in lines[start - 1 : end]):
        yield Section((), start, end, ChunkKind.TEXT)


def _joined(sections: Iterable[Section], lines: Sequence[str]) -> Iterator[Section]:
    """Give a heading that has nothing below it to what follows it under the same heading."""
    alone: Section | None = None
    for section in sections:
        joins = alone is not None and section.names[: len(alone.names)] == alone.names
        if alone is not None and not joins:
            yield alone
        whole = replace(section, start_line=alone.start_line) if alone is not None and joins else section
        alone = whole if section.is_heading and _is_empty(lines, section) else None
        if alone is None:
            yield whole
    if alone is not None:
        yield alone


def _is_empty(lines: Sequence[str], section: Section) -> bool:
    return sum(1 for line in lines[section.start_line - 1 : section.end_line] if line.strip()) <= 1


def _unit(path: str, section: Section) -> Unit:
    name = path.rpartition("/")[2]
    named = [part for part in section.names if part]
    title = [name, *named, section.label] if named or section.label else path.split("/")
    return Unit(
        kind=section.kind,
        # A label counts what may shift, so it is no part of the structural place.
        anchor=(*section.names, "") if section.label else section.names,
        qualified_name=qualified_section(path, section.names),
        name=named[-1] if named else name.rpartition(".")[0] or name,
        title=" > ".join(part for part in title if part),
        start_line=section.start_line,
        end_line=section.end_line,
        language=section.language,
    )


def _headings(sections: Sequence[Section], line_count: int) -> list[Heading]:
    found = [section for section in sections if section.is_heading]
    return [
        Heading(
            names=section.names,
            start_line=section.start_line,
            body_line=section.start_line + 1,
            end_line=found[place + 1].start_line - 1 if place + 1 < len(found) else line_count,
            level=len(section.names),
        )
        for place, section in enumerate(found)
    ]


def _python(path: str, document: Document, budget: Budget) -> tuple[list[Symbol], tuple[Reference, ...]]:
    """Take definitions and edges from the Python of a document, named below its path."""
    from services.ingest.extraction.python import extract_python

    extraction = extract_python(path, document.python, module="", budget=budget)
    symbols = [
        replace(
            symbol,
            qualified_name=structural_key(path, symbol.qualified_name.split("."), 0),
            key=f"{symbol.key}~python",  # "~" parts no heading: keys of headings escape it
        )
        for symbol in extraction.symbols
        if symbol.kind not in (SymbolKind.MODULE, SymbolKind.VARIABLE)  # x, y and df of every notebook
    ]
    references = tuple(
        replace(reference, source=structural_key(path, reference.source.split("."), 0) if reference.source else path)
        for reference in extraction.references
    )
    return symbols, references
