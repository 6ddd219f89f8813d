"""A caller that asks all along: ``caller.py RELEASE NAMESPACE OUT [--index]``, until SIGTERM.

Writes one JSON line per call to OUT: when, what, how long, its code, and whether the answer is the first one's. With
``--index`` it first indexes a small project; without, it expects the one that an earlier caller left.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
from undercroft.client import Client, explain
from undercroft.decisions.v1 import decision_service_pb2
from undercroft.ingest.v1 import index_service_pb2, project_pb2, project_service_pb2
from undercroft.search.v1 import search_service_pb2

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "projects/caller"
FOLDERS = ("services/core", "docs/adr")
QUESTIONS = (
    "how is a page token sealed",
    "retry a transaction that lost a race",
    "wait for a notification of the database",
    "CPU quota of the container",
    "why no torch in the services",
)
PORTS = {"embed": 50052, "ingest": 50051, "search": 50053, "decisions": 50054}
_PAUSE_S = 0.05
_DEADLINE_S = 10.0
_NAMES_S = 30.0


def archive() -> bytes:
    """Return a tar of some code and decisions of this project, the same bytes each time."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as tar:
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob("*")):
                if path.suffix in (".py", ".md", ".sql"):
                    member = tarfile.TarInfo(str(path.relative_to(ROOT)))
                    member.size = path.stat().st_size
                    tar.addfile(member, io.BytesIO(path.read_bytes()))
    return memory.getvalue()


def index(client: Client) -> None:
    """Make the project and wait until it is published."""
    client.projects.CreateProject(project_service_pb2.CreateProjectRequest(project_id="caller"), timeout=60)

    def parts() -> Iterator[index_service_pb2.UploadArchiveRequest]:
        yield index_service_pb2.UploadArchiveRequest(parent=PROJECT, file_name="caller.tar")
        data = archive()
        for start in range(0, len(data), 1 << 20):
            yield index_service_pb2.UploadArchiveRequest(data=data[start : start + (1 << 20)])

    upload = client.index.UploadArchive(parts(), timeout=120).upload
    source = project_pb2.Source(archive=project_pb2.ArchiveOrigin(upload=upload))
    request = project_service_pb2.CreateSourceRequest(parent=PROJECT, source_id="code", source=source)
    client.projects.CreateSource(request, timeout=60)
    run = client.index.RunIndex(index_service_pb2.RunIndexRequest(project=PROJECT), timeout=60)
    for answer in client.index.WatchIndexRun(index_service_pb2.WatchIndexRunRequest(operation=run.name), timeout=600):
        if answer.done and not answer.report.published:
            raise SystemExit(f"nothing is published: {answer.report}")


def ask(client: Client, turn: int) -> tuple[str, str, str]:
    """Ask one question; return its kind, a digest of the answer, and why parts of it are missing."""
    question = QUESTIONS[turn % len(QUESTIONS)]
    if turn % 4 == 3:
        why = decision_service_pb2.WhyRequest(query=question, projects=[PROJECT])
        reasons = client.decisions.Why(why, timeout=_DEADLINE_S).reasons
        return f"why {question}", _digest([reason.decision.name for reason in reasons]), ""
    request = search_service_pb2.SearchRequest(query=question, projects=[PROJECT], page_size=10)
    answer = client.search.Search(request, timeout=_DEADLINE_S)
    degraded = "; ".join(f"{leg.leg}: {leg.reason}" for leg in answer.legs if leg.reason)
    return f"search {question}", _digest([*(hit.chunk_key for hit in answer.hits), degraded]), degraded


def await_names(client: Client) -> None:
    """Wait until search and decisions can be asked: Helm waits for pods, and their names come a moment later."""
    until = time.monotonic() + _NAMES_S
    for turn in (0, 3):
        while True:
            try:
                ask(client, turn)
                break
            except grpc.RpcError as error:
                if time.monotonic() > until:
                    raise SystemExit(f"the services can't be asked: {explain(error).message}") from error
                time.sleep(_PAUSE_S)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16] if parts else "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release")
    parser.add_argument("namespace")
    parser.add_argument("out", type=Path)
    parser.add_argument("--index", action="store_true")
    arguments = parser.parse_args()
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    host = f"dns:///{arguments.release}-undercroft-%s-headless.{arguments.namespace}:%s"
    turn = 0
    with (
        Client(**{name: host % (name, port) for name, port in PORTS.items()}) as client,
        arguments.out.open("a", encoding="utf-8") as out,
    ):
        if arguments.index:
            index(client)
        await_names(client)
        while not stopping:
            start = time.time()
            code, kind, answer, degraded = "OK", "", "", ""
            try:
                kind, answer, degraded = ask(client, turn)
            except grpc.RpcError as error:
                said = explain(error)
                code = f"{said.code}: {said.message}"
            line = {"start": start, "seconds": time.time() - start, "kind": kind, "code": code}
            line |= {"answer": answer, "degraded": degraded}
            out.write(json.dumps(line) + "\n")
            out.flush()
            turn += 1
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
