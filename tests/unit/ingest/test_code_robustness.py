"""Whatever stands in a file: no line is lost, nothing is found twice, no depth and no size takes the process down."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.ingest.chunks import Extraction
from services.ingest.extraction.pool import ExtractionPool, PoolSettings
from services.ingest.extraction.worker import Extracted, Job, WorkerSettings
from services.ingest.skips import SkipReason
from tests.support.extraction import assert_whole, extracted

CODE = Path(__file__).parent / "code"
SNIPPETS = {
    str(file.relative_to(CODE)): file.read_text()
    for file in sorted(CODE.rglob("*"))
    if file.is_file() and file.suffix != ".expected"
}
# By suffix: what opens and what closes a nesting, and a file around it.
NESTINGS = {
    "js": ("f(", ")", "x = {};\n"),
    "tsx": ("<a>", "</a>", "x = {};\n"),
    "ts": ("{a: ", "}", "type X = {};\n"),
    "go": ("(", ")", "package a\nvar x = {}\n"),
    "java": ("class A {", "}", "{}"),
    "rs": ("mod a {", "}", "{}"),
    "c": ("{", "}", "void f() {}\n"),
    "cpp": ("namespace a {", "}", "{}"),
    "cs": ("namespace a {", "}", "{}"),
    "rb": ("module A\n", "\nend", "{}"),
    "php": ("array(", ")", "<?php\n$x = {};\n"),
    "kt": ("class A {\n", "}\n", "{}"),
    "sh": ("{ ", "; }", "{}\n"),
    "sql": ("(", ")", "create view a as select {};\n"),
    "tf": ("[", "]", "a = {}\n"),
    "proto": ("message A {", "}", "{}"),
    "py": ("(", ")", "print 1\nx = {}\n"),
}


def sound(text: str, path: str) -> Extraction:
    """Extract a text and check what holds for all."""
    extraction = extracted(text, path=path)
    assert not any(note.code == "extractor_failed" for note in extraction.notes), extraction.notes
    assert_whole(extraction, text)
    lines = text.count("\n") + 1
    assert all(1 <= reference.line <= lines for reference in extraction.references)
    assert all(len(symbol.signature) <= 400 and len(symbol.summary) <= 400 for symbol in extraction.symbols)
    return extraction


@pytest.mark.parametrize("suffix", NESTINGS)
@pytest.mark.parametrize("depth", [40, 3000, 40_000])
def test_nesting_of_any_depth_is_taken(suffix: str, depth: int) -> None:
    opening, closing, around = NESTINGS[suffix]
    text = around.replace("{}", opening * depth + "1" + closing * depth)
    sound(text, f"a.{suffix}")
    sound(around.replace("{}", opening * depth), f"a.{suffix}")


@pytest.mark.parametrize("suffix", NESTINGS)
@pytest.mark.parametrize("mark", ["(", "{", "[", "<", '"', "'", "/*", "a.", "-", "#", "`", "\\", "$(", "=>"])
def test_a_file_of_one_mark_is_taken(suffix: str, mark: str) -> None:
    sound(mark * 5000, f"a.{suffix}")


# Found by damaging a file: the recovery of this grammar takes steps without end on it.
ENDLESS = """{k()
A \n\u05bf3db.query(id)
    }

    private fun check(id: Id) = require(id != null)

    companion object {
        fun create(): Re\to<Item> = Repo(Database())
    }
}

data class Row(val a: Int)
    interface Source {
    fun read(): Int
}
object Registry { fun all() = listOf<Row>() }
enum class Color { RED, GREEN }
typealias Rows = List<Row>
fun String.shout(): String = upp"""


def test_recovery_without_end_is_given_up_and_the_next_file_is_parsed_as_ever() -> None:
    given_up = sound(ENDLESS, "a.kt")
    assert [note.code for note in given_up.notes] == ["not_parsed"]
    assert [symbol.name for symbol in sound("fun a() {}\n", "b.kt").symbols] == ["b", "a"]
    assert sound(ENDLESS, "a.kt") == given_up


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("a.js", "export const f{} = (a) => g(a);"),
        ("a.go", "func f{}(a int) int {{ return g(a) }}"),
        ("a.java", "class A{} {{ int f(int a) {{ return g(a); }} }}"),
        ("a.c", "int f{}(int a) {{ return g(a); }}"),
        ("a.sql", "create table t{} (a int);"),
        ("a.proto", "message M{} {{ string a = 1; }}"),
    ],
)
def test_a_huge_flat_file_keeps_every_definition(path: str, line: str) -> None:
    count = 4000
    text = "\n".join(line.format(number) for number in range(count)) + "\n"
    extraction = sound(text, path)
    assert len(extraction.symbols) >= count


_MARKS = st.sampled_from(
    ["{", "}", "(", ")", ";", "\n", "class ", "fn ", "def ", "func ", "end\n", "=>", '"', "'", "/*", "*/", "//", "#",
     "<", ">", "::", "\t", " ", "a", "名", "é", "\u2028", "\x0c", "\ufeff", "@", "$", "`", "0"]
)  # fmt: skip


@pytest.mark.parametrize("suffix", NESTINGS)
@settings(max_examples=60, deadline=None)
@given(
    text=st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=120),
        st.lists(_MARKS, max_size=60).map("".join),
    )
)
def test_any_text_is_covered_once(suffix: str, text: str) -> None:
    sound(text, f"a.{suffix}")


@pytest.mark.parametrize("path", SNIPPETS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.data_too_large])
@given(data=st.data())
def test_any_damage_loses_no_line(path: str, data: st.DataObject) -> None:
    text = SNIPPETS[path]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 200)))
        put = data.draw(st.one_of(_MARKS, st.just(""), st.just(text[end : end + 80])))
        text = text[:start] + put + text[end:]
    sound(text, path)


def test_in_a_worker_the_outcome_is_the_same_and_what_is_too_much_costs_itself_alone() -> None:
    hungry = Job("a.ts", b"const a = [" + b"f(1, {b: [2]}),\n" * 400_000 + b"];\n")
    settings = PoolSettings(WorkerSettings(budget_tokens=254, file_timeout_s=4.0), workers=1)
    with ExtractionPool(settings) as pool:
        jobs = [Job(path, text.encode()) for path, text in SNIPPETS.items()]
        outcomes = list(pool.extract([*jobs, hungry, *jobs]))
    spent = outcomes.pop(len(jobs))
    # A fast machine cuts it as plain text in the time that its structure takes too long for.
    if isinstance(spent, Extracted):
        assert [note.code for note in spent.extraction.notes] == ["extractor_failed"]
    else:
        assert spent.reason in (SkipReason.EXTRACTION_TIMEOUT, SkipReason.EXTRACTION_MEMORY)
    for outcome, (path, text) in zip(outcomes, [*SNIPPETS.items()] * 2, strict=True):
        assert isinstance(outcome, Extracted)
        assert outcome.extraction == extracted(text, path=path)
