"""No import of the embed service can reach the network, start a process or write into the home directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Runs in a fresh interpreter without CI, which would hide the telemetry child of openvino. The child is gone within
# moments, so the fork itself is watched for.
_SCRIPT = """
import json, os, sys
seen = []
watched = ("os.fork", "os.posix_spawn", "os.exec", "os.system", "subprocess.Popen", "socket.connect", "socket.getaddr")
sys.addaudithook(lambda event, arguments: seen.append(event) if event.startswith(watched) else None)
{imports}
print(json.dumps({{
    "seen": seen,
    "switches": [os.environ.get(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "DO_NOT_TRACK")],
    "torch": "torch" in sys.modules,
}}))
"""
_LIBRARIES = "import openvino, openvino.tools.ovc, nncf, tokenizers"
_HIDING = {"CI", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "DO_NOT_TRACK", "NNCF_CI", "TF_BUILD", "JENKINS_URL"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


def _run(imports: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in _HIDING}
    # Were the guard to fail, nothing may leave: the host is looked up through a proxy that refuses.
    environment |= {"HOME": str(home), "https_proxy": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}
    return subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(imports=imports)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_libraries_alone_do_start_a_process(home: Path) -> None:
    """The fault that the guard is for; if this fails, the guard and its test can go."""
    done = _run(_LIBRARIES, home)
    assert "os.fork" in json.loads(done.stdout)["seen"]


def test_importing_the_service_first_starts_no_process_and_writes_nothing(home: Path) -> None:
    done = _run(f"import services.embed.engine, services.embed.preparation\n{_LIBRARIES}", home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"seen": [], "switches": ["1", "1", "1"], "torch": False}
    assert list(home.iterdir()) == []


def test_telemetry_that_was_imported_earlier_is_refused_in_words(home: Path) -> None:
    done = _run("import types; sys.modules['openvino_telemetry'] = types.ModuleType('x'); import services.embed", home)
    assert done.returncode != 0
    assert "Import services.embed first" in done.stderr
