"""One running appliance for the acceptance tests, and corpora from packages that the lock installs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.support.appliance import Appliance, running_appliance


@pytest.fixture(scope="session")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    settings = {"UNDERCROFT_GIT_HOSTS": "127.0.0.1"}
    base = tmp_path_factory.mktemp("appliance")
    # As where a disk is mounted elsewhere: nothing may depend on the way by which a folder is named.
    (base / "disk").mkdir()
    (base / "link").symlink_to(base / "disk")
    with running_appliance(base / "link" / "home", settings) as running:
        yield running


@pytest.fixture
def copy_package(tmp_path: Path) -> Callable[..., Path]:
    """Copy an installed package into a folder of the test's own."""

    def copy(package: str, into: str = "sources") -> Path:
        source = Path(str(resources.files(package)))
        target = tmp_path / into / package
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        return target

    return copy
