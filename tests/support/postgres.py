"""A real Postgres for tests: the embedded one, from a cluster that is made once and copied."""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

import psycopg

from services.appliance import cluster
from services.appliance.postgres import ConnectionInfo, EmbeddedPostgres

CACHE = Path(__file__).resolve().parents[2] / ".cache"

# A crash of the machine may lose what such a server holds; a kill of its processes may not.
QUICK = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}


@dataclass(frozen=True)
class PostgresForTests:
    """A running server; every database it hands out is new and empty."""

    postgres: EmbeddedPostgres
    connection: ConnectionInfo

    def create_database(self, template: str = "template0") -> str:
        """Create a database, as a copy of ``template`` (a name) if given, and return its URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.connection.url, autocommit=True) as session:
            session.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.connection.url.rpartition("/")[0] + f"/{name}"

    def drop_database(self, url: str) -> None:
        """Drop a database that ``create_database`` made, whoever is connected."""
        with psycopg.connect(self.connection.url, autocommit=True) as session:
            session.execute(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def stop(self) -> None:
        """Stop the server without a checkpoint."""
        self.postgres.stop(fast_limit_s=10.0)


def copy_initialised(data_dir: Path) -> None:
    """Fill ``data_dir`` with a server that was never started, as ``EmbeddedPostgres.initialise`` would."""
    template = _template()
    shutil.copytree(template, data_dir, dirs_exist_ok=True)
    data_dir.chmod(0o700)


def start_test_postgres(root: Path, *, quick: bool = True) -> PostgresForTests:
    """Start a server of its own in ``root``; ``quick`` gives up safety against a crash of the machine."""
    data_dir = root / "postgres"
    copy_initialised(data_dir)
    postgres = EmbeddedPostgres(data_dir, settings=QUICK if quick else {})
    return PostgresForTests(postgres, postgres.ensure_running())


def _template() -> Path:
    """Return an initialised data directory from the cache; made beside its place and renamed, as others may race."""
    version = cluster.Binaries.of_wheel().major_version
    sources = hashlib.sha256(Path(cluster.__file__).read_bytes()).hexdigest()[:12]
    # A template belongs to one user, and root of a user namespace is another than root.
    user = f"{os.geteuid()}-{hashlib.sha256(Path('/proc/self/uid_map').read_bytes()).hexdigest()[:8]}"
    name = f"postgres-{version}-{sources}-{user}"
    template = CACHE / name
    if not template.is_dir():
        CACHE.mkdir(exist_ok=True)
        building = CACHE / f".{name}-{uuid.uuid4().hex[:8]}"
        EmbeddedPostgres(building, settings=QUICK).initialise()
        for leftover in CACHE.glob(f"postgres-*-{user}"):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            building.rename(template)
        except OSError:
            # Another run was faster.
            shutil.rmtree(building)
    return template
