"""What an image holds is read from its layout, and both bills of materials name all of it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from ops.images.bills import write_bills
from ops.images.contents import read_contents
from ops.images.images import ROOT, load_catalogue
from ops.images.install import keep_packages, remove_distribution, rewrite_record
from ops.images.layouts import make_canonical

SITE = "usr/local/lib/python3.11/dist-packages"
FILES = {
    "usr/lib/os-release": b'ID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status.d/zlib1g": b"Package: zlib1g\nStatus: install ok installed\nSource: zlib (1.2)\n"
    b"Version: 1:1.2.13\nArchitecture: amd64\nMaintainer: Nobody <n@example.org>\n",
    f"{SITE}/some_thing-1.0.dist-info/METADATA": b"Metadata-Version: 2.4\nName: Some_Thing\nVersion: 1.0\n"
    b"License-Expression: MIT\n",
    f"{SITE}/some_thing-1.0.dist-info/RECORD": b"some_thing.libs/libssl.so.3,sha256=x,1\n",
    f"{SITE}/some_thing.libs/libssl.so.3": b"native",
    "all-minilm/manifest.json": b"{}",
}


def layout(folder: Path, layers: list[dict[str, bytes]], history: str = "", base: str = "") -> Path:
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    described = []
    for files in layers:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        described.append(put(buffer.getvalue()))
    config = put(json.dumps({"config": {"User": "1"}, "history": [{"comment": history}]}).encode())
    annotations = {"org.opencontainers.image.title": "t", "org.opencontainers.image.base.digest": base}
    manifest = put(json.dumps({"config": config, "layers": described, "annotations": annotations}).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    return folder


def test_both_bills_name_packages_distributions_their_native_libraries_and_models(tmp_path: Path) -> None:
    contents = read_contents(layout(tmp_path / "image", [FILES]))
    texts = []
    for run in ("1", "2"):
        paths = write_bills(contents, "thing", "0.1.0", 1_700_000_000, tmp_path / run)
        texts.append([path.read_text() for path in paths])
    assert texts[0] == texts[1]
    native = hashlib.sha256(b"native").hexdigest()
    for text in texts[0]:
        assert "pkg:deb/debian/zlib1g@1:1.2.13?arch=amd64&distro=debian-12&upstream=zlib" in text.replace("%3A", ":")
        assert "pkg:pypi/some-thing@1.0" in text
        assert native in text
        assert "all-minilm" in text
        assert contents.digest.removeprefix("sha256:") in text


def test_a_later_layer_is_what_counts_and_sizes_are_of_what_is_there(tmp_path: Path) -> None:
    contents = read_contents(layout(tmp_path / "image", [{"a": b"12345", "b": b"1"}, {"a": b"12"}]))
    assert contents.size_bytes == 3
    assert contents.paths == {"a", "b"}


def test_a_damaged_layer_is_refused(tmp_path: Path) -> None:
    folder = layout(tmp_path / "image", [FILES])
    victim = max((folder / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match="damaged"):
        read_contents(folder)


def installed(site: Path, name: str, files: dict[str, bytes]) -> Path:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    rows = []
    for path, content in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(content)}")
    (folder / "RECORD").write_text("\n".join([*rows, f"{folder.name}/RECORD,,"]) + "\n")
    return folder


def test_a_record_names_what_is_there_and_a_changed_file_ends_the_build(tmp_path: Path) -> None:
    folder = installed(tmp_path, "thing", {"thing/a.py": b"a", "thing/b.pyi": b"b"})
    (tmp_path / "thing/b.pyi").unlink()
    rewrite_record(tmp_path, folder)
    assert [row.split(",")[0] for row in (folder / "RECORD").read_text().splitlines()] == [
        "thing/a.py",
        "thing-1.0.dist-info/RECORD",
    ]
    (tmp_path / "thing/a.py").write_bytes(b"other")
    with pytest.raises(SystemExit, match=r"thing/a\.py"):
        rewrite_record(tmp_path, folder)


def test_a_distribution_goes_with_all_its_files_and_no_others(tmp_path: Path) -> None:
    installed(tmp_path, "hf_xet", {"hf_xet/a.py": b"a"})
    installed(tmp_path, "hf", {"hf/a.py": b"a"})
    remove_distribution(tmp_path, "hf-xet")
    assert not (tmp_path / "hf_xet/a.py").exists()
    assert not (tmp_path / "hf_xet-1.0.dist-info").exists()
    assert (tmp_path / "hf/a.py").exists()
    with pytest.raises(SystemExit):
        remove_distribution(tmp_path, "hf-xet")


def test_an_image_has_the_code_of_its_service_and_of_no_other(tmp_path: Path) -> None:
    for name in ("__init__", "core/db", "embed/server", "embed/preparation/graph", "search/server", "py"):
        path = tmp_path / "services" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "undercroft").mkdir()
    keep_packages(tmp_path, ["services.embed"], ["services.embed.preparation"])
    found = {path.relative_to(tmp_path / "services").as_posix() for path in tmp_path.rglob("*.py")}
    assert found == {"__init__.py", "core/db.py", "embed/server.py", "py.py"}


def test_every_image_is_defined_to_the_end() -> None:
    catalogue = load_catalogue()
    services = [image for image in catalogue.images.values() if image.command]
    assert {"embed", "ingest", "search", "decisions", "migrate", "models"} == {image.name for image in services}
    for image in services:
        text = image.containerfile("registry.example/undercroft")
        assert "@" not in text
        assert "\nUSER 65532:0\n" in text
        module = image.command[1].replace(".", "/")
        assert (ROOT / module / "__main__.py").is_file()
    ports = [port for image in services if not image.is_separate for port in (image.port, image.metrics_port) if port]
    assert len(ports) == len(set(ports))


def test_labels_are_those_of_the_image_specification() -> None:
    catalogue = load_catalogue()
    labels = catalogue.labels(catalogue.images["search"], "abc", "2025-12-01T00:00:00Z")
    assert labels["org.opencontainers.image.revision"] == "abc"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == catalogue.version


def test_a_digest_depends_on_what_is_in_an_image_and_not_on_a_builder_s_cache(tmp_path: Path) -> None:
    digests = {
        make_canonical(layout(tmp_path / history, [FILES], history, base))
        for history, base in (("FROM one", "sha256:1"), ("FROM two", "sha256:2"))
    }
    assert len(digests) == 1
    contents = read_contents(tmp_path / "FROM one")
    assert {contents.digest} == digests
    assert contents.config == {"config": {"User": "1"}}
    other = layout(tmp_path / "other", [{**FILES, "more": b""}], "FROM one", "sha256:1")
    assert make_canonical(other) not in digests
