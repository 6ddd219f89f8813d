"""The rules of one ignore file, with the semantics of git (gitignore(5), wildmatch.c).

A rule is asked about one entry, never about what lies below it: discovery walks from the top and does not enter an
ignored folder, which is how git does it, and how ``foo/**`` leaves ``foo`` itself open for a later ``!foo/**/``.
Names are compared as bytes, as git compares them.

``re`` holds the interpreter while it matches, so no pattern may make it slow: it takes steps in the order of pattern ×
path at most. What stands between two ``*`` of a name, and between two ``**/``, is matched atomically where it first
fits, as the wildcard behind it takes up whatever that leaves; so only the last ``**/`` of a pattern is ever tried at
several places.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_POSIX_CLASSES = {
    b"alnum": b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    b"alpha": b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    b"blank": b" \t",
    b"cntrl": bytes([*range(32), 127]),
    b"digit": b"0123456789",
    b"graph": bytes(range(33, 127)),
    b"lower": b"abcdefghijklmnopqrstuvwxyz",
    b"print": bytes(range(32, 127)),
    b"punct": b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    b"space": b" \t\n\r\v\f",
    b"upper": b"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    b"xdigit": b"0123456789abcdefABCDEF",
}
_WILDCARDS = re.compile(rb"[*?\[\\]")
_MAX_PATTERN_BYTES = 4096
# Of the expression of many rules at once: what is matched without a pause is bounded, however long the file.
_MAX_UNION_BYTES = 8192


class _NeverMatches(ValueError):
    """The pattern is malformed: git keeps it and it matches nothing."""


@dataclass(frozen=True, slots=True)
class _Rule:
    regex: re.Pattern[bytes]
    negated: bool
    folders_only: bool
    by_name: bool
    source: str


class IgnoreRules:
    """The rules of one ignore file, relative to the folder that holds it."""

    __slots__ = ("_literals", "_names", "_paths", "_rules", "_suffixes")

    def __init__(self, patterns: bytes, *, origin: str = ".gitignore") -> None:
        rules: list[_Rule] = []
        literals: set[bytes] = set()
        suffixes: set[bytes] = set()
        names: list[bytes] = []
        paths: list[bytes] = []
        for number, line in enumerate(_lines(patterns), 1):
            pattern, negated, folders_only = _parse(line)
            if not pattern:
                continue
            by_name = b"/" not in pattern
            try:
                source = _translate(pattern if by_name else pattern.removeprefix(b"/"))
            except _NeverMatches:
                continue
            regex = re.compile(source + rb"\Z", re.DOTALL)
            rules.append(_Rule(regex, negated, folders_only, by_name, f"{origin}:{number}"))
            if not by_name:
                paths.append(source)
            elif not _WILDCARDS.search(pattern):
                literals.add(pattern)
            elif pattern.startswith(b"*") and not _WILDCARDS.search(pattern, 1):
                suffixes.add(pattern[1:])
            else:
                names.append(source)
        self._rules = tuple(reversed(rules))
        self._literals = frozenset(literals)
        self._suffixes = tuple(sorted(suffixes))
        self._names = tuple(_unions(names))
        self._paths = tuple(_unions(paths))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, name: bytes, path: bytes, *, is_folder: bool) -> tuple[bool, str] | None:
        """Say whether the last rule that matches ignores the entry, and which rule it is; None where none matches.

        ``path`` is relative to the folder of the ignore file and does not end with ``/``.
        """
        if not (name in self._literals or name.endswith(self._suffixes) or self._may_match(name, path)):
            return None
        for rule in self._rules:
            if rule.folders_only and not is_folder:
                continue
            if rule.regex.match(name if rule.by_name else path):
                return not rule.negated, rule.source
        return None

    def _may_match(self, name: bytes, path: bytes) -> bool:
        for union in self._names:
            if union.match(name):
                return True
        for union in self._paths:  # noqa: SIM110 - a generator doubles what a name costs
            if union.match(path):
                return True
        return False


def _lines(patterns: bytes) -> Iterator[bytes]:
    for line in patterns.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        yield line.removesuffix(b"\r")


def _parse(line: bytes) -> tuple[bytes, bool, bool]:
    """Split a line into pattern, negated, folders only; the pattern of a blank line or a comment is empty."""
    if line.startswith(b"#") or len(line) > _MAX_PATTERN_BYTES:
        return b"", False, False
    line = _trim_trailing_spaces(line)
    negated = line.startswith(b"!")
    if negated:
        line = line[1:]
    folders_only = line.endswith(b"/")
    if folders_only:
        line = line[:-1]
    return line, negated, folders_only


def _trim_trailing_spaces(line: bytes) -> bytes:
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        backslashes = len(line[: end - 1]) - len(line[: end - 1].rstrip(b"\\"))
        if backslashes % 2:
            break
        end -= 1
    return line[:end]


def _unions(sources: Iterable[bytes]) -> Iterator[re.Pattern[bytes]]:
    size_bytes, together = 0, list[bytes]()
    for source in sources:
        if together and size_bytes + len(source) > _MAX_UNION_BYTES:
            yield _union(together)
            size_bytes, together = 0, []
        size_bytes += len(source)
        together.append(source)
    if together:
        yield _union(together)


def _union(sources: list[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"(?:" + b"|".join(sources) + rb")\Z", re.DOTALL)


def _translate(pattern: bytes) -> bytes:
    """Translate a wildmatch pattern (WM_PATHNAME) into the source of a regular expression over bytes."""
    segments: list[bytes] = []  # what the deep wildcards divide
    out: list[bytes] = []
    run: list[bytes] = []  # what follows a star, up to the next star or slash
    starred = False
    for kind, source in (*_tokens(pattern), ("end", b"")):
        if kind == "one":
            run.append(source)
            continue
        body = b"".join(run)
        run.clear()
        if not starred:
            out.append(body)
        elif kind == "star":
            out.append(b"(?>[^/]*?" + body + b")")  # the first place will do: what follows begins with a star too
        else:
            out.append(b"(?>[^/]*" + body + rb"(?=/|\Z))")
        starred = kind == "star"
        if kind in ("deep", "end"):
            segments.append(b"".join(out))
            out.clear()
        elif not starred:
            out.append(source)
    first, *others = segments
    if not others:
        return first
    # Each ends at a slash, so the first place will do here too: the next deep wildcard takes up any folders behind it.
    between = b"".join(b"(?>(?:[^/]*/)*?" + segment + b")" for segment in others[:-1])
    return first + between + b"(?:[^/]*/)*" + others[-1]


def _tokens(pattern: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a pattern's parts: ``one`` character, a ``star``, or what ends a name, each with its expression."""
    position, end = 0, len(pattern)
    wildcard = _WILDCARDS.search(pattern)
    # git compares what stands before the first wildcard on its own, and then reads the rest as a pattern that begins.
    begins = (0, wildcard.start() if wildcard else 0)
    while position < end:
        byte = pattern[position : position + 1]
        if byte == b"*":
            opens = position in begins or pattern[position - 1 : position] == b"/"
            stop = position
            while pattern[stop : stop + 1] == b"*":
                stop += 1
            deep = opens and stop - position >= 2
            position = stop
            if deep and stop == end:
                yield "rest", b".*"
            elif deep and pattern[stop : stop + 1] == b"/":
                position += 1
                while pattern.startswith(b"**/", position):
                    position += 3
                yield "deep", b""
            else:
                yield "star", b""
        elif byte == b"/" or pattern.startswith(b"\\/", position):
            position += 1 if byte == b"/" else 2
            yield "slash", b"/"
        elif byte == b"?":
            position += 1
            yield "one", b"[^/]"
        elif byte == b"[":
            members, position = _bracket(pattern, position)
            yield "one", members
        else:
            position += byte == b"\\"
            if position >= end:
                raise _NeverMatches(pattern)
            yield "one", re.escape(pattern[position : position + 1])
            position += 1


