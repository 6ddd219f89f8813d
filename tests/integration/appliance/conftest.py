from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.appliance.home import Home
from services.appliance.postgres import EmbeddedPostgres
from services.appliance.process import identify
from services.core.errors import UndercroftError
from tests.support.postgres import copy_initialised


def kill_server(data_dir: Path) -> None:
    """End a server in whatever state a test left it."""
    with contextlib.suppress(UndercroftError):
        EmbeddedPostgres(data_dir).stop(fast_limit_s=5, immediate_limit_s=5)


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """An initialised server that was never started, behind a name that needs quoting everywhere."""
    place = tmp_path / "Größe 'mit' \"Raum\" $HOME 数据" / "postgres"
    place.parent.mkdir(mode=0o700)
    copy_initialised(place)
    yield place
    kill_server(place)
    # Forty megabytes a test would soon fill the folder that pytest keeps.
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A data directory whose database is initialised; whatever runs in it is ended."""
    place = Home(tmp_path / "home of the appliance")
    place.create()
    copy_initialised(place.postgres)
    yield place
    if (supervisor := place.supervisor()) is not None:
        supervisor.send(signal.SIGKILL)
        supervisor.wait(5)
    kill_server(place.postgres)
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Wait for a condition, at most fifteen seconds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 15
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
