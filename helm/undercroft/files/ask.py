"""Ask every service a question whose answer is known: index a small archive, search it, ask why, remove it.

The targets are in EMBED_TARGET, INGEST_TARGET, SEARCH_TARGET and DECISIONS_TARGET. Ends with 1 at the first wrong
answer.
"""

import io
import os
import secrets
import struct
import sys
import tarfile
import time

import grpc
from undercroft.client import Client, explain
from undercroft.common.v1 import common_pb2
from undercroft.decisions.v1 import decision_service_pb2
from undercroft.embed.v1 import embed_pb2, embed_service_pb2
from undercroft.ingest.v1 import index_service_pb2, project_pb2, project_service_pb2
from undercroft.search.v1 import search_service_pb2

FILES = {
    "src/tides.py": '"""Times of high and low water."""\n\n\ndef next_high_water(harbour: str) -> float:\n'
    '    """Return the hours until the sea stands highest at a harbour."""\n    return 12.42\n',
    "src/bread.py": '"""Baking."""\n\n\ndef knead_dough(minutes: int) -> str:\n'
    '    """Work flour and water into dough."""\n    return "dough"\n',
    "docs/adr/0001-keep-tides-in-hours.md": "# 1. Keep tides in hours\n\n## Status\n\nAccepted\n\n## Context\n\n"
    "Sailors plan by the hour.\n\n## Decision\n\nTimes of tides are hours, as floating point numbers.\n\n"
    "## Consequences\n\nSeconds are rounded away.\n",
}


def archive():
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as tar:
        for path, text in FILES.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return memory.getvalue()


def expect(what, holds, told=""):
    print(f"{'ok ' if holds else 'NOT'} {what}{': ' if told else ''}{told}", flush=True)
    if not holds:
        raise SystemExit(1)


def ask_embed(client, required):
    models = client.embed.GetInfo(embed_service_pb2.GetInfoRequest(), timeout=30).models
    refused = [f"{model.name}: {model.refusal}" for model in models if model.refusal]
    # One that is not in memory is loaded when it is named.
    usable = [model.name for model in models if not model.refusal]
    if not usable and not required:
        print(f"--  embed has no model: {refused or 'none is there'}", flush=True)
        return
    expect("embed has a model", bool(usable), ", ".join(usable or refused) or "load one: see the chart's notes")
    request = embed_service_pb2.EmbedRequest(
        model=usable[0], texts=["high water", "dough", "high water"], task=embed_pb2.EMBED_TASK_PASSAGE
    )
    vectors = client.embed.Embed(request, timeout=120).vectors
    size = len(vectors.values) // vectors.count
    first, other, again = (vectors.values[at * size : (at + 1) * size] for at in range(3))
    expect("embed gives equal texts equal vectors, and others others", first == again != other)
    values = struct.unpack(f"<{vectors.dimensions}f", first) if size == 4 * vectors.dimensions else ()
    if values:
        expect("embed's vectors have a length of 1", abs(sum(value * value for value in values) - 1) < 1e-3)


def index(client, project):
    source = project_pb2.Source(archive=project_pb2.ArchiveOrigin())
    client.projects.CreateProject(project_service_pb2.CreateProjectRequest(project_id=project), timeout=30)
    parts = (
        index_service_pb2.UploadArchiveRequest(parent=f"projects/{project}", file_name="tides.tar.gz"),
        index_service_pb2.UploadArchiveRequest(data=archive()),
    )
    source.archive.upload = client.index.UploadArchive(iter(parts), timeout=60).upload
    request = project_service_pb2.CreateSourceRequest(parent=f"projects/{project}", source_id="tides", source=source)
    client.projects.CreateSource(request, timeout=30)
    run = client.index.RunIndex(index_service_pb2.RunIndexRequest(project=f"projects/{project}"), timeout=30)
    report = None
    for answer in client.index.WatchIndexRun(index_service_pb2.WatchIndexRunRequest(operation=run.name), timeout=120):
        report = answer.report
    expect("ingest publishes what was sent", report is not None and report.published, f"{report.files.new} files")
    return [f"{method.method}: {method.reason}" for method in report.degraded]


def ask_search(client, project, required):
    projects = [f"projects/{project}"]
    request = search_service_pb2.SearchRequest(query="when does the sea stand highest", projects=projects)
    for _ in range(30):
        answer = client.search.Search(request, timeout=30)
        if answer.hits:
            break
        time.sleep(1)
    places = [hit.place.path for hit in answer.hits]
    expect("search finds the function by what it does", places[:1] == ["src/tides.py"], ", ".join(places))
    legs = {part.leg for part in answer.hits[0].parts}
    states = {leg.leg: common_pb2.MethodState.Name(leg.state) for leg in answer.legs}
    if required:
        expect("search finds it by meaning too", "dense" in legs, f"{sorted(legs)} of {states}")
    symbols = search_service_pb2.ListSymbolsRequest(name="knead_dough", projects=projects)
    found = [symbol.place.path for symbol in client.search.ListSymbols(symbols, timeout=30).symbols]
    expect("search knows the other function by its name", found == ["src/bread.py"], ", ".join(found))


def ask_decisions(client, project):
    request = decision_service_pb2.WhyRequest(query="why are tides in hours", projects=[f"projects/{project}"])
    titles = [reason.decision.title for reason in client.decisions.Why(request, timeout=30).reasons]
    expect("decisions knows why", any("tides in hours" in title for title in titles), ", ".join(titles))


def main():
    required = "--require-vectors" in sys.argv
    project = f"helm-test-{secrets.token_hex(4)}"
    targets = {name: os.environ[f"{name.upper()}_TARGET"] for name in ("embed", "ingest", "search", "decisions")}
    with Client(**targets) as client:
        try:
            ask_embed(client, required)
            try:
                for reason in index(client, project):
                    print(f"--  degraded: {reason}", flush=True)
                ask_search(client, project, required)
                ask_decisions(client, project)
            finally:
                request = project_service_pb2.DeleteProjectRequest(name=f"projects/{project}")
                client.projects.DeleteProject(request, timeout=60)
        except grpc.RpcError as error:
            said = explain(error)
            sys.exit(f"a call failed: {said.code} {said.message} {said.remedy}".strip())
    print("all services answer", flush=True)


main()
