"""Files and symbols that a record names, so that a question about a file finds the decisions about it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from services.decisions.mining.document import Document
from services.decisions.records import Mention, MentionKind

_CODE = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]{1,200})\1(?!`)")
_LINK = re.compile(r"\]\(\s*<?([^()\s<>]{1,600})>?|`[^`<>]{0,300}<([^`<>\s]{1,600})>`__?|\]:\s*<?([^\s<>]{1,600})")
_BARE_PATH = re.compile(r"(?<![\w/.:@-])(?:\.{1,2}/)?(?:[\w.+-]{1,80}/){1,12}[\w.+-]{0,80}\.[A-Za-z][\w]{0,9}(?![\w/])")
_HOSTED = re.compile(r"^https?://[^/]+/[^/]+/[^/]+/(?:-/)?(?:blob|tree|raw|src)/[^/]+/(.+)$")
_LINE_SUFFIX = re.compile(r"(?:[#?].*|:\d+(?:[-:]\d+)?)$")
_FILE = re.compile(r"^(?:\.{0,2}/)?(?:[\w.@+*-]+/)*[\w.@+*-]*\.[A-Za-z][A-Za-z0-9]{0,9}$")
_PATH = re.compile(r"^(?:\.{0,2}/)?(?:[\w.@+*-]+/)+[\w.@+*-]*$")
_SYMBOL = re.compile(
    r"^[@#&*]?[A-Za-z_$][\w$]*(?:(?:\.|::|->|#|/)[A-Za-z_$][\w$]*)*(?:<[\w, .?]{1,60}>)?(?:\([^()]{0,80}\))?[!?]?$"
)
_SOURCE = re.compile(
    r"\.(?:pyi?|[cm]?jsx?|tsx?|java|kts?|scala|go|rs|rb|php|c|cc|cpp|h|hpp|cs|swift|mm?|sh|bash|zsh|ps1|sql|ya?ml|json|"
    r"toml|xml|ini|cfg|conf|properties|proto|tf|tfvars|hcl|gradle|groovy|html|s?css|sass|less|vue|svelte|md|rst|txt|lock|"
    r"ipynb|dart|exs?|erl|hs|lua|pl|r|jl|nix|dockerfile|mk|cmake|feature|env|bib|fxml|csv)$",
    re.IGNORECASE,
)
_MAX_MENTIONS = 500


def read_mentions(document: Document, path: str) -> tuple[Mention, ...]:
    """Return each file and symbol once, at its first line, in the order of the text."""
    seen: dict[tuple[MentionKind, str], int] = {}
    folder = posixpath.dirname(path)
    for number, line in enumerate(document.prose):
        if not line.strip():
            continue
        for kind, text in _on_line(line, folder):
            seen.setdefault((kind, text), number + 1)
        if len(seen) >= _MAX_MENTIONS:
            break
    for heading in document.headings:
        for kind, text in _on_line(heading.title, folder):
            seen.setdefault((kind, text), heading.start + 1)
    ordered = sorted(seen.items(), key=lambda entry: (entry[1], entry[0]))
    return tuple(Mention(kind, text, line) for (kind, text), line in ordered)


def _on_line(line: str, folder: str) -> Iterator[tuple[MentionKind, str]]:
    for match in _LINK.finditer(line):
        target = _target(match.group(1) or match.group(2) or match.group(3) or "", folder)
        if target:
            yield MentionKind.FILE, target
    for match in _CODE.finditer(line):
        yield from _code(match.group(2).strip())
    for match in _BARE_PATH.finditer(_CODE.sub(" ", _LINK.sub(" ", line))):
        if _SOURCE.search(match.group()):
            yield MentionKind.FILE, _clean(match.group())


def _code(text: str) -> Iterator[tuple[MentionKind, str]]:
    bare = _LINE_SUFFIX.sub("", text) if "/" in text or "." in text else text
    named = _FILE.match(bare) and (_SOURCE.search(bare) or "/" in bare)
    if named or (_PATH.match(bare) and bare.count("/") + bare.startswith(".") > 1):
        yield MentionKind.FILE, _clean(bare)
    elif len(text) > 1 and _SYMBOL.match(text):
        yield MentionKind.SYMBOL, text


def _target(url: str, folder: str) -> str:
    """Return the path from the project's root that a link means, or nothing for the web and for other documents."""
    hosted = _HOSTED.match(url)
    if hosted:
        target = unquote(_LINE_SUFFIX.sub("", hosted.group(1)))
    elif "://" in url or url.startswith(("#", "mailto:", "//")):
        return ""
    else:
        target = unquote(_LINE_SUFFIX.sub("", url))
        if not target:
            return ""
        target = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
    target = posixpath.normpath(target.strip("/")) if target.strip("/") else ""
    return "" if target in ("", ".") or target.startswith("../") or "\x00" in target else target


def _clean(text: str) -> str:
    return text[2:] if text.startswith("./") else text
