"""The hash-locked requirement sets: what they are compiled from, and what they name."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ops.wheels.platforms import PLATFORMS, Platform, normalized
from services.core.errors import InvalidArgument, NotFound

_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[([^\]]*)\])?==([^\s;\\]+)\s*(?:;\s*([^\\]*))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_OWN = re.compile(r"undercroft\[([^\]]+)\]")
_INPUT = "# pyproject.toml "
_REMEDY = "Run `make lock` where an index is."
_SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-f]{64})  (\S+)")


@dataclass(frozen=True, slots=True)
class Pin:
    """One requirement of a set: an exact version, and the files that may be it."""

    project: str  # normalized
    version: str
    hashes: frozenset[str]  # SHA-256
    marker: str = ""
    file: str = ""  # where the set names exactly one

    @property
    def label(self) -> str:
        return self.file or f"{self.project} {self.version}"


@dataclass(frozen=True, slots=True)
class RequirementSet:
    """A named set: the extras that it is compiled from, and the packages of ours that must import with it."""

    name: str
    extras: tuple[str, ...]
    for_images: bool
    modules: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Locks:
    """The folder of the sets, beside the one input that they are compiled from."""

    root: Path  # of the checkout
    sets: Mapping[str, RequirementSet] = field(default_factory=dict)

    @classmethod
    def open(cls, root: Path) -> Locks:
        """Read the definitions of the sets below a checkout."""
        data = tomllib.loads((root / "offline-wheels" / "sets.toml").read_text("utf-8"))
        sets = {}
        for kind in ("workstation", "image"):
            for name, entry in data.get(kind, {}).items():
                lists = {key: tuple(entry.get(key, ())) for key in ("extras", "modules", "without")}
                sets[name] = RequirementSet(name, for_images=kind == "image", **lists)
        return cls(root, sets)

    @property
    def folder(self) -> Path:
        return self.root / "offline-wheels" / "locks"

    def path(self, name: str, platform: Platform | None = None) -> Path:
        """Return where a set's file is; sets of images have one per platform."""
        return (self.folder / platform.name if platform else self.folder) / f"{name}.txt"

    def path_of(self, wanted: RequirementSet, platform: Platform) -> Path:
        return self.path(wanted.name, platform if wanted.for_images else None)

    def named(self, name: str) -> RequirementSet:
        if name not in self.sets:
            raise NotFound(f"There is no requirement set {name}.", remedy=f"Name one of {', '.join(self.sets)}.")
        return self.sets[name]

    def images(self) -> list[RequirementSet]:
        return [found for found in self.sets.values() if found.for_images]

    def extras(self) -> list[str]:
        return list(self._pyproject()["project"]["optional-dependencies"])

    def direct(self, extras: Iterable[str]) -> dict[str, str]:
        """Return the exact versions that pyproject.toml asks for under these extras, those of the package included."""
        project = self._pyproject()["project"]
        pins: dict[str, str] = {}
        waiting = list(project["dependencies"])
        seen = set(extras)
        for extra in seen:
            waiting += project["optional-dependencies"][extra]
        while waiting:
            line = waiting.pop()
            if own := _OWN.fullmatch(line):
                new = {name.strip() for name in own[1].split(",")} - seen
                seen |= new
                for extra in new:
                    waiting += project["optional-dependencies"][extra]
            elif match := _REQUIREMENT.fullmatch(line):
                pins[normalized(match[1])] = match[3]
            else:
                raise InvalidArgument(
                    f"pyproject.toml asks for {line!r}.", remedy="Give every requirement as NAME==VERSION."
                )
        return pins

    def build_backend(self) -> str:
        """Return the module that builds the wheel of Undercroft."""
        return str(self._pyproject()["build-system"]["build-backend"])

    def _pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.root / "pyproject.toml").read_text("utf-8"))

    def digest(self, extras: Iterable[str]) -> str:
        """Return what the head of a compiled set says of its input."""
        lines = "".join(f"{name}=={version}\n" for name, version in sorted(self.direct(extras).items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:16]

    def head(self, wanted: RequirementSet) -> str:
        return f"{_INPUT}{' '.join(wanted.extras)}: {self.digest(wanted.extras)}\n"

    def seal(self, *paths: Path) -> None:
        """Note the SHA-256 of sets just written, or without any of all that there are, as ``sha256sum -c`` reads it."""
        sums = self._sums() if paths else {}
        for path in paths or self.folder.rglob("*.txt"):
            sums[str(path.relative_to(self.folder))] = _sha256(path)
        (self.folder / _SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)), "utf-8")

    def changed(self) -> list[str]:
        """Return in words which sets are not those that were written: what no input of theirs tells."""
        sums, found = self._sums(), []
        present = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*.txt")}
        for name in sorted(sums.keys() | present.keys()):
            label = (self.folder / name).relative_to(self.root)
            if name not in present:
                found.append(f"{label} is in {_SUMS} and missing. {_REMEDY}")
            elif name not in sums:
                found.append(f"{label} is not in {_SUMS}. {_REMEDY}")
            elif _sha256(present[name]) != sums[name]:
                found.append(f"{label} was changed by something else than `make lock`. Restore it, or: {_REMEDY}")
        return found

    def _sums(self) -> dict[str, str]:
        path = self.folder / _SUMS
        matches = map(_SUM.fullmatch, path.read_text("utf-8").splitlines() if path.is_file() else ())
        return {match[2]: match[1] for match in matches if match}

    def disagreements(self) -> list[str]:
        """Return in words where pyproject.toml and the compiled sets differ; needs no index."""
        found: list[str] = []
        versions: dict[str, tuple[str, str]] = {}
        for wanted in self.sets.values():
            for platform in PLATFORMS.values() if wanted.for_images else (None,):
                path = self.path(wanted.name, platform)
                label = str(path.relative_to(self.root))
                if not path.is_file():
                    found.append(f"{label} is missing. {_REMEDY}")
                    continue
                text = path.read_text("utf-8")
                pins = parse_lock(text, label)
                found += _differences(self, wanted, label, text, pins)
                for pin in pins:
                    if pin.marker:
                        continue
                    version, where = versions.setdefault(pin.project, (pin.version, label))
                    if version != pin.version:
                        found.append(f"{label} has {pin.project} {pin.version}, {where} {version}. {_REMEDY}")
        return found + self.changed()


