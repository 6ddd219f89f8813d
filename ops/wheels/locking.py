"""Renew the requirement sets from pyproject.toml, or check offline that they agree with it.

Compiled by uv, which is installed into a scratch environment and is no part of the product. For images, pip then says
which one file of each release it takes on their platform, and the set names that alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.wheels import installer
from ops.wheels.builds import record_torch
from ops.wheels.files import sha256_of
from ops.wheels.locks import Locks, Pin, RequirementSet, format_lock, parse_lock
from ops.wheels.platforms import PLATFORMS, Platform, WheelName
from services.core.errors import NotReady, UndercroftError

_UV = "uv==0.13.8"
# Under one version there are builds of torch for processors and for GPUs; these come with the latter alone.
_GPU_PROJECTS = ("torch", "triton", "torchvision", "torchaudio", "nvidia-", "cuda-")
_OPTIONS = (
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-annotate",
    "--no-header",
    "--upgrade",
    "--quiet",
    "--python-version=3.11",
)


class _Compiler:
    """The compiler in its scratch environment, for one checkout."""

    def __init__(self, locks: Locks, scratch: Path) -> None:
        venv.create(scratch / "venv", with_pip=True)
        self._bin = scratch / "venv" / "bin"
        self._locks = locks
        self._scratch = scratch
        subprocess.run([self._bin / "python", "-m", "pip", "install", "--quiet", _UV], check=True)

    def compile(self, extras: Iterable[str], options: Iterable[str], constraints: Iterable[Path] = ()) -> str:
        """Return the compiled text, without torch and what only its builds for GPUs need."""
        output = self._scratch / "compiled.txt"
        output.unlink(missing_ok=True)
        command: list[str | Path] = [self._bin / "uv", "pip", "compile", self._locks.root / "pyproject.toml"]
        command += [*_OPTIONS, *options]
        for extra in extras:
            command += ["--extra", extra]
        for constraint in constraints:
            command += ["--constraint", constraint]
        subprocess.run([*command, "--output-file", output], check=True)
        kept, lines = True, []
        for line in output.read_text("utf-8").splitlines(keepends=True):
            if not line.startswith(" "):
                kept = not line.startswith(_GPU_PROJECTS)
            lines.append(line if kept else "")
        return "".join(lines)


def renew(locks: Locks) -> None:
    """Compile every set; needs an index."""
    with TemporaryDirectory() as folder:
        scratch = Path(folder)
        compiler = _Compiler(locks, scratch)
        constraints: list[Path] = []
        for wanted in locks.sets.values():
            if not wanted.for_images:
                # What is installed on top of another set has its versions.
                text = compiler.compile(wanted.extras, ["--universal"], constraints)
                path = locks.path(wanted.name)
                path.write_text(locks.head(wanted) + text, "utf-8")
                constraints.append(path)
        for platform in PLATFORMS.values():
            compiled = {
                wanted: parse_lock(
                    compiler.compile(
                        wanted.extras, ["--python-platform", platform.uv_name, "--only-binary", ":all:"], constraints
                    ),
                    wanted.name,
                )
                for wanted in locks.images()
            }
            _write_images(locks, platform, compiled, scratch)
            _record_torch(locks, platform, scratch)
    locks.seal()


def _write_images(locks: Locks, platform: Platform, compiled: dict[RequirementSet, list[Pin]], scratch: Path) -> None:
    everything = installer.write_requirements((pin for pins in compiled.values() for pin in pins), scratch / "all.txt")
    wheels = scratch / platform.name
    installer.download(everything, wheels, platform.pip_options())
    chosen = {(name.project, name.version): path for path in wheels.iterdir() for name in (WheelName.parse(path.name),)}
    for wanted, pins in compiled.items():
        exact = []
        for pin in pins:
            path = chosen[pin.project, pin.version]
            exact.append(Pin(pin.project, pin.version, frozenset({sha256_of(path)}), file=path.name))
        path = locks.path(wanted.name, platform)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(locks.head(wanted) + format_lock(exact), "utf-8")


def _record_torch(locks: Locks, platform: Platform, scratch: Path) -> None:
    version = f"{locks.direct(['models'])['torch']}+cpu"
    path = locks.path("torch", platform)
    if path.is_file() and parse_lock(path.read_text("utf-8"), path.name)[0].version == version:
        return
    wheels = scratch / f"torch-{platform.name}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        f"--dest={wheels}",
    ]
    if subprocess.run([*command, *platform.pip_options(), f"torch=={version}"], check=False).returncode:
        path.unlink(missing_ok=True)
        print(f"{platform.name}: no wheel of torch {version} to be had here; its hash is not recorded", file=sys.stderr)
        return
    (wheel,) = wheels.iterdir()
    record_torch(locks, platform, wheel)


def main() -> int:
    """Run ``ops/lock``; 1 when the check finds a difference."""
    parser = argparse.ArgumentParser(prog="ops/lock", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only check that the sets agree with pyproject.toml")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout")
    arguments = parser.parse_args()
    locks = Locks.open(arguments.root.resolve())
    try:
        if not arguments.check:
            renew(locks)
        found = locks.disagreements()
    except UndercroftError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(NotReady(f"{Path(error.cmd[0]).name} failed.", remedy="Its reason is above."), file=sys.stderr)
        return 1
    for difference in found:
        print(difference, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
