"""References to other records inside a line of prose: links, ``ADR-12``, ``ADRs 60 and 61``, file names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_LINK = re.compile(
    r"\[(?P<text>[^\[\]]{1,300})\]"
    r"(?:\(\s*<?(?P<url>[^()\s<>]{1,600}(?:\([^()\s<>]{0,100}\)[^()\s<>]{0,300})?)>?(?:\s+[\"'][^\"'\n]{0,200}[\"'])?\s*\)"
    r"|\[(?P<label>[^\[\]]{0,200})\])?"
)
_RST_LINK = re.compile(
    r"(?::(?:ref|doc|any):)?`(?P<text>[^`<>]{1,300}?)\s*(?:<(?P<url>[^`<>\s]{1,600})>)?`(?P<tail>__?)?"
)
_ROLE = re.compile(r"^:(?:ref|doc|any):")
_NUMBERED = re.compile(
    r"\b(?:ADRs?|MADR|AD|(?:architectur(?:e|al) )?decisions?(?: records?)?|records?)(?:[\s#:_-]|no\.|number){0,4}"
    r"(?P<number>\d{1,6})\b(?!\.\d)"
    r"(?P<more>(?:\s{0,2}(?:,|&|/|and|or|,\s?and)\s{0,2}(?:ADRs?)?[-\s#]{0,2}\d{1,6}\b){0,20})",
    re.IGNORECASE,
)
_FILE = re.compile(r"(?<![\w/.-])[\w.+-][\w./+-]{0,200}?\.(?:md|markdown|rst)\b", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,6}")
_TITLE_NUMBER = re.compile(
    r"^\W*(?:ADR|MADR|decision|record)?[\s#:_-]{0,3}(?P<number>\d{1,6})(?![\w/])(?!-\d\d-\d\d)", re.IGNORECASE
)
_DOCUMENT = re.compile(r"\.(?:md|markdown|rst|html?)(?:[#?].*)?$", re.IGNORECASE)
_NUMBERED_PATH = re.compile(r"(?:^|/)(?:adr[-_]?)?\d{1,8}[-_.][^/]*$", re.IGNORECASE)
_CODE_NUMBER = re.compile(r"\badr[-_]?0*(?P<number>\d{1,6})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reference:
    """A pointer at another record: where it stands in the text, and all that it says of its target."""

    start: int
    end: int
    raw: str
    number: int | None = None
    target_path: str = ""
    title: str = ""

    @property
    def explicit(self) -> bool:
        """Return whether this can only mean a record or another document, and no web page."""
        return self.numbered or bool(_DOCUMENT.search(self.target_path))

    @property
    def numbered(self) -> bool:
        """Return whether this names a record by its number."""
        local = "://" not in self.target_path and bool(_NUMBERED_PATH.search(self.target_path))
        return self.number is not None or local


def find_references(text: str, targets: Mapping[str, str]) -> tuple[str, list[Reference]]:
    """Return ``text`` with each link blanked to equal length, and the references in it, in order."""
    found: list[Reference] = []
    blanked = list(text)
    for pattern in (_LINK, _RST_LINK):
        for match in pattern.finditer("".join(blanked)):
            reference = _link(match, targets)
            if reference is not None:
                found.append(reference)
                blanked[match.start() : match.end()] = "\x01" * (match.end() - match.start())
    plain = "".join(blanked)
    found.extend(
        Reference(match.start(), match.end(), match.group(), target_path=match.group())
        for match in _FILE.finditer(plain)
    )
    for match in _NUMBERED.finditer(plain):
        numbers = [match.group("number"), *_DIGITS.findall(match.group("more"))]
        found.extend(
            Reference(match.start(), match.end(), match.group().strip(), number=int(digits)) for digits in numbers
        )
    return plain, sorted(found, key=lambda reference: (reference.start, reference.number or 0))


def _link(match: re.Match[str], targets: Mapping[str, str]) -> Reference | None:
    groups = match.groupdict()
    text = " ".join(match.group("text").split())
    url = groups.get("url") or ""
    if not url and "label" in groups:
        url = targets.get(" ".join((groups["label"] or text).lower().split()), "")
    elif not url:
        url = targets.get(text.lower(), "")
        if not url and not _ROLE.match(match.group()) and not groups.get("tail"):
            return None
    if not url and "label" in groups and not _CODE_NUMBER.search(text):
        return None
    number = _TITLE_NUMBER.match(text) or _CODE_NUMBER.search(text)
    if number and text.startswith("#"):
        number = None
    local = "://" not in url or bool(_DOCUMENT.search(url))
    return Reference(
        match.start(),
        match.end(),
        match.group(),
        number=int(number.group("number")) if number and (local or _CODE_NUMBER.search(text)) else None,
        target_path=url,
        title=text,
    )