def parse_lock(text: str, label: str) -> list[Pin]:
    """Read a compiled set; raises ``InvalidArgument`` for what has no exact version or no hash, or names an address."""
    if "://" in text or re.search(r"^\s*(-i|-f|--(index|extra-index|find-links))", text, re.MULTILINE):
        raise InvalidArgument(f"{label} names an index, an address or a folder.", remedy=_REMEDY)
    pins: list[Pin] = []
    file = ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("# ") and line.endswith(".whl"):
            file = line[2:]
        elif line.strip() and not line.startswith("#"):
            match = _REQUIREMENT.match(line)
            hashes = frozenset(_HASH.findall(line))
            if match is None or not hashes:
                raise InvalidArgument(
                    f"{label}: {line.split(' ')[0]} has no exact version with hashes.", remedy=_REMEDY
                )
            marker = (match[4] or "").split("--hash")[0].strip()
            pins.append(Pin(normalized(match[1]), match[3], hashes, marker, file))
            file = ""
    return pins


def format_lock(pins: Iterable[Pin]) -> str:
    """Write a set that names exactly one file for each requirement."""
    lines = []
    for pin in sorted(pins, key=lambda pin: pin.project):
        lines.append(f"# {pin.file}\n{pin.project}=={pin.version} \\\n")
        lines.append(" \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(pin.hashes)) + "\n")
    return "".join(lines)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _differences(locks: Locks, wanted: RequirementSet, label: str, text: str, pins: list[Pin]) -> list[str]:
    found = []
    locked = {pin.project: pin.version for pin in pins if not pin.marker}
    locked |= {pin.project: pin.version for pin in pins if pin.marker and pin.project not in locked}
    for project, version in sorted(locks.direct(wanted.extras).items()):
        # torch has a set of its own: under one version there are builds for processors and for GPUs.
        if project != "torch" and locked.get(project) != version:
            found.append(f"{label} has {project} {locked.get(project, 'not')}, pyproject.toml {version}. {_REMEDY}")
    if not found and not text.startswith(locks.head(wanted)):
        found.append(f"{label} was compiled from other requirements than pyproject.toml has now. {_REMEDY}")
    return found
