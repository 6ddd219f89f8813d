"""PEP 695, which Python 3.11 cannot parse: without its type parameters the rest parses, line for line."""

from __future__ import annotations

import re

_TYPE_PARAMETERS = re.compile(r"^([ \t]*(?:async[ \t]+def|def|class)[ \t]+\w+)\[", re.MULTILINE)
_TYPE_ALIAS = re.compile(r"^([ \t]*)type[ \t]+(\w+)[ \t]*(?=[=\[])", re.MULTILINE)


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
