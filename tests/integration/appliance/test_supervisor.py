from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.appliance import control
from services.appliance.discovery import require, running
from services.appliance.home import Home
from services.appliance.postgres import EmbeddedPostgres
from services.appliance.process import command_line
from services.appliance.record import ApplianceRecord, ApplianceState, Health, ServiceRecord, read_record
from services.core.errors import NotReady
from tests.integration.appliance.conftest import end_appliance, is_alive
from tests.support.postgres import copy_initialised

Wait = Callable[[Callable[[], bool]], None]

SERVER = Path(__file__).parents[2] / "support" / "health_server.py"


MIGRATION = "CREATE TABLE IF NOT EXISTS migrated ()"


def _command(home: Home, *, start_s: float = 60, migration: str = MIGRATION, **modes: str) -> tuple[str, ...]:
    services = {
        name: [sys.executable, str(SERVER), mode, str(home.root / "run" / f"{name}.out")]
        for name, mode in modes.items()
    }
    arguments = (str(home.root), json.dumps(services), str(start_s), migration)
    return (sys.executable, "-m", "tests.support.supervise", *arguments)


def _up(home: Home, *, start_s: float = 60, migration: str = MIGRATION, **modes: str) -> ApplianceRecord:
    command = _command(home, start_s=start_s, migration=migration, **modes)
    return control.start(home, limit_s=90, command=command).record


def _service(home: Home, name: str) -> ServiceRecord:
    record = read_record(home.record)
    assert record is not None
    return next(service for service in record.services if service.name == name)


def _pid(home: Home, name: str) -> int:
    process = _service(home, name).process
    assert process is not None
    return process.pid


def _postgres_pid(home: Home) -> int:
    pid = EmbeddedPostgres(home.postgres).status().pid
    assert pid is not None
    return pid


def _serves(target: str) -> bool:
    with grpc.insecure_channel(target) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


