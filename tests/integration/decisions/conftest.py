from __future__ import annotations

import contextlib
import hashlib
import uuid
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field

import grpc.aio
import psycopg
import pytest
from psycopg.rows import dict_row
from undercroft.decisions.v1 import decision_service_pb2_grpc, evidence_internal_service_pb2_grpc
from undercroft.decisions.v1 import evidence_internal_service_pb2 as evidence_pb2

from services.core.db import Database, migrate
from services.core.grpc import ErrorInterceptor, open_channel
from services.core.pages import PageTokens
from services.decisions.__main__ import register
from services.decisions.clients import SearchClient
from services.decisions.service import DecisionService
from services.decisions.staging import Staging
from tests.support.postgres import PostgresForTests, start_test_postgres


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresForTests]:
    server = start_test_postgres(tmp_path_factory.mktemp("decisions-postgres"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def database_url(postgres: PostgresForTests) -> str:
    """One database for all tests: each has projects of its own."""
    url = postgres.create_database()
    migrate(url)
    return url


@dataclass
class Server:
    """The decisions service on loopback, as its callers see it."""

    database: Database
    target: str
    decisions: decision_service_pb2_grpc.DecisionServiceAsyncStub
    evidence: evidence_internal_service_pb2_grpc.EvidenceInternalServiceAsyncStub

    async def stage(self, run: Run, files: Mapping[str, str], *, source_id: int | None = None) -> list[tuple[int, str]]:
        """Send files of a run as ingest does; return (source id, path) of the records."""
        source_id = run.project.source_id if source_id is None else source_id
        request = evidence_pb2.StageEvidenceRequest(
            project_id=run.project.id,
            run_id=run.id,
            fence=run.fence,
            files=[evidence_pb2.EvidenceFile(source_id=source_id, path=path, text=files[path]) for path in files],
        )
        response = await self.evidence.StageEvidence(request)
        return [(record.source_id, record.path) for record in response.records]


@contextlib.asynccontextmanager
async def serving(database_url: str, search_target: str = "") -> AsyncIterator[Server]:
    """Serve decisions over a database while the block runs."""
    database = Database(database_url, size=4)
    await database.open()
    search = SearchClient(search_target)
    service = DecisionService(database, search)
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    register(service, Staging(database), PageTokens(b"k" * 32))(server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with open_channel(target) as channel:
            yield Server(
                database,
                target,
                decision_service_pb2_grpc.DecisionServiceStub(channel),
                evidence_internal_service_pb2_grpc.EvidenceInternalServiceStub(channel),
            )
    finally:
        await server.stop(None)
        await search.close()
        await database.close()


@pytest.fixture(scope="session")
async def server(database_url: str) -> AsyncIterator[Server]:
    async with serving(database_url) as running:
        yield running


@dataclass
class Run:
    """A running index run, as its row says."""

    project: Project
    id: int
    fence: int


@dataclass
class Project:
    """A project whose index runs are played by the test in SQL: what ingest does around the decisions service."""

    url: str
    name: str = field(default_factory=lambda: f"shop-{uuid.uuid4().hex[:12]}")
    id: int = 0
    source_ids: dict[str, int] = field(default_factory=dict)

    @property
    def source_id(self) -> int:
        return next(iter(self.source_ids.values()))

    def __post_init__(self) -> None:
        (row,) = self.sql("INSERT INTO projects (name, display_name) VALUES (%s, %s) RETURNING id", self.name, "")
        self.id = row["id"]
        self.add_source("main")

    def add_source(self, package: str) -> int:
        (row,) = self.sql(
            """
            INSERT INTO sources (project_id, name, package, origin_kind, origin_location)
            VALUES (%s, %s, %s, 'folder', %s) RETURNING id
            """,
            self.id,
            package,
            package,
            f"/{package}",
        )
        self.source_ids[package] = row["id"]
        return self.source_ids[package]

    def sql(self, statement: str, *parameters: object) -> list[dict[str, object]]:
        with psycopg.connect(self.url, row_factory=dict_row) as session:
            cursor = session.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def begin_run(self) -> Run:
        (row,) = self.sql("UPDATE projects SET fence = fence + 1 WHERE id = %s RETURNING fence", self.id)
        (operation,) = self.sql(
            """
            INSERT INTO operations (project_id, kind, options, state, fence) VALUES (%s, 'index', '{}', 'running', %s)
            RETURNING id
            """,
            self.id,
            row["fence"],
        )
        return Run(self, operation["id"], row["fence"])

    def publish(self, run: Run, files: Mapping[str, str | None], *, package: str = "main") -> int:
        """Publish a run that found ``files`` new or changed, or gone where None; return the generation."""
        source_id = self.source_ids[package]
        with psycopg.connect(self.url, row_factory=dict_row) as session:
            for path, text in files.items():
                digest = hashlib.sha256(text.encode()).digest() if text is not None else None
                session.execute(
                    """
                    INSERT INTO staged_files (run_id, source_id, path, state, package, content_hash)
                    VALUES (%s, %s, %s, %s, %s, %s)
                    """,
                    (run.id, source_id, path, "present" if digest else "deleted", package, digest),
                )
                if text is not None:
                    session.execute(
                        "INSERT INTO file_texts VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                        (self.id, digest, zlib.compress(text.encode()), len(text.split("\n"))),
                    )
            row = session.execute(
                "UPDATE projects SET generation = generation + 1 WHERE id = %s RETURNING generation", (self.id,)
            ).fetchone()
            assert row is not None
            generation = row["generation"]
            session.execute(
                """
                UPDATE files f SET died = %s FROM staged_files s
                WHERE s.run_id = %s AND s.source_id = f.source_id AND s.path = f.path AND f.died IS NULL
                """,
                (generation, run.id),
            )
            session.execute(
                """
                INSERT INTO files (project_id, source_id, package, path, language, module, content_hash, size_bytes,
                                   text_hash, born)
                SELECT %s, source_id, package, path, '', '', content_hash, 0, content_hash, %s FROM staged_files
                WHERE run_id = %s AND state = 'present'
                """,
                (self.id, generation, run.id),
            )
            session.execute("SELECT publish_decisions(%s, %s, %s, true)", (run.id, self.id, generation))
            session.execute(
                """
                INSERT INTO generations (project_id, number, run_id, pipeline_hash, model_name, model_digest,
                                         model_dimensions, model_budget_tokens, counts, degraded)
                VALUES (%s, %s, %s, '', '', '', 0, 0, '{}', '[]')
                """,
                (self.id, generation, run.id),
            )
            session.execute("UPDATE operations SET state = 'done' WHERE id = %s", (run.id,))
        return int(generation)

    def staged(self, run: Run) -> list[str]:
        rows = self.sql("SELECT path FROM staged_decisions WHERE run_id = %s ORDER BY path", run.id)
        return [str(row["path"]) for row in rows]

    def rows(self) -> list[dict[str, object]]:
        return self.sql("SELECT path, title, born, died FROM decisions WHERE project_id = %s ORDER BY id", self.id)


@pytest.fixture
def project(database_url: str) -> Project:
    return Project(database_url)


async def index(server: Server, project: Project, files: Mapping[str, str | None], *, package: str = "main") -> int:
    """Stage and publish files as one run; return the generation."""
    run = project.begin_run()
    present = {path: text for path, text in files.items() if text is not None}
    await server.stage(run, present, source_id=project.source_ids[package])
    return project.publish(run, files, package=package)
