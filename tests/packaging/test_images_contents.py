"""What an image holds is read from its layout, and both bills of materials name all of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from ops.images.bills import write_bills
from ops.images.components import read_components
from ops.images.contents import read_contents
from ops.images.elf import MAGIC
from ops.images.images import MODEL, POSTGRES, ROOT, load_catalogue
from ops.images.install import keep_packages, normalise_modes, remove_distribution, rewrite_record
from ops.images.layouts import make_canonical
from services.core.errors import DataLoss
from tests.support.oci import layout

SITE = "usr/local/lib/python3.11/dist-packages"
FILES = {
    "usr/lib/os-release": b'ID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status.d/zlib1g": b"Package: zlib1g\nStatus: install ok installed\nSource: zlib (1.2)\n"
    b"Version: 1:1.2.13\nArchitecture: amd64\nMaintainer: Nobody <n@example.org>\n",
    f"{SITE}/some_thing-1.0.dist-info/METADATA": b"Metadata-Version: 2.4\nName: Some_Thing\nVersion: 1.0\n"
    b"License-Expression: MIT\n",
    f"{SITE}/some_thing-1.0.dist-info/RECORD": b"some_thing.libs/libssl.so.3,sha256=x,1\n"
    b'"thing/plug,in.so.12",sha256=x,1\n',
    f"{SITE}/some_thing-1.0.dist-info/sboms/own.cdx.json": json.dumps(
        {
            "bomFormat": "CycloneDX",
            "components": [
                {"name": "Some_Thing", "version": "1.0", "purl": "pkg:pypi/some-thing@1.0?file_name=x"},
                {"name": "inner", "version": "7.1", "purl": "pkg:cargo/inner@7.1", "licenses": [{"expression": "MIT"}]},
                {"name": "shim", "licenses": [{"license": {"name": "its own"}}]},
            ],
        }
    ).encode(),
    f"{SITE}/some_thing.libs/libssl.so.3": MAGIC + b"native",
    f"{SITE}/thing/plug,in.so.12": MAGIC + b"plugin",
    f"{SITE}/thing/text.so": b"not native",
    "all-minilm/manifest.json": b'{"digest": "faab82515af4"}',
    "all-minilm/README.md": b"---\nlanguage: en\nlicense: apache-2.0\n---\nlicense: other\n",
    "usr/share/doc/zlib1g/copyright": b"Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
    b"Files: *\nLicense: Zlib\n\nFiles: debian/*\nLicense: Expat or GPL-2+\n\nLicense: GPL-2+\n text\n",
}


def test_both_bills_name_packages_distributions_their_native_libraries_and_models(tmp_path: Path) -> None:
    contents = read_contents(layout(tmp_path / "image", [FILES]))
    texts = []
    for run in ("1", "2"):
        paths = write_bills(contents, "thing", "0.1.0", 1_700_000_000, tmp_path / run)
        texts.append([path.read_text() for path in paths])
    assert texts[0] == texts[1]
    native = [hashlib.sha256(MAGIC + content).hexdigest() for content in (b"native", b"plugin")]
    for text in texts[0]:
        assert "pkg:deb/debian/zlib1g@1:1.2.13?arch=amd64&distro=debian-12&upstream=zlib" in text.replace("%3A", ":")
        assert "pkg:pypi/some-thing@1.0" in text
        assert all(digest in text for digest in native)
        assert "pkg:cargo/inner@7.1" in text
        assert "its own" in text
        assert "all-minilm" in text
        assert "faab82515af4" in text
        assert "GPL-2.0-or-later AND (MIT OR GPL-2.0-or-later) AND Zlib" in text
        assert contents.digest.removeprefix("sha256:") in text


def test_a_later_layer_is_what_counts_and_sizes_are_of_what_is_there(tmp_path: Path) -> None:
    contents = read_contents(layout(tmp_path / "image", [{"a": b"12345", "b": b"1"}, {"a": b"12"}]))
    assert contents.size_bytes == 3
    assert contents.paths == {"a", "b"}


def test_a_damaged_layer_is_refused(tmp_path: Path) -> None:
    folder = layout(tmp_path / "image", [FILES])
    victim = max((folder / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    with pytest.raises(DataLoss, match="damaged"):
        read_contents(folder)


@pytest.mark.parametrize("lost", ["index.json", "blobs"])
def test_a_layout_that_is_not_whole_is_refused(lost: str, tmp_path: Path) -> None:
    folder = layout(tmp_path / "image", [FILES])
    (folder / lost).rename(tmp_path / "lost")
    with pytest.raises(DataLoss, match="not one whole image"):
        read_contents(folder)


def test_a_native_library_that_no_distribution_has_is_not_passed_over(tmp_path: Path) -> None:
    folder = layout(tmp_path / "image", [{**FILES, f"{SITE}/stray.so": MAGIC}])
    with pytest.raises(DataLoss, match=r"stray\.so"):
        read_contents(folder)


def test_a_wheel_s_own_bill_names_its_components_and_not_itself(tmp_path: Path) -> None:
    (distribution,) = read_contents(layout(tmp_path / "image", [FILES])).distributions
    assert [(one.name, one.version, one.licence) for one in distribution.components] == [
        ("inner", "7.1", "MIT"),
        ("shim", "", "its own"),
    ]
    assert sorted(distribution.bundled) == ["some_thing.libs/libssl.so.3", "thing/plug,in.so.12"]
    with pytest.raises(DataLoss):
        read_components("x.json", b"[]", "some-thing")


def test_a_model_is_named_by_the_digest_that_users_see_and_the_licence_of_its_card(tmp_path: Path) -> None:
    (model,) = read_contents(layout(tmp_path / "1", [FILES])).models
    assert (model.name, model.digest, model.licence) == ("all-minilm", "faab82515af4", "apache-2.0")
    without = {name: content for name, content in FILES.items() if not name.endswith("README.md")}
    (model,) = read_contents(layout(tmp_path / "2", [without])).models
    assert model.licence == ""


def test_a_package_that_shares_another_one_s_folder_has_its_licences(tmp_path: Path) -> None:
    other = FILES["var/lib/dpkg/status.d/zlib1g"].replace(b"Package: zlib1g", b"Package: zlib1g-more")
    linked = {**FILES, "var/lib/dpkg/status.d/zlib1g-more": other}
    folder = layout(tmp_path / "linked", [linked], links={"usr/share/doc/zlib1g-more": "zlib1g"})
    assert {one.licences for one in read_contents(folder).os_packages} == {("Expat or GPL-2+", "GPL-2+", "Zlib")}


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


def test_modes_in_an_image_are_not_those_of_a_checkout(tmp_path: Path) -> None:
    found = set()
    for umask in (0o002, 0o022, 0o077):
        tree = tmp_path / f"{umask:o}"
        previous = os.umask(umask)
        try:
            (tree / "folder").mkdir(parents=True)
            (tree / "folder/text").touch()
            (tree / "folder/program").touch(0o777)
            (tree / "link").symlink_to("/etc/shadow")
        finally:
            os.umask(previous)
        normalise_modes(tree)
        names = (".", "folder", "folder/text", "folder/program")
        found.add(tuple(stat.S_IMODE((tree / name).stat().st_mode) for name in names))
    assert found == {(0o755, 0o755, 0o644, 0o755)}


def test_what_is_copied_from_the_checkout_into_an_image_itself_has_a_mode_of_its_own() -> None:
    for image in load_catalogue().images.values():
        if image.name == MODEL:
            continue  # its folder is copied with normal modes before
        last_stage = image.containerfile("p").rpartition("\nFROM ")[2]
        copies = [line for line in last_stage.splitlines() if line.startswith(("COPY ", "ADD "))]
        assert copies
        assert all("--chmod=" in line or "--from=" in line for line in copies)


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


def test_the_containerfile_of_an_image_that_is_no_service_is_its_own() -> None:
    images = load_catalogue().images
    assert "COPY all-minilm-l6-v2 /models/all-minilm-l6-v2\n" in images[MODEL].containerfile("p")
    assert "postgres-entrypoint" in images[POSTGRES].containerfile("p")


def test_labels_are_those_of_the_image_specification() -> None:
    catalogue = load_catalogue()
    labels = catalogue.labels(catalogue.images["search"], "abc", "2025-12-01T00:00:00Z")
    assert labels["org.opencontainers.image.revision"] == "abc"
    # An image carries parts under many licences.
    assert "org.opencontainers.image.licenses" not in labels
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
