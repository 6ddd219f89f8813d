"""G6, where a repository is present and clean: what git's index saves from being read, and what it does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dulwich.repo import Repo

from tests.support.appliance import Appliance

Copy = Callable[..., Path]


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    return request.node.name.removeprefix("test_").replace("_", "-")[:63].strip("-")


@pytest.fixture
def repository(copy_package: Copy) -> Path:
    """A folder whose files are all in git's index, and clean."""
    folder = copy_package("markdown_it")
    Repo.init(os.fspath(folder)).close()
    touch(folder, hours=48)
    refresh(folder)
    return folder


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and ".git" not in path.parts]


def touch(folder: Path, *, hours: int) -> None:
    """Give every file a time of so many hours ago, as a fresh checkout would give it another."""
    moment_ns = time.time_ns() - hours * 3_600_000_000_000
    for number, path in enumerate(files(folder)):
        os.utime(path, ns=(moment_ns + number, moment_ns + number))


def refresh(folder: Path) -> None:
    """Have git look at every file and write its index anew."""
    repository = Repo(os.fspath(folder))
    try:
        repository.get_worktree().stage([os.fspath(path.relative_to(folder)) for path in files(folder)])
    finally:
        repository.close()


def test_no_body_is_read_after_git_has_looked_at_touched_files(
    appliance: Appliance, repository: Path, project: str
) -> None:
    appliance.create_project(project, [repository], model="")
    first = appliance.index(project)
    assert first.files.read >= first.files.new > 10
    touch(repository, hours=24)
    refresh(repository)
    touched = appliance.index(project)
    assert (touched.files.read, touched.files.unchanged, touched.published) == (0, first.files.new, False)
    # The hints are renewed: git is no longer needed.
    (repository / ".git" / "index").unlink()
    again = appliance.index(project)
    assert (again.files.read, again.files.unchanged) == (0, first.files.new)


def test_files_that_changed_are_read_and_only_they(appliance: Appliance, repository: Path, project: str) -> None:
    appliance.create_project(project, [repository], model="")
    appliance.index(project)
    added, unseen, *_ = [path for path in files(repository) if b"def " in path.read_bytes()]
    touch(repository, hours=24)
    added.write_bytes(added.read_bytes().replace(b"def ", b"def\t"))
    refresh(repository)
    unseen.write_bytes(unseen.read_bytes().replace(b"def ", b"def\t"))
    report = appliance.index(project)
    assert (report.files.changed, report.files.deleted, report.files.new) == (2, 0, 0)
    # A file written just now may be looked at twice; no other is read.
    assert report.files.read == 2
    texts = {chunk.place.path: chunk.text for chunk in appliance.export(project) if "def\t" in chunk.text}
    assert texts.keys() == {os.fspath(path.relative_to(repository)) for path in (added, unseen)}


def test_verify_reads_what_git_vouches_for(appliance: Appliance, repository: Path, project: str) -> None:
    appliance.create_project(project, [repository], model="")
    first = appliance.index(project)
    touch(repository, hours=24)
    refresh(repository)
    assert appliance.index(project, verify=True).files.read == first.files.read


def test_without_a_repository_touched_files_are_read(appliance: Appliance, copy_package: Copy, project: str) -> None:
    folder = copy_package("markdown_it")
    touch(folder, hours=48)
    appliance.create_project(project, [folder], model="")
    first = appliance.index(project)
    touch(folder, hours=24)
    touched = appliance.index(project)
    assert (touched.files.read, touched.published) == (first.files.read, False)
