"""What prose names: words set as code that are names or paths, and links to files of the source."""

from __future__ import annotations

import posixpath
import re
from urllib.parse import unquote

from services.ingest.chunks import Reference, ReferenceKind
from services.ingest.extraction.languages import has_known_suffix

_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?=\(.*\)$|$)", re.DOTALL)
_PATH = re.compile(r"\.{0,2}/?(?:[\w.-]+/)*[\w-][\w.-]*\.[A-Za-z]\w{0,9}(?::\d+(?:-\d+)?)?$|(?:[\w.-]+/)+$")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//|#")


def reference_to_code(path: str, source: str, span: str, line: int) -> Reference | None:
    """Make an edge of what a document sets as code: a mention of a name, a link to a path, or nothing."""
    if _is_path(span):
        target = joined(path, span.partition(":")[0], relative=False)
        return Reference(source, ReferenceKind.LINK, target, False, line) if target else None
    named = _NAME.match(span)
    if named is not None and len(named[0]) > 1:
        return Reference(source, ReferenceKind.MENTION, named[0], False, line)
    return None


def reference_to_file(path: str, source: str, target: str, line: int) -> Reference | None:
    """Make an edge of a link's destination, if it is a file below the root."""
    if _SCHEME.match(target):
        return None
    below = joined(path, unquote(target.partition("#")[0].partition("?")[0]), relative=True)
    return Reference(source, ReferenceKind.LINK, below, True, line) if below else None


def _is_path(span: str) -> bool:
    """Tell ``src/app.py`` and ``app.py`` from ``requests.sessions``."""
    return _PATH.match(span) is not None and ("/" in span or has_known_suffix(span.partition(":")[0]))


def joined(path: str, target: str, *, relative: bool) -> str:
    """Resolve a path that a document names to one below the root, or nothing where it leads out of it."""
    if target.startswith("/"):
        below = posixpath.normpath(target.lstrip("/") or ".")
    else:
        explicit = relative or target.startswith("./") or target.startswith("../")
        below = posixpath.normpath(posixpath.join(posixpath.dirname(path), target) if explicit else target)
    return "" if below == "." or below.startswith("..") or "\0" in below else below
