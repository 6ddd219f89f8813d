"""G6: what git's index may vouch for, and that it never costs more than reading."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from dulwich.index import IndexExtension, SerializedIndexEntry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from services.ingest.gitindex import GitIndex, git_blob_id
from tests.support.gitindexes import entry, write_git_index

OLD_NS = 1_600_000_000_123_456_789
PATHS = ("a.py", "docs/läs mig.md", "docs/deep/b.txt")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"The content of {path}\n")
        os.utime(tmp_path / path, ns=(OLD_NS, OLD_NS))
    return tmp_path


def vouched(root: Path, path: str = "a.py", blob: bytes | None = None, index: GitIndex | None = None) -> bool:
    now = os.lstat(root / path)
    blob = blob or git_blob_id((root / path).read_bytes())
    return (index or GitIndex(root)).vouches(path, blob, now.st_size, now.st_mtime_ns)


def reasons(root: Path) -> list[str]:
    """Return what is logged when several files are asked for."""
    with capture_logs() as logs:
        index = GitIndex(root)
        for path in PATHS:
            assert not vouched(root, path, index=index)
    return [one["reason"] for one in logs]


def test_blob_ids_are_those_of_git() -> None:
    assert git_blob_id(b"hello\n").hex() == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert git_blob_id(b"").hex() == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"


@pytest.mark.parametrize("version", [2, 3, 4])
def test_clean_files_are_vouched_for(root: Path, version: int) -> None:
    write_git_index(root, [entry(root, path) for path in PATHS], version=version)
    index = GitIndex(root)
    with capture_logs() as logs:
        assert all(vouched(root, path, index=index) for path in PATHS)
    assert not logs


def test_a_file_that_git_does_not_know_is_not_vouched_for(root: Path) -> None:
    write_git_index(root, [entry(root, "a.py")])
    assert not vouched(root, PATHS[1])


def test_other_content_is_not_vouched_for(root: Path) -> None:
    write_git_index(root, [entry(root, "a.py")])
    assert not vouched(root, blob=git_blob_id(b"what we read last"))
    assert not GitIndex(root).vouches("a.py", git_blob_id(b"x"), 1, OLD_NS)


def test_an_edit_of_the_same_size_is_not_vouched_for_even_when_its_old_time_is_restored(root: Path) -> None:
    path = root / "a.py"
    before = git_blob_id(path.read_bytes())
    write_git_index(root, [entry(root, "a.py")])
    path.write_text(path.read_text().upper())
    os.utime(path, ns=(OLD_NS, OLD_NS))
    assert not vouched(root, blob=before)


def test_content_that_git_converts_is_not_vouched_for(root: Path) -> None:
    content = b"one\ntwo\n"
    (root / "a.py").write_bytes(content.replace(b"\n", b"\r\n"))
    os.utime(root / "a.py", ns=(OLD_NS, OLD_NS))
    # With core.autocrlf the entry has the id of the content with LF, and the size of the file.
    write_git_index(root, [entry(root, "a.py", blob=git_blob_id(content))])
    assert not GitIndex(root).vouches("a.py", git_blob_id(content), len(content), OLD_NS)


def test_an_index_is_not_read_for_files_that_are_younger(root: Path) -> None:
    write_git_index(root, []).write_bytes(b"damaged")
    index = GitIndex(root)
    with capture_logs() as logs:
        (root / "a.py").touch()
        assert not vouched(root, index=index)
        assert logs == []
        assert not vouched(root, PATHS[1], index=index)
        assert len(logs) == 1


def test_an_entry_without_a_change_time_counts(root: Path) -> None:
    write_git_index(root, [entry(root, "a.py", ctime=(0, 0))])
    assert vouched(root)


@pytest.mark.parametrize(
    "fields",
    [
        {"flags": 0x8000},  # assume-valid
        {"extended_flags": 0x4000},  # skip-worktree
        {"extended_flags": 0x2000},  # intent-to-add
        {"flags": 0x1000},  # the stages of a conflict
        {"flags": 0x2000},
        {"flags": 0x3000},
        {"mode": 0o120000},  # a link
        {"mode": 0o160000},  # a submodule
        {"size": 0},  # git's own mark of an entry that it must look at again
        {"mtime": (0, 0)},
    ],
)
def test_entries_with_a_reservation_do_not_count(root: Path, fields: dict[str, object]) -> None:
    entries = [entry(root, "a.py", **fields), entry(root, PATHS[1])]
    write_git_index(root, entries, version=3)
    assert not vouched(root)
    assert vouched(root, PATHS[1])


def test_a_file_as_young_as_the_index_is_not_vouched_for(root: Path) -> None:
    index = write_git_index(root, [entry(root, "a.py")])
    # Of a clock of nanoseconds, of one that ticks now and then, of one that stood still.
    for later_ns, counts in ((0, False), (10_000_000, False), (1_000_000_000, True)):
        os.utime(index, ns=(OLD_NS + later_ns, OLD_NS + later_ns))
        assert vouched(root) is counts


def test_of_a_clock_of_seconds_two_are_needed(root: Path) -> None:
    second_ns = OLD_NS // 1_000_000_000 * 1_000_000_000
    os.utime(root / "a.py", ns=(second_ns, second_ns))
    index = write_git_index(root, [entry(root, "a.py")])
    for later_s, counts in ((0, False), (1, False), (2, True)):
        os.utime(index, ns=(second_ns + later_s * 1_000_000_000,) * 2)
        assert vouched(root) is counts


def test_a_link_in_place_of_the_file_is_not_vouched_for(root: Path) -> None:
    before = os.lstat(root / "a.py")
    blob = git_blob_id((root / "a.py").read_bytes())
    write_git_index(root, [entry(root, "a.py")])
    (root / "a.py").rename(root / "elsewhere.py")
    os.symlink("elsewhere.py", root / "a.py")
    assert not GitIndex(root).vouches("a.py", blob, before.st_size, before.st_mtime_ns)


def test_a_deleted_file_is_not_vouched_for(root: Path) -> None:
    blob = git_blob_id((root / "a.py").read_bytes())
    size = (root / "a.py").stat().st_size
    write_git_index(root, [entry(root, "a.py")])
    (root / "a.py").unlink()
    assert not GitIndex(root).vouches("a.py", blob, size, OLD_NS)


def test_a_folder_that_is_no_repository_is_nothing_to_speak_of(root: Path) -> None:
    assert reasons(root) == []
    (root / ".git").mkdir()
    assert reasons(root) == []


def test_a_git_folder_that_is_a_link_or_a_file_is_not_followed(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "git"
    write_git_index(root, [entry(root, path) for path in PATHS])
    (root / ".git").rename(elsewhere)
    os.symlink(elsewhere, root / ".git")
    assert reasons(root) == []
    (root / ".git").unlink()
    (root / ".git").write_text(f"gitdir: {elsewhere}\n")
    assert reasons(root) == []


def test_an_index_that_is_a_link_or_a_pipe_is_ignored(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "index"
    index = write_git_index(root, [entry(root, path) for path in PATHS])
    shutil.move(index, elsewhere)
    os.symlink(elsewhere, index)
    assert len(reasons(root)) == 1
    index.unlink()
    os.mkfifo(index)
    assert reasons(root) == ["it is no regular file of an ordinary size"]


def test_an_index_that_git_is_about_to_replace_is_ignored(root: Path) -> None:
    index = write_git_index(root, [entry(root, path) for path in PATHS])
    index.with_name("index.lock").touch()
    assert reasons(root) == ["git is at work on it"]
    index.with_name("index.lock").unlink()
    assert vouched(root)


@pytest.mark.parametrize(("signature", "counts"), [(b"TREE", True), (b"ZZZZ", True), (b"link", False)])
def test_extensions_count_where_they_change_what_entries_mean(root: Path, signature: bytes, counts: bool) -> None:
    extensions = [IndexExtension(signature, b"anything")]
    write_git_index(root, [entry(root, path) for path in PATHS], extensions=extensions)
    assert vouched(root) is counts


def test_an_index_without_a_checksum_counts(root: Path) -> None:
    index = write_git_index(root, [entry(root, "a.py")])
    index.write_bytes(index.read_bytes()[:-20] + bytes(20))
    assert vouched(root)


def test_an_index_of_sha256_is_ignored(root: Path) -> None:
    index = write_git_index(root, [entry(root, path) for path in PATHS])
    body = index.read_bytes()[:-20]
    index.write_bytes(body + hashlib.sha256(body).digest())
    assert reasons(root) == ["its checksum is wrong, or not SHA-1"]


def test_a_version_of_later_times_is_ignored(root: Path) -> None:
    index = write_git_index(root, [entry(root, path) for path in PATHS])
    body = b"DIRC" + (9).to_bytes(4, "big") + index.read_bytes()[8:-20]
    index.write_bytes(body + hashlib.sha1(body).digest())
    assert len(reasons(root)) == 1


def make_index(folder: Path) -> tuple[Path, list[SerializedIndexEntry]]:
    for path in PATHS:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"The content of {path}\n")
        os.utime(folder / path, ns=(OLD_NS, OLD_NS))
    entries = [entry(folder, path) for path in PATHS]
    return write_git_index(folder, entries, version=4, extensions=[IndexExtension(b"TREE", b"x" * 40)]), entries


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), checksum=st.sampled_from(["kept", "right", "zeros"]))
def test_no_damage_raises_or_vouches_for_other_content(tmp_path: Path, data: st.DataObject, checksum: str) -> None:
    index, entries = make_index(tmp_path)
    whole = index.read_bytes()
    body, trailer = bytearray(whole[:-20]), whole[-20:]
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    del body[data.draw(st.integers(0, len(body)) | st.just(len(body))) :]
    trailers = {"kept": trailer, "right": hashlib.sha1(body).digest(), "zeros": bytes(20)}
    index.write_bytes(bytes(body) + trailers[checksum])
    git = GitIndex(tmp_path)
    for one in entries:
        path = one.name.decode()
        vouched(tmp_path, path, index=git)
        assert not vouched(tmp_path, path, blob=git_blob_id(b"other"), index=git)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_may_be_found_as_an_index(tmp_path: Path, data: bytes, signed: bool) -> None:
    (tmp_path / ".git").mkdir(exist_ok=True)
    body = b"DIRC\0\0\0\2" + data if signed else data
    (tmp_path / ".git" / "index").write_bytes(body + (hashlib.sha1(body).digest() if signed else b""))
    (tmp_path / "a.py").write_text("A = 1\n")
    assert not vouched(tmp_path)


def compressed(root: Path, entries: Iterable[tuple[SerializedIndexEntry, int, bytes]]) -> Path:
    """Write an index of version 4; of each entry, how many bytes of the path before it go and which follow."""
    listed = list(entries)
    body = bytearray(b"DIRC" + struct.pack(">2L", 4, len(listed)))
    for one, removed, suffix in listed:
        number, rest = [removed & 0x7F], removed
        while rest := rest >> 7:
            rest -= 1
            number.insert(0, 0x80 | rest & 0x7F)
        numbers = (*one.ctime, *one.mtime, one.dev, one.ino, one.mode, one.uid, one.gid, one.size)
        body += struct.pack(">10L20sH", *numbers, bytes.fromhex(one.sha.decode()), one.flags)
        body += bytes(number) + suffix + b"\0"
    index = root / ".git" / "index"
    index.parent.mkdir()
    index.write_bytes(bytes(body) + hashlib.sha1(body).digest())
    return index


@pytest.mark.parametrize("length", [1, 127, 128, 129, 200, 16_511, 16_512, 20_000])
def test_paths_that_share_little_are_read_as_git_writes_them(root: Path, length: int) -> None:
    first = b"a" * length
    compressed(root, [(entry(root, "a.py"), 0, first), (entry(root, PATHS[2]), length, PATHS[2].encode())])
    with capture_logs() as logs:
        assert vouched(root, PATHS[2])
        assert not vouched(root)
    assert logs == []


def test_a_small_index_of_paths_without_end_is_ignored(root: Path) -> None:
    one = entry(root, "a.py")
    index = compressed(root, [(one, 0, b"z" * 60_000), *((one, 0, b"z") for _ in range(3_000))])
    assert index.stat().st_size < 400_000
    tracemalloc.start()
    try:
        assert reasons(root) == ["its paths have more than 67,108,864 bytes"]
        assert tracemalloc.get_traced_memory()[1] < 160 << 20
    finally:
        tracemalloc.stop()


def test_a_path_that_removes_more_than_there_is_is_damage(root: Path) -> None:
    one = entry(root, "a.py")
    compressed(root, [(one, 0, b"a.py"), (one, 5, b"b.py")])
    assert reasons(root) == ["it removes more of a path than there is"]


def test_an_index_of_more_entries_than_any_has_is_ignored(root: Path) -> None:
    index = write_git_index(root, [entry(root, path) for path in PATHS])
    body = index.read_bytes()[:8] + (2**32 - 1).to_bytes(4, "big") + index.read_bytes()[12:-20]
    index.write_bytes(body + hashlib.sha1(body).digest())
    assert reasons(root) == ["it has more than 1,000,000 entries"]