class TestUp:
    def test_starts_everything_and_tells_clients_and_services_where(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PGHOST", "elsewhere.example")
        record = _up(home, embed="serve", ingest="serve")
        assert record.state is ApplianceState.READY
        endpoints = require(home)
        assert _serves(endpoints.embed)
        assert _serves(endpoints["ingest"])
        connection = EmbeddedPostgres(home.postgres).connection()
        with psycopg.connect(connection.url) as session:
            assert session.execute("SELECT to_regclass('migrated') IS NOT NULL").fetchone() == (True,)
        self._check_settings(home, record, connection.url)
        self._check_secrecy(home, record, connection.password)
        status = control.inspect(home)
        assert status.healthy
        assert status.size_bytes > 20_000_000
        assert {service.health for service in status.services} == {Health.SERVING}
        assert control.start(home).already

    @staticmethod
    def _check_settings(home: Home, record: ApplianceRecord, url: str) -> None:
        seen = json.loads((home.run / "embed.out").read_text())
        embed, ingest = record.services
        assert seen["UNDERCROFT_LISTEN"] == seen["UNDERCROFT_EMBED_TARGET"] == embed.target
        assert seen["UNDERCROFT_METRICS_LISTEN"] == embed.metrics_target
        assert seen["UNDERCROFT_INGEST_TARGET"] == ingest.target
        assert len({embed.target, ingest.target, embed.metrics_target, ingest.metrics_target}) == 4
        for name, folder in (("SIDECAR", "sidecars"), ("LOCAL", "local"), ("MODELS", "models"), ("SECRETS", "secrets")):
            assert seen[f"UNDERCROFT_{name}_DIR"] == str(home.root / folder)
        assert seen["UNDERCROFT_DATABASE_URL"] == url
        assert seen["UNDERCROFT_LOG_LEVEL"] == "INFO"
        assert "PGHOST" not in seen
        assert Path(seen["cwd"]) == home.run

    @staticmethod
    def _check_secrecy(home: Home, record: ApplianceRecord, password: str) -> None:
        pids = [record.supervisor.pid, _pid(home, "embed"), _postgres_pid(home)]
        texts = [*(str(command_line(pid)) for pid in pids), home.record.read_text()]
        texts += [log.read_text() for log in home.logs.glob("*.log")]
        assert len(texts) >= 7
        assert not [text for text in texts if password in text]

    def test_twice_at_once_gives_one_appliance(self, home: Home) -> None:
        with ThreadPoolExecutor(2) as pool:
            records = list(pool.map(lambda _: _up(home, embed="serve"), range(2)))
        assert records[0].supervisor == records[1].supervisor

    def test_says_why_a_service_does_not_start_and_leaves_nothing_running(self, home: Home) -> None:
        with pytest.raises(NotReady, match="/models/none does not exist") as caught:
            _up(home, embed="broken", ingest="serve")
        assert "embed ended with code 3" in caught.value.message
        assert "undercroft up" in caught.value.remedy
        assert running(home) is None
        assert not EmbeddedPostgres(home.postgres).status().running
        status = control.inspect(home)
        assert status.state == ApplianceState.FAILED
        assert "/models/none" in status.message
        assert _up(home, embed="serve", ingest="serve").state is ApplianceState.READY

    @pytest.mark.parametrize("mode", ["silent", "idle"])
    def test_does_not_wait_for_ever(self, home: Home, mode: str) -> None:
        with pytest.raises(NotReady, match="embed did not serve within 1 s"):
            _up(home, start_s=1, embed=mode)
        assert not EmbeddedPostgres(home.postgres).status().running

    def test_says_why_a_migration_fails(self, home: Home) -> None:
        with pytest.raises(NotReady, match=r"migrating the database.*nowhere"):
            _up(home, migration="SELECT nowhere", embed="serve")
        assert not EmbeddedPostgres(home.postgres).status().running

    def test_can_be_stopped_while_it_starts(self, home: Home, wait_until: Wait) -> None:
        with subprocess.Popen(_command(home, embed="silent")) as supervisor:
            wait_until(lambda: "starting embed" in (home.record.read_text() if home.record.exists() else ""))
            wait_until(lambda: _service(home, "embed").process is not None)
            pid = _pid(home, "embed")
            supervisor.send_signal(signal.SIGINT)
            assert supervisor.wait(30) == 0
        assert not is_alive(pid)
        assert not home.record.exists()
        assert not EmbeddedPostgres(home.postgres).status().running


class TestDown:
    def test_drains_the_services_kills_what_does_not_drain_and_stops_all(self, home: Home) -> None:
        record = _up(home, embed="serve", ingest="stubborn")
        worker = int((home.run / "ingest.out").read_text())
        pids = [record.supervisor.pid, _pid(home, "embed"), _pid(home, "ingest"), worker, _postgres_pid(home)]
        assert [pid for pid in pids if is_alive(pid)] == pids
        phases: list[str] = []
        assert control.stop(home, on_phase=phases.append) == ("supervisor",)
        assert phases
        assert not [pid for pid in pids if is_alive(pid)]
        assert "drained" in (home.logs / "embed.log").read_text()
        said = (home.logs / "supervisor.log").read_text()
        marks = ("stopping ingest", "ingest did not drain", "stopping embed", "stopping Postgres")
        assert sorted(marks, key=said.index) == list(marks)
        assert "database system is shut down" in (home.logs / "postgres.log").read_text()
        assert running(home) is None
        with pytest.raises(NotReady) as caught:
            require(home)
        assert "undercroft up" in caught.value.remedy
        assert control.stop(home) == ()

    def test_does_nothing_where_nothing_ever_was(self, tmp_path: Path) -> None:
        assert control.stop(Home(tmp_path / "none")) == ()
        assert not (tmp_path / "none").exists()


@pytest.fixture(scope="class")
def watched(reused_home: Home) -> Iterator[Home]:
    """One running appliance for all that can happen to it."""
    _up(reused_home, embed="serve", ingest="stubborn")
    yield reused_home
    end_appliance(reused_home)


class TestWatch:
    def test_starts_a_crashed_service_again_on_its_port(self, watched: Home, wait_until: Wait) -> None:
        before = _service(watched, "embed")
        other = _pid(watched, "ingest")
        for crash in (1, 2):

            def is_back(crash: int = crash) -> bool:
                service = _service(watched, "embed")
                return service.restarts == crash and service.health is Health.SERVING

            os.kill(_pid(watched, "embed"), signal.SIGKILL)
            wait_until(is_back)
        after = _service(watched, "embed")
        assert after.target == before.target
        assert after.process != before.process
        assert _serves(after.target)
        assert _pid(watched, "ingest") == other

    def test_ends_the_workers_of_a_crashed_service(self, watched: Home, wait_until: Wait) -> None:
        worker = int((watched.run / "ingest.out").read_text())
        os.kill(_pid(watched, "ingest"), signal.SIGKILL)
        wait_until(lambda: not is_alive(worker))

    def test_starts_postgres_again(self, watched: Home, wait_until: Wait) -> None:
        port, pid = EmbeddedPostgres(watched.postgres).connection().port, _postgres_pid(watched)
        embed = _pid(watched, "embed")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: EmbeddedPostgres(watched.postgres).status().pid not in {None, pid})
        wait_until(lambda: EmbeddedPostgres(watched.postgres).status().ready)
        assert EmbeddedPostgres(watched.postgres).connection().port == port
        assert _pid(watched, "embed") == embed


