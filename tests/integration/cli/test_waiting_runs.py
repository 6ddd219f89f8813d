"""Following a run: one that waits for its turn is not waited for in silence."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from rich.console import Console
from undercroft.client import Client
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2, index_service_pb2_grpc

from services.cli import index

WORDS = "waiting for its turn"


class Runs(index_service_pb2_grpc.IndexServiceServicer):
    """Tells of a run that is queued, and of the next stage when it is let go."""

    def __init__(self) -> None:
        self.starts = threading.Event()
        self.ends = threading.Event()

    def WatchIndexRun(self, request: object, context: object) -> Iterator[index_service_pb2.WatchIndexRunResponse]:
        for stage, go in (
            (index_run_pb2.INDEX_STAGE_QUEUED, self.starts),
            (index_run_pb2.INDEX_STAGE_DISCOVER, self.ends),
        ):
            yield index_service_pb2.WatchIndexRunResponse(report=index_run_pb2.IndexRunReport(stage=stage))
            go.wait(30)
        report = index_run_pb2.IndexRunReport(stage=index_run_pb2.INDEX_STAGE_DONE)
        yield index_service_pb2.WatchIndexRunResponse(report=report, done=True)


class Telling(io.StringIO):
    """Notes when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.told = threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        self.told.set()
        return written


@pytest.fixture
def runs() -> Iterator[tuple[Runs, Client]]:
    server, servicer = grpc.server(ThreadPoolExecutor(2)), Runs()
    index_service_pb2_grpc.add_IndexServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Client(ingest=f"127.0.0.1:{port}") as client:
        yield servicer, client
    servicer.starts.set()
    servicer.ends.set()
    server.stop(None).wait()


def test_a_run_that_waits_for_others_says_so(runs: tuple[Runs, Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_SILENCE_S", 0.05)
    servicer, client = runs
    servicer.ends.set()
    out = Telling()
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(index._watch, client, Console(file=out), "projects/one/operations/1")
        assert out.told.wait(30)
        servicer.starts.set()
        assert followed.result(30).stage == index_run_pb2.INDEX_STAGE_DONE
    assert WORDS in out.getvalue()


def test_a_run_that_starts_at_once_says_nothing_of_waiting(
    runs: tuple[Runs, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_SILENCE_S", 0.3)
    servicer, client = runs
    servicer.starts.set()
    threading.Timer(1.0, servicer.ends.set).start()
    out = Telling()
    index._watch(client, Console(file=out), "projects/one/operations/1")
    assert WORDS not in out.getvalue()
