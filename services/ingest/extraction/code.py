"""Source code of languages other than Python: functions, methods and types with their documentation."""

from __future__ import annotations

from collections.abc import Sequence

from services.ingest.chunks import Budget, Extraction, Note, Symbol, bounded
from services.ingest.extraction.captures import Captured, capture
from services.ingest.extraction.definitions import Definition
from services.ingest.extraction.grammars import Grammar, grammar_of
from services.ingest.extraction.importing import Binding, bindings_of, naming_of
from services.ingest.extraction.linking import Linker
from services.ingest.extraction.partition import Naming, Partition, symbols_of
from services.ingest.extraction.protobuf import scan_protobuf
from services.ingest.extraction.sql import scan_sql
from services.ingest.extraction.syntax import Syntax, build
from services.ingest.extraction.text import extract_text
from services.ingest.sniffing import split_lines


def extract_code(path: str, text: str, *, language: str, budget: Budget) -> Extraction:
    """Extract one file of a language that has a grammar; ``text`` has LF line ends.

    A damaged file keeps the definitions that are sound; one in which none is found becomes text.
    """
    lines = split_lines(text)
    data = text.encode("utf-8", "replace")
    grammar = grammar_of(language, path)
    captured = _captured(data, language, grammar)
    syntax = build(captured, data, lines, grammar)
    notes = notes_of(captured)
    if captured.errors and not captured.definitions:
        return extract_text(path, text, language=language, module="", budget=budget, notes=notes)
    naming = naming_of(path, grammar, captured.package)
    bindings = bindings_of(language, path, grammar, naming, captured)
    _drop_imported(syntax, bindings)
    units = Partition(syntax.root, lines, naming, budget).units()
    chunks, size_notes = bounded(units, lines, syntax.ranks, budget, path=path, language=language, module="")
    symbols = symbols_of(syntax.root, declared(syntax.symbols, naming), naming, path, len(lines))
    references = Linker(language, path, grammar, naming, captured, syntax, bindings).references()
    return Extraction(path, language, "", chunks, symbols, references, (*notes, *size_notes))


def _captured(data: bytes, language: str, grammar: Grammar) -> Captured:
    if language == "sql":
        return scan_sql(data)
    if language == "proto":
        return scan_protobuf(data)
    return capture(data, grammar)


def notes_of(captured: Captured) -> list[Note]:
    """Say what of a file could not be understood."""
    notes: list[Note] = []
    if captured.errors:
        code = "partly_parsed" if captured.definitions else "not_parsed"
        count = len(captured.errors)
        where = "1 place is" if count == 1 else f"{count} places are"
        notes.append(Note(code, f"{where} no valid syntax", min(captured.errors) + 1))
    if captured.is_cut:
        notes.append(Note("matches_cut", "too deep, or too large, to find all definitions and references"))
    return notes


def declared(definitions: Sequence[Definition], naming: Naming) -> list[Symbol]:
    """Make symbols of what has no lines of its own: constants, prototypes, members of interfaces."""
    return [
        Symbol(
            one.kind,
            one.name,
            naming.qualified(one.names),
            one.signature,
            one.summary,
            one.start_line,
            one.end_line,
            ".".join(one.names),
        )
        for one in definitions
    ]


def _drop_imported(syntax: Syntax, bindings: Sequence[Binding]) -> None:
    """Take out constants that only hold an imported module."""
    rows = {(one.local, one.row + 1) for one in bindings if one.local}
    syntax.symbols = [one for one in syntax.symbols if (one.name, one.line) not in rows]
