from __future__ import annotations

import json
import textwrap
import time
import tomllib

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.extraction import extract
from services.ingest.extraction.config.entries import MAX_SYMBOLS
from services.ingest.extraction.tokens import estimate_tokens
from tests.support.chunks import codes, outline, symbols, taken
from tests.support.extraction import assert_whole

PYPROJECT = textwrap.dedent('''\
    # Of the whole file.

    [project]
    name = "x"
    text = """
    [not.a.table]
    """
    rows = [
      ["a"],
      ["b"], # ]
    ]

    # How we lint.
    [tool.ruff]
    line-length = 120

    [tool]

    [tool."my.own"]
    key.sub = 1
    [[tool.many]]
    [[tool.many]]
    a = 2
    ''')


def test_toml_is_cut_at_its_tables() -> None:
    extraction = taken(PYPROJECT, "pyproject.toml").extraction
    assert outline(extraction) == [
        ("pyproject.toml", 1, 1),
        ("pyproject.toml > project", 3, 11),
        ("pyproject.toml > tool > ruff", 13, 15),
        ("pyproject.toml > tool > my.own", 17, 20),
        ("pyproject.toml > tool > many", 21, 21),
        ("pyproject.toml > tool > many", 22, 23),
    ]
    assert symbols(extraction) == [
        (".project", 3, 11),
        (".project.name", 4, 4),
        (".project.text", 5, 7),
        (".project.rows", 8, 11),
        (".tool.ruff", 13, 15),
        (".tool", 17, 17),
        (".tool.my.own", 19, 20),
        (".tool.many", 21, 21),
        (".tool.many", 22, 23),
    ]
    assert [chunk.qualified_name for chunk in extraction.chunks][2] == "pyproject.toml#.tool.ruff"


def test_ini_is_cut_at_its_sections() -> None:
    text = "; head\n[a b]\nk = v\n  more\n# of c\n[c]\nx: 1\n[broken\n"
    extraction = taken(text, "setup.cfg").extraction
    assert outline(extraction) == [("setup.cfg > a b", 1, 4), ("setup.cfg > c", 5, 8)]
    assert symbols(extraction) == [(".a b", 1, 4), (".a b.k", 3, 4), (".c", 5, 8), (".c.x", 7, 8)]


def test_properties_have_keys_and_no_sections() -> None:
    extraction = taken("# head\nserver.port=8080\nserver.name = a b\n", "application.properties").extraction
    assert outline(extraction) == [("application.properties", 1, 3)]
    assert [symbol.signature for symbol in extraction.symbols] == ["server.port", "server.name"]


WORKFLOW = textwrap.dedent("""\
    # Licence.

    name: ci
    on: [push]
    jobs:
      # The first.
      build:
        runs-on: linux
        steps: &steps
          - run: |
              # no comment
              make
          - uses: x
      test:
        runs-on: linux
        steps: *steps
        needs: build
    env:
      A: 1
    """)


def test_yaml_that_fits_is_whole_and_else_cut_at_its_keys() -> None:
    assert outline(taken(WORKFLOW, "ci.yaml").extraction) == [("ci.yaml", 1, 19)]
    extraction = taken(WORKFLOW, "ci.yaml", tokens=64).extraction
    assert outline(extraction) == [
        ("ci.yaml", 1, 4),
        ("ci.yaml > jobs > build", 5, 13),
        ("ci.yaml > jobs > test", 14, 17),
        ("ci.yaml", 18, 19),
    ]
    assert symbols(extraction) == [
        (".name", 3, 3),
        (".on", 4, 4),
        (".jobs", 5, 17),
        (".jobs.build", 6, 13),
        (".jobs.test", 14, 17),
        (".env", 18, 19),
        (".env.A", 19, 19),
    ]


