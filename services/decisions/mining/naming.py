"""What the place and the name of a file, and its first heading, say: decision or not, which number, which title."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from services.decisions.mining.sections import plain_heading

EXTENSIONS = (".md", ".markdown", ".mdown", ".mkd", ".rst", ".rest")

_KEYWORDS = (
    r"adrs?|madr|ddr|mdr|edr|tdr|rfc|oep|ad|decision(?:[-_ ]record)?|architect(?:ure|ural)[-_ ]decision(?:[-_ ]record)?"
)
_FOLDER = re.compile(
    r"^(?:.*[-_ .])?(?:adrs?|madr|adl|decisions?|decision[-_ ](?:records?|logs?|register))$", re.IGNORECASE
)
_STEM = re.compile(
    rf"^(?P<keyword>{_KEYWORDS})?(?P<gap>[-_ .#]*)(?P<number>\d{{1,8}})(?P<rest>(?:[-_ .,:].*)?)$", re.IGNORECASE
)
# A house prefix and a subject around the keyword: "ODH-ADR-Operator-0012-…", "adr-ui-003".
_HOUSE_STEM = re.compile(
    r"^(?:[A-Za-z]+[-_]){0,3}(?:adr|madr)[-_]?(?:(?<=[-_])(?:[A-Za-z]+[-_]){1,3})?"
    r"(?P<number>\d{3,6}|0\d)(?P<rest>(?:[-_ .].*)?)$",
    re.IGNORECASE,
)
_PADDED_STEM = re.compile(r"^(?:[A-Za-z]+[-_]){1,4}(?P<number>0\d{1,5})(?P<rest>(?:[-_ .].*)?)$")
_DATED = re.compile(r"^(?:(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d)(?P<rest>(?:[-_ .].*)?)$")
_WORDS = re.compile(r"[a-z]+")
_INDEX = re.compile(r"^(?:readme|index|toc|contents)$")
_GUIDE = re.compile(
    r"^(?:readme|index|toc|contents|contributing|changelog|changes|history|licen[cs]e|authors|summary|glossary|overview|"
    r"about|security|support|code[_-]of[_-]conduct|maintainers|governance|roadmap|news)$"
)
_TEMPLATE = re.compile(r"^(?:templates?|tmpl)$")
_TEMPLATE_WORD = re.compile(
    r"^(?:templates?|tmpl|adrs?|madr|rfc|decisions?|records?|architectur(?:e|al)|nygard|example|sample|long|short|bare|"
    r"minimal|full|simple|title|default|base|basic|copy|draft|the|an?|of|for|and|your|my|new)$"
)

_TITLE_NUMBER = re.compile(
    rf"^\W{{0,3}}(?:[A-Z][A-Za-z]{{0,12}}-){{0,3}}(?P<keyword>{_KEYWORDS})(?:-[A-Za-z]{{1,12}}){{0,3}}[\s\-_#:.]{{0,3}}\(?#?(?P<number>\d{{1,6}})\]?\)?"
    r"(?:\([^()]{0,200}\))?(?P<separator>\s*[:.\-–—|]+\s*|\s+|$)",
    re.IGNORECASE,
)
# Numbers of other bodies' papers, which a title may be about ("RFC 7807 for errors").
_FOREIGN = frozenset(("rfc", "oep", "ad"))
_PLAIN_NUMBER = re.compile(r"^[#\\]?(?P<number>\d{1,6})(?P<separator>[.:)]\s+|\s+[-–—:.|]+\s+|\s+|-(?=\D)|$)")
_PLACEHOLDER = re.compile(r"^(?:\{[^{}]*\}|\[[^\[\]]*\]|<[^<>]*>|[_*]{1,2}[({\[<].*[)}\]>][_*]{1,2})$")
_TEMPLATE_TITLE = re.compile(
    r"^(?:(?:short|decision|adr|record|the|of|your|nnnn?)[\s:-]+)*title(?: of .*| here)?$|"
    r"^(?:(?:adr|madr|nygard|architect\w+|decision|record|the|short|long|markdown)[\s:-]+)*template\b.{0,20}$|"
    r"^(?:adr|decision)?[\s:#-]*(?:n{2,}|x{2,}|0*x{2,}|number|nr|\?+)\s*[.:)-].*$",
    re.IGNORECASE,
)
_WRAPPED_PLACEHOLDER = re.compile(r"^(?:adr|decision)[\s:#-]*[\[{<]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Name:
    """What a path says. ``excluded``: a template, an index or a guide; ``expected``: a record by place and name."""

    stem: str
    number: int | None
    rest: str
    in_folder: bool
    numbered: bool
    keyword: bool
    excluded: bool

    @property
    def expected(self) -> bool:
        return not self.excluded and self.numbered and (self.in_folder or self.keyword)


def read_name(path: str) -> Name:
    """Return what ``path`` (with slashes) says of its file."""
    folders = posixpath.dirname(path).split("/")
    stem = posixpath.splitext(posixpath.basename(path))[0]
    in_folder = any(_FOLDER.match(folder) for folder in folders)
    if stem.lower() in ("readme", "index") and in_folder and not _FOLDER.match(folders[-1]):
        # One folder per record, the text in its README.
        stem = folders[-1]
    number, numbered, rest, keyword = _numbers(stem, in_folder)
    words = set(_WORDS.findall((rest or stem).lower()))
    template = any(map(_TEMPLATE.match, words)) and all(map(_TEMPLATE_WORD.match, words))
    guide = _INDEX if numbered else _GUIDE
    excluded = (
        bool(guide.match(rest.strip("-_ .").lower()))
        or template
        or any(folder.lower() in ("template", "templates", ".templates", "_templates") for folder in folders)
    )
    return Name(stem, number, rest, in_folder, numbered, keyword, excluded)


def read_title(heading: str, name: Name) -> tuple[str, int | None]:
    """Return the title without its number prefix, and that number; the title is empty where none is left."""
    text = heading.strip()
    match = _TITLE_NUMBER.match(text)
    if match and match.group("keyword").lower() in _FOREIGN and int(match.group("number")) != name.number:
        match = None
    if match is None:
        match = _PLAIN_NUMBER.match(text)
        if match and match.group("separator").rstrip(" \t") in ("", "-") and not _is_prefix(match, name):
            match = None
    if match is None:
        return text, None
    return text[match.end() :].strip(), int(match.group("number"))


def usable(heading: str) -> bool:
    """Return whether a first heading is a title, not the start of the first section."""
    return bool(heading.strip()) and plain_heading(heading) not in _OPENING


def title_of_stem(name: Name) -> str:
    """Return a title made of the file's name."""
    words = name.rest.strip("-_ .") or name.stem
    title = re.sub(r"[-_\s]+", " ", words).strip()
    return title[:1].upper() + title[1:]


