from __future__ import annotations

import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.chunks import ChunkKind, Extraction, SymbolKind
from services.ingest.sniffing import TextFile, sniff
from tests.support.extraction import assert_whole
from tests.support.extraction import extracted as take


def dedented(text: str, **options: int) -> Extraction:
    return take(textwrap.dedent(text).lstrip("\n"), tokens=options.get("tokens", 254))


def outline(extraction: Extraction) -> list[tuple[str, str, int, int]]:
    return [(str(chunk.kind), chunk.name, chunk.start_line, chunk.end_line) for chunk in extraction.chunks]


def test_definitions_take_their_decorators_and_comments_and_the_rest_is_the_modules() -> None:
    extraction = dedented('''
        """Doc."""
        import os

        LIMIT = 3

        # says why
        @decorated
        def first():
            return 1
            # the end of first

        class Box(Base):
            """A box."""

            size = 1

            def open(self):
                return self

            # how to close
            async def close(self):
                pass

            shut = close

        if __name__ == "__main__":
            first()
        ''')
    assert outline(extraction) == [
        ("module", "mod", 1, 4),
        ("function", "first", 6, 10),
        ("class", "Box", 12, 15),
        ("method", "open", 17, 18),
        ("method", "close", 20, 22),
        ("class", "Box", 24, 24),
        ("module", "mod", 26, 27),
    ]
    assert [chunk.key for chunk in extraction.chunks] == [
        "pkg/mod.py",
        "pkg/mod.py#first",
        "pkg/mod.py#Box",
        "pkg/mod.py#Box.open",
        "pkg/mod.py#Box.close",
        "pkg/mod.py#Box~1",
        "pkg/mod.py~1",
    ]
    assert extraction.chunks[4].title == "pkg.mod > Box > close"
    assert extraction.chunks[4].qualified_name == "pkg.mod.Box.close"


def test_symbols_say_kind_signature_summary_and_span() -> None:
    extraction = dedented('''
        """What it is for.

        More."""
        LIMIT: int = 3

        def f(a, /, b: int = 1, *args, c, **rest) -> str:
            """Make it."""
            def inner(): pass

        class A(B, metaclass=M):
            async def g(self): pass
        ''')
    found = [(s.kind.value, s.qualified_name, s.signature, s.summary, s.start_line) for s in extraction.symbols]
    assert found == [
        ("module", "pkg.mod", "", "What it is for.", 1),
        ("variable", "pkg.mod.LIMIT", "", "", 4),
        ("function", "pkg.mod.f", "def f(a, /, b: int=1, *args, c, **rest) -> str", "Make it.", 6),
        ("function", "pkg.mod.f.inner", "def inner()", "", 8),
        ("class", "pkg.mod.A", "class A(B, metaclass=M)", "", 10),
        ("method", "pkg.mod.A.g", "async def g(self)", "", 11),
    ]


def test_a_file_that_is_one_function_is_one_chunk() -> None:
    extraction = dedented("""
        import re

        def only(x):
            return re.sub(x)

        # end of file
        """)
    assert outline(extraction) == [("function", "only", 1, 6)]


def test_comments_between_definitions_belong_to_the_one_below_and_at_the_end_to_the_last() -> None:
    extraction = dedented("""
        # ---- section ----

        def a(): pass

        # ---- other ----

        def b(): pass

        # vim: set
        """)
    assert outline(extraction) == [("function", "a", 1, 3), ("function", "b", 5, 9)]


def test_definitions_under_conditions_are_their_own_and_take_the_condition_along() -> None:
    extraction = dedented("""
        if sys.version_info > (3, 11):
            def f(): return 1
        else:
            def f(): return 2
        """)
    assert outline(extraction) == [("function", "f", 1, 2), ("function", "f", 3, 4)]
    assert [chunk.key for chunk in extraction.chunks] == ["pkg/mod.py#f", "pkg/mod.py#f~1"]


def test_overloads_stay_with_what_they_declare_and_properties_stay_apart() -> None:
    extraction = dedented("""
        @overload
        def f(x: int) -> int: ...
        @typing.overload
        def f(x: str) -> str: ...
        def f(x): return x

        class A:
            @property
            def v(self): return 1

            @v.setter
            def v(self, x): pass
        """)
    assert outline(extraction) == [
        ("function", "f", 1, 5),
        ("class", "A", 7, 7),
        ("method", "v", 8, 9),
        ("method", "v", 11, 12),
    ]
    assert [symbol.key for symbol in extraction.symbols if symbol.name == "f"] == [
        "pkg/mod.py#f",
        "pkg/mod.py#f~1",
        "pkg/mod.py#f~2",
    ]


def test_a_line_inserted_above_moves_spans_and_changes_no_key_and_no_text() -> None:
    source = Path(str(find_spec("psycopg_pool.pool").origin)).read_text()  # type: ignore[union-attr]
    before, after = take(source), take("# inserted\n\n" + source)
    assert [chunk.key for chunk in before.chunks] == [chunk.key for chunk in after.chunks]
    assert [chunk.text for chunk in before.chunks][1:] == [chunk.text for chunk in after.chunks][1:]
    assert [chunk.start_line + 2 for chunk in before.chunks][1:] == [chunk.start_line for chunk in after.chunks][1:]


