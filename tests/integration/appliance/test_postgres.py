from __future__ import annotations

import functools
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from services.appliance.account import Account, Standing
from services.appliance.cluster import Binaries
from services.appliance.logs import tail
from services.appliance.postgres import EmbeddedPostgres
from services.appliance.process import command_line, identify
from services.core.errors import NotReady
from tests.integration.appliance.conftest import children_of, is_alive, kill_server
from tests.support.postgres import QUICK, copy_initialised, start_test_postgres

Wait = Callable[[Callable[[], bool]], None]

# Durability is looked at once; the other tests do not kill the machine.
_server = functools.partial(EmbeddedPostgres, settings=QUICK)

START = """
import os, signal, sys
from pathlib import Path
from services.appliance.postgres import EmbeddedPostgres
from tests.support.postgres import QUICK
postgres = EmbeddedPostgres(Path(sys.argv[1]), settings=QUICK)
postgres.ensure_running()
"""

NEW_TABLE = "DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int)"

LOOPBACK_UP = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))
"""


def _query(url: str, statement: str) -> object:
    with psycopg.connect(url, autocommit=True) as session:
        row = session.execute(statement).fetchone()
    return row[0] if row else None


def _execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement)


def _pid(data_dir: Path) -> int:
    pid = _server(data_dir).status().pid
    assert pid is not None
    return pid


def _can_unshare_network() -> bool:
    probe = ["unshare", "-rn", sys.executable, "-c", LOOPBACK_UP]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def _drop_works() -> bool:
    if os.geteuid() != 0:
        return False
    probe = Account(Standing.DROP, 65_534, 65_534).command([sys.executable, "-I", "-S", "-c", "pass"])
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="class")
def postgres(reused_data_dir: Path) -> Iterator[EmbeddedPostgres]:
    """One running server for all that only look at it."""
    postgres = EmbeddedPostgres(reused_data_dir)
    postgres.ensure_running()
    yield postgres
    kill_server(reused_data_dir)


class TestServer:
    def test_has_the_extensions_that_the_schema_needs(self, postgres: EmbeddedPostgres) -> None:
        url = postgres.ensure_running().url
        _execute(url, "CREATE EXTENSION IF NOT EXISTS vector", "CREATE EXTENSION IF NOT EXISTS pg_trgm")
        assert _query(url, "SELECT '[1,2]'::halfvec <=> '[1,2]'::halfvec") == 0
        assert _query(url, "SELECT similarity('undercroft', 'undercroft')") == 1

    def test_orders_by_bytes_and_knows_case_beyond_ascii(self, postgres: EmbeddedPostgres) -> None:
        url = postgres.ensure_running().url
        words = _query(url, "SELECT array_agg(w ORDER BY w) FROM unnest(ARRAY['b','ä','B','a','_','中']) w")
        assert words == sorted(["b", "ä", "B", "a", "_", "中"], key=str.encode)
        assert _query(url, "SELECT lower('ÄÖÜ')") == "äöü"
        assert _query(url, "SHOW server_encoding") == "UTF8"

    def test_is_durable_and_modest_and_heard_on_loopback_only(self, postgres: EmbeddedPostgres) -> None:
        url = postgres.ensure_running().url
        shown = {
            name: _query(url, f"SHOW {name}")
            for name in ("fsync", "full_page_writes", "synchronous_commit", "max_connections", "listen_addresses")
        }
        assert shown == {
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on",
            "max_connections": "60",
            "listen_addresses": "127.0.0.1",
        }
        assert _query(url, "SHOW unix_socket_directories") == ""

    def test_refuses_a_wrong_password(self, postgres: EmbeddedPostgres) -> None:
        connection = postgres.ensure_running()
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(connection.url.replace(connection.password, "guess"))

    def test_shows_its_password_nowhere(self, postgres: EmbeddedPostgres) -> None:
        connection = postgres.ensure_running()
        pid = _pid(postgres.data_dir)
        arguments = [command_line(process) for process in (pid, *children_of(pid))]
        assert len(arguments) > 3
        assert connection.password not in repr(arguments) + repr(connection) + repr(postgres.status())
        assert connection.password not in postgres.log.read_text()
        assert stat.S_IMODE((postgres.data_dir / "password").stat().st_mode) == 0o600


class TestFirstStart:
    def test_makes_a_database_in_a_closed_tree_and_leaves_its_parents_as_they_are(self, tmp_path: Path) -> None:
        # Longer than any socket path may be.
        closed = tmp_path / "closed"
        place = closed / "Größe 'mit' Raum" / ("lang" * 30) / "postgres"
        place.parent.mkdir(parents=True)
        for folder in (closed, place.parent.parent, place.parent):
            folder.chmod(0o700)
        before = {folder: folder.stat() for folder in place.parents}
        try:
            assert _query(_server(place).ensure_running().url, "SELECT 1") == 1
        finally:
            kill_server(place)
        after = {folder: folder.stat() for folder in place.parents}
        for folder, found in before.items():
            assert (after[folder].st_mode, after[folder].st_uid) == (found.st_mode, found.st_uid)
        made = [place, *place.rglob("*")]
        assert len(made) > 900
        assert [path for path in made if path.stat().st_mode & 0o077] == []

    def test_survives_a_kill_in_the_middle_of_initdb(self, tmp_path: Path, wait_until: Wait) -> None:
        place = tmp_path / "postgres"
        starter = subprocess.Popen([sys.executable, "-c", START, str(place)], start_new_session=True)
        wait_until(lambda: any(place.glob(".cluster-*/global/pg_control")))
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
        assert not (place / "cluster").exists()
        try:
            assert _query(_server(place).ensure_running().url, "SELECT 1") == 1
            assert list(place.glob(".cluster-*")) == []
        finally:
            kill_server(place)
            shutil.rmtree(place)

    def test_says_what_initdb_said(self, tmp_path: Path) -> None:
        broken = tmp_path / "bin"
        broken.mkdir()
        real = Binaries.of_wheel()
        (broken / "postgres").symlink_to(real.path("postgres"))
        (broken / "initdb").write_text("#!/bin/sh\necho 'initdb: no space left on device' >&2\nexit 1\n")
        (broken / "initdb").chmod(0o755)
        place = tmp_path / "postgres"
        with pytest.raises(NotReady, match="no space left on device") as caught:
            _server(place, binaries=Binaries(broken)).initialise()
        assert "undercroft up" in caught.value.remedy
        assert [entry.name for entry in place.iterdir() if entry.name.startswith(".cluster")] == []


class TestAdoption:
    def test_finds_a_running_server(self, data_dir: Path) -> None:
        first = _server(data_dir).ensure_running()
        pid = _pid(data_dir)
        assert _server(data_dir).ensure_running() == first
        assert _pid(data_dir) == pid

    def test_finds_the_server_of_a_parent_that_was_killed(self, data_dir: Path) -> None:
        killed = f"{START}\nos.kill(os.getpid(), signal.SIGKILL)"
        code = subprocess.run([sys.executable, "-c", killed, str(data_dir)], check=False).returncode
        assert code == -signal.SIGKILL
        pid = _pid(data_dir)
        assert _query(_server(data_dir).ensure_running().url, "SELECT 1") == 1
        assert _pid(data_dir) == pid

    def test_starts_one_server_for_many_callers(self, data_dir: Path) -> None:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: _server(data_dir).ensure_running(), range(4)))
        assert len(set(found)) == 1
        assert tail(data_dir / "postgres.log", 1000).count("ready to accept connections") == 1

    def test_follows_a_directory_that_was_moved_under_the_server(self, data_dir: Path) -> None:
        _server(data_dir).ensure_running()
        pid = _pid(data_dir)
        moved = data_dir.with_name("moved")
        data_dir.rename(moved)
        try:
            assert _server(moved).ensure_running()
            assert _pid(moved) == pid
        finally:
            kill_server(moved)


class TestRecovery:
    def test_starts_after_a_kill_and_keeps_what_was_committed(self, data_dir: Path) -> None:
        url = _server(data_dir).ensure_running().url
        _execute(url, NEW_TABLE, "INSERT INTO kept VALUES (7)")
        os.kill(_pid(data_dir), signal.SIGKILL)
        assert _query(_server(data_dir).ensure_running().url, "SELECT n FROM kept") == 7

    def test_is_not_misled_by_a_pid_that_is_another_process_now(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        postgres.ensure_running()
        pid_file = data_dir / "cluster" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        os.kill(_pid(data_dir), signal.SIGKILL)
        with subprocess.Popen(["sleep", "60"]) as other:
            try:
                pid_file.write_text("\n".join([str(other.pid), *lines[1:], ""]))
                assert not postgres.status().running
                assert postgres.stop() is False
                assert _query(postgres.ensure_running().url, "SELECT 1") == 1
                assert other.poll() is None
            finally:
                other.kill()

    def test_is_not_misled_by_another_server(self, data_dir: Path, tmp_path: Path) -> None:
        original = _server(data_dir)
        original.ensure_running()
        # A copy of a running server: its pid file names the original.
        copy = tmp_path / "copy"
        shutil.copytree(data_dir, copy)
        try:
            connection = _server(copy).ensure_running()
            assert connection.port != original.connection().port
            assert _pid(copy) != _pid(data_dir)
        finally:
            kill_server(copy)
        assert original.status().ready

    @pytest.mark.parametrize("content", ["", "\n", "12", "what\nis\nthis\nfile\n", "0\n/x\n1\n2\n"])
    def test_starts_despite_a_damaged_pid_file(self, data_dir: Path, content: str) -> None:
        (data_dir / "cluster" / "postmaster.pid").write_text(content)
        assert _query(_server(data_dir).ensure_running().url, "SELECT 1") == 1

    def test_takes_another_port_when_its_own_is_taken(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        port = postgres.ensure_running().port
        postgres.stop()
        assert postgres.ensure_running().port == port
        postgres.stop()
        with socket.create_server(("127.0.0.1", port)):
            connection = postgres.ensure_running()
            assert connection.port != port
            assert _query(connection.url, "SELECT 1") == 1

    def test_sets_a_new_password_when_the_file_is_lost(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        before = postgres.ensure_running()
        _execute(before.url, NEW_TABLE)
        postgres.stop()
        (data_dir / "password").unlink()
        after = postgres.ensure_running()
        assert after.password != before.password
        assert _query(after.url, "SELECT count(*) FROM kept") == 0
        assert after.password not in postgres.log.read_text()

    def test_says_so_when_the_password_is_lost_while_it_runs(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        postgres.ensure_running()
        (data_dir / "password").unlink()
        with pytest.raises(NotReady) as caught:
            postgres.ensure_running()
        assert "undercroft down" in caught.value.remedy

    def test_refuses_files_of_another_major_version(self, damageable_data_dir: Path) -> None:
        (damageable_data_dir / "cluster" / "PG_VERSION").write_text("17\n")
        with pytest.raises(NotReady, match="Postgres 17") as caught:
            _server(damageable_data_dir).ensure_running()
        assert caught.value.reason == "POSTGRES_VERSION"
        assert (damageable_data_dir / "cluster" / "PG_VERSION").read_text() == "17\n"

    def test_shows_the_log_when_the_server_does_not_start(self, damageable_data_dir: Path) -> None:
        with (damageable_data_dir / "cluster" / "postgresql.auto.conf").open("a") as file:
            file.write("work_mem = 'much'\n")
        with pytest.raises(NotReady, match='invalid value for parameter "work_mem"') as caught:
            _server(damageable_data_dir).ensure_running()
        assert "undercroft up" in caught.value.remedy


class TestStop:
    def test_answers_status_before_during_and_after(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        assert not _server(data_dir / "none").status().running
        assert not postgres.status().running
        connection = postgres.ensure_running()
        status = postgres.status()
        assert (status.running, status.ready, status.port) == (True, True, connection.port)
        assert status.version is not None
        assert status.version.startswith("18.")
        postgres.stop()
        assert not postgres.status().running
        with pytest.raises(NotReady, match="not running"):
            postgres.connection()

    def test_is_idempotent(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        assert postgres.stop() is False
        postgres.ensure_running()
        assert postgres.stop() is True
        assert postgres.stop() is False
        assert _server(data_dir / "nowhere").stop() is False
        assert not (data_dir / "nowhere").exists()

    def test_does_not_wait_for_sessions(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        with psycopg.connect(postgres.ensure_running().url) as session:
            session.execute("SELECT 1")
            assert postgres.stop()
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")

    def test_ends_a_server_that_does_not_listen(self, data_dir: Path) -> None:
        postgres = _server(data_dir)
        url = postgres.ensure_running().url
        _execute(url, NEW_TABLE)
        pid = _pid(data_dir)
        os.kill(pid, signal.SIGSTOP)
        assert postgres.stop(fast_limit_s=0.2, immediate_limit_s=0.2)
        assert not is_alive(pid)
        assert _query(postgres.ensure_running().url, "SELECT count(*) FROM kept") == 0


class TestAccounts:
    @pytest.mark.skipif(not _can_unshare_network(), reason="user or network namespaces are not allowed here")
    def test_runs_inside_namespaces_and_outside_on_the_same_files(self, data_dir: Path) -> None:
        outside = _server(data_dir)
        _execute(outside.ensure_running().url, NEW_TABLE, "INSERT INTO kept VALUES (1)")
        outside.stop()
        owner = (data_dir / "cluster").stat().st_uid
        inside = f"{LOOPBACK_UP}\n{START}\nimport psycopg\n" + (
            "with psycopg.connect(postgres.connection().url) as s: s.execute('UPDATE kept SET n = 2')\npostgres.stop()"
        )
        subprocess.run(["unshare", "-rn", sys.executable, "-c", inside, str(data_dir)], check=True)
        owners = {(data_dir / "cluster" / name).stat().st_uid for name in os.listdir(data_dir / "cluster")}
        assert owners == {owner}
        assert _query(outside.ensure_running().url, "SELECT n FROM kept") == 2

    @pytest.mark.skipif(not _can_unshare_network(), reason="user or network namespaces are not allowed here")
    def test_says_so_when_the_server_lives_in_another_network_namespace(self, data_dir: Path) -> None:
        started = ["unshare", "-rn", sys.executable, "-c", f"{LOOPBACK_UP}\n{START}", str(data_dir)]
        subprocess.run(started, check=True)
        postgres = _server(data_dir)
        pid = _pid(data_dir)
        with pytest.raises(NotReady, match="network namespace") as caught:
            postgres.ensure_running()
        assert caught.value.reason == "POSTGRES_UNREACHABLE"
        assert postgres.stop()
        assert not is_alive(pid)
        assert postgres.ensure_running()

    @pytest.mark.skipif(not _drop_works(), reason="needs root that may change its user")
    def test_leaves_root_without_namespaces_and_goes_back(self, data_dir: Path) -> None:
        dropped = _server(data_dir, account=Account(Standing.DROP, 65_534, 65_534))
        _execute(dropped.ensure_running().url, NEW_TABLE)
        process = identify(_pid(data_dir))
        assert process is not None
        assert os.stat(f"/proc/{process.pid}").st_uid == 65_534
        dropped.stop()
        assert (data_dir / "cluster").stat().st_uid == 65_534
        assert _query(_server(data_dir).ensure_running().url, "SELECT count(*) FROM kept") == 0
        assert (data_dir / "cluster").stat().st_uid == 0

    @pytest.mark.skipif(not _can_unshare_network(), reason="user namespaces are not allowed here")
    @pytest.mark.parametrize("uid", [1000, 54_321])
    def test_runs_as_an_ordinary_user_with_or_without_a_name(self, damageable_data_dir: Path, uid: int) -> None:
        script = f"{START}\nassert os.geteuid() == {uid}\nassert postgres.stop()"
        shutil.rmtree(damageable_data_dir / "cluster")
        mapped = ["unshare", "--user", f"--map-user={uid}", f"--map-group={uid}"]
        subprocess.run([*mapped, sys.executable, "-c", script, str(damageable_data_dir)], check=True)


def test_the_server_for_tests_hands_out_empty_databases(tmp_path: Path) -> None:
    server = start_test_postgres(tmp_path)
    try:
        first, second = server.create_database(), server.create_database()
        _execute(first, "CREATE TABLE only_here (n int)")
        assert _query(second, "SELECT to_regclass('only_here') IS NULL") is True
        copied = server.create_database(template=first.rpartition("/")[2])
        assert _query(copied, "SELECT to_regclass('only_here') IS NULL") is False
        server.drop_database(copied)
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            psycopg.connect(copied)
    finally:
        server.stop()


def test_a_copy_of_the_template_is_a_fresh_server(tmp_path: Path) -> None:
    copy_initialised(tmp_path / "postgres")
    assert _server(tmp_path / "postgres").cluster.exists()
