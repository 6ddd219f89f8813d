"""Code of each language as a team writes it: ``code/`` holds a file per language and, beside it, what must be found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tree_sitter import LANGUAGE_VERSION, MIN_COMPATIBLE_LANGUAGE_VERSION

from services.ingest.chunks import ChunkKind, Extraction, SymbolKind, embedded_title
from services.ingest.extraction.grammars import grammar_of, parser_of
from services.ingest.extraction.languages import CODE_LANGUAGES, language_of
from tests.support.extraction import assert_whole, extracted

CODE = Path(__file__).parent / "code"
FILES = sorted(str(file.relative_to(CODE)) for file in CODE.rglob("*") if file.is_file() and file.suffix != ".expected")


def described(extraction: Extraction) -> str:
    """Write chunks, symbols and references one a line, as a reader would check them."""
    lines = [f"note {note.code} {note.line}" for note in extraction.notes]
    lines += [f"chunk {one.kind} {one.start_line}-{one.end_line} {one.title}" for one in extraction.chunks]
    lines += [
        f"symbol {one.kind} {one.start_line}-{one.end_line} {one.qualified_name} | {one.signature} | {one.summary}"
        for one in extraction.symbols
    ]
    lines += [
        f"{one.kind} {one.line} {one.source} -> {one.target}{'' if one.resolved else ' ?'}"
        for one in extraction.references
    ]
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize("path", FILES)
def test_definitions_documentation_and_references_are_found(path: str) -> None:
    text = (CODE / path).read_text()
    extraction = extracted(text, path=path, tokens=400)
    assert described(extraction) == (CODE / f"{path}.expected").read_text()
    assert_whole(extraction, text, 400)


def test_every_language_has_its_file() -> None:
    assert {language_of(path) for path in FILES} == CODE_LANGUAGES


@pytest.mark.parametrize("language", sorted({*CODE_LANGUAGES, "python"} - {"sql", "proto"}))
def test_every_grammar_loads_with_its_query(language: str) -> None:
    for path in ("a.x", "a.tsx"):
        parser, query = parser_of(grammar_of(language, path))
        assert parser.language is not None
        assert MIN_COMPATIBLE_LANGUAGE_VERSION <= parser.language.abi_version <= LANGUAGE_VERSION
        assert query.pattern_count > 3


@pytest.mark.parametrize("path", FILES)
def test_a_line_inserted_above_changes_no_key_and_no_text(path: str) -> None:
    text = (CODE / path).read_text()
    head, tail = ("<?php\n", text.removeprefix("<?php\n")) if text.startswith("<?php\n") else ("", text)
    before, after = extracted(text, path=path), extracted(f"{head}\n\n{tail}", path=path)
    assert [chunk.key for chunk in before.chunks] == [chunk.key for chunk in after.chunks]
    assert [chunk.text for chunk in before.chunks][1:] == [chunk.text for chunk in after.chunks][1:]
    assert [symbol.key for symbol in before.symbols] == [symbol.key for symbol in after.symbols]


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_change_nothing(path: str, end: str) -> None:
    text = (CODE / path).read_text()
    assert extracted(text.replace("\n", end), path=path) == extracted(text, path=path)


def test_definitions_are_embedded_with_the_names_around_them_and_not_with_their_path() -> None:
    extraction = extracted("import x from 'x';\n\nclass A {\n  b() {}\n}\n\nfunction c() {}\n", path="src/a.ts")
    assert [(chunk.title, embedded_title(chunk)) for chunk in extraction.chunks] == [
        ("src/a.ts", "src/a.ts"),
        ("src/a.ts > A", ""),
        ("src/a.ts > A > b", "A"),
        ("src/a.ts > c", ""),
    ]


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("a.js", "class Größe { цена() {} }", "Größe.цена"),
        ("a.ts", "function 価格(): void {}", "価格"),
        ("a.go", "package a\nfunc Größe() {}\n", "Größe"),
        ("A.java", "class Größe { int цена() { return 1; } }", "Größe.цена"),
        ("a.rs", "fn größe() {}", "größe"),
        ("a.c", "int größe(void) { return 1; }", "größe"),
        ("a.cs", "class Größe { int Цена() { return 1; } }", "Größe.Цена"),
        ("a.rb", "class Größe\n  def цена\n  end\nend\n", "Größe.цена"),
        ("a.php", "<?php\nfunction größe() {}\n", "größe"),
        ("a.kt", "fun größe() {}\n", "größe"),
        ("a.sql", "CREATE TABLE größe (a int);", "größe"),
        ("a.proto", "message Größe {}", "Größe"),
    ],
)
def test_names_in_other_scripts_are_kept(path: str, text: str, name: str) -> None:
    symbols = extracted(text, path=path).symbols
    assert any(f".{symbol.qualified_name}".endswith(f".{name}") for symbol in symbols), symbols


DAMAGED = [
    ("a.js", "function a() { return 1; }\n\nfunction b( { if (x { \n\nclass C {\n  d() {}\n}\n", {"a"}),
    ("a.go", "package a\n\nfunc A() int { return 1 }\n\nfunc B( {{{\n\nfunc C() {}\n", {"A"}),
    ("A.java", "class A {\n  int a() { return 1; }\n  int b( { }\n  int c() { return 3; }\n}\n", {"A", "A.a", "A.c"}),
    ("a.rs", "fn a() {}\n\nfn b( -> {\n\nstruct C;\n", {"a"}),
    ("a.rb", "def a\n  1\nend\n\ndef b(\n\nclass C\n  def d; end\nend\n", {"a"}),
    ("a.proto", "message A { string a = 1; }\nmessage B {\n  string b = \n", {"A", "B"}),
    ("a.sql", "create table a (x int);\ncreate tabel b (y int;\ncreate view c as select 1;\n", {"a", "c"}),
]


@pytest.mark.parametrize(("path", "text", "names"), DAMAGED)
def test_a_damaged_file_keeps_what_is_sound_and_loses_no_line(path: str, text: str, names: set[str]) -> None:
    extraction = extracted(text, path=path)
    assert_whole(extraction, text)
    found = {symbol.key.partition("#")[2] for symbol in extraction.symbols}
    assert names <= found
    if path != "a.sql":
        assert [note.code for note in extraction.notes] == ["partly_parsed"]


def test_what_is_no_code_at_all_becomes_text_and_says_so() -> None:
    text = "<<< this is ) no { source }} of ( any sort\n\n" * 5
    for path in ("a.go", "a.java", "a.cs"):
        extraction = extracted(text, path=path)
        assert {chunk.kind for chunk in extraction.chunks} == {ChunkKind.TEXT}
        assert [note.code for note in extraction.notes] == ["not_parsed"]
        assert_whole(extraction, text)


def test_prototypes_are_chunks_only_where_they_are_documented_and_symbols_always() -> None:
    text = "#ifndef A_H\n#define A_H 1\n/* Opens it. */\nint a_open(int x);\n\nint a_close(int x);\n#endif\n"
    extraction = extracted(text, path="a.h")
    assert [(chunk.kind, chunk.name) for chunk in extraction.chunks] == [
        (ChunkKind.MODULE, "a"),
        (ChunkKind.FUNCTION, "a_open"),
        (ChunkKind.MODULE, "a"),
    ]
    assert {"a_open", "a_close"} <= {symbol.name for symbol in extraction.symbols}


def test_a_header_that_only_cpp_can_read_is_cpp() -> None:
    assert extracted("namespace a { class B { int c(); }; }\n", path="a.h").language == "cpp"
    assert extracted("struct a { int b; };\n", path="a.h").language == "c"


def test_several_definitions_on_one_line_share_a_chunk() -> None:
    extraction = extracted("class A { b() {} c() {} } function d() {}\nfunction e() {}\n", path="a.js")
    assert [(chunk.name, chunk.start_line, chunk.end_line) for chunk in extraction.chunks] == [("A", 1, 1), ("e", 2, 2)]
    assert [symbol.name for symbol in extraction.symbols] == ["a", "A", "b", "c", "d", "e"]


def test_tests_in_calls_are_no_symbols() -> None:
    extraction = extracted("describe('a', () => {\n  it('b', () => {\n    c();\n  });\n});\n", path="a.test.js")
    assert [symbol.kind for symbol in extraction.symbols] == [SymbolKind.MODULE]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("CREATE TABLE [dbo].[Order Lines] (id int)\nGO\nCREATE PROC dbo.Fill AS BEGIN SELECT 1; END\nGO\n", 2),
        ("create package body pay as\n procedure a is begin null; end;\nend pay;\n/\ncreate view v as select 1;", 2),
        ("create function f() returns int as $body$ create table no (a int); $body$ language sql;\nselect 1;", 1),
        ("create trigger t after insert on a begin\n update b set c = case when 1 then 2 end;\nend;\ndrop table b;", 1),
        ("-- create table a (x int);\n/* create table b (x int); */\nselect 'create table c (x int);';", 0),
        ("CREATE DEFINER=`root`@`localhost` PROCEDURE p() BEGIN END;\nCREATE EXTENSION x SCHEMA y;", 1),
        ("begin transaction;\ncreate table a (x int);\ncommit;\ncreate table b (x int);", 2),
    ],
)  # fmt: skip
def test_dialects_of_sql_are_told_apart(text: str, names: int) -> None:
    extraction = extracted(text, path="a.sql")
    assert len(extraction.symbols) - 1 == names, extraction.symbols
    assert_whole(extraction, text)
