"""Formats of keys and values by their structure: TOML, YAML, JSON with comments, INI and its kin.

A scanner per format finds where each key stands; what becomes a chunk and what a symbol is one rule for all of them.
Values are never constructed, so neither aliases nor tags nor depth cost more than their length.
"""

from __future__ import annotations

from collections.abc import Callable

from services.ingest.chunks import Budget, Extraction, Note
from services.ingest.extraction.config.entries import Scan, extract_entries
from services.ingest.sniffing import split_lines


class NotParsed(Exception):
    """A scanner can't make anything of a file. ``line`` counts from 1."""

    def __init__(self, detail: str, line: int = 0) -> None:
        super().__init__(detail)
        self.line = line


def extract_config(path: str, text: str, *, language: str, budget: Budget) -> Extraction | Note:
    """Extract one file of these formats, or say why it has no structure; ``text`` has LF line ends."""
    lines = split_lines(text)
    try:
        scan = _scanner(language)(text, lines)
    except NotParsed as error:
        return Note("not_parsed", str(error)[:400], error.line)
    return extract_entries(path, scan, lines, language=language, budget=budget)


def _scanner(language: str) -> Callable[[str, list[str]], Scan]:
    if language == "yaml":
        from services.ingest.extraction.config.yaml_keys import scan_yaml

        return scan_yaml
    if language == "json":
        from services.ingest.extraction.config.json_keys import scan_json

        return scan_json
    if language == "toml":
        from services.ingest.extraction.config.toml_keys import scan_toml

        return scan_toml
    from services.ingest.extraction.config.ini_keys import scan_ini

    return scan_ini