def _bracket(pattern: bytes, position: int) -> tuple[bytes, int]:
    """Translate the bracket expression that starts at ``position``; return it and the position behind it."""
    position += 1
    negated = pattern[position : position + 1] in (b"!", b"^")
    position += negated
    members: set[int] = set()
    first, previous = True, -1
    while first or pattern[position : position + 1] != b"]":
        first = False
        byte, following = _byte(pattern, position), pattern[position + 1 : position + 2]
        named = _posix_class(pattern, position) if byte == ord("[") and following == b":" else None
        if named is not None:
            members.update(named[0])
            position, previous = named[1], -1
        elif byte == ord("-") and previous >= 0 and following and following != b"]":
            upper, position = _unescaped(pattern, position + 1)
            members.update(range(previous, upper + 1))
            previous = -1
        else:
            previous, position = _unescaped(pattern, position)
            members.add(previous)
    if negated:
        members = set(range(1, 256)) - members
    members.discard(ord("/"))
    if not members:
        return b"(?!)", position + 1
    return b"[" + b"".join(_ranges(members)) + b"]", position + 1


def _ranges(members: set[int]) -> Iterator[bytes]:
    """Yield bytes as ranges: a long expression takes long to compile."""
    for first in sorted(member for member in members if member - 1 not in members):
        last = first
        while last + 1 in members:
            last += 1
        yield b"\\x%02x" % first if first == last else b"\\x%02x-\\x%02x" % (first, last)


def _posix_class(pattern: bytes, position: int) -> tuple[bytes, int] | None:
    """Read ``[:name:]``; None where the bracket is a literal one after all."""
    stop = pattern.find(b"]", position + 2)
    if stop < 0:
        raise _NeverMatches(pattern)
    if stop == position + 2 or pattern[stop - 1 : stop] != b":":
        return None
    known = _POSIX_CLASSES.get(pattern[position + 2 : stop - 1])
    if known is None:
        raise _NeverMatches(pattern)
    return known, stop + 1


def _unescaped(pattern: bytes, position: int) -> tuple[int, int]:
    """Return the byte at a position, taking what a backslash stands before, and the position behind it."""
    byte = _byte(pattern, position)
    if byte != ord("\\"):
        return byte, position + 1
    return _byte(pattern, position + 1), position + 2


def _byte(pattern: bytes, position: int) -> int:
    if position >= len(pattern):
        raise _NeverMatches(pattern)
    return pattern[position]
