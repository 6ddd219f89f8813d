from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import services.embed  # noqa: F401  (sets the offline switches before anything else is imported)
from services.embed.preparation import Options, PreparedModel, prepare
from services.embed.recipe import Quantization
from tests.integration.embed.tiny_model import Tiny, write_source

REAL_MODEL = "all-minilm-l6-v2"
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT source directory of a few kilobytes."""
    return write_source(tmp_path_factory.mktemp("tiny") / "source", Tiny())


@pytest.fixture(scope="session")
def tiny_model(tiny_source: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    """The tiny model as float32, prepared in moments. Not to be changed."""
    return prepare(
        tiny_source, tmp_path_factory.mktemp("models") / "tiny", options=Options(quantization=Quantization.FLOAT32)
    )


@pytest.fixture(scope="session")
def quantized_model(tiny_source: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    """The tiny model as qint8. Not to be changed."""
    return prepare(tiny_source, tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def real_model() -> Path:
    """The demo's model, prepared beforehand. Not to be changed."""
    models = Path(os.environ.get("UNDERCROFT_TEST_MODELS", REPOSITORY / ".cache" / "models"))
    if not (models / REAL_MODEL / "manifest.json").is_file():
        pytest.fail(f"{models / REAL_MODEL} is not there: prepare it, or set UNDERCROFT_TEST_MODELS.")
    return models / REAL_MODEL


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[PreparedModel], Path]:
    """Return a function that copies a prepared model, so that a test may damage it."""

    def copy(model: PreparedModel) -> Path:
        return Path(shutil.copytree(model.directory, tmp_path / "models" / model.directory.name))

    return copy


@dataclass
class Server:
    """A running server and what it has logged."""

    process: subprocess.Popen[str]
    port: int
    events: list[dict[str, object]] = field(default_factory=list)

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def start_server() -> Callable[..., contextmanager[Server]]:
    """Return a context manager that starts the real server over a models directory and stops it."""

    @contextmanager
    def start(models: Path, environment: Mapping[str, str] | None = None, **settings: object) -> Iterator[Server]:
        variables = {key: value for key, value in os.environ.items() if key != "CI"} | dict(environment or {})
        variables |= {
            "UNDERCROFT_MODELS_DIR": str(models),
            "UNDERCROFT_LISTEN": "127.0.0.1:0",
            **{f"UNDERCROFT_{name.upper()}": str(value) for name, value in settings.items()},
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "services.embed"],
            env=variables,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=REPOSITORY,
        )
        server = Server(process=process, port=0)
        serving = threading.Event()

        def follow() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                event = json.loads(line) if line.startswith("{") else {"event": line.rstrip()}
                server.events.append(event)
                if event["event"] == "listening":
                    server.port = event["port"]
                if event["event"] == "serving":
                    serving.set()
            serving.set()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            assert serving.wait(120), server.events
            assert process.poll() is None, server.events
            yield server
        finally:
            process.terminate()
            try:
                process.wait(30)
            finally:
                process.kill()
                process.wait()
                follower.join(10)
                assert process.stderr is not None
                process.stderr.close()

    return start
