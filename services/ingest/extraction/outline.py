"""Definitions of Python text that does not parse: Python 2, templates, syntax newer than this interpreter's.

Lines that open a definition are found by their form and its end by indentation, outside of strings and brackets as far
as those can be told. Nothing is resolved, but names and spans are kept, so the file stays findable by what it defines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

_LEXEME = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<string>\"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
      | (?P<open>[\[({]) | (?P<close>[\])}]) | (?P<end>\n)""",
    re.VERBOSE | re.DOTALL,
)
_DEFINITION = re.compile(r"[ \t\f]*(?P<what>async[ \t]+def|def|class)[ \t]+(?P<name>\w+)(?P<rest>[^\n]*)")
_DECORATOR = re.compile(r"[ \t\f]*@\w")
# PEP 695, which Python 3.11 cannot parse: without its type parameters the rest parses line for line.
_TYPE_PARAMETERS = re.compile(r"^([ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+)\[", re.MULTILINE)
_TYPE_ALIAS = re.compile(r"^([ \t]*)type[ \t]+(\w+)[ \t]*(?=[=\[])", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outlined:
    is_class: bool
    name: str
    header: str
    indent: int
    start_line: int  # of the decorators
    line: int
    end_line: int


def outline(text: str, lines: Sequence[str]) -> list[Outlined]:
    """Find the definitions of a file, in order; nesting follows from the spans."""
    inner = _inner_lines(text)
    found: list[Outlined] = []
    indents = [_indent(line) for line in lines]
    for number, line in enumerate(lines, 1):
        match = _DEFINITION.match(line)
        if match is None or number in inner:
            continue
        start = number
        while start > 1 and _DECORATOR.match(lines[start - 2]) and indents[start - 2] == indents[number - 1]:
            start -= 1
        end = number
        for later in range(number + 1, len(lines) + 1):
            stripped = lines[later - 1].strip()
            if not stripped or (stripped.startswith("#") and indents[later - 1] <= indents[number - 1]):
                continue
            if later not in inner and indents[later - 1] <= indents[number - 1] and stripped[0] not in ")]}":
                break
            end = later
        header = f"{match['what']} {match['name']}{match['rest']}".rstrip().rstrip(":")
        found.append(Outlined(match["what"] == "class", match["name"], header, indents[number - 1], start, number, end))
    return found


def without_type_parameters(text: str) -> str | None:
    """Blank out PEP 695 syntax, keeping every line where it is; None where there is none."""
    out: list[str] = []
    position = 0
    for match in _TYPE_PARAMETERS.finditer(text):
        if match.start() < position:
            continue
        depth, index = 0, match.end() - 1
        while index < len(text):
            depth += {"[": 1, "]": -1}.get(text[index], 0)
            index += 1
            if depth == 0:
                break
        removed = text[match.end() - 1 : index]
        if depth:
            return None
        # Line ends of a parameter list stay, hidden inside the parentheses that follow or are added.
        newlines = removed.count("\n")
        following = text[index : index + 1]
        if newlines and following != "(":
            return None
        out.append(text[position : match.end() - 1])
        out.append("(" + "\n" * newlines if newlines else "")
        position = index + 1 if newlines else index
    out.append(text[position:])
    changed = "".join(out)
    changed = _TYPE_ALIAS.sub(r"\1\2 ", changed)
    changed = re.sub(r"^([ \t]*\w+ )\[[^\]\n]*\](?=[ \t]*=)", r"\1", changed, flags=re.MULTILINE)
    return changed if changed != text else None


def _inner_lines(text: str) -> set[int]:
    """Return the lines that begin inside a string or inside brackets."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    inner: set[int] = set()
    depth = 0
    for match in _LEXEME.finditer(text):
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "string" and "\n" in match[0]:
            first = bisect_right(starts, match.start())
            inner.update(range(first + 1, first + 1 + match[0].count("\n")))
        elif kind == "end" and depth:
            if _DEFINITION.match(text, match.end()) or _DECORATOR.match(text[match.end() : match.end() + 200]):
                depth = 0  # a bracket that was never closed ends with the next definition
            else:
                inner.add(bisect_right(starts, match.end()))
    return inner


def _indent(line: str) -> int:
    expanded = line.replace("\f", "").expandtabs(8)
    return len(expanded) - len(expanded.lstrip(" "))
