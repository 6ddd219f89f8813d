"""The languages that tree-sitter parses for us: their grammars, queries and rules of naming, as data.

Each language has a query file beside this one, in the vocabulary of tree-sitter's tags queries:

- ``@definition.KIND`` spans a definition named by ``@name``; ``@scope`` names the owner where that is no node around it
  (a receiver in Go, ``Foo.prototype`` in JavaScript); ``#set! name`` names what has no name,
  ``#set! owner`` an owner other than what is around, ``#set! prefix`` what a name begins with. ``namespace`` and
  ``implementation`` are no symbols and only lend their name to what is in them.
- ``@declaration.KIND`` spans what has no body (a prototype, an alias): a symbol, but a chunk of its own only when it is
  documented, or long.
- ``@comment``, ``@attribute``: what belongs to the definition below it. ``@package``: the package that a file declares.
- ``@reference.import`` with ``@source`` and perhaps ``@name``, ``@alias``, ``@all`` or ``@path``; ``@reference.call``,
  ``@reference.inherit`` and ``@reference.decorate`` with ``@name`` and perhaps ``@receiver``, an object, or ``@owner``,
  a path before it; ``@reference.member`` is the call of a member of whatever expression.

Where several patterns capture one name, the first of them in the file decides what it is.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from tree_sitter import Language, Parser, Query


class Names(StrEnum):
    """What the qualified names of a file's definitions begin with."""

    PATH = "path"  # its path with dots, without its suffix: each file is a module
    FOLDER = "folder"  # the path of its folder: all files of a folder are one module
    PACKAGE = "package"  # the package or namespace that it declares
    NOTHING = "nothing"  # names are global in the language


@dataclass(frozen=True, slots=True)
class Grammar:
    """How one language, or one dialect of it, is parsed and named."""

    module: str  # that holds the compiled grammar; "" where tree-sitter has no part in it
    queries: tuple[str, ...]
    names: Names
    function: str = "language"  # of the module, that returns the grammar
    separator: str = "."  # between the parts of a name in the source
    # What may stand before a name, and means the object or the class itself.
    selves: frozenset[str] = frozenset()
    # Whether a bare name may mean a member of the class around it.
    implicit_self: bool = False
    # Parts of a path that are not part of a module's name; "index" of a folder is the folder.
    silent_stems: frozenset[str] = frozenset()
    silent_folders: frozenset[str] = frozenset()
    # Names before a dot that are not the owner of what they are given.
    silent_scopes: frozenset[str] = frozenset()
    # Whether a function in a function is none: what looks like one is a macro.
    flat_functions: bool = False
    # What the grammar does not know and can do without; blanked out before it is parsed.
    unknown: re.Pattern[bytes] | None = None
    # Whether calls by a name alone are kept only if the file defines or imports it.
    known_calls_only: bool = False


_THIS = frozenset({"this", "super"})
_JAVASCRIPT_SCOPES = frozenset({"prototype", "exports", "module", "this", "window", "global", "globalThis", "self"})
_JAVASCRIPT_STEMS = frozenset({"index"})

_GRAMMARS = {
    "javascript": Grammar(
        "tree_sitter_javascript",
        ("javascript", "ecmascript", "jsx"),
        Names.PATH,
        selves=_THIS,
        silent_stems=_JAVASCRIPT_STEMS,
        silent_scopes=_JAVASCRIPT_SCOPES,
    ),
    "typescript": Grammar(
        "tree_sitter_typescript",
        ("typescript", "ecmascript"),
        Names.PATH,
        function="language_typescript",
        selves=_THIS,
        silent_stems=_JAVASCRIPT_STEMS,
        silent_scopes=_JAVASCRIPT_SCOPES,
    ),
    "tsx": Grammar(
        "tree_sitter_typescript",
        ("typescript", "ecmascript", "jsx"),
        Names.PATH,
        function="language_tsx",
        selves=_THIS,
        silent_stems=_JAVASCRIPT_STEMS,
        silent_scopes=_JAVASCRIPT_SCOPES,
    ),
    "go": Grammar("tree_sitter_go", ("go",), Names.FOLDER),
    "java": Grammar("tree_sitter_java", ("java",), Names.PACKAGE, selves=_THIS, implicit_self=True),
    "rust": Grammar(
        "tree_sitter_rust",
        ("rust",),
        Names.PATH,
        separator="::",
        selves=frozenset({"self", "Self"}),
        silent_stems=frozenset({"mod", "lib", "main"}),
        silent_folders=frozenset({"src"}),
    ),
    "c": Grammar("tree_sitter_c", ("c",), Names.NOTHING, flat_functions=True),
    "cpp": Grammar(
        "tree_sitter_cpp",
        ("cpp",),
        Names.NOTHING,
        separator="::",
        selves=frozenset({"this"}),
        implicit_self=True,
        flat_functions=True,
    ),
    "csharp": Grammar(
        "tree_sitter_c_sharp",
        ("csharp",),
        Names.PACKAGE,
        selves=frozenset({"this", "base"}),
        implicit_self=True,
    ),
    "ruby": Grammar(
        "tree_sitter_ruby", ("ruby",), Names.NOTHING, separator="::", selves=frozenset({"self"}), implicit_self=True
    ),
    "php": Grammar(
        "tree_sitter_php",
        ("php",),
        Names.PACKAGE,
        function="language_php",
        separator="\\",
        selves=frozenset({"$this", "self", "static", "parent"}),
    ),
    "kotlin": Grammar(
        "tree_sitter_kotlin",
        ("kotlin",),
        Names.PACKAGE,
        selves=_THIS,
        implicit_self=True,
        unknown=re.compile(rb"\bfun(?=[ \t]+interface\b)"),
    ),
    "shell": Grammar("tree_sitter_bash", ("shell",), Names.PATH, known_calls_only=True),
    # Scanned by code of our own: see ``sql.py`` and ``protobuf.py``.
    "sql": Grammar("", (), Names.NOTHING),
    "proto": Grammar("", (), Names.PACKAGE),
    "hcl": Grammar("tree_sitter_hcl", ("hcl",), Names.FOLDER),
    "python": Grammar("tree_sitter_python", ("python",), Names.PATH),
}


def grammar_of(language: str, path: str = "") -> Grammar:
    """Return the grammar of a language, in the dialect that the path of a file tells."""
    return _GRAMMARS["tsx" if language == "typescript" and path.lower().endswith(".tsx") else language]


@cache
def parser_of(grammar: Grammar) -> tuple[Parser, Query]:
    """Load a grammar with its query, once per process."""
    language = Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    folder = Path(__file__).parent
    query = "\n".join((folder / f"{name}.scm").read_text("utf-8") for name in grammar.queries)
    return Parser(language), Query(language, query)
