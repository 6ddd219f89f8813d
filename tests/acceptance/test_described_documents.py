"""Folders say how their documents are cut and described; what they say is searched by, and a change renews what it
concerns."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from undercroft.common.v1 import common_pb2
from undercroft.ingest.v1 import index_service_pb2
from undercroft.search.v1 import search_service_pb2

from tests.support.appliance import Appliance, undercroft
from tests.support.files import write

PROJECT = "described"


def found(appliance: Appliance, query: str, **metadata: list[str]) -> set[str]:
    wanted = common_pb2.Filter(
        metadata=[common_pb2.MetadataFilter(key=key, values=values) for key, values in metadata.items()]
    )
    return {hit.place.path for hit in appliance.search(query, PROJECT, filter=wanted, page_size=50).hits}


def facets(appliance: Appliance, project: str = PROJECT, **fields: object) -> dict[str, dict[str, int]]:
    request = search_service_pb2.ListFacetsRequest(projects=[f"projects/{project}"], **fields)  # type: ignore[arg-type]
    answer = appliance.client.search.ListFacets(request)
    return {facet.key: {one.value: one.files for one in facet.values} for facet in answer.facets}


def test_what_folders_and_files_say_is_filtered_by_and_followed(appliance: Appliance, tmp_path: Path) -> None:
    page = "# Umbrellas\n\nAbout {}.\n\n## Care\n\nDry umbrellas before {}.\n"
    folder = write(
        tmp_path / "docs",
        {
            ".undercroft.yaml": "version: 1\nmetadata: {team: core}\n",
            "guide.md": page.format("guide", "guide"),
            "api/.undercroft.yaml": "version: 1\nchunk_by: file\nmetadata: {team: api, audience: [dev, ops]}\n",
            "api/v1.md": page.format("v1", "v1"),
            "api/v2.md": "---\ntags: [new, beta]\nteam: labs\n---\n" + page.format("v2", "v2"),
            "plain.py": 'def umbrella():\n    """An umbrella."""\n',
        },
    )
    appliance.create_project(PROJECT, [folder])
    appliance.index(PROJECT)
    documents = {"guide.md", "api/v1.md", "api/v2.md"}
    assert found(appliance, "umbrellas") >= documents
    assert found(appliance, "umbrellas", team=["api"]) == {"api/v1.md"}
    assert found(appliance, "umbrellas", team=["core", "labs"]) == {"guide.md", "api/v2.md", "plain.py"}
    assert found(appliance, "umbrellas", audience=[]) == {"api/v1.md", "api/v2.md"}
    assert found(appliance, "umbrellas", team=["labs"], tags=["beta"]) == {"api/v2.md"}
    assert found(appliance, "umbrellas", team=["core"], tags=["beta"]) == set()
    for preset in ("lexical", "dense", "rrf"):
        answer = appliance.search(
            "umbrellas",
            PROJECT,
            preset=preset,
            filter=common_pb2.Filter(metadata=[common_pb2.MetadataFilter(key="team", values=["labs"])]),
        )
        assert {hit.place.path for hit in answer.hits} == {"api/v2.md"}
    seen = facets(appliance)
    assert seen["team"] == {"core": 3, "api": 2, "labs": 1}
    assert seen["tags"] == {"beta": 1, "new": 1}
    assert seen["language"]["markdown"] == 3
    labs = common_pb2.Filter(metadata=[common_pb2.MetadataFilter(key="team", values=["labs"])])
    assert facets(appliance, filter=labs)["audience"] == {"dev": 1, "ops": 1}
    functions = common_pb2.Filter(kinds=[common_pb2.CHUNK_KIND_FUNCTION])
    assert facets(appliance, filter=functions)["team"] == {"core": 1}
    chunks = [chunk for chunk in appliance.export(PROJECT) if chunk.place.path == "api/v1.md"]
    assert len(chunks) == 1
    told = undercroft("projects", "facets", PROJECT, home=appliance.home).stdout
    assert "labs" in told
    assert "--language" in told
    told = undercroft("search", "umbrellas", "-p", PROJECT, "--meta", "team=labs", home=appliance.home).stdout
    assert "api/v2.md" in told
    assert "guide.md" not in told

    again = appliance.index(PROJECT)
    assert (again.published, again.embeddings.calls) == (False, 0)
    # Another word of the manifest renews what it concerns, and embeds only what is cut otherwise.
    write(folder, {"api/.undercroft.yaml": "version: 1\nmetadata: {team: platform}\n"})
    report = appliance.index(PROJECT)
    assert report.published
    assert report.files.changed == 1
    assert found(appliance, "umbrellas", team=["platform"]) == {"api/v1.md"}
    assert found(appliance, "umbrellas", team=["api"]) == set()
    assert len([chunk for chunk in appliance.export(PROJECT) if chunk.place.path == "api/v1.md"]) == 2
    write(folder, {"api/.undercroft.yaml": "version: 1\nmetadata: {team: billing}\n"})
    assert appliance.index(PROJECT).embeddings.embedded <= 1
    assert found(appliance, "umbrellas", team=["billing"]) == {"api/v1.md"}

    # One that can't be read is listed, and its folder goes without.
    write(folder, {"api/.undercroft.yaml": "version: 1\nchunk_by: everywhere\n"})
    appliance.index(PROJECT)
    assert found(appliance, "umbrellas", team=["core"]) >= {"guide.md", "api/v1.md"}
    listed = appliance.client.index.ListSkippedFiles(
        index_service_pb2.ListSkippedFilesRequest(parent=f"projects/{PROJECT}")
    )
    assert [(one.path, one.reason) for one in listed.skipped_files] == [("api/.undercroft.yaml", "manifest_invalid")]
    assert appliance.status(PROJECT).snapshot.stale is False
    assert not appliance.index(PROJECT).published
    assert not appliance.index(PROJECT).published


def test_facets_are_those_that_most_files_have(appliance: Appliance, tmp_path: Path) -> None:
    keys = "".join(f"key{{0}}x{number}: [a, b, c]\n" for number in range(25))
    pages = {f"{page}.md": f"---\n{keys.format(page)}team: core\n---\n# Page {page}\n" for page in range(10)}
    appliance.create_project("many-facets", [write(tmp_path / "docs", pages)], model="")
    appliance.index("many-facets")
    seen = facets(appliance, "many-facets", max_values=2)
    assert len(seen) == 200
    assert seen["team"] == {"core": 10}
    assert all(len(values) <= 2 for values in seen.values())


@pytest.mark.parametrize(
    "filter_",
    [
        common_pb2.Filter(metadata=[common_pb2.MetadataFilter(key="a\0b")]),
        common_pb2.Filter(metadata=[common_pb2.MetadataFilter(key="a", values=["\0"])]),
        common_pb2.Filter(packages=["\0"]),
        common_pb2.Filter(languages=["\0"]),
        common_pb2.Filter(path_globs=["\0"]),
    ],
    ids=["key", "value", "package", "language", "glob"],
)
def test_a_filter_that_nothing_can_pass_is_refused(appliance: Appliance, filter_: common_pb2.Filter) -> None:
    for ask in (
        lambda: appliance.client.search.Search(search_service_pb2.SearchRequest(query="x", filter=filter_)),
        lambda: appliance.client.search.ListFacets(search_service_pb2.ListFacetsRequest(filter=filter_)),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            ask()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