def is_placeholder(title: str, heading: str) -> bool:
    """Return whether a title is one that waits to be filled in."""
    plain = title.strip()
    return bool(
        _PLACEHOLDER.match(plain)
        or _TEMPLATE_TITLE.match(plain)
        or _TEMPLATE_TITLE.match(heading.strip())
        or _WRAPPED_PLACEHOLDER.match(heading.strip())
    )


_OPENING = frozenset(
    (
        "status",
        "context",
        "context and problem statement",
        "problem statement",
        "problem",
        "background",
        "decision",
        "decision outcome",
        "decision drivers",
        "considered options",
        "changelog",
        "metadata",
        "date",
        "summary",
        "introduction",
    )
)


def _numbers(stem: str, in_folder: bool) -> tuple[int | None, bool, str, bool]:
    """Return (number, numbered or dated, what follows, begins with a record's keyword)."""
    dated = _DATED.match(stem)
    if dated:
        return None, True, dated.group("rest"), False
    match = _STEM.match(stem)
    if match is not None and len(match.group("number")) <= 6:
        keyword = match.group("keyword") or ""
        return int(match.group("number")), True, match.group("rest"), keyword.lower() in ("adr", "adrs", "madr")
    match = _HOUSE_STEM.match(stem)
    if match is not None:
        return int(match.group("number")), True, match.group("rest"), True
    match = _PADDED_STEM.match(stem) if in_folder else None
    if match is not None:
        return int(match.group("number")), True, match.group("rest"), False
    return None, False, stem, False


def _is_prefix(match: re.Match[str], name: Name) -> bool:
    """Return whether a number with nothing but a space behind it numbers the record ("25 Domain names").

    It is part of the title where the file's name has it there too ("0007-3-tier-architecture": "3 tier architecture").
    """
    digits = match.group("number")
    if digits.startswith("0") and len(digits) > 1:
        return True
    if name.number is None:
        return False
    return int(digits) == name.number or not re.match(rf"^[-_ .]*{digits}\D", name.rest + " ")
