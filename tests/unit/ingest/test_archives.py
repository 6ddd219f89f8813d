from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
import struct
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.core.errors import (
    Conflict,
    DataLoss,
    InvalidArgument,
    NotFound,
    NotReady,
)
from services.ingest import disk
from services.ingest.archives import unpacking
from services.ingest.archives.unpacking import MTIME_NS, ArchiveLimits, Unpacked, sha256_of
from services.ingest.dependencies.archives import distribution_archive
from services.ingest.discovery import SizeCaps
from services.ingest.keys import MAX_PATH_BYTES, fitted
from services.ingest.skips import Skipped, SkipReason

LIMITS = ArchiveLimits()
MEBI = 1 << 20


def unpack(path: Path, into: Path, limits: ArchiveLimits) -> Unpacked:
    return unpacking.unpack(distribution_archive(path), into, limits)


def zipped(path: Path, members: Iterable[tuple[zipfile.ZipInfo | str, bytes]]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of duplicate names
        for name, data in members:
            archive.writestr(name, data)
    return path


def entry(name: str, mode: int = stat.S_IFREG | 0o755, method: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x")
    info.filename = name  # the constructor would cut it at a NUL
    info.external_attr = mode << 16
    info.compress_type = method
    return info


def tarred(path: Path, members: Iterable[tuple[tarfile.TarInfo | str, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w:gz", format=form, compresslevel=1) as archive:
        for member, data in members:
            info = member if isinstance(member, tarfile.TarInfo) else tarfile.TarInfo(member)
            if info.isreg():
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def skips(unpacked: Unpacked) -> dict[str, str]:
    return {skipped.path: str(skipped.reason) for skipped in unpacked.skipped}


def test_a_wheel_is_unpacked_as_an_installer_would_lay_out_its_library(tmp_path: Path) -> None:
    wheel = zipped(
        tmp_path / "a-1.0-py3-none-any.whl",
        [
            ("pkg/", b""),
            ("pkg/__init__.py", b"import os\n"),
            ("pkg/data.json", b"{}"),
            ("pkg/fast.cpython-311-x86_64-linux-gnu.so", b"\x7fELF"),
            ("pkg/__pycache__/a.pyc", b"x"),
            ("pkg/__pycache__/b.pyc", b"x"),
            ("pkg/logo.png", b"x"),
            ("a.libs/libz.so.1.2", b"x"),
            ("a-1.0.data/purelib/pkg/pure.py", b"p"),
            ("a-1.0.data/platlib/pkg/plat.py", b"q"),
            ("a-1.0.data/scripts/run", b"#!/bin/sh"),
            ("a-1.0.data/scripts/walk", b"#!/bin/sh"),
            ("a-1.0.dist-info/METADATA", b"Name: a\n\n# A\n"),
            ("a-1.0.dist-info/WHEEL", b""),
            ("a-1.0.dist-info/licenses/LICENSE", b""),
            ("a-1.0.dist-info/RECORD", b""),
        ],
    )
    unpacked = unpack(wheel, tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {
        "METADATA": b"Name: a\n\n# A\n",
        "pkg/__init__.py": b"import os\n",
        "pkg/data.json": b"{}",
        "pkg/plat.py": b"q",
        "pkg/pure.py": b"p",
    }
    assert skips(unpacked) == {
        "a-1.0.data/scripts/": "excluded",
        "a-1.0.dist-info/": "excluded",
        "a.libs/libz.so.1.2": "binary",
        "pkg/__pycache__/": "excluded",
        "pkg/fast.cpython-311-x86_64-linux-gnu.so": "binary",
        "pkg/logo.png": "binary",
    }
    assert len(unpacked.skipped) == 6
    assert (unpacked.files, unpacked.size_bytes) == (5, 27)


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_an_sdist_loses_its_top_folder(tmp_path: Path, suffix: str) -> None:
    members: list[tuple[str, bytes]] = [
        ("./a-1.0/setup.py", b"s"),
        ("a-1.0/./src//a/__init__.py", b"i"),
        ("a-1.0/a-1.0/inner.py", b"n"),
        ("a-1.0/a.egg-info/SOURCES.txt", b"x"),
        ("other/x.py", b"x"),
        ("loose.py", b"x"),
    ]
    archive = (tarred if suffix == ".tar.gz" else zipped)(tmp_path / f"a-1.0{suffix}", members)
    unpacked = unpack(archive, tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {"a-1.0/inner.py": b"n", "setup.py": b"s", "src/a/__init__.py": b"i"}
    assert skips(unpacked) == {"a.egg-info/": "excluded", "loose.py": "excluded", "other/": "excluded"}


def test_an_sdist_without_a_top_folder_is_unpacked_as_it_is(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a-1.0.zip", [("setup.py", b"s"), ("a/b.py", b"b")])
    assert unpack(archive, tmp_path / "into", LIMITS).skipped == ()
    assert contents(tmp_path / "into") == {"a/b.py": b"b", "setup.py": b"s"}


def test_files_are_plain_and_the_same_each_time(tmp_path: Path) -> None:
    wheel = zipped(
        tmp_path / "a-1.0-py3-none-any.whl", [(entry("run.py", stat.S_IFREG | 0o6777), b"x"), ("d/READ.md", b"y")]
    )
    before = os.umask(0o077)
    try:
        unpack(wheel, tmp_path / "into", LIMITS)
    finally:
        os.umask(before)
    for path in (tmp_path / "into" / "run.py", tmp_path / "into" / "d" / "READ.md"):
        status = path.lstat()
        assert stat.S_IMODE(status.st_mode) == 0o644
        assert status.st_mtime_ns == MTIME_NS


def test_links_and_devices_are_skipped(tmp_path: Path) -> None:
    sdist = tarred(
        tmp_path / "a-1.0.tar.gz",
        [
            ("a/ok.py", b"x"),
            (special("a/soft", tarfile.SYMTYPE, "/etc/passwd"), b""),
            (special("a/soft/escaped.py", tarfile.REGTYPE), b""),
            (special("a/hard", tarfile.LNKTYPE, "a/ok.py"), b""),
            (special("a/null", tarfile.CHRTYPE), b""),
            (special("a/disk", tarfile.BLKTYPE), b""),
            (special("a/pipe", tarfile.FIFOTYPE), b""),
            (special("a/folder", tarfile.DIRTYPE), b""),
            (special("a/unknown", b"Z"), b""),
        ],
    )
    unpacked = unpack(sdist, tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {"ok.py": b"x", "soft/escaped.py": b""}
    assert skips(unpacked) == {
        "soft": "link",
        "hard": "link",
        "null": "special",
        "disk": "special",
        "pipe": "special",
        "unknown": "special",
    }
    wheel = zipped(
        tmp_path / "a-1.0-py3-none-any.whl",
        [
            (entry("soft", stat.S_IFLNK | 0o777), b"/etc"),
            ("soft/passwd.py", b"x"),
            (entry("fifo", stat.S_IFIFO), b""),
            (entry("folder", stat.S_IFDIR), b""),
        ],
    )
    unpacked = unpack(wheel, tmp_path / "zip", LIMITS)
    assert contents(tmp_path / "zip") == {"soft/passwd.py": b"x"}
    assert skips(unpacked) == {"soft": "link", "fifo": "special"}


UNSAFE = ["../x.py", "/x.py", "a/../../x.py", "..", "a/..", "//x.py", "a\\..\\x.py", "\\x.py", "C:/x.py", "a\0/../x.py"]


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE])
def test_an_archive_whose_names_lead_out_of_it_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    mode = {tarfile.REGTYPE: stat.S_IFREG, tarfile.DIRTYPE: stat.S_IFDIR, tarfile.SYMTYPE: stat.S_IFLNK}[kind]
    member = special("a/x", kind)
    member.pax_headers = {"path": name}  # a plain header could not hold a NUL
    archive_of: list[Callable[[], Path]] = [
        lambda: zipped(tmp_path / "a-1.0-py3-none-any.whl", [("ok.py", b""), (entry(name, mode), b"x")]),
        lambda: zipped(tmp_path / "a-1.0.zip", [("a/ok.py", b""), (entry(name, mode), b"x")]),
        lambda: tarred(tmp_path / "a-1.0.tar.gz", [("a/ok.py", b""), (member, b"x")]),
    ]
    for number, archive in enumerate(archive_of):
        with pytest.raises(InvalidArgument, match="leads out of it") as caught:
            unpack(archive(), tmp_path / str(number), LIMITS)
        assert caught.value.reason == "ARCHIVE_UNSAFE"
        assert str(caught.value).isprintable()
        assert set(contents(tmp_path / str(number))) == {"ok.py"}


def test_the_last_of_members_with_one_name_is_kept_and_case_is_told_apart(tmp_path: Path) -> None:
    members: list[tuple[zipfile.ZipInfo | str, bytes]] = [
        ("a.py", b"first"),
        ("./a.py", b"second"),
        ("A.py", b"third"),
        ("a.py/b.py", b"in a file"),
        ("a.py/c/d.py", b"in a file"),
        ("d/e.py", b"x"),
        (entry("d"), b"a folder"),
    ]
    unpacked = unpack(zipped(tmp_path / "a-1.0-py3-none-any.whl", members), tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {"A.py": b"third", "a.py": b"second", "d/e.py": b"x"}
    assert skips(unpacked) == dict.fromkeys(["a.py/b.py", "a.py/c/d.py", "d"], "excluded")
    assert unpacked.files == 3


def test_names_that_cannot_be_kept_are_skipped(tmp_path: Path) -> None:
    long_name, long_path = "n" * 252 + ".py", "/".join(["folder" * 20] * 12) + ".py"
    sdist = tarred(
        tmp_path / "a-1.0.tar.gz",
        [(f"a/{long_name}", b"x"), (f"a/{'n' * 260}", b"x"), (f"a/{long_path}", b"x"), ("a/caf\udce9.py", b"x")],
        form=tarfile.GNU_FORMAT,
    )
    unpacked = unpack(sdist, tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {long_name: b"x"}
    assert skips(unpacked) == {
        "n" * 260: "name_too_long",
        fitted(long_path, MAX_PATH_BYTES): "name_too_long",
        "caf\\xe9.py": "name_not_utf8",
    }


def test_unicode_names_are_kept(tmp_path: Path) -> None:
    names = ["naïve/中文.py", "a b.md", "line\nbreak.py", "\u202e.py", "...py", "..a/b.."]
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [(name, b"x") for name in names])
    assert unpack(wheel, tmp_path / "into", LIMITS).skipped == ()
    assert set(contents(tmp_path / "into")) == set(names)


@pytest.mark.parametrize("suffix", ["-py3-none-any.whl", ".tar.gz"])
def test_what_is_beyond_a_cap_is_skipped_and_the_rest_is_not(tmp_path: Path, suffix: str) -> None:
    members = [("a/1.py", b"x" * 60), ("a/large.py", b"x" * 101), ("a/2.py", b"x" * 60), ("a/3.py", b"x" * 40)]
    archive = (tarred if suffix == ".tar.gz" else zipped)(tmp_path / f"a-1.0{suffix}", members)
    prefix = "" if suffix == ".tar.gz" else "a/"

    unpacked = unpack(archive, tmp_path / "sizes", ArchiveLimits(SizeCaps(100, 100), max_total_bytes=100))
    assert set(contents(tmp_path / "sizes")) == {f"{prefix}1.py", f"{prefix}3.py"}
    assert [skipped.detail for skipped in unpacked.skipped] == [
        "101 bytes, the cap is 100",
        "all files together are capped at 100 bytes",
    ]
    assert skips(unpacked) == {f"{prefix}large.py": "too_large", f"{prefix}2.py": "too_large"}

    unpacked = unpack(archive, tmp_path / "count", ArchiveLimits(max_members=2))
    assert set(contents(tmp_path / "count")) == {f"{prefix}1.py", f"{prefix}large.py"}
    assert unpacked.skipped == (
        Skipped("a/2.py", SkipReason.TOO_LARGE, "more than 2 members: this one and the rest are left out"),
    )


def test_a_zip_bomb_is_stopped_by_the_bytes_that_come_out_of_it(tmp_path: Path) -> None:
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [("bomb.py", bytes(64 * MEBI))])
    assert wheel.stat().st_size < MEBI
    assert skips(unpack(wheel, tmp_path / "honest", LIMITS)) == {"bomb.py": "too_large"}

    data = bytearray(wheel.read_bytes())
    claimed, lie = struct.pack("<L", 64 * MEBI), struct.pack("<L", 1000)
    assert data.count(claimed) == 2  # in the member's own header and in the table
    wheel.write_bytes(data.replace(claimed, lie))
    with pytest.raises(DataLoss) as caught:
        unpack(wheel, tmp_path / "lying", LIMITS)
    assert caught.value.reason == "ARCHIVE_DAMAGED"
    assert sum(map(len, contents(tmp_path / "lying").values())) <= 1000


def test_members_that_share_their_data_are_bounded_together(tmp_path: Path) -> None:
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [(f"{number}.py", bytes(MEBI)) for number in range(64)])
    unpacked = unpack(wheel, tmp_path / "into", ArchiveLimits(max_total_bytes=3 * MEBI))
    assert (unpacked.files, unpacked.size_bytes) == (3, 3 * MEBI)
    assert len(unpacked.skipped) == 61


def test_a_tar_bomb_is_refused_whether_its_members_are_wanted_or_not(tmp_path: Path) -> None:
    for name in ("bomb.py", "bomb.so"):
        sdist = tarred(tmp_path / "a-1.0.tar.gz", [(f"a/{name}", bytes(64 * MEBI))])
        assert sdist.stat().st_size < MEBI
        with pytest.raises(InvalidArgument, match="more than 8,388,608 bytes") as caught:
            unpack(sdist, tmp_path / name, ArchiveLimits(max_stream_bytes=8 * MEBI))
        assert caught.value.reason == "ARCHIVE_TOO_LARGE"


def test_what_follows_a_tar_is_bounded_too(tmp_path: Path) -> None:
    sdist = tarred(tmp_path / "a-1.0.tar.gz", [("a/x.py", b"x")])
    sdist.write_bytes(gzip.compress(gzip.decompress(sdist.read_bytes()) + bytes(32 * MEBI)))
    assert unpack(sdist, tmp_path / "padded", LIMITS).files == 1
    with pytest.raises(InvalidArgument, match="unpacks to more"):
        unpack(sdist, tmp_path / "into", ArchiveLimits(max_stream_bytes=8 * MEBI))


@pytest.mark.parametrize("headers", [{"path": "p" * 5 * MEBI}, {"comment": "c" * 5 * MEBI}])
def test_headers_of_a_tar_that_would_fill_the_memory_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    member = tarfile.TarInfo("a/x.py")
    member.pax_headers = headers
    with pytest.raises(InvalidArgument, match="headers of a member") as caught:
        unpack(tarred(tmp_path / "a-1.0.tar.gz", [(member, b"")]), tmp_path / "into", LIMITS)
    assert caught.value.reason == "ARCHIVE_UNSAFE"


def test_a_table_of_contents_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.ingest.archives.members._MAX_TABLE_BYTES", MEBI)
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [(f"{number:0200}.py", b"") for number in range(5000)])
    with pytest.raises(InvalidArgument, match="table of contents") as caught:
        unpack(wheel, tmp_path / "into", LIMITS)
    assert caught.value.reason == "ARCHIVE_TOO_LARGE"


def test_endless_headers_before_a_member_end_in_an_error(tmp_path: Path) -> None:
    chain = b""
    for _ in range(3000):
        info = special("x", tarfile.XHDTYPE)
        info.size = 12
        chain += info.tobuf(tarfile.USTAR_FORMAT) + b"12 comment=x".ljust(512, b"\0")
    (tmp_path / "a-1.0.tar.gz").write_bytes(gzip.compress(chain))
    with pytest.raises((InvalidArgument, DataLoss)):
        unpack(tmp_path / "a-1.0.tar.gz", tmp_path / "into", LIMITS)


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [("a.py", b"x")])
    data = bytearray(wheel.read_bytes())
    data[6] |= 1
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    wheel.write_bytes(data)
    with pytest.raises(InvalidArgument, match="is encrypted") as caught:
        unpack(wheel, tmp_path / "into", LIMITS)
    assert caught.value.reason == "ARCHIVE_ENCRYPTED"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_whose_output_cannot_be_bounded_are_skipped(tmp_path: Path, method: int) -> None:
    members: list[tuple[zipfile.ZipInfo | str, bytes]] = [(entry("packed.py", method=method), b"x"), ("ok.py", b"y")]
    unpacked = unpack(zipped(tmp_path / "a-1.0-py3-none-any.whl", members), tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {"ok.py": b"y"}
    assert skips(unpacked) == {"packed.py": "unreadable"}


def test_a_tar_that_ends_too_early_is_damaged_although_its_gzip_is_whole(tmp_path: Path) -> None:
    sdist = tarred(tmp_path / "a-1.0.tar.gz", [("a/x.py", b"x" * 1000), ("a/y.py", b"y" * 1000)])
    whole = gzip.decompress(sdist.read_bytes())
    header_of_the_second = whole.index(b"a/y.py")
    damaged = bytearray(whole)
    damaged[header_of_the_second + 148] ^= 1  # its checksum: tarfile would take it for the end
    for data in (whole[:700], whole[:1536], whole[:1800], whole[: header_of_the_second + 1536], bytes(damaged)):
        sdist.write_bytes(gzip.compress(data))
        with pytest.raises(DataLoss) as caught, tempfile.TemporaryDirectory() as folder:
            unpack(sdist, Path(folder), LIMITS)
        assert caught.value.reason == "ARCHIVE_DAMAGED"


def test_an_archive_without_members_is_empty(tmp_path: Path) -> None:
    assert unpack(zipped(tmp_path / "a-1.0.zip", []), tmp_path / "zip", LIMITS) == Unpacked(0, 0, ())
    assert unpack(tarred(tmp_path / "a-1.0.tar.gz", []), tmp_path / "tar", LIMITS) == Unpacked(0, 0, ())


@pytest.mark.parametrize("name", ["a-1.0-py3-none-any.whl", "a-1.0.zip", "a-1.0.tar.gz"])
@pytest.mark.parametrize("data", [b"", b"PK", b"\x1f\x8b", b"not an archive" * 100, b"PK\x05\x06" + bytes(17)])
def test_what_is_no_archive_is_damaged(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataLoss, match="is damaged") as caught:
        unpack(tmp_path / name, tmp_path / "into", LIMITS)
    assert caught.value.remedy


def test_only_an_empty_folder_is_written_to(tmp_path: Path) -> None:
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [("a.py", b"x")])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "elsewhere").mkdir()
    for into in (tmp_path / "full", tmp_path / "link"):
        with pytest.raises(Conflict):
            unpack(wheel, into, LIMITS)
    with pytest.raises(NotReady):
        unpack(wheel, wheel / "below-a-file", LIMITS)
    assert contents(tmp_path / "elsewhere") == {}
    (tmp_path / "empty").mkdir()
    assert unpack(wheel, tmp_path / "empty", LIMITS).files == 1
    assert unpack(wheel, tmp_path / "new" / "and-deep", LIMITS).files == 1


def test_a_full_disk_is_said_and_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(unpacking.os, "write", full)
    for archive in (
        zipped(tmp_path / "a-1.0-py3-none-any.whl", [("a.py", b"x")]),
        tarred(tmp_path / "a-1.0.tar.gz", [("a/a.py", b"x")]),
    ):
        with pytest.raises(NotReady, match="No space left on device"):
            unpack(archive, tmp_path / f"into-{archive.name}", LIMITS)


def test_a_disk_is_not_filled_to_the_brim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the database's too."""
    wheel = zipped(tmp_path / "a-1.0-py3-none-any.whl", [("a.py", b"x")])
    monkeypatch.setattr(disk.os, "statvfs", lambda _: SimpleNamespace(f_bavail=disk.RESERVE_BYTES, f_frsize=1))
    with pytest.raises(NotReady, match="No space left on device"):
        unpack(wheel, tmp_path / "into", LIMITS)


def test_a_path_that_is_no_file_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.whl")
    (tmp_path / "folder.whl").mkdir()
    with pytest.raises(NotFound):
        unpack(tmp_path / "gone.whl", tmp_path / "into", LIMITS)
    for name in ("fifo.whl", "folder.whl", "a.tar.bz2"):
        with pytest.raises(InvalidArgument):
            unpack(tmp_path / name, tmp_path / "into", LIMITS)
    assert not (tmp_path / "into").exists()


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc" * MEBI)
    assert sha256_of(tmp_path / "x", "x") == hashlib.sha256(b"abc" * MEBI).digest()
    with pytest.raises(NotFound):
        sha256_of(tmp_path / "gone", "gone")


def tree(root: Path) -> set[tuple[str, bytes]]:
    """Everything below a folder that no archive may have touched."""
    return {
        (str(path.relative_to(root)), path.read_bytes() if path.is_file() else b"")
        for path in root.rglob("*")
        if path.relative_to(root).parts[0] != "into"
    }


def unpack_in_a_cage(suffix: str, build: Callable[[Path], object]) -> dict[str, bytes] | None:
    """Unpack with sentinels around, check that nothing outside changed, and return what was written."""
    with tempfile.TemporaryDirectory() as folder:
        cage = Path(folder)
        for name in ("x.py", "a.py", "sentinel/x.py"):
            (cage / name).parent.mkdir(exist_ok=True)
            (cage / name).write_bytes(b"sentinel")
        archive = cage / f"a-1.0{suffix}"
        build(archive)
        before, into = tree(cage), cage / "into"
        limits = ArchiveLimits(SizeCaps(4096, 4096), max_total_bytes=8192, max_members=50, max_stream_bytes=MEBI)
        unpacked, refusal = None, ""
        try:
            unpacked = unpack(archive, into, limits)
        except (InvalidArgument, DataLoss) as error:
            refusal = str(error)
        assert refusal.isprintable()
        assert tree(cage) == before
        for path in into.rglob("*"):
            mode = path.lstat().st_mode
            assert stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and stat.S_IMODE(mode) == 0o644)
        written = contents(into)
        assert sum(map(len, written.values())) <= 8192
        if unpacked is None:
            return None
        assert (unpacked.files, unpacked.size_bytes) == (len(written), sum(map(len, written.values())))
        for skipped in unpacked.skipped:
            assert skipped.path.encode("utf-8")
        return written


PIECES = ["..", ".", "", "/", "\\", "a", "x.py", "new.py", "into", "sentinel", "C:", "\0", "é", "a-1.0.dist-info",
          "METADATA", "a-1.0.data", "purelib", "a-1.0", "\n", "~", " ", "\u202e", "\udce9", "n" * 300]  # fmt: skip
NASTY = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).flatmap(
    lambda pieces: st.sampled_from(["/".join(pieces), "".join(pieces), "\\".join(pieces)])
)
DATA = st.sampled_from([b"", b"x", b"x" * 4096, b"x" * 5000])
ZIP_MODES = st.sampled_from(
    [0, stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFREG | 0o4777]
)
TAR_KINDS = st.sampled_from(
    [tarfile.REGTYPE] * 6 + [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE]
)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(["-py3-none-any.whl", ".zip"]), st.lists(st.tuples(NASTY, ZIP_MODES, DATA), max_size=6))
@example(".zip", [("a/x", stat.S_IFLNK, b"../.."), ("a/x/sentinel/x.py", stat.S_IFREG, b"y")])
@example("-py3-none-any.whl", [("a-1.0.data/purelib/../../../x.py", stat.S_IFREG, b"y")])
@example("-py3-none-any.whl", [("../new.py", stat.S_IFREG, b"y")])
@example("-py3-none-any.whl", [("a-1.0.data/purelib/..", stat.S_IFREG, b"y")])
@example("-py3-none-any.whl", [("a-1.0.data/purelib/", stat.S_IFREG, b"y")])
def test_no_zip_writes_outside_of_its_folder(suffix: str, members: list[tuple[str, int, bytes]]) -> None:
    usable = [(entry(name.replace("\udce9", "\xe9"), mode), data) for name, mode, data in members]
    unpack_in_a_cage(suffix, lambda path: zipped(path, usable))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(NASTY, TAR_KINDS, NASTY, DATA), max_size=6),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
