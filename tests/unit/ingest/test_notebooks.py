from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.documents import notebooks
from tests.support.chunks import codes, outline, symbols, taken


def markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source.splitlines(keepends=True)}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs), "execution_count": 7}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def notebook(*cells: dict[str, Any], **metadata: Any) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": list(cells)})


STUDY = notebook(
    markdown("Preamble."),
    markdown("# Study\n\nWhat it is.\n"),
    markdown("More of it.\n\n## Load\n"),
    code("%matplotlib inline\nimport pandas as pd\n", printed("\x1b[31mloaded\x1b[0m\n")),
    code("def clean(frame):\n    return pd.notna(frame)\n\n!ls\nx = !pwd\nfiles?\n"),
    markdown("Then:"),
    code("%%bash\nls | wc\n"),
    {"cell_type": "raw", "source": "raw words"},
)


def test_cells_become_lines_and_chunks_under_the_headings_above_them() -> None:
    outcome = taken(STUDY, "lab/study.ipynb")
    assert outcome.file.text == (
        "Preamble.\n\n# Study\n\nWhat it is.\n\nMore of it.\n\n## Load\n\n%matplotlib inline\nimport pandas as pd\n\n"
        "Out:\nloaded\n\ndef clean(frame):\n    return pd.notna(frame)\n\n!ls\nx = !pwd\nfiles?\n\nThen:\n\n"
        "%%bash\nls | wc\n\nraw words\n"
    )
    assert outline(outcome.extraction) == [
        ("lab > study.ipynb", 1, 1),
        ("study.ipynb > Study", 3, 7),
        ("study.ipynb > Study > Load > cell 1", 9, 15),
        ("study.ipynb > Study > Load > cell 2", 17, 22),
        ("study.ipynb > Study > Load > cell 3", 24, 27),
        ("study.ipynb > Study > Load", 29, 29),
    ]
    assert [(chunk.kind.value, chunk.language) for chunk in outcome.extraction.chunks[:4]] == [
        ("section", "markdown"),
        ("section", "markdown"),
        ("module", "python"),
        ("module", "python"),
    ]


def test_headings_and_python_definitions_are_symbols_and_names_resolve_across_cells() -> None:
    extraction = taken(STUDY, "study.ipynb").extraction
    assert symbols(extraction) == [("Study", 3, 29), ("Study/Load", 9, 29), ("clean", 17, 18)]
    edges = [(edge.source, edge.kind.value, edge.target, edge.resolved) for edge in extraction.references]
    assert edges == [("study.ipynb", "import", "pandas", True), ("study.ipynb#clean", "call", "pandas.notna", True)]
    assert codes(extraction) == []


def test_running_a_notebook_again_changes_no_key_and_no_title() -> None:
    again = json.loads(STUDY)
    for cell in again["cells"]:
        cell["execution_count"] = 99
    assert taken(json.dumps(again, indent=4), "study.ipynb") == taken(STUDY, "study.ipynb")


def test_outputs_are_kept_up_to_a_cap_and_pictures_never() -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "iVBOR" * 100, "text/plain": ["<Figure size 1>"]}}
    table = {"output_type": "execute_result", "data": {"text/html": "<table>", "text/plain": "a  b\n1  2"}}
    failed = {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["long"]}
    extraction = taken(notebook(code("show()", picture, table, failed, printed("word\n" * 500))), "n.ipynb")
    text = extraction.file.text
    assert text.startswith("show()\n\nOut:\na  b\n1  2\nKeyError: 'x'\nword\n")
    assert len(text) < notebooks.OUTPUT_CHARACTERS + 100
    assert "iVBOR" not in text
    assert "… 2,415 more characters" in text.splitlines()[-1]
    assert [note.detail for note in extraction.extraction.notes] == ["1 image/png, 1 long outputs, 1 text/html"]


def test_format_3_is_read_too() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Old\n", "title"]},
        {
            "cell_type": "code",
            "language": "julia",
            "input": "f(x) = x",
            "outputs": [{"output_type": "pyout", "text": "f", "png": "iVBOR"}],
        },
    ]
    outcome = taken(json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}), "old.ipynb")
    assert outcome.file.text == "## Old title\n\nf(x) = x\n\nOut:\nf\n"
    (chunk,) = outcome.extraction.chunks
    assert (chunk.title, chunk.language) == ("old.ipynb > Old title > cell 1", "julia")


def test_a_cell_that_does_not_parse_costs_its_own_definitions_alone() -> None:
    outcome = taken(notebook(code("def a(:\n"), code("def b(): pass")), "n.ipynb")
    assert [symbol.name for symbol in outcome.extraction.symbols] == ["b"]
    assert codes(outcome.extraction) == ["cell_not_parsed"]


@pytest.mark.parametrize(
    "damaged", [STUDY[:-40], "[\n" * 100_000, "[]", '{"cells": 3}', "{}", '{"worksheets": {}}', "not json", ""]
)
def test_a_damaged_notebook_is_text_and_says_why(damaged: str) -> None:
    outcome = taken(damaged, "n.ipynb")
    assert outcome.file.text == damaged
    assert "document_unreadable" in codes(outcome.extraction)


@pytest.mark.parametrize("cell", [3, {}, {"cell_type": "code"}, {"cell_type": ["x"], "source": [1, {"a": 2}]}])
def test_cells_of_the_wrong_kind_are_passed_over(cell: Any) -> None:
    assert taken(notebook(cell, markdown("kept")), "n.ipynb").file.text == "kept\n"


_CELLS = st.lists(
    st.builds(
        lambda kind, source, out: {"cell_type": kind, "source": source, "outputs": [printed(out)]},
        st.sampled_from(["markdown", "code", "raw", "heading"]),
        st.text(st.sampled_from("# \n=-`%!?\tax()\r\0\x0c:"), max_size=40),
        st.text(max_size=20),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(_CELLS, st.sampled_from([32, 254]))
def test_any_cells_are_covered_once_within_the_budget(cells: list[dict[str, Any]], tokens: int) -> None:
    assert "document_unreadable" not in codes(taken(notebook(*cells), "n.ipynb", tokens=tokens).extraction)
