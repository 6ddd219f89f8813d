"""The torch trap: the same version is built for processors and for GPUs, and torchvision fits one build exactly.

Neither the resolver nor ``pip check`` sees a torchvision beside a torch that it was not built with: both versions are
as required. Only an import tells. So by its file torch must be a build for processors, torchvision must be the twin of
that file, and then both are imported in a fresh process and an operator of each is run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from ops.wheels.files import read_metadata, sha256_of
from ops.wheels.locks import Locks, Pin, format_lock
from ops.wheels.platforms import IMAGE_PYTHON, Platform, WheelName
from services.core.errors import DataLoss, InvalidArgument

_CPU = "cpu"
_TORCH = re.compile(r"torch\s*\(?==\s*([^\s;)]+)")
_TIMEOUT_S = 300
# Names no module of ours, so that it runs in any interpreter that sees what was installed.
_GATE = """
import importlib.util, sys
sys.path[:0] = sys.argv[1:]
import torch
gpu = torch.version.cuda or torch.version.hip
if gpu:
    sys.exit(f"torch {torch.__version__} is a build for GPUs ({gpu})")
if float(torch.ones(2).sum()) != 2.0:
    sys.exit("torch does not compute")
if importlib.util.find_spec("torchvision"):
    import torchvision
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    if len(torchvision.ops.nms(boxes, torch.tensor([1.0, 0.5]), 0.5)) != 1:
        sys.exit("torchvision does not compute")
"""


def refuse_builds(hashes: Mapping[Path, str], recorded: Collection[str]) -> list[tuple[Path, str]]:
    """Return the wheels of torch and torchvision that must not be in a mirror, each with the reason.

    ``hashes`` has the wheels of the mirror with their SHA-256. ``recorded`` are the SHA-256 of known wheels for
    processors; without any, the local version must say ``cpu``.
    """
    names = {path: WheelName.parse(path.name) for path in sorted(hashes)}
    torches = {path: name for path, name in names.items() if name.project == "torch"}
    refused = []
    for path, name in torches.items():
        if recorded and hashes[path] not in recorded:
            refused.append((path, "its hash is not that of the recorded build for processors"))
        elif not recorded and _local(name.version) != _CPU:
            refused.append((path, f"its version {name.version} does not say +{_CPU}: it may be a build for GPUs"))
    for path, name in names.items():
        if name.project == "torchvision" and not any(_are_twins(path, name, torch) for torch in torches.values()):
            refused.append((path, "it was not built with the torch of this mirror, which no resolver sees"))
    return refused


def record_torch(locks: Locks, platform: Platform, wheel: Path) -> None:
    """Write the set of torch for a platform: the hash of this wheel.

    Raises ``InvalidArgument`` unless it is the version that pyproject.toml asks for, for processors and this platform.
    """
    name = WheelName.parse(wheel.name)
    version = f"{locks.direct(['models'])['torch']}+{_CPU}"
    if (name.project, name.version) != ("torch", version) or not platform.fits(name, IMAGE_PYTHON):
        raise InvalidArgument(
            f"{wheel.name} is not torch {version} for {platform.name} and Python 3.11.",
            remedy="Give the wheel whose version says that it is the build for processors.",
        )
    pin = Pin("torch", version, frozenset({sha256_of(wheel)}), file=wheel.name)
    path = locks.path("torch", platform)
    path.write_text(format_lock([pin]), "utf-8")
    locks.seal(path)


def prove_torch(target: Path | None) -> str:
    """Import torch, and torchvision where it is, in a fresh process; returns the reason where that fails."""
    flags = ["-I", "-S", "-B"] if target else ["-P", "-B"]
    command = [sys.executable, *flags, "-c", _GATE, *([str(target)] if target else [])]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    return (run.stderr.strip().splitlines() or [f"it ended with {run.returncode}"])[-1] if run.returncode else ""


def _are_twins(vision: Path, name: WheelName, torch: WheelName) -> bool:
    try:
        metadata = read_metadata(vision)
    except DataLoss:
        return False
    required = [match[1] for line in metadata.get_all("Requires-Dist", []) if (match := _TORCH.match(str(line)))]
    return _local(name.version) == _local(torch.version) and any(
        version.partition("+")[0] == torch.version.partition("+")[0] for version in required
    )


def _local(version: str) -> str:
    return version.partition("+")[2]
