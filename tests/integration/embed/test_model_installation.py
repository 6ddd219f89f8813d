"""Prepared models are taken in whole, checked, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from services.core.errors import Conflict, DataLoss, NotFound, NotReady
from services.embed.installation import install, remove
from services.embed.verify import check_files, read_manifest


def test_a_prepared_model_is_installed_and_once_more_is_nothing(real_model: Path, tmp_path: Path) -> None:
    manifest, is_new = install(real_model, tmp_path / "models" / "m")
    assert is_new
    check_files(tmp_path / "models" / "m", manifest)
    again, is_new = install(real_model, tmp_path / "models" / "m")
    assert (again.digest, is_new) == (manifest.digest, False)


def test_a_model_is_removed_whole_and_a_missing_one_is_told(real_model: Path, tmp_path: Path) -> None:
    install(real_model, tmp_path / "models" / "m")
    remove(tmp_path / "models" / "m")
    assert list((tmp_path / "models").iterdir()) == []
    with pytest.raises(NotFound):
        remove(tmp_path / "models" / "m")


def test_a_path_to_nothing_is_no_model_that_was_not_prepared(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="is not a directory"):
        install(tmp_path / "nowhere", tmp_path / "models" / "m")


def test_a_damaged_model_is_refused_and_leaves_nothing(real_model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(real_model, copy)
    weights = copy / f"{read_manifest(copy).graph}.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    with pytest.raises(DataLoss):
        install(copy, tmp_path / "models" / "m")
    assert not (tmp_path / "models" / "m").exists()


def test_what_was_not_prepared_and_what_is_taken_are_refused(real_model: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(NotReady):
        install(tmp_path / "plain", tmp_path / "models" / "m")
    (tmp_path / "models" / "m").mkdir(parents=True)
    (tmp_path / "models" / "m" / "file").write_text("x")
    with pytest.raises(Conflict):
        install(real_model, tmp_path / "models" / "m")
