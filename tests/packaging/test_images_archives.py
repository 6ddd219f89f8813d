"""Archives that are carried by hand are proven to be those that were made, before anything is built from them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from ops.images.archives import SUMS, check_archives, record_archives, sha256_of
from services.core.errors import DataLoss, NotReady

CONTENT = b"one member" * 100 + b"another member" * 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("runtime", "postgres"):
        (tmp_path / f"{name}.tar").write_bytes(CONTENT)
        record_archives(tmp_path, {name: sha256_of(tmp_path / f"{name}.tar")})
    return tmp_path


def test_what_was_made_is_taken_and_sha256sum_reads_the_record(folder: Path) -> None:
    check_archives(folder, ("runtime", "postgres"))
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", SUMS], cwd=folder, check=True, capture_output=True, text=True
    )
    assert done.stdout == "postgres.tar: OK\nruntime.tar: OK\n"


@pytest.mark.parametrize("content", [b"", CONTENT[:1000], CONTENT.replace(b"a", b"b", 1), CONTENT + b"\0"])
def test_an_archive_that_changed_on_its_way_is_refused(content: bytes, folder: Path) -> None:
    (folder / "postgres.tar").write_bytes(content)
    with pytest.raises(DataLoss) as told:
        check_archives(folder, ("runtime", "postgres"))
    assert told.value.message.startswith("postgres.tar has the SHA-256 ")
    assert SUMS in told.value.remedy


def test_an_archive_without_a_record_is_refused(folder: Path) -> None:
    (folder / SUMS).unlink()
    with pytest.raises(NotReady) as told:
        check_archives(folder, ("runtime",))
    assert told.value.reason == "BASE_UNRECORDED"
    assert "make bases" in told.value.remedy


def test_an_archive_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "runtime.tar").unlink()
    with pytest.raises(NotReady, match="runtime is not there"):
        check_archives(folder, ("runtime",))


def test_one_made_anew_leaves_the_record_of_others(folder: Path) -> None:
    (folder / "runtime.tar").write_bytes(b"newer")
    record_archives(folder, {"runtime": hashlib.sha256(b"newer").hexdigest()})
    check_archives(folder, ("runtime", "postgres"))
