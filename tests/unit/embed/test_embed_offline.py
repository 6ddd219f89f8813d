"""No import of the embed service can reach the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys

# Run in a fresh interpreter without CI, which would hide the telemetry child of openvino.
_REPORT = """
import json, os, sys
{imports}
import psutil
children = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
print(json.dumps({{
    "offline": os.environ.get("HF_HUB_OFFLINE"),
    "tracking": os.environ.get("DO_NOT_TRACK"),
    "telemetry": "openvino_telemetry" in sys.modules and sys.modules["openvino_telemetry"] is None,
    "children": children,
    "torch": "torch" in sys.modules,
}}))
"""


def _run(imports: str) -> subprocess.CompletedProcess[str]:
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in {"CI", "HF_HUB_OFFLINE", "DO_NOT_TRACK", "NNCF_CI", "TF_BUILD"}
    }
    return subprocess.run(
        [sys.executable, "-c", _REPORT.format(imports=imports)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_importing_any_module_sets_the_switches_before_openvino_and_forks_no_telemetry_child() -> None:
    done = _run("import services.embed.engine, services.embed.preparation")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == {"offline": "1", "tracking": "1", "telemetry": True, "children": [], "torch": False}


def test_telemetry_that_was_imported_earlier_is_refused_in_words() -> None:
    done = _run("import types; sys.modules['openvino_telemetry'] = types.ModuleType('x'); import services.embed")
    assert done.returncode != 0
    assert "Import services.embed first" in done.stderr


def test_a_child_process_inherits_the_switches() -> None:
    done = _run(
        "import services.embed, subprocess\n"
        "out = subprocess.run([sys.executable, '-c', 'import os; print(os.environ[\"TRANSFORMERS_OFFLINE\"])'],"
        " capture_output=True, text=True).stdout.strip()\n"
        "assert out == '1', out"
    )
    assert done.returncode == 0, done.stderr
