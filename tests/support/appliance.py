"""The whole appliance for acceptance tests: real Postgres, real model, the four services as processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psycopg
from google.longrunning import operations_pb2
from google.protobuf import field_mask_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from undercroft.client import Client
from undercroft.ingest.v1 import index_run_pb2, index_service_pb2, project_pb2, project_service_pb2
from undercroft.search.v1 import search_pb2, search_service_pb2

ROOT = Path(__file__).resolve().parents[2]
MODELS = Path(os.environ.get("UNDERCROFT_TEST_MODELS", ROOT / ".cache" / "models"))
MODEL = "all-minilm-l6-v2"


@dataclass
class Appliance:
    """A running appliance and a client of it."""

    home: Path
    # Settings that it was started with, and keeps when it is started again.
    settings: Mapping[str, str] = field(default_factory=dict)
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(**self._targets())

    def _record(self) -> dict[str, object]:
        record = json.loads((self.home / "run" / "appliance.json").read_text())
        assert isinstance(record, dict)
        return record

    def _targets(self) -> dict[str, str]:
        services = self._record()["services"]
        assert isinstance(services, list)
        return {one["name"]: one["target"] for one in services}

    def pid(self, service: str) -> int:
        """Return the process id of a service."""
        services = self._record()["services"]
        assert isinstance(services, list)
        process = next(one for one in services if one["name"] == service)["process"]
        return int(process["pid"])

    def kill(self, service: str) -> None:
        """Kill a service with SIGKILL; the supervisor starts it again."""
        os.kill(self.pid(service), signal.SIGKILL)

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop the appliance and start it again on its data, with settings of its services."""
        self.client.close()
        undercroft("down", home=self.home)
        undercroft("up", home=self.home, settings={**self.settings, **(settings or {})})
        self.client = Client(**self._targets())

    def wait_serving(self, service: str, timeout_s: float = 60.0) -> None:
        """Wait until a service answers again after a kill."""
        probe = {
            "ingest": lambda: self.client.projects.ListProjects(project_service_pb2.ListProjectsRequest(), timeout=2),
            "search": lambda: self.client.search.ListPresets(search_service_pb2.ListPresetsRequest(), timeout=2),
        }[service]
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                probe()
                return
            except grpc.RpcError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def wait_ready(self, service: str, timeout_s: float = 60.0) -> None:
        """Wait until a service that was killed says that it serves."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with grpc.insecure_channel(self._targets()[service]) as channel:
                    checked = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2)
                if checked.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            except (grpc.RpcError, KeyError):
                pass
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def connect_database(self) -> psycopg.Connection:
        """Open a session on the appliance's database, for looking at what no call shows."""
        from services.appliance.postgres import EmbeddedPostgres

        return psycopg.connect(EmbeddedPostgres(self.home / "postgres").ensure_running().url)

    def create_project(self, project: str, folders: Iterable[Path], *, model: str = MODEL) -> None:
        """Create a project with a source per folder; the folder's name is source and package."""
        self.client.projects.CreateProject(
            project_service_pb2.CreateProjectRequest(
                project_id=project, project=project_pb2.Project(embedding_model=model)
            )
        )
        for folder in folders:
            self.add_source(project, folder)

    def add_source(self, project: str, folder: Path) -> None:
        self.client.projects.CreateSource(
            project_service_pb2.CreateSourceRequest(
                parent=f"projects/{project}",
                source_id=folder.name.lower().replace("_", "-"),
                source=project_pb2.Source(folder=project_pb2.FolderOrigin(path=str(folder))),
            )
        )

    def start_index(self, project: str, *, verify: bool = False, force: bool = False, re_embed: bool = False) -> str:
        """Ask for an index run, and return the name of its operation."""
        request = index_service_pb2.RunIndexRequest(
            project=f"projects/{project}", verify=verify, force=force, re_embed=re_embed
        )
        name: str = self.client.index.RunIndex(request).name
        return name

    def wait(self, operation: str) -> index_run_pb2.IndexRunReport:
        """Wait for a run; the test fails when the run did."""
        done = self.client.operations.WaitOperation(operations_pb2.WaitOperationRequest(name=operation), timeout=600)
        assert done.done
        assert not done.HasField("error"), done.error
        report = index_run_pb2.IndexRunReport()
        done.response.Unpack(report)
        return report

    def wait_anywhere(self, operation: str) -> index_run_pb2.IndexRunReport:
        """Wait for a run although the service that is asked may die meanwhile."""
        while True:
            try:
                return self.wait(operation)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self.wait_serving("ingest")

    def index(
        self, project: str, *, verify: bool = False, force: bool = False, re_embed: bool = False
    ) -> index_run_pb2.IndexRunReport:
        """Bring a project up to date."""
        return self.wait(self.start_index(project, verify=verify, force=force, re_embed=re_embed))

    def clear(self, project: str) -> index_run_pb2.IndexRunReport:
        """Empty a project."""
        request = index_service_pb2.ClearProjectRequest(project=f"projects/{project}")
        return self.wait(self.client.index.ClearProject(request).name)

    def update_project(self, project: str, **fields: object) -> project_pb2.Project:
        """Change fields of a project."""
        request = project_service_pb2.UpdateProjectRequest(
            project=project_pb2.Project(name=f"projects/{project}", **fields),  # type: ignore[arg-type]
            update_mask=field_mask_pb2.FieldMask(paths=list(fields)),
        )
        updated: project_pb2.Project = self.client.projects.UpdateProject(request)
        return updated

    def status(self, project: str) -> project_pb2.ProjectStatus:
        """Ask how a project stands."""
        request = project_service_pb2.GetProjectStatusRequest(name=f"projects/{project}")
        status: project_pb2.ProjectStatus = self.client.projects.GetProjectStatus(request)
        return status

    def search(self, query: str, *projects: str, **fields: object) -> search_service_pb2.SearchResponse:
        """Search in projects, with any field of the request."""
        request = search_service_pb2.SearchRequest(query=query, **fields)  # type: ignore[arg-type]
        request.projects.extend(f"projects/{one}" for one in projects)
        response: search_service_pb2.SearchResponse = self.client.search.Search(request, timeout=60)
        return response

    def export(self, project: str) -> list[search_pb2.Hit]:
        """Return all chunks of a project by key."""
        chunks: list[search_pb2.Hit] = []
        request = search_service_pb2.ListChunksRequest(parent=f"projects/{project}", page_size=1000)
        while True:
            page = self.client.search.ListChunks(request)
            chunks += page.chunks
            if not page.next_page_token:
                return chunks
            request.page_token = page.next_page_token


def undercroft(
    *arguments: str, home: Path, check: bool = True, settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line on an appliance, with settings of its services."""
    done = subprocess.run(
        [sys.executable, "-c", "from services.cli import main; main()", *arguments, "--home", str(home)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **(settings or {})},
    )
    assert done.returncode == 0 or not check, f"{arguments}: {done.stdout}{done.stderr}"
    return done


def install_model(home: Path) -> None:
    """Side-load the prepared model into an appliance's data directory."""
    source = MODELS / MODEL
    assert source.is_dir(), f"no prepared model in {source}: `make test` prepares it"
    (home / "models").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    shutil.copytree(source, home / "models" / MODEL, copy_function=os.link)


@contextmanager
def running_appliance(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Appliance]:
    """Start an appliance in a new data directory, and stop it at the end."""
    install_model(home)
    undercroft("up", home=home, settings=settings)
    appliance = Appliance(home, settings or {})
    try:
        yield appliance
    finally:
        appliance.client.close()
        undercroft("down", home=home)
