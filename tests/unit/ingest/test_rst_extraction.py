from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.extraction import language_of
from tests.support.chunks import outline, symbols, taken

GUIDE = textwrap.dedent("""\
    Preamble.

    =======
     Guide
    =======

    .. _install:

    Install :cmd:`now <x>`
    ----------------------

    Text::

        Not a title
        -----------

    ========  ===
    Not this  one
    ========  ===
    Nor this
    -------------
    a         b
    ========  ===

    1. Linux
    ~~~~~~~~
    .. a comment
       that goes on

    .. code-block:: rst

       Nor
       ===

    Mac
    ---
    Text.

    ----

    * no
    ----

    *Install* ``now``
    -----------------
    Again.
    """)


def test_sections_carry_the_titles_above_them() -> None:
    extraction = taken(GUIDE, "docs/guide.rst").extraction
    assert outline(extraction) == [
        ("docs > guide.rst", 1, 1),
        ("Guide", 3, 7),
        ("Guide > Install now", 9, 23),
        ("Guide > Install now > 1. Linux", 25, 33),
        ("Guide > Mac", 35, 42),
        ("Guide > Install now", 44, 46),
    ]
    assert symbols(extraction) == [
        ("Guide", 3, 46),
        ("Guide/Install now", 9, 34),
        ("Guide/Install now/1. Linux", 25, 34),
        ("Guide/Mac", 35, 43),
        ("Guide/Install now", 44, 46),
    ]


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("A\n=\n", ["A"]),
        ("AB\n==\n", ["AB"]),
        ("Abcdef\n====\n", ["Abcdef"]),  # short, with a warning
        ("Abcdef\n===\n", []),
        ("two\nlines\n=====\n", []),
        ("日本語\n======\n", ["日本語"]),
        ("日本語の\n===\n", []),
        ("====\nAb\n", []),
        ("====\nAb\n----\n", []),
        ("===\nAbcdefg\n===\n", []),
        ("====\nAbcdefg\n====\n", ["Abcdefg"]),
        (":field: x\n=========\n", []),
        (":mod:`ast` --- Trees\n====================\n", ["ast --- Trees"]),
        ("A|sub|\n======\n", ["Asub"]),
        ("Text.\n\nThe end\n-------", ["The end"]),
        ("", []),
        ("..\n\n  quoted\n\nA title\n-------\n", ["A title"]),
    ],
)
def test_what_is_a_title_is_as_docutils_has_it(text: str, titles: list[str]) -> None:
    assert [symbol.name for symbol in taken(text, "a.rst").extraction.symbols] == titles


def test_prose_names_objects_and_files() -> None:
    text = textwrap.dedent("""\
        API
        ===
        See :class:`~requests.Session` and :py:func:`get <requests.get>`, ``requests.api``, ``src/app.py``
        or `the guide <../guide.rst>`_ and `web <https://example.org>`_; :doc:`usage/start`, :doc:`/top`.

        .. module:: zipfile
        .. function:: open(name, *, mode)
        .. autoclass:: zipfile.ZipFile
        .. include:: /etc/passwd
        .. literalinclude:: ../../../secret.py
        .. _here: notes.txt
        .. toctree::
           :maxdepth: 2

           first
           Second <sub/second>

        ::

           :func:`not.this`

        .. code-block:: python

           ``nor.this``
        """)
    edges = [
        (edge.source, edge.kind.value, edge.target, edge.resolved, edge.line)
        for edge in taken(text, "docs/api.rst").extraction.references
    ]
    assert [edge[1:] for edge in edges] == [
        ("mention", "requests.Session", False, 3),
        ("mention", "requests.get", False, 3),
        ("mention", "requests.api", False, 3),
        ("link", "src/app.py", False, 3),
        ("link", "guide.rst", True, 4),
        ("link", "docs/usage/start.rst", True, 4),
        ("link", "top.rst", False, 4),
        ("mention", "zipfile", False, 6),
        ("mention", "zipfile.open", False, 7),
        ("mention", "zipfile.ZipFile", False, 8),
        ("link", "etc/passwd", False, 9),
        ("link", "docs/notes.txt", True, 11),
        ("link", "docs/first.rst", True, 15),
        ("link", "docs/sub/second.rst", True, 16),
    ]
    assert {edge[0] for edge in edges} == {"docs/api.rst#API"}


def test_nothing_is_included_and_nothing_executed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden words")
    text = f"A\n==\n\n.. include:: {secret}\n.. raw:: html\n   :file: {secret}\n.. csv-table::\n   :url: http://127.0.0.1:9/\n"
    assert taken(text, "a.rst").file.text == text


def test_a_text_file_in_restructured_text_is_read_as_such() -> None:
    assert language_of("docs/a.txt", ".. _a:\n\nTitle\n=====\n") == "rst"
    assert language_of("docs/a.txt", "Title\n=====\n") == "text"
    assert language_of("requirements.txt", "# .. note:: x\nrequests\n") == "text"


def test_a_large_section_is_split_before_its_directives_and_code_stays_whole_where_it_can() -> None:
    block = (
        ".. function:: f()\n\n   "
        + " ".join(["word"] * 40)
        + "\n\n   .. code-block:: python\n\n"
        + "      x = 1\n\n" * 8
    )
    extraction = taken("Title\n=====\n\n" + block * 6, "a.rst").extraction
    assert len(extraction.chunks) > 2
    assert not any(chunk.text.lstrip().startswith("x = 1") for chunk in extraction.chunks)


_PARTS = st.sampled_from(
    [
        *("Title\n=====\n", "Title\n-----\n", "=====\nTitle\n=====\n", "====\n", "-----\n", "\n", "text\n", "text::\n"),
        *("  indented\n", ".. note::\n", "..\n", ".. comment\n", ".. _t:\n", "====  ====\n", "+---+\n", "| a |\n"),
        *(":role:`x`\n", "``a.b``\n", "`x <y>`_\n", "word " * 90 + "\n", "\t* tab\n", "\x0c\n", "* item\n", "=\n"),
    ]
)


@settings(deadline=None)
@given(st.lists(_PARTS, max_size=25).map("".join), st.sampled_from([32, 100, 254]))
def test_any_document_is_covered_once_within_the_budget(text: str, tokens: int) -> None:
    taken(text, "a.rst", tokens=tokens)


@pytest.mark.parametrize(
    "piece", ["====  ====\n", "T\n=\n\n", "Ti\n==\n", ":a:`", "`", "`x <", ".. a::\n", "|", "====\n"]
)
def test_time_grows_with_the_size_alone(piece: str) -> None:
    taken(piece * (60_000 // len(piece)) if "\n" in piece else (piece * 100 + "\n") * 300, "a.rst")