def test_documents_of_a_stream_are_named_by_what_they_declare() -> None:
    text = textwrap.dedent("""\
        kind: Service
        metadata: {name: web}
        ---
        # The deployment.
        metadata:
          labels: {name: no}
          name: web
        kind: Deployment
        ---
        - 1
        """)
    extraction = taken(text, "all.yaml").extraction
    assert outline(extraction) == [
        ("all.yaml > Service > web", 1, 2),
        ("all.yaml > Deployment > web", 3, 8),
        ("all.yaml", 9, 10),
    ]


def test_a_template_is_parsed_without_its_actions() -> None:
    text = textwrap.dedent("""\
        {{- if .Values.on }}
        kind: Service
        metadata:
          name: {{ include "name" . }}
          labels:
            {{- include "labels" . | nindent 4 }}
        {{ .Values.key }}: {{ .x | quote }}
        {{- end }}
        """)
    extraction = taken(text, "templates/service.yaml").extraction
    assert codes(extraction) == ["template_masked"]
    assert symbols(extraction)[0] == ('.Service.{{ include "name" . }}', 1, 7)
    assert symbols(extraction)[-1] == ('.Service.{{ include "name" . }}.{{ .Values.key }}', 7, 7)


PACKAGE = textwrap.dedent("""\
    {
      // The name.
      "name": "x\\u0041",
      "scripts": {
        "build": "tsc",
        "test": "jest",
        "lint": "eslint"
      },
      /* Of
       * files. */
      files: ['a',
        "b", "]"],
      "last": {"a": 1,
        "b": 2}
    }
    """)


def test_json_with_comments_is_cut_at_its_keys() -> None:
    assert outline(taken(PACKAGE, "package.json").extraction) == [("package.json", 1, 15)]
    extraction = taken(PACKAGE, "package.json", tokens=70).extraction
    assert outline(extraction) == [
        ("package.json", 1, 3),
        ("package.json > scripts", 4, 8),
        ("package.json", 9, 15),
    ]
    assert symbols(extraction) == [
        (".name", 2, 3),
        (".scripts", 4, 8),
        (".scripts.build", 5, 5),
        (".scripts.test", 6, 6),
        (".scripts.lint", 7, 7),
        (".files", 9, 12),
        (".last", 13, 14),
        (".last.b", 14, 14),
    ]


def test_paths_of_an_api_are_chunks_of_their_own() -> None:
    paths = {f"/{name}": {"get": {"summary": "word " * 30, "x": [1]}} for name in ("users", "items")}
    api = {"openapi": "3.1.0", "paths": paths}
    for text, path in ((json.dumps(api, indent=2), "api.json"), (yaml.safe_dump(api, sort_keys=False), "api.yaml")):
        titles = [title for title, _, _ in outline(taken(text, path, tokens=150).extraction)]
        assert titles == [path, f"{path} > paths > /users", f"{path} > paths > /items"]


def test_a_large_array_is_cut_between_its_elements() -> None:
    text = json.dumps([{"a": number, "b": ["x"] * 3} for number in range(100)], indent=1)
    for chunk in taken(text, "data.json").extraction.chunks[1:]:
        assert chunk.text.startswith(" {")


def test_lines_of_json_are_records() -> None:
    text = "".join(json.dumps({"a": number}) + "\n" for number in range(200))
    extraction = taken(text, "data.jsonl").extraction
    assert extraction.symbols == ()
    assert extraction.chunks[1].text.startswith('{"a"')


def test_a_file_of_very_many_keys_has_no_more_symbols_than_the_cap() -> None:
    text = "".join(f"k{number}: v\n" for number in range(MAX_SYMBOLS + 5))
    extraction = taken(text, "many.yaml").extraction
    assert len(extraction.symbols) == MAX_SYMBOLS
    assert codes(extraction) == ["symbols_capped"]