def test_nested_functions_stay_unless_their_parent_is_too_large() -> None:
    body = "\n".join(f"        value_{number} = compute({number})" for number in range(20))
    text = f"def outer():\n    x = 1\n\n    def inner():\n{body}\n\n    def other():\n{body}\n    return inner\n"
    assert outline(take(text, tokens=2000)) == [("function", "outer", 1, 47)]
    small = take(text, tokens=254)
    assert [chunk.name for chunk in small.chunks] == ["outer", "inner", "other", "outer"]
    assert_whole(small, text)


def test_an_oversized_function_is_split_between_statements() -> None:
    body = "\n".join(f"    if check_{number}(value):\n        total += {number}" for number in range(60))
    text = f"def big(value):\n{body}\n    return total\n"
    extraction = take(text)
    assert len(extraction.chunks) > 2
    assert_whole(extraction, text)
    for chunk in extraction.chunks[1:]:
        assert chunk.text.startswith("    if check_"), "a part begins at a statement of the body, not inside one"
    assert [chunk.title for chunk in extraction.chunks][:2] == ["pkg.mod > big (part 1)", "pkg.mod > big (part 2)"]


PYTHON_2 = """
import urllib2
from . import sibling

class Old:
    def greet(self, name):
        print "hello %s" % name

def main(argv=None):
    try:
        exec "x = 1"
    except ValueError, e:
        raise e
main()
"""


def test_python_2_keeps_its_definitions_and_says_that_it_did_not_parse() -> None:
    extraction = take(PYTHON_2)
    assert [note.code for note in extraction.notes] == ["not_parsed"]
    assert_whole(extraction, PYTHON_2)
    assert [(symbol.kind.value, symbol.qualified_name) for symbol in extraction.symbols] == [
        ("module", "pkg.mod"),
        ("class", "pkg.mod.Old"),
        ("method", "pkg.mod.Old.greet"),
        ("function", "pkg.mod.main"),
    ]
    assert outline(extraction) == [
        ("module", "mod", 2, 3),
        ("class", "Old", 5, 5),
        ("method", "greet", 6, 7),
        ("function", "main", 9, 13),
        ("module", "mod", 14, 14),
    ]
    assert [reference.target for reference in extraction.references] == ["urllib2", "pkg.sibling"]


GENERIC = """
type Pair[T] = tuple[T, T]

class Box[T: (int, str), *Ts](Base):
    def put[S](self, x: T, y: S) -> None:
        self.take(x)

    def take(self, x): ...

async def first[**P, R](f: Callable[P, R]) -> R:
    return await f()
"""


def test_type_parameters_are_understood_on_every_supported_python() -> None:
    extraction = take(GENERIC)
    expected = [] if sys.version_info >= (3, 12) else ["type_parameters_dropped"]
    assert [note.code for note in extraction.notes] == expected
    assert [symbol.name for symbol in extraction.symbols if symbol.kind is not SymbolKind.MODULE][1:] == [
        "Box",
        "put",
        "take",
        "first",
    ]
    assert ("pkg.mod.Box.take", True) in [(edge.target, edge.resolved) for edge in extraction.references]
    assert_whole(extraction, GENERIC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n   \n",
        "\x0c\n\x0cdef f():\n    pass\n\x0c\nclass A:\n\x0c\n    x = 1\n",
        "x = 'a\u2028b'\ndef f():\n    '''one\u2029\x85two'''\n",
        "def f():\n\treturn 1\n\tdef g():\n\t\treturn 2\n",
        "def f(\n    a,\n    # of the header\n):\n    pass\n",
        "'''text\n# no comment of g\n# '''\ndef g(): pass\n",
        "x = 1; y = 2\nclass A: z = 1\ndef f(): pass; pass\n",
        "\\\n\ndef f(): pass\n",
        "if x:\n    pass\nelif y:\n    def f(): pass\n# tail\nelse:\n    z = 1\n",
        "def f(:\n  broken\nclass\ndef g():\n    x = '''never closed\n",
        "def a(): pass\n    # deeper comment\n  # shallower\n",
        "@deco\n\n\n# between\nclass A:\n    # only a comment\n    pass\n    # last\n# below\n",
        "match x:\n    case 1:\n        def f(): pass\n    case _:\n        y = 2\n",
        "try:\n    def f(): pass\nexcept* E:\n    def g(): pass\nfinally:\n    z = 1\n",
        "x = \\\n  1\ndef f(): return \\\n  2\n",
        "print 'two'\n\n\nclass  A ( object ) :\n    def f ( self ) : pass\n",
        "x" + ".a" * 200_00 + "\n",
        "-" * 5000 + "1\n",
        "x = '" + "y" * 20_000 + "'\n",
        "if a: pass\n" + "elif b: pass\n" * 3000,
    ],
)
def test_odd_files_lose_no_line(text: str) -> None:
    assert_whole(take(text), text)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_change_nothing_but_the_bytes(end: str) -> None:
    text = "import os\n\n\ndef f():\n    '''a\n    b'''\n\n\ndef g():\n    pass\n"
    file = sniff(text.replace("\n", end).encode(), "pkg/mod.py")
    assert isinstance(file, TextFile)
    assert take(file.text) == take(text)
    assert take(text.replace("\n", end)) == take(text)


