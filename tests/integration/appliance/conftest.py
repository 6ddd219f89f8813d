from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.appliance import control
from services.appliance.home import Home
from services.appliance.postgres import EmbeddedPostgres
from services.appliance.process import identify
from services.core.errors import UndercroftError
from tests.support.postgres import copy_initialised


def kill_server(data_dir: Path) -> None:
    """End a server in whatever state a test left it."""
    with contextlib.suppress(UndercroftError):
        EmbeddedPostgres(data_dir).stop(fast_limit_s=5, immediate_limit_s=5)


# Copying a cluster costs more than most tests, so one that every test leaves whole is used again.
@pytest.fixture(scope="module")
def reused_data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An initialised server behind a name that needs quoting everywhere."""
    folder = tmp_path_factory.mktemp("server") / "Größe 'mit' \"Raum\" $HOME 数据"
    folder.mkdir(mode=0o700)
    copy_initialised(folder / "postgres")
    yield folder / "postgres"
    # Forty megabytes each would soon fill the folder that pytest keeps.
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(reused_data_dir: Path) -> Iterator[Path]:
    """An initialised server that does not run; the test leaves it usable."""
    yield reused_data_dir
    kill_server(reused_data_dir)
    (reused_data_dir / "postgres.log").unlink(missing_ok=True)


@pytest.fixture
def damageable_data_dir(tmp_path: Path) -> Iterator[Path]:
    """An initialised server that the test may spoil."""
    copy_initialised(tmp_path / "postgres")
    yield tmp_path / "postgres"
    kill_server(tmp_path / "postgres")
    shutil.rmtree(tmp_path / "postgres")


@pytest.fixture(scope="module")
def reused_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A data directory whose database is initialised."""
    place = Home(tmp_path_factory.mktemp("appliance") / "home of the appliance")
    place.create()
    copy_initialised(place.postgres)
    yield place
    shutil.rmtree(place.root)


def end_appliance(home: Home) -> None:
    """End whatever runs in a data directory and forget that it ran."""
    if (supervisor := home.supervisor()) is not None:
        supervisor.send(signal.SIGKILL)
        supervisor.wait(5)
    control.stop(home, leftover_drain_s=0.1)
    for file in (*home.run.iterdir(), *home.logs.iterdir()):
        file.unlink()


@pytest.fixture
def home(reused_home: Home) -> Iterator[Home]:
    """The data directory of an appliance that is down."""
    yield reused_home
    end_appliance(reused_home)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Wait for a condition, at most thirty seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.02)

    return wait


def is_alive(pid: int) -> bool:
    return identify(pid) is not None


def children_of(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task")
    found: list[int] = []
    for task in os.listdir(listing):
        found += [int(child) for child in (listing / task / "children").read_text().split()]
    return found
