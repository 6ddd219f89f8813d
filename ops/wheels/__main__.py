"""``python -m ops.wheels``: fill a mirror, index it, prove it, and prove what is installed from it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.wheels import builds, index, installer
from ops.wheels.builds import record_torch
from ops.wheels.files import printable
from ops.wheels.imports import prove_imports, read_needs
from ops.wheels.locks import Locks, RequirementSet
from ops.wheels.mirror import MODELS, Problem, Selection, fill, find_problems, has_torch, locked, require_mirror
from ops.wheels.platforms import IMAGE_PYTHON, platform_named
from services.core.errors import UndercroftError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ops.wheels", description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2], help="the checkout")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("fill", "fetch what the sets name, and write the index"),
        ("index", "write the index of the wheels that are there"),
        ("verify", "prove that mirror and sets are equal, without a network"),
        ("imports", "install each set into an empty folder, and import what our code imports"),
        ("record", "note the hash of a wheel of torch for processors that was carried in"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        if name == "record":
            command.add_argument("wheel", type=Path)
        else:
            command.add_argument("--mirror", type=Path, default=Path("wheels"), help="the folder of wheels (wheels)")
        if name != "index":
            command.add_argument("--platform", help="linux-x86_64 or linux-aarch64 (this machine's)")
        if name not in ("index", "record"):
            command.add_argument("--set", dest="sets", action="append", default=[], help="one set; may be repeated")
            command.add_argument("--models", action="store_true", help="the set with torch as well")
        if name == "imports":
            command.add_argument("--installed", action="store_true", help="test what is installed here, as in an image")
            command.add_argument("--list", action="store_true", help="print what is imported, as JSON")
    return parser


def main() -> int:
    """Run one command; 1 where something is refused, each refusal on a line of its own."""
    arguments = _parser().parse_args()
    try:
        locks = Locks.open(arguments.root.resolve())
        if arguments.command == "index":
            mirror = require_mirror(arguments.mirror)
            with locked(mirror):
                print(f"{arguments.mirror / index.FOLDER}: {index.write_index(mirror)} projects")
            return 0
        platform = platform_named(arguments.platform)
        if arguments.command == "record":
            record_torch(locks, platform, arguments.wheel)
            return 0
        with_models = arguments.models or (not arguments.sets and has_torch(arguments.mirror))
        selection = Selection.of(locks, platform, arguments.sets, with_models=with_models)
        if arguments.command == "imports":
            return _imports(selection, arguments)
        if arguments.command == "fill":
            problems = fill(selection, arguments.mirror)
            if not problems:
                _report(selection, arguments.mirror, "has all of")
            return _refuse(problems, arguments.mirror)
        return _verify(selection, require_mirror(arguments.mirror))
    except UndercroftError as error:
        print(printable(str(error)), file=sys.stderr)
    except OSError as error:
        where = f"{error.filename or arguments.command}: {error.strerror or error}"
        print(printable(f"{where}. Mend that, and run this again: it goes on where it was."), file=sys.stderr)
    return 1


def _verify(selection: Selection, mirror: Path) -> int:
    started = time.monotonic()
    if _refuse(find_problems(selection, mirror), mirror):
        return 1
    network = "with a network, which pip was kept from" if installer.has_network() else "without a network"
    _report(selection, mirror, "is equal to")
    if sys.version_info[:2] != IMAGE_PYTHON:
        print("what wheels of images require of each other was not proven: that takes Python 3.11")
    print(f"proven {network} in {time.monotonic() - started:.1f} s")
    return 0


def _refuse(problems: list[Problem], mirror: Path) -> int:
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{mirror.name}: refused, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0


def _report(selection: Selection, mirror: Path, verb: str) -> None:
    wheels = list(mirror.glob("*.whl"))
    size_mb = sum(path.stat().st_size for path in wheels) / 1e6
    names = ", ".join(found.name for found in (*selection.images, *selection.workstation))
    print(f"{mirror.name}: {len(wheels)} wheels, {size_mb:.0f} MB; {verb} {names} for {selection.platform.name}")


def _imports(selection: Selection, arguments: argparse.Namespace) -> int:
    sets = selection.images
    if arguments.list:
        needs = {found.name: read_needs(selection.locks, found) for found in sets}
        print(json.dumps({name: {"modules": found.top_levels(), "own": found.own} for name, found in needs.items()}))
        return 0
    if arguments.installed:
        return _tell([line for found in sets for line in _test(selection, found, None)])
    mirror = require_mirror(arguments.mirror)
    if not selection.platform.is_native or sys.version_info[:2] != IMAGE_PYTHON:
        print("not tested: importing takes the platform itself and Python 3.11; run it with that", file=sys.stderr)
        return 1
    failed: list[str] = []
    for found in sets:
        with TemporaryDirectory() as folder:
            target = Path(folder)
            options = selection.platform.pip_options()
            installer.install(selection.requirements(found), mirror, options, target)
            size_mb = sum(path.stat().st_size for path in target.rglob("*") if path.is_file()) / 1e6
            failed += _test(selection, found, target)
            print(f"{found.name}: {size_mb:.0f} MB installed", flush=True)
    return _tell(failed)


def _test(selection: Selection, wanted: RequirementSet, target: Path | None) -> list[str]:
    started = time.monotonic()
    needs = read_needs(selection.locks, wanted)
    failed = prove_imports(selection.locks, wanted, needs, target)
    if wanted.name == MODELS and (reason := builds.prove_torch(target)):
        failed.append(f"{wanted.name}: {reason}")
    print(
        f"{wanted.name}: {len(needs.foreign)} imports of {len(needs.top_levels())} packages,"
        f" {len(needs.own)} modules of ours, {len(failed)} failed, {time.monotonic() - started:.1f} s",
        flush=True,
    )
    return failed


def _tell(failed: list[str]) -> int:
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