def test_every_line_of_real_packages_is_in_exactly_one_chunk() -> None:
    files = [
        file
        for package in ("psycopg_pool", "markdown_it", "alembic")
        for file in sorted(Path(str(find_spec(package).origin)).parent.rglob("*.py"))  # type: ignore[union-attr]
    ]
    assert len(files) > 80
    for file in files:
        text = file.read_text()
        extraction = take(text, path=file.name)
        assert not extraction.notes, (file, extraction.notes)
        assert_whole(extraction, text)


_NAME = st.sampled_from("abc")


def _indent(text: str) -> str:
    return textwrap.indent(text, "    ")


def _blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    body = st.lists(inner, min_size=1, max_size=4).map("".join)
    decorated = st.sampled_from(["", "@deco\n", "@overload\n", "# note\n", "# far\n\n", "@deco(\n    1,\n)\n# x\n"])
    return st.one_of(
        st.builds(lambda d, n, b: f"{d}def {n}():\n{_indent(b)}    pass\n", decorated, _NAME, body),
        st.builds(lambda d, n, b: f"{d}class {n}:\n{_indent(b)}    pass\n", decorated, _NAME, body),
        st.builds(lambda b, c: f"if x:\n{_indent(b)}    pass\nelse:\n{_indent(c)}    pass\n", body, body),
        st.builds(lambda b: f"try:\n{_indent(b)}    pass\nfinally:\n    pass\n", body),
    )


_SIMPLE = st.sampled_from(
    [
        "x = 1\n",
        "\n",
        "# c\n",
        "    \n",
        "'''s\n# t\n\n'''\n",
        "f(\n  1,\n  # in\n)\n",
        "import a.b\n",
        "\x0c\n",
        "def z(): pass\n",
    ]
)
_PROGRAMS = st.lists(st.recursive(_SIMPLE, _blocks, max_leaves=12), max_size=8).map("".join)


@settings(deadline=None)
@given(_PROGRAMS, st.sampled_from([32, 60, 254]))
def test_any_program_is_covered_once_within_the_budget(text: str, tokens: int) -> None:
    extraction = take(text, tokens=tokens)
    assert not any(note.code == "extractor_failed" for note in extraction.notes), extraction.notes
    assert_whole(extraction, text, tokens)


@settings(deadline=None)
@given(_PROGRAMS, st.sampled_from(["print 'x'\n", "def (\n", "x = (\n", "'''\n", "  y\n"]))
def test_any_program_that_does_not_parse_is_covered_once_too(text: str, broken: str) -> None:
    extraction = take(text + broken)
    assert not any(note.code == "extractor_failed" for note in extraction.notes), extraction.notes
    assert_whole(extraction, text + broken)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=200))
def test_any_text_is_covered_once(text: str) -> None:
    for path in ("a.py", "a.md", "a.txt"):
        extraction = take(text, path=path)
        assert not any(note.code == "extractor_failed" for note in extraction.notes), extraction.notes
        assert_whole(extraction, text)


def test_an_empty_file_is_a_module_without_chunks() -> None:
    extraction = take("")
    assert extraction.chunks == ()
    assert [symbol.qualified_name for symbol in extraction.symbols] == ["pkg.mod"]


def test_other_languages_are_named_and_packed_at_blank_lines() -> None:
    text = "\n\n".join(f"[section_{number}]\nkey = 'value of {number}'" for number in range(40)) + "\n"
    extraction = take(text, path="conf/app.toml")
    assert extraction.language == "toml"
    assert {chunk.kind for chunk in extraction.chunks} == {ChunkKind.TEXT}
    assert all(chunk.text.startswith("[section_") for chunk in extraction.chunks)
    assert_whole(extraction, text)


@pytest.mark.parametrize(
    ("path", "text", "language"),
    [
        ("a.py", "", "python"),
        ("bin/tool", "#!/usr/bin/env python3\nimport os\n", "python"),
        ("bin/run", "#!/bin/bash\n", "shell"),
        ("Dockerfile", "", "dockerfile"),
        ("deploy/Dockerfile.dev", "", "dockerfile"),
        ("README", "plain", "text"),
        ("x.TOML", "", "toml"),
        ("a.rs", "", "rust"),
        ("LICENSE.md", "", "markdown"),
    ],
)
def test_languages_are_told_by_name_and_first_line(path: str, text: str, language: str) -> None:
    assert take(text, path=path).language == language
