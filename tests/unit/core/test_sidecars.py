"""DESIGN I2 and G16, G17, G20 at the level of files."""

from __future__ import annotations

import hashlib
import os
import random
import resource
from pathlib import Path

import pytest

from services.core.errors import DataLoss, NotReady
from services.core.sidecars import SidecarFile, Volume

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path / "volume")


@pytest.fixture
def published(volume: Volume, tmp_path: Path) -> SidecarFile:
    made = tmp_path / "made"
    made.write_bytes(CONTENT)
    return volume.publish("dense", "dense.tq", made)


def test_a_file_is_named_by_its_content_and_fetched_whole(
    volume: Volume, published: SidecarFile, tmp_path: Path
) -> None:
    assert published.sha256 == hashlib.sha256(CONTENT).digest()
    assert volume.path(published.sha256).name == published.sha256.hex()
    volume.fetch(published, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert volume.check(published) is None


def test_a_local_disk_that_takes_no_copy_is_not_the_fault_of_the_file(
    volume: Volume, published: SidecarFile, tmp_path: Path
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) // 2, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            volume.fetch(published, tmp_path / "copy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not any(path.is_file() for path in tmp_path.glob("*") if path.name != "made")
    volume.fetch(published, tmp_path / "copy")


@pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "delete", "swap"])
def test_every_damage_is_detected_and_nothing_half_read_is_left(
    volume: Volume, published: SidecarFile, tmp_path: Path, damage: str
) -> None:
    chosen = random.Random(damage)
    path = volume.path(published.sha256)
    for _ in range(20):
        content = bytearray(CONTENT)
        if damage == "flip":
            content[chosen.randrange(len(content))] ^= 1 << chosen.randrange(8)
        elif damage == "truncate":
            content = content[: chosen.randrange(len(content))]
        elif damage == "extend":
            content += b"x"
        elif damage == "swap":
            content = bytearray(reversed(content))
        path.unlink(missing_ok=True)
        if damage != "delete":
            path.write_bytes(content)
        assert volume.check(published) is not None
        with pytest.raises(DataLoss) as told:
            volume.fetch(published, tmp_path / "copy")
        assert told.value.remedy
        assert not (tmp_path / "copy").exists()
    assert {one.name for one in tmp_path.iterdir()} == {"made", "volume"}


def test_publishing_mends_a_damaged_file_under_the_name(volume: Volume, published: SidecarFile, tmp_path: Path) -> None:
    volume.path(published.sha256).write_bytes(b"damaged")
    assert volume.publish("dense", "dense.tq", tmp_path / "made") == published
    assert volume.check(published) is None


def test_collecting_keeps_what_is_referenced_or_young(volume: Volume, published: SidecarFile, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"other")
    other = volume.publish("lexical", "meta.json", tmp_path / "other")
    assert volume.collect([published.sha256], grace_s=60) == []
    for file in (published, other):
        os.utime(volume.path(file.sha256), (1, 1))
    leftover = volume.path(other.sha256).with_name(".tmp-0123")
    leftover.write_bytes(b"half")
    os.utime(leftover, (1, 1))
    assert set(volume.collect([published.sha256], grace_s=60)) == {volume.path(other.sha256), leftover}
    assert volume.check(published) is None


def test_publishing_again_makes_a_forgotten_file_young(volume: Volume, published: SidecarFile, tmp_path: Path) -> None:
    os.utime(volume.path(published.sha256), (1, 1))
    volume.publish("dense", "dense.tq", tmp_path / "made")
    assert volume.collect([], grace_s=60) == []


def test_a_volume_that_cannot_be_written_says_so_and_keeps_what_it_has(
    volume: Volume, published: SidecarFile, tmp_path: Path
) -> None:
    (tmp_path / "more").write_bytes(b"more")
    digest = hashlib.sha256(b"more").digest()
    # A file where the folder would be: no folder can be made there, whoever asks.
    blocked = volume.path(digest).parent
    blocked.write_bytes(b"")
    with pytest.raises(NotReady) as told:
        volume.publish("dense", "dense.tq", tmp_path / "more")
    assert told.value.reason == "SIDECAR_VOLUME_UNWRITABLE"
    assert volume.check(published) is None
