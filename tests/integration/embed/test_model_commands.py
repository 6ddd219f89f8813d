"""`undercroft models prepare` and `install` as commands: what they print, and what they leave when they are ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.models import group
from services.embed.preparation import PreparedModel

PREPARE = ("-c", "from services.cli import main; main()", "models", "prepare")


def prepare(source: Path, into: Path, *options: str) -> tuple[int, str]:
    arguments = ["prepare", str(source), "--into", str(into), "--quantization", "float32", *options]
    result = CliRunner().invoke(group, arguments)
    return result.exit_code, result.output


def test_a_cut_that_the_model_does_not_say_it_was_trained_for_is_told(tiny_source: Path, tmp_path: Path) -> None:
    assert "trained" not in prepare(tiny_source, tmp_path)[1]
    code, output = prepare(tiny_source, tmp_path, "--dimensions", "16", "--name", "cut")
    assert code == 0
    assert "trained" in output


def test_a_name_that_the_service_would_not_list_is_refused(tiny_source: Path, tmp_path: Path) -> None:
    code, output = prepare(tiny_source, tmp_path, "--name", "modèle")
    assert code == 1
    assert "A-Z" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(30)
def test_a_special_file_in_a_prepared_directory_is_refused_by_install(
    tiny_model: PreparedModel, copy_of: Callable[[PreparedModel], Path], tmp_path: Path
) -> None:
    directory = copy_of(tiny_model)
    os.mkfifo(directory / "config.json")
    result = CliRunner().invoke(group, ["install", str(directory), "--home", str(tmp_path / "home")])
    assert result.exit_code == 1
    assert "regular file" in result.output


def test_installing_into_a_broken_directory_says_that_it_is_taken(tiny_model: PreparedModel, tmp_path: Path) -> None:
    place = tmp_path / "home" / "models" / "tiny"
    place.mkdir(parents=True)
    (place / "manifest.json").write_bytes(b"\xff")
    arguments = ["install", str(tiny_model.directory), "--home", str(tmp_path / "home")]
    result = CliRunner().invoke(group, arguments)
    assert (result.exit_code, "already holds something" in result.output) == (1, True)
    shutil.rmtree(place)
    assert CliRunner().invoke(group, arguments).exit_code == 0
    assert "was installed already" in CliRunner().invoke(group, arguments).output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_ended_preparation_cleans_up(tiny_source: Path, tmp_path: Path, number: signal.Signals) -> None:
    into = tmp_path / "models"
    # Where the tests run in the background Ctrl-C is ignored, and by what they start too.
    ours = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [sys.executable, *PREPARE, str(tiny_source), "--into", str(into)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    signal.signal(signal.SIGINT, ours)
    try:
        while process.poll() is None and not list(into.glob(".*.partial/tokenizer.json")):
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
    finally:
        process.kill()
        process.wait()
    assert list(into.iterdir()) == []
