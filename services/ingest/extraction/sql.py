"""SQL, scanned: tables, views, routines, triggers, types and indexes, and the tables and routines that they use.

Scanned by statements rather than parsed: the grammar of tree-sitter knows one dialect, has no ``CREATE PROCEDURE``, and
loses the statements behind what it does not know. Strings, comments, dollar quotes and the blocks of routines are told
apart in each of PostgreSQL, MySQL, SQLite, T-SQL and PL/SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from services.ingest.chunks import ReferenceKind
from services.ingest.extraction.captures import Captured, Found, Use, name_parts
from services.ingest.extraction.scanning import Source, Token

_PART = rb'(?:[A-Za-z_\x80-\xff#@][\w$#@\x80-\xff]*|"(?:[^"\n]|"")+"|`[^`\n]+`|\[[A-Za-z_][^\]\n]*\])'
_LEXER = re.compile(
    rb"(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))"
    rb"|(?P<string>'(?:[^'\\]|''|\\.)*'?)"
    rb"|(?P<dollar>\$(?P<tag>\w*)\$.*?(?:\$(?P=tag)\$|\Z))"
    rb"|(?P<word>" + _PART + rb"(?:[ \t]*\.[ \t]*" + _PART + rb")*)"
    rb"|(?P<number>\d[\w.]*)"
    rb"|(?P<mark>[;(),])"
    rb"|(?P<slash>^/[ \t]*$)",
    re.DOTALL | re.MULTILINE,
)
_KINDS = {
    "table": "table",
    "view": "view",
    "function": "procedure",
    "procedure": "procedure",
    "proc": "procedure",
    "trigger": "procedure",
    "event": "procedure",
    "package": "table",
    "type": "type",
    "domain": "type",
    "aggregate": "procedure",
    "index": "constant",
    "sequence": "constant",
    "schema": "constant",
}
# What may stand between CREATE and the kind, values of MySQL's DEFINER aside, and between the kind and the name.
_BEFORE_KIND = frozenset(
    {
        "or", "replace", "alter", "temp", "temporary", "global", "local", "unlogged", "unique", "clustered",
        "nonclustered", "materialized", "recursive", "external", "virtual", "foreign", "force", "editionable",
        "noneditionable", "constraint", "definer", "algorithm", "sql", "security", "invoker", "undefined", "merge",
        "temptable", "columnstore", "fulltext", "spatial", "bitmap", "secure", "transient", "dynamic", "event",
    }
)  # fmt: skip
_AFTER_KIND = frozenset({"if", "not", "exists", "concurrently", "body"})
# What a name of a table or a routine follows.
_BEFORE_NAMES = frozenset({"from", "join", "into", "update", "references", "call", "exec", "execute", "table"})
_NO_NAMES = frozenset(
    {
        "select", "set", "values", "only", "lateral", "unnest", "delete", "insert", "update", "cascade", "restrict",
        "conflict", "duplicate", "no", "function", "procedure", "if", "not", "exists", "commit", "each", "row",
        "statement", "as", "where", "immediate", "format",
    }
)  # fmt: skip
_OPENING = frozenset({"begin", "case"})
_NO_BLOCK = frozenset({"transaction", "tran", "work", "deferred", "immediate", "exclusive"})
_INSIDE = frozenset({"if", "loop", "while", "repeat", "for"})
_ROUTINES = frozenset({"function", "procedure", "proc", "trigger", "event", "package"})
_HEAD_WORDS = 24


def scan_sql(data: bytes) -> Captured:
    """Find what a SQL script defines and uses."""
    scanner = _Scanner(Source(data, _LEXER), data)
    for token in scanner.source.tokens(scanner.captured):
        scanner.take(token)
    return scanner.captured


@dataclass(slots=True)
class _Scanner:
    source: Source
    data: bytes
    captured: Captured = field(default_factory=Captured)
    head: list[Token] = field(default_factory=list)  # first words of the statement
    current: Found | None = None
    kind: str = ""
    is_routine: bool = False
    blocks: int = 0
    parentheses: int = 0
    previous: str = ""
    before: str = ""  # the word before the previous one

    def take(self, token: Token) -> None:
        word = token.text.lower() if token.kind == "word" else token.text
        if self._begins(token, word):
            self._end(token.start)
        if not self.head and word != ";":
            self.source.begin(self.captured, token.start, 0)
        if token.kind == "word":
            self._word(token, word)
        elif word == "(":
            self.parentheses += 1
        elif word == ")":
            self.parentheses = max(0, self.parentheses - 1)
        elif word == ";" and not (self.is_routine and self.blocks):
            self._end(token.end)
        elif token.kind == "slash":
            self._end(token.start)
        self.before, self.previous = self.previous, word

    def _begins(self, token: Token, word: str) -> bool:
        """Whether a word at the beginning of a line begins a statement although the one before has no end."""
        at_start = not token.start or self.data[token.start - 1 : token.start] == b"\n"
        return at_start and bool(self.head) and (word in ("go", "delimiter") or (word == "create" and not self.blocks))

    def _end(self, byte: int) -> None:
        if self.current is not None:
            self.source.close(self.current, self._last_byte(byte))
        self.head, self.current, self.kind, self.is_routine = [], None, "", False
        self.blocks = self.parentheses = 0
        self.previous = self.before = ""

    def _last_byte(self, byte: int) -> int:
        """Step back over white space and comments, which belong to what follows."""
        comments = self.captured.comments
        place = len(comments) - 1
        while True:
            while byte and self.data[byte - 1 : byte].isspace():
                byte -= 1
            while place >= 0 and comments[place].start_byte >= byte:
                place -= 1
            if place < 0 or comments[place].end_byte < byte or byte <= (self.head[0].start if self.head else 0):
                return byte
            byte = comments[place].start_byte

    def _word(self, token: Token, word: str) -> None:
        on_table = self.previous == "on" and self.kind in ("trigger", "index", "none")
        run_by = self.previous in ("function", "procedure") and self.before == "execute"
        if self.previous in _BEFORE_NAMES or on_table or run_by:
            self._use(token, word)
        if len(self.head) < _HEAD_WORDS and self.current is None:
            self.head.append(token)
            self._define(token, word)
        if self.is_routine and self.current is not None:
            self._count_blocks(word)
        elif self.previous == "begin" and word in _NO_BLOCK:
            self.blocks = 0

    def _define(self, token: Token, word: str) -> None:
        first = self.head[0].text.lower()
        if first not in ("create", "alter") or len(self.head) < 2:
            return
        if not self.kind:
            if word in _KINDS:
                self.kind = word
            elif word not in _BEFORE_KIND and not any(token.text.lower() == "definer" for token in self.head):
                self.kind = "none"
            return
        if word in _AFTER_KIND or (self.kind == "type" and word == "body"):
            return
        if self.kind == "index" and word == "on":
            self.kind = "none"  # an index without a name
            return
        replaced = first == "create" or (self.kind in _ROUTINES and self.head[1].text.lower() == self.kind)
        if self.kind == "none" or not replaced:
            return
        parts = name_parts(token.text, ".")
        if parts:
            self.current = self.source.found(_KINDS[self.kind], parts, self.head[0].start, token.start)
            self.captured.definitions.append(self.current)
            self.is_routine = self.kind in _ROUTINES

    def _count_blocks(self, word: str) -> None:
        if word in _OPENING and self.previous != "end":
            self.blocks += 1
        elif self.previous == "end" and word in _INSIDE:
            self.blocks += 1  # "end if" closes what was not counted
        elif word == "end":
            self.blocks = max(0, self.blocks - 1)

    def _use(self, token: Token, word: str) -> None:
        if word not in _NO_NAMES and word not in _BEFORE_NAMES:
            row = self.source.row(token.start)
            self.captured.uses.append(Use(ReferenceKind.CALL, token.text, "", False, False, token.start, row))
