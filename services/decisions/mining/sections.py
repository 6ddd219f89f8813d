"""What the headings of a record stand for, and the sections between them."""

from __future__ import annotations

import re

from services.decisions.mining.document import Document
from services.decisions.records import Section, SectionKind

# The first rule that matches decides: "Decision drivers" and "Rejected decisions" must be met before "Decision".
_RULES: tuple[tuple[SectionKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (SectionKind.STATUS, r"^(?:(?:decision|adr|current) )?(?:status|state)$|^status\b(?!.*\b(?:quo|code)\b)"),
        (SectionKind.CHANGELOG, r"^change ?logs?$|^(?:revision |change |decision |version )?history$|^revisions?$"),
        (
            SectionKind.METADATA,
            r"^meta ?data$|^meta$|^details$|^info(?:rmation)?$|^document control$|^date\b|^deciders?$",
        ),
        (
            SectionKind.DRIVERS,
            r"drivers?\b|^forces?$|^(?:decision )?criteria|^assumptions|^constraints|^goals|^principles",
        ),
        (SectionKind.CONFIRMATION, r"^confirmation|^validation|^compliance|^verification"),
        (
            SectionKind.OPTIONS,
            r"\boptions?\b(?! fields)|\balternatives?\b|^pros and cons|(?:rejected|deferred|considered)\b|"
            r"^approaches|^possible solutions",
        ),
        (
            SectionKind.CONSEQUENCES,
            r"^(?:\w+ )?consequences?\b|^implications?|^impacts?\b|^trade-?offs|^results?$|^outcomes$|^benefits|^risks|"
            r"^drawbacks",
        ),
        (
            SectionKind.RATIONALE,
            r"^(?:decision )?rationale|^justification|^reason(?:s|ing)?\b|^arguments?\b|^motivation|^why\b",
        ),
        (
            SectionKind.DECISION,
            r"^(?:the |our |final |existing |proposed |architect\w+ )*decisions?(?: outcome| made| taken| details?)?\b|"
            r"^(?:the )?outcome\b|^proposals?\b|^(?:proposed |the |chosen )*(?:solution|resolution|approach)\b|"
            r"^what(?:'s| is) proposed|^conclusions?\b|^detailed design|^design$",
        ),
        (
            SectionKind.CONTEXT,
            r"\bcontext\b|^(?:the )?problem\b|^background|^(?:the )?issue$|^introduction|^summary$|^abstract$|"
            r"^requirements|^current (?:situation|state)|^need|^scope$|^overview",
        ),
        (
            SectionKind.LINKS,
            r"^(?:useful |related |external |further )*(?:links?|references?|reading|resources)\b|^more information|"
            r"^related\b|^see also|^notes?$|^further\b|^appendix|^additional information|^relations?$",
        ),
    )
)
_CLUTTER = re.compile(r"<!--.*?-->|^[\W\d_]+|[\s*_:#`.?!]+$")
_STRICT_DECISION = re.compile(r"^(?:the |our |final )?decisions?(?: outcome| made| taken)?$")
_INLINE_VALUE = re.compile(r"^\W{0,3}(status|date)\W{0,3}\s*[:\-–—]\s*(\S.*)$", re.IGNORECASE)


def plain_heading(title: str) -> str:
    """Return ``title`` lower case, without numbering, emoji and markup."""
    return " ".join(_CLUTTER.sub("", title.replace("’", "'").strip()).lower().split())


def section_kind(title: str) -> SectionKind:
    """Return what a heading of a record stands for."""
    plain = plain_heading(title)
    return next((kind for kind, pattern in _RULES if pattern.search(plain)), SectionKind.OTHER)


def decides(title: str) -> bool:
    """Return whether a heading is that of the decision itself and of nothing else."""
    return bool(_STRICT_DECISION.match(plain_heading(title)))


def inline_value(title: str) -> tuple[str, str]:
    """Return (label, value) of a heading that carries its value (``## Status: Accepted``), else two empty strings."""
    match = _INLINE_VALUE.match(title)
    return (match.group(1).lower(), match.group(2).strip()) if match else ("", "")


def read_sections(document: Document, title_line: int) -> tuple[Section, ...]:
    """Return the sections; the one whose heading is at ``title_line`` (0-based) is the preamble."""
    sections: list[Section] = []
    around: list[tuple[int, SectionKind]] = []
    for heading, start, end in document.spans():
        if heading is None:
            kind, title, level = SectionKind.PREAMBLE, "", 0
        elif start == title_line:
            kind, title, level = SectionKind.PREAMBLE, heading.title, heading.level
        else:
            title, level = heading.title, heading.level
            while around and around[-1][0] >= level:
                around.pop()
            kind = section_kind(title)
            if kind is SectionKind.OTHER and around:
                kind = around[-1][1]
            around.append((level, kind))
        text = "\n".join(document.lines[start:end])
        if heading is None and not text.strip():
            continue
        sections.append(Section(kind, title, level, start + 1, end, text))
    return tuple(sections)