@example([("a/ok.py", tarfile.REGTYPE, "", b""), ("a/../new.py", tarfile.REGTYPE, "", b"y")], tarfile.GNU_FORMAT)
@example([("a/x", tarfile.SYMTYPE, "../..", b""), ("a/x/x.py", tarfile.REGTYPE, "", b"y")], tarfile.PAX_FORMAT)
@example([("a/x", tarfile.LNKTYPE, "../x.py", b""), ("a/x", tarfile.REGTYPE, "", b"y")], tarfile.PAX_FORMAT)
def test_no_tar_writes_outside_of_its_folder(members: list[tuple[str, bytes, str, bytes]], form: int) -> None:
    infos = [(special(name, kind, target), data) for name, kind, target, data in members]
    unpack_in_a_cage(".tar.gz", lambda path: tarred(path, infos, form))


HONEST = {"x.py": b"import os\n" * 30, "d/README.md": b"# Title\n", "d/e/f.txt": bytes(range(256)) * 4}


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(["-py3-none-any.whl", ".zip", ".tar.gz"]), st.data())
def test_a_damaged_archive_is_refused_or_gives_what_was_put_in(suffix: str, choose: st.DataObject) -> None:
    def damaged(path: Path) -> None:
        members = [(f"a/{name}", data) for name, data in HONEST.items()]
        data = bytearray((tarred if suffix == ".tar.gz" else zipped)(path, members).read_bytes())
        if choose.draw(st.booleans()):
            del data[choose.draw(st.integers(0, len(data) - 1)) :]
        for _ in range(choose.draw(st.integers(0, 3))):
            if data:
                data[choose.draw(st.integers(0, len(data) - 1))] ^= 1 << choose.draw(st.integers(0, 7))
        path.write_bytes(data)

    written = unpack_in_a_cage(suffix, damaged)
    assert written is None or set(written.values()) <= set(HONEST.values())


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=1600), st.booleans())
def test_a_tar_of_noise_is_refused_or_read_in_bounds(noise: bytes, repaired: bool) -> None:
    def build(path: Path) -> None:
        block = bytearray(noise.ljust(512, b"\0")[:512])
        if repaired:  # a checksum that fits, so that the other fields are believed
            block[148:156] = b" " * 8
            block[148:156] = f"{sum(block):06o}\0 ".encode()
        path.write_bytes(gzip.compress(bytes(block) + noise[512:] + bytes(1024)))

    unpack_in_a_cage(".tar.gz", build)


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_names_without_end_are_not_kept(tmp_path: Path, suffix: str) -> None:
    long = 60_000
    names = [f"a/{number}{'n' * long}" for number in range(20)] + [f"a/{'d/' * (long // 2)}x.py", "a/fine.py"]
    names += [f"a/__pycache__{'x' * 3000}/x.py", f"{'t' * long}/x.py", "a/.venv/x.py", f"a/{'d' * 1100}/.venv/x.py"]
    archive = (tarred if suffix == ".tar.gz" else zipped)(
        tmp_path / f"a-1.0{suffix}", [("a/setup.py", b"s"), *((name, b"x") for name in names)]
    )
    unpacked = unpack(archive, tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {"fine.py": b"x", "setup.py": b"s"}
    assert len(unpacked.skipped) == len(names) - 1  # names that begin alike stay apart
    assert all(len(skipped.path.encode()) <= MAX_PATH_BYTES for skipped in unpacked.skipped)
    assert all(len(skipped.detail) < 500 for skipped in unpacked.skipped)
    assert fitted(names[0], MAX_PATH_BYTES) in skips(unpacked)


def test_the_top_folder_of_an_sdist_may_have_a_long_name(tmp_path: Path) -> None:
    top = "t" * 1500
    sdist = tarred(tmp_path / "a-1.0.tar.gz", [(f"{top}/a.py", b"a"), *((f"{n}/b.py", b"b") for n in range(3))])
    unpacked = unpack(sdist, tmp_path / "into", LIMITS)
    assert contents(tmp_path / "into") == {"a.py": b"a"}
    assert all(len(skipped.detail) < 500 for skipped in unpacked.skipped)


def test_what_is_skipped_is_counted_where_it_is_too_much_to_list(tmp_path: Path) -> None:
    sdist = tarred(tmp_path / "a-1.0.tar.gz", [(f"a/{number}.png", b"x") for number in range(12)] + [("a/b.py", b"b")])
    unpacked = unpack(sdist, tmp_path / "into", ArchiveLimits(max_skipped=5))
    assert contents(tmp_path / "into") == {"b.py": b"b"}
    assert [skipped.path for skipped in unpacked.skipped] == [*(f"{number}.png" for number in range(5)), "…"]
    assert unpacked.skipped[-1] == Skipped("…", SkipReason.TOO_LARGE, "7 more members that are left out")
    unpacked = unpack(sdist, tmp_path / "fewer", ArchiveLimits(max_skipped=5, max_members=8))
    assert [skipped.path for skipped in unpacked.skipped][-2:] == ["a/8.png", "…"]
