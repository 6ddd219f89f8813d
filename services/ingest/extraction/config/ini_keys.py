"""INI and its kin (.cfg, .properties, .editorconfig, git's config, systemd units): sections and keys at the margin."""

from __future__ import annotations

import re

from services.ingest.extraction.config.entries import Entry, Scan, root_entry

_SECTION = re.compile(r"\[(?P<name>[^\]\n]+(?:\][^\]\n]+)*)\]\s*(?:[#;].*)?$")
_KEY = re.compile(r"(?P<key>[\w$@*][^=:#;\n]{0,100}?)\s*[=:]")


def scan_ini(text: str, lines: list[str]) -> Scan:
    """Find sections, and keys that are not indented; indented lines go on with the value above."""
    scan = Scan(root_entry(lines), {}, "# ; !", is_divided=True)
    owner = scan.root
    key: Entry | None = None
    for number, line in enumerate(lines, 1):
        section = _SECTION.match(line)
        if section is not None:
            key, owner = None, Entry((section["name"].strip(),), number, number, 1, is_table=True)
            scan.root.children.append(owner)
            scan.cuts[number] = 0
            continue
        if not line.strip() or line.startswith(("#", ";", "!")):
            continue
        if not line[:1].isspace() and (match := _KEY.match(line)) is not None:
            key = Entry((*owner.names, match["key"]), number, number, owner.depth + 1)
            owner.children.append(key)
            scan.cuts[number] = 2
        elif key is not None:
            key.last_line = number
        if owner.depth:
            owner.last_line = number
    return scan