@pytest.mark.parametrize(
    ("text", "path", "code"),
    [
        ("a: [1\nb: 2\n", "a.yaml", "not_parsed"),
        ("a:\n\t- 1\n", "a.yaml", "not_parsed"),
        ('{"a": {"b": 1,\n', "a.json", "not_parsed"),
        ("a = [\n1,\n", "a.toml", "not_parsed"),
    ],
)
def test_a_damaged_file_is_kept_and_says_so(text: str, path: str, code: str) -> None:
    assert codes(taken(text, path).extraction) == [code]


@pytest.mark.parametrize("path", ["a.json", "a.yaml", "a.toml", "a.ini"])
@pytest.mark.parametrize(
    "text",
    [
        "[\n" * 30_000,
        '{"a":\n' * 30_000,
        "[" * 3_000,
        "".join(" " * (number % 900) + f"k{number}:\n" for number in range(900)),
        "- " * 3_000 + "x",
        "a: &a [x, x]\n"
        + "".join(f"b{n}: &b{n} [*a, *a]\n".replace("*a", f"*b{n - 1}" if n else "*a") for n in range(60)),
        '"' * 50_001,
        "'''\n" * 20_001,
        "/*\n" * 20_000,
        "{{\n" * 20_000,
        "{%" * 30_000,
        "a.b." * 10_000 + "c = 1\n",
        "? " * 3_000 + "\n",
        "[a" * 20_000 + "\n",
        "k = v\n" * 20_000,
        "# c\n" * 30_000,
    ],
    ids=range(16),
)
def test_hostile_text_costs_no_more_than_its_length(text: str, path: str) -> None:
    began = time.process_time()
    assert_whole(extract(path, text, module="", count_tokens=estimate_tokens, budget_tokens=254), text)
    assert time.process_time() - began < 10


_LINES = st.sampled_from(
    [
        *("[a]\n", "[a.b]\n", "[[c]]\n", "k = 1\n", 'k = """\n', "x: 1\n", "y:\n", "  z: |\n", "    text\n", "- a\n"),
        *(
            "---\n",
            "# c\n",
            "\n",
            "- \n",
            "b: \n",
            "{\n",
            "}\n",
            '"k": {\n',
            '"k": 1,\n',
            "],\n",
            '"l": [\n',
            "// c\n",
            "/*\n",
            "*/\n",
        ),
        *("{{ x }}\n", "\x85: \u2028\n", "a: *b\n", "...\n", "%YAML 1.1\n", "? a\n", "word " * 90 + "\n", "  w: v\n"),
    ]
)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(_LINES, max_size=25).map("".join),
    st.sampled_from(["json", "yaml", "toml", "ini"]),
    st.sampled_from([32, 254]),
)
def test_any_lines_are_covered_once_within_the_budget(text: str, suffix: str, tokens: int) -> None:
    taken(text, f"a.{suffix}", tokens=tokens)


_VALUES = st.recursive(
    st.integers() | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=8) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc-", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def key_lines(value: object, prefix: str = "", depth: int = 1) -> set[str]:
    if not isinstance(value, dict) or depth > 2:
        return set()
    return {name for key in value for name in (f"{prefix}{key}", *key_lines(value[key], f"{prefix}{key}.", depth + 1))}


@settings(deadline=None)
@given(st.dictionaries(st.text("abc-", min_size=1, max_size=4), _VALUES, max_size=4))
def test_every_key_of_the_upper_levels_is_a_symbol(value: dict[str, object]) -> None:
    block = yaml.safe_dump(value, default_flow_style=False)
    for text, path in ((json.dumps(value, indent=2), "a.json"), (block, "a.yaml")):
        assert {symbol.signature for symbol in taken(text, path).extraction.symbols} == key_lines(value)


def test_our_own_toml_is_read_as_the_parser_reads_it() -> None:
    tables = tomllib.loads(PYPROJECT)
    found = {symbol.signature for symbol in taken(PYPROJECT, "a.toml").extraction.symbols}
    assert set(tables) <= {name.partition(".")[0] for name in found}
