"""Every text format in every situation that files come in: the rows and columns of one table."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import pytest

from services.ingest.chunks import Extraction
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings
from services.ingest.extraction.worker import run as run_job
from tests.support.chunks import codes, outline, taken
from tests.support.extraction import assert_whole

WORDS = "Настройки читаются при запуске программы"
HUGE_BYTES = 1_000_000
LIMIT_S = 10.0  # half of what a file may take


@dataclass(frozen=True)
class Format:
    """One row: a sample with the place of every chunk, how it is repeated, and what it says when it is damaged."""

    path: str
    text: str
    chunks: list[tuple[str, int, int]]
    head: str = ""  # of a huge file
    part: str = ""  # which it repeats
    deep: str = ""
    damaged: str = ""
    damage: str = ""  # the note's code; "" where any text is well formed
    tokens: int = 254


def cell(source: str) -> dict[str, object]:
    return {"cell_type": "markdown", "source": source}


NOTEBOOK = json.dumps(
    {"nbformat": 4, "metadata": {}, "cells": [cell(f"# Глава\n{WORDS}"), cell("## Часть\nтекст")]}, ensure_ascii=False
)

FORMATS = {
    "Markdown": Format(
        "a.md",
        f"{WORDS}\n\n# Глава\n\nтекст\n\n## Часть\nтекст\n",
        [("a.md", 1, 1), ("Глава", 3, 5), ("Глава > Часть", 7, 8)],
        part="## Heading\n\nSome words of it and `code.name`.\n\n",
        deep="> " * 3_000 + "x\n",
        damaged="# A\n```\nnever closed\n",
    ),
    "reStructuredText": Format(
        "a.rst",
        f"{WORDS}\n\nГлава\n=====\n\nтекст\n\nЧасть\n-----\nтекст\n",
        [("a.rst", 1, 1), ("Глава", 3, 6), ("Глава > Часть", 8, 10)],
        part="Heading\n-------\n\nSome words of it and :func:`code.name`.\n\n",
        deep="".join(" " * number + "* x\n" for number in range(1_000)),
        damaged="A\n=\n\n.. note::\nB\n=====\nC",
    ),
    "Notebook": Format(
        "a.ipynb",
        NOTEBOOK,
        [("a.ipynb > Глава", 1, 2), ("a.ipynb > Глава > Часть", 4, 5)],
        head='{"nbformat": 4, "metadata": {}, "cells": [',
        part='{"cell_type": "code", "source": ["def f():\\n", "    return 1"], "outputs": []},\n',
        deep="[\n" * 10_000,
        damaged=NOTEBOOK[:-30],
        damage="document_unreadable",
    ),
    "TOML": Format(
        "a.toml",
        f'# {WORDS}\n\n[глава]\na = "ы"\n\n# к\n[tool.b]\nc = 1\n',
        [("a.toml", 1, 1), ("a.toml > глава", 3, 4), ("a.toml > tool > b", 6, 8)],
        part='[tool.x]\nname = "words"\nlist = [\n  1,\n]\n\n',
        deep="a = " + "[\n" * 20_000,
        damaged="[a]\nb = [1,\n[c]\n",
        damage="not_parsed",
    ),
    "YAML": Format(
        "a.yaml",
        f"# {WORDS}\n\nглава:\n  a: текст\n  b: 2\n  c: 3\nчасть:\n  d: 1\n  e: 2\n  f: 3\n",
        [("a.yaml", 1, 1), ("a.yaml > глава", 3, 6), ("a.yaml > часть", 7, 10)],
        part="key:\n  name: words\n  list:\n    - 1\n    - 2\n",
        deep="".join(" " * number + "k:\n" for number in range(1_000)),
        damaged="a: [1\nb: 2\n",
        damage="not_parsed",
        tokens=64,
    ),
    "JSON": Format(
        "a.json",
        f'{{\n  // {WORDS}\n  "глава": {{\n    "a": "текст",\n    "b": 2\n  }},\n'
        f'  "часть": {{\n    "c": "{WORDS}",\n    "d": 2\n  }}\n}}\n',
        [("a.json > глава", 1, 6), ("a.json > часть", 7, 11)],
        head="{\n",
        part='"key": {\n  "name": "words",\n  "list": [\n    1\n  ]\n},\n',
        deep='{"a":\n' * 20_000,
        damaged='{\n"a": {\n"b": 1,\n',
        damage="not_parsed",
        tokens=88,
    ),
    "INI": Format(
        "a.cfg",
        f"; {WORDS}\n\n[глава]\na = текст\n[часть]\nb = 1\n",
        [("a.cfg", 1, 1), ("a.cfg > глава", 3, 4), ("a.cfg > часть", 5, 6)],
        part="[section]\nkey = words\n  more words\n",
        deep="[" * 20_000 + "\n",
        damaged="[a\nb\n= c\n",
    ),
    "Captions": Format(
        "a.srt",
        f"1\n00:00:01,000 --> 00:00:02,000\n{WORDS}.\n\n2\n00:00:03,000 --> 00:00:04,000\n- Да.\n",
        [("a.srt > 00:00:01–00:00:04", 1, 7)],
        part="1\n00:00:01,000 --> 00:00:02,000\nSome words.\n\n",
        deep="00:00:01,000 --> 00:00:02,000\n" * 5_000,
        damaged="1\n00:00:01,000 -> 00:00:02,000\nwords\n",
        damage="not_parsed",
    ),
    "AsciiDoc": Format(
        "a.adoc",
        f"{WORDS}\n\n== Глава\nтекст\n\n=== Часть\nтекст\n",
        [("a.adoc", 1, 1), ("Глава", 3, 4), ("Глава > Часть", 6, 7)],
        part="== Heading\n\nSome words of it.\n\n",
        deep="====\n" * 10_001,
        damaged="== A\n----\nnever closed\n",
    ),
    "Org": Format(
        "a.org",
        f"{WORDS}\n\n* Глава\nтекст\n\n** Часть\nтекст\n",
        [("a.org", 1, 1), ("Глава", 3, 4), ("Глава > Часть", 6, 7)],
        part="* Heading\n\nSome words of it.\n\n",
        deep="".join("*" * (number % 40 + 1) + " x\n" for number in range(10_000)),
        damaged="* A\n#+begin_src\nnever closed\n",
    ),
    "Plain text": Format(
        "a.txt",
        f"{WORDS}\n\nтекст\n",
        [("a.txt", 1, 3)],
        part="Some words of it.\n\n",
        deep=" " * 50_000 + "x\n",
        damaged="\x1b[31m\x0c\n",
    ),
}

every_format = pytest.mark.parametrize("kind", FORMATS.values(), ids=FORMATS.keys())


def extraction_of(data: bytes | str, kind: Format) -> Extraction:
    return taken(data, kind.path, tokens=kind.tokens).extraction


@every_format
def test_chunks_have_exact_spans_and_titles(kind: Format) -> None:
    assert outline(extraction_of(kind.text, kind)) == kind.chunks


@every_format
@pytest.mark.parametrize("tokens", [32, 254])
def test_chunks_keep_the_limit(kind: Format, tokens: int) -> None:
    taken(kind.text + ("long " * 150 + "\n") * 9 + "x" * 900 + "\n", kind.path, tokens=tokens)


@every_format
def test_a_damaged_file_is_kept_and_says_so_where_it_can(kind: Format) -> None:
    found = codes(extraction_of(kind.damaged, kind))
    assert kind.damage in found if kind.damage else not found


@every_format
@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "utf-16-le", "utf-16", "utf-8-sig"])
def test_another_encoding_gives_the_same_chunks_and_says_what_was_guessed(kind: Format, encoding: str) -> None:
    extraction = extraction_of(kind.text.encode(encoding), kind)
    assert outline(extraction) == kind.chunks
    assert codes(extraction) == (["encoding_guessed"] if encoding in ("cp1251", "koi8-r", "utf-16-le") else [])


@every_format
@pytest.mark.parametrize("what", ["huge", "deep"])
def test_a_huge_or_deep_file_takes_a_bounded_time(kind: Format, what: str) -> None:
    text = kind.deep if what == "deep" else kind.head + kind.part * (HUGE_BYTES // len(kind.part))
    if what == "huge" and kind.path.endswith(".ipynb"):
        text = text.rstrip().rstrip(",") + "]}"
    began = time.process_time()
    outcome = run_job(Job(kind.path, text.encode()), WorkerSettings(254), estimate_tokens)
    assert time.process_time() - began < LIMIT_S
    assert isinstance(outcome, Extracted), outcome
    assert_whole(outcome.extraction, outcome.file.text)
