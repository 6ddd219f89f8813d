"""Protocol Buffers, scanned: messages, enums, services, rpcs and what they use. No wheel has a grammar for them.

The scanner keeps a stack of what is open, so it is linear, and a file that is cut off keeps what it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from services.ingest.chunks import ReferenceKind
from services.ingest.extraction.captures import Captured, Found, Import, Use
from services.ingest.extraction.scanning import Source, Token

_LEXER = re.compile(
    rb"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
      | (?P<word>\.?[\w\x80-\xff]+(?:\.[\w\x80-\xff]+)*)
      | (?P<mark>[{}();=<>,\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_BLOCKS = {
    "message": "message",
    "enum": "enum",
    "service": "service",
    "extend": "",
    "oneof": "oneof",
    "group": "message",
}
_SCALARS = frozenset(
    {
        "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
        "sfixed64", "bool", "string", "bytes",
    }
)  # fmt: skip
_LABELS = frozenset({"repeated", "optional", "required", "stream", "map"})
_NO_FIELDS = frozenset({"option", "reserved", "extensions", "syntax", "edition", "package", "import"})


def scan_protobuf(data: bytes) -> Captured:
    """Find what a .proto file defines and uses."""
    scanner = _Scanner(Source(data, _LEXER))
    for token in scanner.source.tokens(scanner.captured):
        scanner.take(token)
    scanner.end()
    return scanner.captured


@dataclass(slots=True)
class _Scanner:
    source: Source
    captured: Captured = field(default_factory=Captured)
    statement: list[Token] = field(default_factory=list)
    # What each open brace belongs to; None for an option or a field.
    open: list[Found | None] = field(default_factory=list)
    brackets: int = 0  # of options behind a field, which may hold braces

    def take(self, token: Token) -> None:
        if not self.statement and token.text != "}":
            self.source.begin(self.captured, token.start, len(self.open))
        if token.text in "[]" and token.kind == "mark":
            self.brackets = max(0, self.brackets + (1 if token.text == "[" else -1))
        elif token.kind != "mark" or token.text not in "{};" or self.brackets:
            self.statement.append(token)
        elif token.text == ";":
            self._finish(token)
        elif token.text == "{":
            self.open.append(self._begin())
            self.statement = []
        else:
            self.statement = []
            if not self.open:
                self.captured.errors.append(self.source.row(token.start))
                return
            block = self.open.pop()
            if block is not None:
                self.source.close(block, token.end)

    def end(self) -> None:
        """Note what was never closed; it reaches to the end of the file."""
        self.captured.errors += [one.start_row for one in self.open if one is not None]

    def _begin(self) -> Found | None:
        """Open a block: of a definition, or of the options of something else."""
        words = [token for token in self.statement if token.kind == "word"]
        at = next((place for place, token in enumerate(words) if token.text in _BLOCKS), -1)
        if words and words[0].text == "rpc":
            return self._rpc(words)
        if at < 0 or at + 1 >= len(words):
            return None
        kind = _BLOCKS[words[at].text]
        name = words[at + 1]
        if not kind:
            self._use(name)
            return None
        found = self.source.found(kind, (name.text,), words[0].start, name.start, is_declaration=kind == "oneof")
        found.body_byte = self.statement[-1].end
        self.captured.definitions.append(found)
        return found

    def _finish(self, last: Token) -> None:
        words = [token for token in self.statement if token.kind == "word"]
        if not words:
            self.statement = []
            return
        head = words[0].text
        if head == "package" and len(words) > 1:
            self.captured.package = tuple(words[1].text.split("."))
        elif head == "import":
            path = next((token for token in self.statement if token.kind == "string"), None)
            if path is not None:
                row = self.source.row(words[0].start)
                name = path.text.strip("\"'")
                self.captured.imports.append(Import(name, "", "", False, False, head, words[0].start, row))
        elif head == "rpc":
            found = self._rpc(words)
            if found is not None:
                self.source.close(found, last.end)
        elif head not in _NO_FIELDS:
            types = [token for token in words if token.text not in _LABELS]
            before = next((token.start for token in self.statement if token.text == "="), 0)
            # The name stands right before the number; what stands before the name are types.
            for token in [token for token in types if token.start < before][:-1]:
                self._use(token)
        self.statement = []

    def _rpc(self, words: list[Token]) -> Found | None:
        if len(words) < 2:
            return None
        found = self.source.found("method", (words[1].text,), words[0].start, words[1].start)
        found.body_byte = self.statement[-1].end
        self.captured.definitions.append(found)
        for token in words[2:]:
            if token.text not in ("returns", "stream"):
                self._use(token)
        return found

    def _use(self, token: Token) -> None:
        name = token.text.lstrip(".")
        if name not in _SCALARS and name:
            row = self.source.row(token.start)
            self.captured.uses.append(Use(ReferenceKind.CALL, name, "", False, False, token.start, row))
