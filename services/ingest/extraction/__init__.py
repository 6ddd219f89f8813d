"""From the text of one file to chunks, symbols and references.

Invariants: extraction is a function of (path, text, module, budget) alone; it never loses a line, because a file that
its own extractor cannot take becomes text chunks with a note; it imports light, because a worker process does nothing
else.
"""

from __future__ import annotations

from services.ingest.chunks import Budget, Extraction, Note, TokenCounter
from services.ingest.documents import Document
from services.ingest.extraction.languages import CODE_LANGUAGES, language_of
from services.ingest.extraction.text import extract_text
from services.ingest.extraction.transcripts import labelled, transcript_label
from services.ingest.file_settings import ChunkBy

__all__ = ["EXTRACTION_VERSION", "extract", "extract_document", "language_of"]

# By structure, unless each line is a record of its own.
CONFIG_LANGUAGES = frozenset({"toml", "yaml", "json", "ini"})
LINES_SUFFIXES = (".jsonl", ".ndjson")

# Raise when the same file gives other chunks, symbols or references; the next run then extracts everything anew.
EXTRACTION_VERSION = 4


def extract(
    path: str,
    text: str,
    *,
    module: str,
    count_tokens: TokenCounter,
    budget_tokens: int,
    chunk_by: ChunkBy = ChunkBy.AUTO,
    plain_because: str = "",
) -> Extraction:
    """Extract one file.

    ``text`` is decoded (``services.ingest.sniffing``); ``module`` is its dotted name if it is Python
    (``services.ingest.modules``). ``budget_tokens`` bounds title and text of each chunk as ``model_input`` joins them,
    counted by ``count_tokens`` without the model's special tokens. ``chunk_by`` says at which headings a document is
    cut, unless it says so itself. ``plain_because`` says why it is cut as plain text whatever it is.

    Raises ``InvalidArgument`` if the budget leaves no room for text.
    """
    label, budget = transcript_label(path, Budget(count_tokens, budget_tokens))
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    language = language_of(path, text)
    notes = [Note("extractor_failed", plain_because)] if plain_because else []
    try:
        found = None if plain_because else _extract(path, text, language, module, budget, chunk_by)
        if isinstance(found, Extraction):
            return labelled(found, label)
        if found is not None:
            notes.append(found)
    except Exception as error:  # whatever the parsers do, the file stays findable as text
        notes.append(Note("extractor_failed", f"{type(error).__name__}: {error}"[:400]))
    module = module if language == "python" else ""
    extraction = extract_text(path, text, language=language, module=module, budget=budget, notes=notes)
    return labelled(extraction, label)


def _extract(
    path: str, text: str, language: str, module: str, budget: Budget, chunk_by: ChunkBy
) -> Extraction | Note | None:
    """Extract a file by its own extractor; a note says why that can't take it, and None that there is none."""
    if language == "python":
        from services.ingest.extraction.python import extract_python

        return extract_python(path, text, module=module, budget=budget)
    if language == "markdown":
        from services.ingest.extraction.markdown import extract_markdown

        return extract_markdown(path, text, budget=budget, chunk_by=chunk_by)
    if language in CODE_LANGUAGES:
        from services.ingest.extraction.code import extract_code

        return extract_code(path, text, language=language, budget=budget)
    if language == "rst":
        from services.ingest.extraction.rst import extract_rst

        return extract_rst(path, text, budget=budget, chunk_by=chunk_by)
    if language in CONFIG_LANGUAGES and not path.endswith(LINES_SUFFIXES):
        from services.ingest.extraction.config import extract_config

        return extract_config(path, text, language=language, budget=budget)
    if language == "captions":
        from services.ingest.extraction.captions import extract_captions

        return extract_captions(path, text, budget=budget)
    if language in ("asciidoc", "org"):
        from services.ingest.extraction.outlines import extract_outline

        return extract_outline(path, text, language=language, budget=budget, chunk_by=chunk_by)
    return None


def extract_document(path: str, document: Document, *, count_tokens: TokenCounter, budget_tokens: int) -> Extraction:
    """Extract a file that a reader has converted; as ``extract`` does otherwise."""
    from services.ingest.extraction.documents import extract_sections

    budget = Budget(count_tokens, budget_tokens)
    try:
        return extract_sections(path, document, budget=budget)
    except Exception as error:
        notes = [*document.notes, Note("extractor_failed", f"{type(error).__name__}: {error}"[:400])]
        return extract_text(path, document.file.text, language=document.language, module="", budget=budget, notes=notes)
