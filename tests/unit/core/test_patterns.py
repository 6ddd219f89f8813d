"""Regular expressions work in each Python 3.11: that of the images is older than that of most developers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import services

# Before 3.11.5 a possessive quantifier of a group may match what it must not (python/cpython#106052).
_POSSESSIVE_GROUP = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")


def test_no_group_has_a_possessive_quantifier() -> None:
    assert _POSSESSIVE_GROUP.search("(?:a|b)*+")
    assert _POSSESSIVE_GROUP.search("(a){2,3}+")
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(services.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _POSSESSIVE_GROUP.search(node.value)
    ]
    assert found == []
