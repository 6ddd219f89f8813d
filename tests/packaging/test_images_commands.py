"""What `python -m ops.images` says when something is not as it should be: words, a next step, and not 0."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ops.images.building import run
from ops.images.exclusion import alone_in
from ops.images.images import ROOT
from services.core.errors import NotReady
from tests.support.oci import layout


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops.images", *arguments], cwd=ROOT, check=False, capture_output=True, text=True
    )


def test_a_report_about_no_image_is_a_failure(tmp_path: Path) -> None:
    done = command("--out", str(tmp_path), "report")
    assert done.returncode == 1
    assert "make images" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_report_about_an_image_that_is_empty_is_a_failure(tmp_path: Path) -> None:
    layout(tmp_path / "oci/postgres", [{"a": b"a"}])
    done = command("--out", str(tmp_path), "report")
    assert done.returncode == 1
    assert done.stderr.startswith("postgres has no Debian package")


def test_a_report_about_a_damaged_image_is_a_failure(tmp_path: Path) -> None:
    folder = layout(tmp_path / "oci/postgres", [{"a": b"a"}])
    (folder / "index.json").unlink()
    done = command("--out", str(tmp_path), "report")
    assert done.returncode == 1
    assert "is not one whole image" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_image_is_answered_with_those_there_are() -> None:
    done = command("containerfile", "nope")
    assert done.returncode == 1
    assert done.stderr.startswith("no image nope: there are embed, ")


def test_who_comes_second_waits_and_says_so(tmp_path: Path) -> None:
    with alone_in(tmp_path):
        second = subprocess.Popen(
            [sys.executable, "-m", "ops.images", "--out", tmp_path, "report"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert second.stdout is not None
        assert second.stdout.readline().startswith("waits for another one")
        assert second.poll() is None
    _, said = second.communicate(timeout=60)
    assert "There are no images" in said


def test_a_program_that_fails_is_told_in_its_own_words() -> None:
    step = 'Error: building at STEP "RUN /usr/bin/python3 /build/install.py libraries embed": exit status 1'
    with pytest.raises(NotReady) as told:
        run("sh", "-c", f"echo 'ERROR: mako has another hash' >&2; echo '{step}' >&2; exit 1")
    assert "mako has another hash" in told.value.message
    assert "STEP" not in told.value.message
    assert "make verify-wheels" in told.value.remedy