class TestKilledSupervisor:
    def test_takes_its_services_along_and_leaves_postgres_to_the_next(self, home: Home, wait_until: Wait) -> None:
        record = _up(home, embed="serve")
        embed, postgres = _pid(home, "embed"), _postgres_pid(home)
        record.supervisor.send(signal.SIGKILL)
        wait_until(lambda: not is_alive(embed))
        assert running(home) is None
        status = control.inspect(home)
        assert status.postgres.pid == postgres
        assert "left processes behind" in status.message
        again = _up(home, embed="serve")
        assert again.supervisor != record.supervisor
        assert _postgres_pid(home) == postgres
        assert _serves(require(home).embed)

    def test_leaves_nothing_that_down_does_not_find(self, home: Home) -> None:
        record = _up(home, embed="stubborn")
        embed, postgres = _pid(home, "embed"), _postgres_pid(home)
        record.supervisor.send(signal.SIGKILL)
        assert record.supervisor.wait(5)
        assert is_alive(embed)
        assert control.stop(home, leftover_drain_s=0.2) == ("embed", "postgres")
        assert not is_alive(embed)
        assert not is_alive(postgres)

    def test_leaves_nothing_that_up_does_not_end(self, home: Home) -> None:
        record = _up(home, embed="stubborn")
        embed, worker = _pid(home, "embed"), int((home.run / "embed.out").read_text())
        record.supervisor.send(signal.SIGKILL)
        assert record.supervisor.wait(5)
        _up(home, embed="serve")
        assert not is_alive(embed)
        assert not is_alive(worker)


class TestLostHome:
    @pytest.fixture
    def own_home(self, tmp_path: Path) -> Iterator[Home]:
        place = Home(tmp_path / "home")
        place.create()
        copy_initialised(place.postgres)
        yield place
        if (supervisor := place.supervisor()) is not None:
            supervisor.send(signal.SIGKILL)
        control.stop(place, leftover_drain_s=0.1)
        shutil.rmtree(place.root, ignore_errors=True)

    def test_ends_with_all_that_ran_and_makes_nothing_anew(self, own_home: Home) -> None:
        record = _up(own_home, embed="serve", ingest="stubborn")
        pids = [_pid(own_home, "embed"), _pid(own_home, "ingest"), _postgres_pid(own_home)]
        shutil.rmtree(own_home.root)
        assert record.supervisor.wait(20)
        assert not [pid for pid in pids if is_alive(pid)]
        assert not own_home.root.exists()

    def test_leaves_the_directory_to_the_next_one(self, own_home: Home, tmp_path: Path) -> None:
        record = _up(own_home, embed="serve")
        pids = [_pid(own_home, "embed"), _postgres_pid(own_home)]
        own_home.run.rename(tmp_path / "run")
        own_home.create()
        with own_home.lock("the next one"):
            assert record.supervisor.wait(20)
        assert not [pid for pid in pids if is_alive(pid)]
        assert sorted(file.name for file in own_home.run.iterdir()) == ["lock"]
        assert "was removed or moved" in (own_home.logs / "supervisor.log").read_text()
        assert _up(own_home, embed="serve").state is ApplianceState.READY
