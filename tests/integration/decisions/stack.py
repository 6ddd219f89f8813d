"""Ingest and search as processes of their own, without models, so that why is asked of what was really indexed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
from google.longrunning import operations_pb2, operations_pb2_grpc
from undercroft.ingest.v1 import (
    index_service_pb2,
    index_service_pb2_grpc,
    project_pb2,
    project_service_pb2,
    project_service_pb2_grpc,
)

from services.appliance.ports import LOOPBACK, free_ports
from services.core.grpc import open_channel

_START_S = 60
_RUN_S = 120


@contextlib.asynccontextmanager
async def service(name: str, target: str, environment: Mapping[str, str], log: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Run a service while the block runs, and lend a channel to it."""
    settings = {**environment, "UNDERCROFT_LISTEN": target}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", f"services.{name}", env={**os.environ, **settings}, stdout=output, stderr=output
        )
    try:
        async with open_channel(target) as channel:
            ready = asyncio.ensure_future(channel.channel_ready())
            ended = asyncio.ensure_future(process.wait())
            await asyncio.wait({ready, ended}, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
            served = ready.done()
            for task in (ready, ended):
                task.cancel()
            assert served, f"{name} does not serve: {log}"
            yield channel
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@dataclass
class Stack:
    """A running ingest service beside a running search service."""

    ingest: grpc.aio.Channel
    search: grpc.aio.Channel
    search_target: str

    async def create(self, project: str, folder: Path) -> None:
        """Create a project without a model over one folder."""
        projects = project_service_pb2_grpc.ProjectServiceStub(self.ingest)
        await projects.CreateProject(
            project_service_pb2.CreateProjectRequest(
                project_id=project, project=project_pb2.Project(embedding_model="")
            )
        )
        await projects.CreateSource(
            project_service_pb2.CreateSourceRequest(
                parent=f"projects/{project}",
                source_id="main",
                source=project_pb2.Source(folder=project_pb2.FolderOrigin(path=str(folder))),
            )
        )

    async def index(self, project: str) -> None:
        """Bring a project up to date."""
        index = index_service_pb2_grpc.IndexServiceStub(self.ingest)
        operation = await index.RunIndex(index_service_pb2.RunIndexRequest(project=f"projects/{project}"))
        wait = operations_pb2.WaitOperationRequest(name=operation.name)
        ended = await operations_pb2_grpc.OperationsStub(self.ingest).WaitOperation(wait, timeout=_RUN_S)
        assert ended.done
        assert not ended.HasField("error"), ended.error


@contextlib.asynccontextmanager
async def stack(root: Path, database_url: str, decisions_target: str) -> AsyncIterator[Stack]:
    """Run ingest and search over a database while the block runs."""
    environment = {
        "UNDERCROFT_DATABASE_URL": database_url,
        "UNDERCROFT_SIDECAR_DIR": str(root / "sidecars"),
        "UNDERCROFT_LOCAL_DIR": str(root / "local"),
        "UNDERCROFT_MODELS_DIR": str(root / "models"),
        "UNDERCROFT_DECISIONS_TARGET": decisions_target,
        "UNDERCROFT_EXTRACTION_WORKERS": "1",
        "UNDERCROFT_DEFAULT_PRESET": "lexical",
    }
    for folder in ("sidecars", "local", "models"):
        (root / folder).mkdir()
    ingest_port, search_port = free_ports(2)
    ingest_target, search_target = f"{LOOPBACK}:{ingest_port}", f"{LOOPBACK}:{search_port}"
    async with (
        service("ingest", ingest_target, environment, root / "ingest.log") as ingest,
        service("search", search_target, environment, root / "search.log") as search,
    ):
        yield Stack(ingest, search, search_target)
