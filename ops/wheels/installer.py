"""Pip as a child process: with the machine's settings where files are fetched, with none of them for a proof."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlsplit

from ops.wheels.locks import Pin
from services.core.errors import NotReady

_ADDRESS = re.compile(r"\b(?:https?|file)://\S+")
_NOISE = ("WARNING:", "[notice]", "DEPRECATION:")


@dataclass(frozen=True, slots=True)
class Resolved:
    """One file that pip would install."""

    project: str
    version: str
    path: Path
    sha256: str


def download(requirements: Path, mirror: Path, options: Iterable[str]) -> None:
    """Fetch what a set names into a folder, from the index that pip is set up with here.

    Raises ``NotReady`` with pip's own words.
    """
    arguments = ["download", "--require-hashes", "--only-binary=:all:", "--no-deps", f"--dest={mirror}"]
    remedy = "Fetching takes a package index that pip reaches here, and space for what it has."
    _run([*arguments, *options, f"--requirement={requirements}"], os.environ, remedy=remedy)


def resolve(requirements: Iterable[Path], mirror: Path, options: Iterable[str], scratch: Path) -> list[Resolved]:
    """Return what pip would install from the mirror and nothing else, without installing it.

    Raises ``NotReady`` with pip's own words where something is missing or has another hash.
    """
    with TemporaryDirectory(dir=scratch) as folder:
        report = Path(folder) / "report.json"
        arguments = [
            "install",
            "--dry-run",
            "--ignore-installed",
            f"--report={report}",
            *_target(Path(folder), options),
        ]
        _run([*arguments, *_from_mirror(mirror), *_requirements(requirements)], _untouched(), isolated=True)
        installs = json.loads(report.read_text("utf-8"))["install"]
    return [_resolved(entry["metadata"], entry["download_info"]) for entry in installs]


def install(requirements: Iterable[Path], mirror: Path, options: Iterable[str], target: Path) -> None:
    """Install sets from the mirror, and nothing else, into an empty folder."""
    arguments = ["install", "--no-compile", "--no-deps", f"--target={target}", *options]
    _run([*arguments, *_from_mirror(mirror), *_requirements(requirements)], _untouched(), isolated=True)


def write_requirements(pins: Iterable[Pin], path: Path) -> Path:
    """Write pins as pip reads them, those of one version together; returns the path."""
    hashes: dict[str, set[str]] = {}
    for pin in pins:
        line = f"{pin.project}=={pin.version}{f' ; {pin.marker}' if pin.marker else ''}"
        hashes.setdefault(line, set()).update(pin.hashes)
    lines = (f"{line} {' '.join(f'--hash=sha256:{h}' for h in sorted(found))}\n" for line, found in hashes.items())
    path.write_text("".join(lines), "utf-8")
    return path


def has_network() -> bool:
    """Say whether this process sees any interface but loopback."""
    return any(name != "lo" for _, name in socket.if_nameindex())


def _resolved(metadata: dict[str, Any], download: dict[str, Any]) -> Resolved:
    archive = download["archive_info"]
    # Before pip 23.1 there is one hash, with its kind before it.
    digest = archive["hashes"]["sha256"] if "hashes" in archive else archive["hash"].removeprefix("sha256=")
    return Resolved(metadata["name"], metadata["version"], Path(unquote(urlsplit(download["url"]).path)), digest)


def _target(folder: Path, options: Iterable[str]) -> list[str]:
    # Pip takes a platform other than its own only together with a target.
    options = list(options)
    return [f"--target={folder / 'target'}", *options] if options else []


def _from_mirror(mirror: Path) -> list[str]:
    return ["--no-index", f"--find-links={mirror}", "--require-hashes", "--only-binary=:all:"]


def _requirements(paths: Iterable[Path]) -> list[str]:
    return [f"--requirement={path}" for path in paths]


def _untouched() -> dict[str, str]:
    # Settings of the machine may name more folders and indexes; --isolated leaves out all but the global file.
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PIP_")},
        "PIP_CONFIG_FILE": os.devnull,
    }


def _run(arguments: list[str], environment: Mapping[str, str], *, isolated: bool = False, remedy: str = "") -> None:
    # -I: a folder in PYTHONPATH may have another pip, which says what it likes.
    command = [sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", *(["--isolated"] if isolated else [])]
    run = subprocess.run([*command, *arguments], capture_output=True, text=True, env=dict(environment), check=False)
    if run.returncode:
        said = [line for line in run.stderr.splitlines() if line.strip() and not line.startswith(_NOISE)]
        if any(line.startswith("Traceback") for line in said):
            said = said[-1:]
        # What pip says of a file at fault is at the end; an index's address is nobody's business.
        words = _ADDRESS.sub("(address)", " / ".join(line.strip() for line in said[-6:]))
        raise NotReady(words.rstrip(".") + ".", remedy=remedy, reason="PIP_REFUSED")
