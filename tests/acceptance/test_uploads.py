"""Archives that are sent: hostile ones are refused with nothing kept, honest ones are sources like any other."""

from __future__ import annotations

import gzip
import io
import os
import random
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc
import pytest
import zstandard
from undercroft.client import explain
from undercroft.ingest.v1 import index_service_pb2, project_pb2, project_service_pb2

from tests.support.appliance import Appliance, undercroft

MEBI = 1 << 20
FILES = {
    "shop/__init__.py": "",
    "shop/cart.py": 'def add_item(cart, item):\n    """Put an item into the cart."""\n    cart.append(item)\n',
    "README.md": "# Shop\n\nSells umbrellas.\n",
    "logo.png": "no text",
}


def tar(files: dict[str, str], top: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(top + path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def zipped(files: dict[str, str]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made.getvalue()


def gzipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive, tarfile.open(fileobj=io.BytesIO(data)) as source:
        for member in source:
            archive.addfile(member, source.extractfile(member))
    return made.getvalue()


def send(appliance: Appliance, project: str, data: bytes, name: str = "shop.tar") -> str:
    return receive(appliance, project, [data], name).upload


def receive(
    appliance: Appliance, project: str, blocks: Iterable[bytes], name: str = "shop.tar"
) -> index_service_pb2.UploadArchiveResponse:
    def parts() -> Iterator[index_service_pb2.UploadArchiveRequest]:
        yield index_service_pb2.UploadArchiveRequest(parent=f"projects/{project}", file_name=name)
        for block in blocks:
            for start in range(0, len(block), MEBI):
                yield index_service_pb2.UploadArchiveRequest(data=block[start : start + MEBI])

    return appliance.client.index.UploadArchive(parts(), timeout=120)


def add(appliance: Appliance, project: str, source: str, upload: str) -> project_pb2.Source:
    return appliance.client.projects.CreateSource(
        project_service_pb2.CreateSourceRequest(
            parent=f"projects/{project}",
            source_id=source,
            source=project_pb2.Source(archive=project_pb2.ArchiveOrigin(upload=upload)),
        )
    )


def replace(appliance: Appliance, project: str, source: str, upload: str) -> project_pb2.Source:
    return appliance.client.projects.UpdateSource(
        project_service_pb2.UpdateSourceRequest(
            source=project_pb2.Source(
                name=f"projects/{project}/sources/{source}", archive=project_pb2.ArchiveOrigin(upload=upload)
            )
        )
    )


def paths(appliance: Appliance, project: str) -> set[str]:
    return {chunk.place.path for chunk in appliance.export(project)}


def stored(appliance: Appliance) -> list[Path]:
    return [path for path in (appliance.home / "sidecars" / "uploads").rglob("*") if path.is_file()]


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst", "zip"])
def test_an_archive_that_is_sent_is_indexed(appliance: Appliance, form: str) -> None:
    project = f"sent-{form.replace('.', '-')}"
    plain = tar(FILES, top="shop-1.0/")
    data = {
        "tar": plain,
        "tar.gz": gzipped(plain),
        "tar.zst": zstandard.ZstdCompressor().compress(plain),
        "zip": zipped({f"shop-1.0/{path}": text for path, text in FILES.items()}),
    }[form]
    appliance.create_project(project, [])
    received = receive(appliance, project, [data], f"some/where/shop.{form}")
    assert (received.files, received.skipped) == (3, 1)
    source = add(appliance, project, "shop", received.upload)
    assert source.archive.file_name == f"shop.{form}"
    report = appliance.index(project)
    assert report.published
    # The one folder that holds everything is left out.
    assert paths(appliance, project) == {"shop/cart.py", "README.md"}
    hit = appliance.search("add_item", project).hits[0]
    assert (hit.place.path, hit.qualified_name) == ("shop/cart.py", "shop.cart.add_item")
    again = appliance.index(project)
    assert (again.published, again.files.read, again.files.skipped) == (False, 0, report.files.skipped)


def test_another_archive_renews_what_differs(appliance: Appliance) -> None:
    appliance.create_project("resent", [])
    add(appliance, "resent", "shop", send(appliance, "resent", tar(FILES)))
    appliance.index("resent")
    changed = {**FILES, "README.md": "# Shop\n\nSells parasols.\n", "NEWS.md": "# News\n\nParasols.\n"}
    del changed["shop/cart.py"]
    source = replace(appliance, "resent", "shop", send(appliance, "resent", tar(changed)))
    assert source.archive.upload.startswith("projects/resent/uploads/")
    assert appliance.status("resent").snapshot.stale
    report = appliance.index("resent")
    assert (report.files.new, report.files.changed, report.files.deleted) == (1, 1, 1)
    assert report.embeddings.embedded == 2
    assert paths(appliance, "resent") == {"README.md", "NEWS.md"}
    assert not appliance.status("resent").snapshot.stale


def test_an_upload_serves_its_own_project_only(appliance: Appliance) -> None:
    for project in ("mine", "theirs"):
        appliance.create_project(project, [])
    upload = send(appliance, "mine", tar({"secret.md": "# Secret\n"}))
    foreign = upload.replace("projects/mine/", "projects/theirs/")
    for name in (upload, foreign, "projects/theirs/uploads/../../etc", f"projects/theirs/uploads/{'0' * 64}"):
        with pytest.raises(grpc.RpcError) as refused:
            add(appliance, "theirs", "x", name)
        problem = explain(refused.value)
        assert problem.reason in {"UPLOAD_NOT_FOUND", "INVALID_RESOURCE_NAME"}
        assert problem.remedy


def traversal() -> bytes:
    return tar({"../../../../tmp/evil.py": "x = 1\n"})


def absolute() -> bytes:
    return zipped({"/etc/cron.d/evil.py": "x = 1\n"})


def cut() -> bytes:
    return gzipped(tar(FILES))[:-40]


def lying_size() -> bytes:
    made = bytearray(zipped({"a.py": "x = 1\n" * 1000}))
    place = made.rindex(b"PK\x01\x02")
    made[place + 24 : place + 28] = (10).to_bytes(4, "little")
    return bytes(made)


def gzip_bomb() -> bytes:
    """Five GiB of zeros in a tar: as gzip members one after the other, which is one stream to whoever reads it."""
    member = tarfile.TarInfo("big.txt")
    member.size = 5 << 30
    return gzip.compress(member.tobuf()) + gzip.compress(bytes(16 * MEBI)) * 320


def many_members() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for number in range(100_000):
            archive.writestr(f"{number}.py", "")
    return made.getvalue()


def encrypted() -> bytes:
    made = bytearray(zipped({"a.py": "x = 1\n"}))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        made[made.index(mark) + offset] |= 1
    return bytes(made)


def no_archive() -> bytes:
    return random.Random(7).randbytes(5000)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (traversal, "ARCHIVE_UNSAFE"),
        (absolute, "ARCHIVE_UNSAFE"),
        (cut, "ARCHIVE_DAMAGED"),
        (lying_size, "ARCHIVE_DAMAGED"),
        (gzip_bomb, "ARCHIVE_TOO_LARGE"),
        (many_members, "ARCHIVE_TOO_LARGE"),
        (encrypted, "ARCHIVE_ENCRYPTED"),
        (no_archive, "ARCHIVE_DAMAGED"),
        (bytes, "ARCHIVE_DAMAGED"),
    ],
)
def test_a_hostile_archive_is_refused_and_nothing_is_kept(appliance: Appliance, make, reason: str) -> None:  # type: ignore[no-untyped-def]
    project = f"hostile-{make.__name__.replace('_', '-')}"
    appliance.create_project(project, [])
    before, peak = stored(appliance), resident_bytes(appliance)
    with pytest.raises(grpc.RpcError) as refused:
        send(appliance, project, make(), "evil.tar.gz")
    problem = explain(refused.value)
    assert (problem.code, problem.reason) == ("INVALID_ARGUMENT", reason)
    assert problem.remedy
    assert stored(appliance) == before
    assert not list((appliance.home / "local" / "uploads").iterdir())
    assert not Path("/tmp/evil.py").exists()
    assert resident_bytes(appliance) - peak < 150 * MEBI


def resident_bytes(appliance: Appliance) -> int:
    """Return the most memory that the ingest service has had."""
    status = Path(f"/proc/{appliance.pid('ingest')}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) * 1024


def test_links_and_devices_are_listed_and_never_made(appliance: Appliance) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, kind, target in (
            ("passwd.md", tarfile.SYMTYPE, "/etc/passwd"),
            ("hosts.md", tarfile.LNKTYPE, "/etc/hosts"),
            ("pipe.md", tarfile.FIFOTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, stat.S_IRWXU
            archive.addfile(member)
        text = b"# Fine\n\nText.\n"
        member = tarfile.TarInfo("fine.md")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    appliance.create_project("linked", [])
    received = receive(appliance, "linked", [made.getvalue()])
    assert (received.files, received.skipped) == (1, 3)
    add(appliance, "linked", "docs", received.upload)
    appliance.index("linked")
    assert paths(appliance, "linked") == {"fine.md"}
    listed = appliance.client.index.ListSkippedFiles(
        index_service_pb2.ListSkippedFilesRequest(parent="projects/linked")
    )
    assert {(one.path, one.reason) for one in listed.skipped_files} == {
        ("passwd.md", "link"),
        ("hosts.md", "link"),
        ("pipe.md", "special"),
    }


def test_an_upload_that_is_gone_costs_no_index(appliance: Appliance) -> None:
    """The volume can be lost: what is indexed stays, and who wants it renewed is told what to send."""
    appliance.create_project("bereft", [])
    upload = send(appliance, "bereft", tar(FILES))
    add(appliance, "bereft", "shop", upload)
    appliance.index("bereft")
    digest = upload.rpartition("/")[2]
    kept = next(path for path in stored(appliance) if path.name == digest)
    os.unlink(kept)
    assert not appliance.index("bereft").warnings
    with pytest.raises(AssertionError, match="Send the archive again|shop"):
        appliance.index("bereft", force=True)
    assert paths(appliance, "bereft") == {"shop/cart.py", "README.md"}
    send(appliance, "bereft", tar(FILES))
    assert appliance.index("bereft", force=True).generation >= 1


def test_the_command_sends_an_archive_and_replaces_it(appliance: Appliance, tmp_path: Path) -> None:
    def index(name: str, files: dict[str, str], *options: str) -> str:
        archive = tmp_path / name
        archive.write_bytes(tar(files, top=f"{name[:8]}/"))
        return undercroft("index", str(archive), "-p", "sent-by-command", *options, home=appliance.home).stdout

    assert "published" in index("shop-1.0.tar", FILES, "--model", "", "--source", "shop")
    assert "1 new, 1 changed" in index(
        "shop-1.1.tar", {**FILES, "README.md": "# New\n", "a.md": "# A\n"}, "--source", "shop"
    )
    listed = undercroft("projects", "sources", "sent-by-command", home=appliance.home).stdout
    assert "shop-1.1.tar (sent)" in listed
    assert "shop-1.0.tar" not in listed
    assert "published" in index("other.tar", {"b.md": "# B\n"})
    assert paths(appliance, "sent-by-command") == {"shop/cart.py", "README.md", "a.md", "b.md"}
    hostile = tmp_path / "evil.tar"
    hostile.write_bytes(traversal())
    refused = undercroft("index", str(hostile), "-p", "sent-by-command", home=appliance.home, check=False)
    assert refused.returncode != 0
    assert "leads out of it" in refused.stderr
    # A project that was only to be made for it is not there.
    for options in (("-p", "never"), ()):
        assert undercroft("index", str(hostile), *options, home=appliance.home, check=False).returncode != 0
    listed = undercroft("projects", "list", home=appliance.home).stdout
    assert not {"never", "evil"} & {line.split()[0] for line in listed.splitlines()}


def test_a_single_file_is_refused_with_its_folder_named(appliance: Appliance, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Shop\n")
    refused = undercroft("index", str(tmp_path / "README.md"), home=appliance.home, check=False)
    assert refused.returncode == 1
    assert "single files are not indexed" in refused.stderr
    assert refused.stderr.rstrip().endswith(f"Name its folder: {tmp_path}")


def test_the_next_release_takes_the_place_of_the_one_before(appliance: Appliance, tmp_path: Path) -> None:
    for version, text in (("1.2", "# Old\n"), ("v1.10.0rc1", "# New\n")):
        archive = tmp_path / f"lib-{version}.tar"
        archive.write_bytes(tar({"a.md": text}, top=f"lib-{version}/"))
        undercroft("index", str(archive), "-p", "releases", "--model", "", home=appliance.home)
    assert [chunk.text for chunk in appliance.export("releases")] == ["# New"]
    for part in ("part-1.tar", "part-2.tar"):
        (tmp_path / part).write_bytes(tar({f"{part}.md": "# Part\n"}))
        undercroft("index", str(tmp_path / part), "-p", "releases", home=appliance.home)
    assert paths(appliance, "releases") == {"a.md", "part-1.tar.md", "part-2.tar.md"}


def test_of_members_with_one_name_the_last_is_indexed(appliance: Appliance) -> None:
    """As ``tar x`` has it: an archive that was added to holds the older file as well."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for text in ("# Old umbrella\n", "# New umbrella\n"):
            member = tarfile.TarInfo("top/a.md")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    appliance.create_project("added-to", [], model="")
    add(appliance, "added-to", "top", send(appliance, "added-to", made.getvalue()))
    appliance.index("added-to")
    assert [chunk.text for chunk in appliance.export("added-to")] == ["# New umbrella"]
