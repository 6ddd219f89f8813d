"""What answers promise: G2, G3, G15, G18, G27, G30 to G34 as far as this release has them."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from undercroft.client import explain
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_service_pb2, project_service_pb2
from undercroft.search.v1 import search_pb2, search_service_pb2

from tests.support.appliance import Appliance

Copy = Callable[..., Path]
Answer = list[tuple[str, float]]


def presets(appliance: Appliance) -> list[str]:
    return [one.name for one in appliance.client.search.ListPresets(search_service_pb2.ListPresetsRequest()).presets]


def queries_from(chunks: Sequence[search_pb2.Hit], count: int) -> list[str]:
    """Make queries of every kind from a corpus: identifiers, words of texts, and mixtures."""
    chosen = random.Random(7)
    queries: list[str] = []
    while len(queries) < count:
        chunk = chosen.choice(chunks)
        words = [word for word in chunk.text.split() if len(word) > 2] or ["nothing"]
        kind = len(queries) % 3
        if kind == 0 and chunk.qualified_name:
            queries.append(chunk.qualified_name.rpartition(".")[2])
        elif kind == 1:
            start = chosen.randrange(len(words))
            queries.append(" ".join(words[start : start + 6])[:300])
        else:
            queries.append(f"how does {chosen.choice(words)} relate to {chosen.choice(words)}"[:300])
    return queries


def answer(appliance: Appliance, project: str, query: str, **fields: object) -> Answer:
    response = appliance.search(query, project, page_size=20, budget_tokens=100, **fields)
    return [(hit.chunk_key, hit.score) for hit in response.hits]


def answers(appliance: Appliance, project: str, queries: Sequence[str], preset: str) -> list[Answer]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda query: answer(appliance, project, query, preset=preset), queries))


@pytest.fixture(scope="module")
def corpus(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A project with duplicate chunks, indexed once for the tests that only read."""
    import markdown_it

    folder = tmp_path_factory.mktemp("answers") / "markdown_it"
    shutil.copytree(Path(markdown_it.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(folder / "rules_block", folder / "copied_rules")
    (folder / "docs").mkdir()
    (folder / "docs" / "größe und 日本語.md").write_text(
        "# 検索エンジン\n\n全文検索の設計について。\n\n## Größe\n\nDie Größe zählt.\n"
    )
    appliance.create_project("answers", [folder])
    appliance.index("answers")
    return "answers"


@pytest.mark.slow
def test_any_history_gives_the_same_export_and_the_same_answers(
    appliance: Appliance, copy_package: Copy, tmp_path: Path
) -> None:
    cold = copy_package("markdown_it", "cold")
    shutil.copytree(cold / "rules_block", cold / "copied_rules")
    worn = tmp_path / "worn" / "markdown_it"
    worn.parent.mkdir()
    shutil.copytree(cold, worn)
    files = sorted(path for path in worn.rglob("*") if path.is_file())
    chosen = random.Random(11)
    chosen.shuffle(files)

    appliance.create_project("worn", [worn])
    # Shuffled order of arrival: half of the files come later, some edited and put right again, some deleted and back.
    late = {path: path.read_bytes() for path in files[: len(files) // 2]}
    for path in late:
        path.unlink()
    appliance.index("worn")
    for part in range(3):
        for path in list(late)[part::3]:
            path.write_bytes(late[path])
        edited = chosen.sample(files[len(files) // 2 :], 5)
        originals = {path: path.read_bytes() for path in edited}
        for path in edited:
            path.write_bytes(b"# changed\n" + originals[path] + b"\n# and more\n")
        removed = chosen.sample([path for path in files[len(files) // 2 :] if path not in originals], 3)
        originals |= {path: path.read_bytes() for path in removed}
        for path in removed:
            path.unlink()
        appliance.index("worn")
        for path, content in originals.items():
            path.write_bytes(content)
        appliance.index("worn")

    appliance.create_project("cold", [cold])
    appliance.index("cold")

    def comparable(project: str) -> list[bytes]:
        exported = appliance.export(project)
        for chunk in exported:
            chunk.place.project = ""
        return [chunk.SerializeToString(deterministic=True) for chunk in exported]

    assert comparable("worn") == comparable("cold")
    queries = queries_from(appliance.export("cold"), 500)
    for preset in presets(appliance):
        first = answers(appliance, "cold", queries, preset)
        second = answers(appliance, "worn", queries, preset)
        differing = [query for query, a, b in zip(queries, first, second, strict=True) if a != b]
        assert not differing, f"{preset}: {len(differing)} of {len(queries)} differ, the first: {differing[0]!r}"
        assert sum(bool(one) for one in first) > 400


def test_the_same_query_is_answered_alike_in_parallel_and_after_a_restart(appliance: Appliance, corpus: str) -> None:
    query = "parse a list item with its indent"
    first = answer(appliance, corpus, query)
    assert len(first) == 20
    with ThreadPoolExecutor(16) as pool:
        assert all(one == first for one in pool.map(lambda _: answer(appliance, corpus, query), range(50)))
    appliance.restart()
    assert answer(appliance, corpus, query) == first


def test_sidecars_can_all_be_deleted(appliance: Appliance, corpus: str) -> None:
    queries = queries_from(appliance.export(corpus), 40)
    before = [answers(appliance, corpus, queries, preset) for preset in presets(appliance)]
    for path in (appliance.home / "sidecars").rglob("*"):
        if path.is_file():
            path.unlink()
    response = appliance.client.index.RepairProject(
        index_service_pb2.RepairProjectRequest(project=f"projects/{corpus}"), timeout=120
    )
    assert response.damages
    assert response.rebuilt_files > 0
    appliance.restart()
    assert [answers(appliance, corpus, queries, preset) for preset in presets(appliance)] == before


def test_every_answer_names_one_generation(appliance: Appliance, corpus: str) -> None:
    response = appliance.search("blockquote", corpus)
    assert [one.project for one in response.snapshots] == [f"projects/{corpus}"]
    assert response.snapshots[0].generation >= 1
    assert response.snapshots[0].HasField("publish_time")
    assert {part.leg for hit in response.hits for part in hit.parts} >= {"lexical", "dense"}
    for hit in response.hits:
        assert hit.score == pytest.approx(sum(part.contribution for part in hit.parts))


def test_hits_are_in_total_order(appliance: Appliance, corpus: str) -> None:
    for preset in presets(appliance):
        hits = appliance.search("token", corpus, preset=preset, page_size=100).hits
        order = [(-hit.score, hit.chunk_key) for hit in hits]
        assert order == sorted(order)


def test_identical_chunks_are_one_hit_that_lists_its_places(appliance: Appliance, corpus: str) -> None:
    hits = appliance.search("def blockquote", corpus, preset="lexical", page_size=50).hits
    places = [hit for hit in hits if hit.other_places]
    assert places
    paths = {place.path for place in (places[0].place, *places[0].other_places)}
    assert any(path.startswith("copied_rules/") for path in paths)
    assert any(path.startswith("rules_block/") for path in paths)
    texts = [hit.text for hit in appliance.search("token", corpus, page_size=100, budget_tokens=100_000).hits]
    assert len(texts) == len(set(texts))


def test_pages_neither_skip_nor_repeat_and_are_pinned_to_their_generation(
    appliance: Appliance, copy_package: Copy
) -> None:
    folder = copy_package("markdown_it")
    appliance.create_project("paged", [folder])
    first_generation = appliance.index("paged").generation
    whole = [hit.chunk_key for hit in appliance.search("parse token", "paged", page_size=60).hits]
    request = search_service_pb2.SearchRequest(query="parse token", projects=["projects/paged"], page_size=7)
    seen: list[str] = []
    while len(seen) < 56:
        page = appliance.client.search.Search(request)
        seen += [hit.chunk_key for hit in page.hits]
        assert page.snapshots[0].generation == first_generation
        if len(seen) == 14:
            (folder / "token.py").unlink()
            assert appliance.index("paged").generation > first_generation
        request.page_token = page.next_page_token
    assert seen == whole[:56]
    for wrong in (request.page_token[:-4] + "AAAA", "x", "A" * 9000):
        forged = search_service_pb2.SearchRequest(query="parse token", projects=["projects/paged"], page_token=wrong)
        with pytest.raises(grpc.RpcError) as refused:
            appliance.client.search.Search(forged)
        assert explain(refused.value).reason == "INVALID_PAGE_TOKEN"
    other = search_service_pb2.SearchRequest(
        query="another query", projects=["projects/paged"], page_token=request.page_token
    )
    with pytest.raises(grpc.RpcError) as refused:
        appliance.client.search.Search(other)
    assert explain(refused.value).reason == "INVALID_PAGE_TOKEN"


@pytest.mark.parametrize(
    ("restriction", "holds"),
    [
        (common_pb2.Filter(path_globs=["rules_inline/**"]), lambda hit: hit.place.path.startswith("rules_inline/")),
        (common_pb2.Filter(path_globs=["*.py"]), lambda hit: "/" not in hit.place.path),
        (common_pb2.Filter(path_globs=["**/state_*.py"]), lambda hit: "state_" in hit.place.path),
        (common_pb2.Filter(languages=["markdown"]), lambda hit: hit.language == "markdown"),
        (
            common_pb2.Filter(kinds=[common_pb2.CHUNK_KIND_METHOD]),
            lambda hit: hit.kind == common_pb2.CHUNK_KIND_METHOD,
        ),
        (common_pb2.Filter(packages=["no-such-package"]), lambda hit: False),
    ],
)
def test_filters_hold_for_every_hit_and_every_place(
    appliance: Appliance,
    corpus: str,
    restriction: common_pb2.Filter,
    holds: Callable[[search_pb2.Hit], bool],
) -> None:
    for preset in presets(appliance):
        hits = appliance.search("state of the parser", corpus, preset=preset, filter=restriction, page_size=100).hits
        assert all(holds(hit) for hit in hits)
        if restriction.packages:
            assert not hits
        for hit in hits:
            for place in hit.other_places:
                assert not restriction.path_globs or holds(search_pb2.Hit(place=place))


def test_a_filtered_search_finds_as_many_as_there_are(appliance: Appliance, corpus: str) -> None:
    restriction = common_pb2.Filter(path_globs=["rules_inline/**"])
    there = {
        chunk.text
        for chunk in appliance.export(corpus)
        if chunk.place.path.startswith("rules_inline/") and "silent" in chunk.text.lower()
    }
    hits = appliance.search("silent", corpus, preset="lexical", filter=restriction, page_size=100).hits
    assert {hit.text for hit in hits} == there
    assert len(there) > 10


def test_no_evidence_gives_no_hits_and_a_hint(appliance: Appliance, corpus: str) -> None:
    for preset in ("lexical", "hybrid", "rrf"):
        response = appliance.search("zebra quagga okapi", corpus, preset=preset)
        assert not response.hits
        assert response.hints
    # Words of any question are none of this one.
    assert not appliance.search("how do i bake a zebra", corpus, preset="lexical").hits
    assert appliance.search("in", corpus, preset="lexical").hits
    near = appliance.search("blokquote", corpus, preset="lexical")
    assert not near.hits
    assert any("blockquot" in term for hint in near.hints for term in hint.terms)


def test_paths_and_words_beyond_ascii_are_found(appliance: Appliance, corpus: str) -> None:
    hits = appliance.search("全文検索", corpus, preset="lexical").hits
    assert hits[0].place.path == "docs/größe und 日本語.md"
    assert appliance.search("Größe", corpus, preset="lexical").hits[0].place.path == "docs/größe und 日本語.md"


def test_identifiers_are_found_whole_and_by_their_parts(appliance: Appliance, corpus: str) -> None:
    assert appliance.search("StateBlock", corpus, preset="lexical").hits[0].qualified_name.endswith("StateBlock")
    parts = appliance.search("skip empty lines", corpus, preset="lexical").hits
    assert any(hit.qualified_name.endswith("skipEmptyLines") for hit in parts[:3])


def test_a_definition_comes_first_for_its_name_in_every_fusing_preset(appliance: Appliance, corpus: str) -> None:
    for name in ("StateBlock", "skipEmptyLines", "StateInline.push", "MarkdownIt.parse", "parseLinkLabel"):
        first = appliance.search(name, corpus).hits[0]
        assert first.qualified_name.endswith(f".{name}"), (name, first.qualified_name)
        assert any(part.leg == "symbol" for part in first.parts)


def test_references_lead_to_their_lines(appliance: Appliance, corpus: str) -> None:
    response = appliance.client.search.ListReferences(
        search_service_pb2.ListReferencesRequest(
            symbol="StateBlock", projects=[f"projects/{corpus}"], kinds=[search_pb2.REFERENCE_KIND_CALL], page_size=100
        )
    )
    assert any(one.qualified_name.endswith("state_block.StateBlock") for one in response.symbols)
    assert response.references
    for reference in response.references:
        read = appliance.client.search.ReadFile(
            search_service_pb2.ReadFileRequest(
                project=f"projects/{corpus}", path=reference.place.path, span=reference.place.span
            )
        )
        assert read.text.strip() == reference.line
        assert "StateBlock" in read.text


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({"query": " "}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x" * 9000}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x", "preset": "none"}, "INVALID_ARGUMENT", "PRESET_NOT_FOUND"),
        ({"query": "x", "page_size": -1}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x", "projects": ["projects/not-there"]}, "NOT_FOUND", "PROJECT_NOT_FOUND"),
        ({"query": "x", "projects": ["nonsense"]}, "INVALID_ARGUMENT", "INVALID_RESOURCE_NAME"),
        ({"query": "x", "freshness": 99}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x", "filter": {"packages": ["a\0b"]}}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x", "filter": {"path_globs": ["[z-a]"]}}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x", "filter": {"path_globs": ["*" * 1000]}}, "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ({"query": "x", "preset": "p" * 9000}, "INVALID_ARGUMENT", "PRESET_NOT_FOUND"),
        (
            {"query": "x", "generations": [{"project": "projects/answers", "generation": 999}]},
            "FAILED_PRECONDITION",
            "GENERATION_GONE",
        ),
    ],
)
def test_errors_say_their_reason_and_the_next_step(
    appliance: Appliance, corpus: str, fields: dict[str, object], code: str, reason: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        appliance.client.search.Search(search_service_pb2.SearchRequest(**fields))  # type: ignore[arg-type]
    told = explain(refused.value)
    assert (told.code, told.reason) == (code, reason)
    assert told.remedy


def test_a_project_without_a_model_answers_lexically_and_says_what_is_missing(
    appliance: Appliance, tmp_path: Path
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "tool.py").write_text("def sharpen_pencil():\n    return 1\n")
    appliance.create_project("plain", [tmp_path / "plain"], model="")
    appliance.index("plain")
    response = appliance.search("sharpen pencil", "plain")
    assert response.hits
    assert [(leg.leg, common_pb2.MethodState.Name(leg.state)) for leg in response.legs] == [
        ("lexical", "METHOD_STATE_READY"),
        ("dense", "METHOD_STATE_ABSENT"),
    ]
    with pytest.raises(grpc.RpcError) as refused:
        appliance.search("sharpen pencil", "plain", preset="dense")
    assert explain(refused.value).code == "FAILED_PRECONDITION"
    assert explain(refused.value).remedy


def test_a_damaged_sidecar_is_repaired_while_callers_ask(appliance: Appliance, tmp_path: Path) -> None:
    (tmp_path / "mended").mkdir()
    (tmp_path / "mended" / "tool.py").write_text("def mended_tool():\n    return 1\n")
    appliance.create_project("mended", [tmp_path / "mended"], model="")
    appliance.index("mended")
    status = appliance.client.projects.GetProjectStatus(
        project_service_pb2.GetProjectStatusRequest(name="projects/mended")
    )
    for sidecar in status.sidecars:
        path = appliance.home / "sidecars" / sidecar.sha256[:2] / sidecar.sha256
        path.write_bytes(b"damaged")
    appliance.kill("search")
    appliance.wait_serving("search")

    def ask(_: int) -> int:
        try:
            return len(appliance.search("mended_tool", "mended").hits)
        except grpc.RpcError as error:
            # Until it is mended the caller is told, and is not told that there is nothing.
            told = error.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE)
            return -1 if told else 0

    deadline = time.monotonic() + 60
    with ThreadPoolExecutor(6) as pool:
        while set(found := list(pool.map(ask, range(12)))) != {1}:
            assert 0 not in found
            assert time.monotonic() < deadline
