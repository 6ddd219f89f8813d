"""A supervisor of given services: ``python -m tests.support.supervise HOME '{"name": [argv]}' START_S MIGRATION``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psycopg

from services.appliance.child import Limits, ServiceSpec
from services.appliance.home import Home
from services.appliance.postgres import EmbeddedPostgres
from services.appliance.supervisor import Supervisor, run_detached
from tests.support.postgres import QUICK


def main(home: str, services: str, start_s: str, statement: str) -> int:
    def migrate(conninfo: str) -> None:
        with psycopg.connect(conninfo) as session:
            session.execute(statement)

    specs = [ServiceSpec(name, tuple(command)) for name, command in json.loads(services).items()]
    limits = Limits(start_s=float(start_s), drain_s=1.0, health_interval_s=0.1, backoff_first_s=0.05, backoff_max_s=0.5)
    place = Home(Path(home))
    postgres = EmbeddedPostgres(place.postgres, log=place.logs / "postgres.log", settings=QUICK)
    return run_detached(Supervisor(place, services=specs, migrate=migrate, postgres=postgres, limits=limits))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
