"""Folders say how their documents are cut and described: nearer wins, and what can't be read costs nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.globs import Glob
from services.ingest.chunks import Extraction
from services.ingest.extraction import extract
from services.ingest.extraction.tokens import estimate_tokens
from services.ingest.file_settings import ChunkBy, FileSettings
from services.ingest.manifests import MANIFEST_NAME, Manifests
from services.ingest.skips import SkipReason

# Written out, its last list has as many entries as nobody has memory for.
BOMB = "".join(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9) or 'x'}]\n" for level in range(1, 21)).replace(
    ", ".join(["*a0"] * 9), "x"
)
DOCUMENT = "# One\n\nText of one.\n\n## Deep\n\nText of deep.\n\n### Deeper\n\nText.\n\n# Two\n\nText of two.\n"


def manifests(base: Path, **files: str) -> Manifests:
    paths = []
    for folder, text in files.items():
        path = f"{folder.replace('__', '/')}/{MANIFEST_NAME}".removeprefix("root/")
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
        paths.append(path)
    return Manifests.of(base, paths)


def test_nearer_wins_key_by_key(tmp_path: Path) -> None:
    found = manifests(
        tmp_path,
        root="version: 1\nchunk_by: h2\nmetadata: {team: core, audience: [dev, ops]}\n",
        docs__api=(
            "version: 1\nmetadata: {team: api}\noverrides:\n"
            "- {files: '**/*.md', chunk_by: file}\n- {files: [v2/**], metadata: {version: 2, stable: true}}\n"
        ),
    )
    assert found.problems == []
    above = FileSettings(ChunkBy.H2, (("audience", ("dev", "ops")), ("team", ("core",))))
    assert found.settings("README.md") == above
    assert found.settings("docs/guide.md") == above
    assert found.settings("docs/api/v1/x.rst") == FileSettings(
        ChunkBy.H2, (("audience", ("dev", "ops")), ("team", ("api",)))
    )
    assert found.settings("docs/api/v2/x.md") == FileSettings(
        ChunkBy.FILE,
        (("audience", ("dev", "ops")), ("stable", ("true",)), ("team", ("api",)), ("version", ("2",))),
    )
    assert found.unused() == []


def test_values_are_as_they_are_written(tmp_path: Path) -> None:
    said = "{a: 0, b: 1, c: 1.0, d: true, e: 'no', f: 2026-01-31, g: [1, true, x], h: 2026-01-31 10:00:00}"
    found = manifests(tmp_path, root=f"version: 1\nmetadata: {said}\n")
    assert found.problems == []
    assert dict(found.settings("x").metadata) == {
        "a": ("0",),
        "b": ("1",),
        "c": ("1.0",),
        "d": ("true",),
        "e": ("no",),
        "f": ("2026-01-31",),
        "g": ("1", "true", "x"),
        "h": ("2026-01-31T10:00:00",),
    }
    assert dict(extracted("a.md", f"---\nx: {said}\n---\n").metadata) == {}
    flat = said.strip("{}").replace(", ", "\n").replace("[1\ntrue\nx]", "[1, true, x]")
    assert extracted("a.md", f"---\n{flat}\n---\n").metadata == found.settings("x").metadata


def test_rules_that_fit_nothing_are_known(tmp_path: Path) -> None:
    found = manifests(tmp_path, root="version: 1\noverrides:\n- {files: old/**, chunk_by: h1}\n- {files: '*.md'}\n")
    found.settings("a.md")
    assert [rule.shown for rule in found.unused()] == ["old/**"]


def test_settings_differ_where_they_say_something_else() -> None:
    assert FileSettings().canonical() == ""
    said = [FileSettings(by, meta) for by in ChunkBy for meta in ((), (("a", ("b",)),), (("a", ("b", "c")),))]
    assert len({one.canonical() for one in said}) == len(said)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("version: 2\n", "version"),
        ("version: true\n", "version"),
        (f"version: 1\noverrides: [{{files: {['a'] * 250 + ['b'] * 251}, chunk_by: h1}}]\n", "500 globs"),
        ("chunk_by: h2\n", "version"),
        ("version: 1\nchunk_by: h9\n", "chunk_by"),
        ("version: 1\nmetdata: {}\n", "metdata"),
        ("version: 1\nmetadata: {'1x': y}\n", "key"),
        ("version: 1\nmetadata: {x: ''}\n", "line"),
        ("version: 1\nmetadata: {x: {y: z}}\n", "metadata"),
        ("version: 1\noverrides: [{files: /etc/**}]\n", "globs"),
        ("version: 1\noverrides: [{chunk_by: h1}]\n", "files"),
        ("a: [\n", "expected"),
        ("- 1\n", "dictionary"),
        ("[" * 5000, ""),
        (f"{BOMB}version: 1\n", ""),
        ("version: !!timestamp foo\n", "NoneType"),
        ("version: !!int ''\n", ""),
        ("version: !!float ''\n", ""),
        ("version: !!bool foo\n", "foo"),
        (f"version: 1\noverrides: [{{files: '{'**/a*/' * 70}'}}]\n", "32"),
        (f"{BOMB}version: 1\nmetadata: {{x: *a20}}\n", ""),
    ],
)
def test_a_manifest_that_cannot_be_read_is_told_and_its_folder_goes_without(
    tmp_path: Path, text: str, cause: str
) -> None:
    found = manifests(tmp_path, root="version: 1\nmetadata: {team: core}\n", docs=text)
    (problem,) = found.problems
    assert (problem.path, problem.reason) == (f"docs/{MANIFEST_NAME}", SkipReason.MANIFEST_INVALID)
    assert cause in problem.detail
    assert found.settings("docs/x.md").metadata == (("team", ("core",)),)


def extracted(path: str, text: str, chunk_by: ChunkBy = ChunkBy.AUTO) -> Extraction:
    return extract(path, text, module="", count_tokens=estimate_tokens, budget_tokens=254, chunk_by=chunk_by)


@pytest.mark.parametrize(
    ("chunk_by", "titles"),
    [
        (ChunkBy.AUTO, ["One", "One > Deep", "One > Deep > Deeper", "Two"]),
        (ChunkBy.H3, ["One", "One > Deep", "One > Deep > Deeper", "Two"]),
        (ChunkBy.H2, ["One", "One > Deep", "Two"]),
        (ChunkBy.H1, ["One", "Two"]),
        (ChunkBy.FILE, ["guide.md"]),
    ],
)
def test_documents_are_cut_where_it_is_said(chunk_by: ChunkBy, titles: list[str]) -> None:
    found = extracted("guide.md", DOCUMENT, chunk_by)
    assert [chunk.title for chunk in found.chunks] == titles
    assert "".join(chunk.text for chunk in found.chunks).replace("\n", "") == DOCUMENT.replace("\n", "")
    # Where it is cut changes no symbol.
    assert [symbol.name for symbol in found.symbols] == ["One", "Deep", "Deeper", "Two"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.rst", "One\n===\n\nText.\n\nDeep\n----\n\nMore.\n"),
        ("a.adoc", "= One\n\nText.\n\n== Deep\n\nMore.\n"),
        ("a.org", "* One\n\nText.\n\n** Deep\n\nMore.\n"),
    ],
)
def test_other_documents_with_headings_are_cut_alike(path: str, text: str) -> None:
    assert len(extracted(path, text).chunks) == 2
    assert len(extracted(path, text, ChunkBy.H1).chunks) == 1
    assert len(extracted(path, text, ChunkBy.FILE).chunks) == 1


def test_what_a_file_says_of_itself_wins() -> None:
    text = (
        "---\ntitle: Guide\ntags: [a, b, a]\ndate: 2026-01-31\ndraft: false\nweight: 3\nnested: {x: y}\n"
        f"summary: {'long ' * 50}\nundercroft: {{chunk_by: h1}}\n---\n{DOCUMENT}"
    )
    found = extracted("guide.md", text, ChunkBy.FILE)
    assert dict(found.metadata) == {
        "date": ("2026-01-31",),
        "draft": ("false",),
        "tags": ("a", "b"),
        "title": ("Guide",),
        "weight": ("3",),
    }
    assert len(found.chunks) == 3
    toml = extracted("guide.md", f'+++\ntitle = "Guide"\ntags = ["a"]\n+++\n{DOCUMENT}')
    assert dict(toml.metadata) == {"tags": ("a",), "title": ("Guide",)}


def test_nested_front_matter_is_left_out_and_never_written_out() -> None:
    found = extracted("guide.md", f"---\ntitle: Guide\n{BOMB}? *a20\n: x\n---\n{DOCUMENT}")
    assert dict(found.metadata).get("title", ("Guide",)) == ("Guide",)
    found = extracted("guide.md", f"---\ntitle: Guide\n{BOMB}---\n{DOCUMENT}")
    assert dict(found.metadata) == {"title": ("Guide",), "a1": ("x",)}


@given(
    st.lists(st.tuples(st.sampled_from(["", "a/", "a/b/"]), st.text("abc*?/", min_size=1, max_size=8)), max_size=12),
    st.lists(st.text("abc/", min_size=1, max_size=8), max_size=12),
)
def test_a_file_has_the_settings_of_every_rule_that_fits_it_in_their_order(
    rules: list[tuple[str, str]], paths: list[str]
) -> None:
    rules = [(folder, glob) for folder, glob in rules if not glob.startswith("/")]
    paths = ["/".join(filter(None, path.split("/"))) or "x" for path in paths]
    with tempfile.TemporaryDirectory() as base:
        texts: dict[str, str] = {}
        for number, (folder, glob) in enumerate(rules):
            texts[folder] = texts.get(folder, "version: 1\noverrides:\n")
            texts[folder] += f"- {{files: '{glob}', metadata: {{rule: {number}, r{number}: x}}}}\n"
        found = Manifests.of(Path(base), _written(Path(base), texts))
        for path in paths:
            fitting = [
                number
                for nested in ("", "a/", "a/b/")
                for number, (folder, glob) in enumerate(rules)
                if folder == nested and path.startswith(folder) and Glob.of(glob).matches(path[len(folder) :])
            ]
            said = dict(found.settings(path).metadata)
            assert said.keys() - {"rule"} == {f"r{number}" for number in fitting}
            assert said.get("rule", ()) == ((str(fitting[-1]),) if fitting else ())


def _written(base: Path, texts: dict[str, str]) -> list[str]:
    for folder, text in texts.items():
        (base / folder).mkdir(parents=True, exist_ok=True)
        (base / folder / MANIFEST_NAME).write_text(text)
    return [f"{folder}{MANIFEST_NAME}" for folder in texts]


@pytest.mark.parametrize("block", ["a: [", "a: b: c", "undercroft: {chunk_by: h9}", "x: &x [*x]"])
def test_front_matter_that_cannot_be_read_costs_its_document_nothing(block: str) -> None:
    found = extracted("guide.md", f"---\n{block}\n---\n{DOCUMENT}")
    assert [note.code for note in found.notes] == ["front_matter_invalid"] or found.metadata == ()
    assert [chunk.title for chunk in found.chunks][-4:] == ["One", "One > Deep", "One > Deep > Deeper", "Two"]


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.md", "a.md", True),
        ("*.md", "b/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "b/c/a.md", True),
        ("src/**", "src/a/b", True),
        ("src/**", "srcs/a", False),
        ("**", "a/b", True),
        ("a/**/**/b", "a/b", True),
        ("a?.py", "ab.py", True),
        ("[!ab].py", "a.py", False),
        ("größe/*", "größe/x", True),
    ],
)
def test_globs_mean_what_those_of_filters_mean(glob: str, path: str, fits: bool) -> None:
    assert Glob.of(glob).matches(path) is fits


@given(st.text("ab*?/[]!", max_size=30), st.text("ab/", max_size=60))
def test_any_glob_is_answered_soon(glob: str, path: str) -> None:
    assert Glob.of(glob).matches(path) in (True, False)
    assert not Glob.of("*a" * 200 + "*b").matches("a" * 1000)
