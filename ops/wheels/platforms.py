"""The platforms that images are built for, and which wheels fit them."""

from __future__ import annotations

import platform
import re
import sys
from dataclasses import dataclass
from itertools import product

from services.core.errors import InvalidArgument

# Debian 12: the interpreter and the C library of the images.
IMAGE_PYTHON = (3, 11)
_GLIBC_MINOR = 36
_LEAST_GLIBC_MINOR = 5
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_GLIBC_TAG = re.compile(r"manylinux_2_(\d+)_(\w+)")
_LEGACY_TAG = re.compile(r"(manylinux1|manylinux2010|manylinux2014|linux)_(\w+)")
# Name, version, perhaps a build number, and three tags (PEP 427), in the letters that indexes take.
_WHEEL = re.compile(r"[A-Za-z0-9][\w.]*-[\w.!+]+(-\d[\w.]*)?(-[\w.]+){3}\.whl", re.ASCII)
_VERSION_TAG = re.compile(r"(cp|py)3(\d*)")


@dataclass(frozen=True, slots=True)
class WheelName:
    """What the file name of a wheel says (PEP 427)."""

    project: str  # normalized
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]

    @classmethod
    def parse(cls, file: str) -> WheelName:
        """Read a file name; raises ``InvalidArgument`` when it is no wheel's."""
        parts = file.removesuffix(".whl").split("-")
        if not _WHEEL.fullmatch(file):
            raise InvalidArgument(
                f"{file} has no name of a wheel.",
                remedy="Take it out of the mirror: it holds wheels only.",
                reason="NO_WHEEL",
            )
        pythons, abis, platforms = (tuple(part.split(".")) for part in parts[-3:])
        return cls(normalized(parts[0]), parts[1], pythons, abis, platforms)


@dataclass(frozen=True, slots=True)
class Platform:
    """An operating system and a processor, as the folders of the locks name them."""

    machine: str

    @property
    def name(self) -> str:
        return f"linux-{self.machine}"

    @property
    def tags(self) -> tuple[str, ...]:
        """Return the platform tags that its images accept, best first."""
        tags = []
        for minor in range(_GLIBC_MINOR, _LEAST_GLIBC_MINOR - 1, -1):
            tags.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _LEGACY:
                tags.append(f"{_LEGACY[minor]}_{self.machine}")
        return (*tags, f"linux_{self.machine}")

    @property
    def uv_name(self) -> str:
        return f"{self.machine}-manylinux_2_{_GLIBC_MINOR}"

    @property
    def is_native(self) -> bool:
        return sys.platform == "linux" and platform.machine() == self.machine

    def pip_options(self) -> list[str]:
        """Return what makes pip choose as it would inside an image, whatever the machine is that it runs on."""
        options = [f"--platform={tag}" for tag in self.tags]
        return [*options, "--implementation=cp", f"--python-version={'.'.join(map(str, IMAGE_PYTHON))}"]

    def fits(self, wheel: WheelName, python: tuple[int, int]) -> bool:
        """Say whether a wheel can be installed here, by the given Python; newer C libraries count as here."""
        return any(
            self._fits_machine(tag, abi) and _fits_python(python_tag, abi, python)
            for python_tag, abi, tag in product(wheel.pythons, wheel.abis, wheel.platforms)
        )

    def _fits_machine(self, tag: str, abi: str) -> bool:
        if tag == "any":
            return abi == "none"
        match = _LEGACY_TAG.fullmatch(tag) or _GLIBC_TAG.fullmatch(tag)
        return match is not None and match[2] == self.machine


PLATFORMS = {machine.name: machine for machine in (Platform("x86_64"), Platform("aarch64"))}


def platform_named(name: str | None) -> Platform:
    """Return the platform of that name, or of this machine."""
    wanted = name or f"{sys.platform}-{platform.machine()}"
    if wanted not in PLATFORMS:
        raise InvalidArgument(
            f"There are no requirement sets for {wanted}.", remedy=f"Name one of {', '.join(PLATFORMS)}."
        )
    return PLATFORMS[wanted]


def normalized(project: str) -> str:
    """Return the name of a project as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", project).lower()


def _fits_python(tag: str, abi: str, python: tuple[int, int]) -> bool:
    match = _VERSION_TAG.fullmatch(tag)
    if match is None:
        return False
    minor = int(match[2] or 0)
    if match[1] == "py":
        return abi == "none" and minor <= python[1]
    # Compiled for one Python, or for the stable interface of it and all later ones.
    return (minor == python[1] and abi in ("none", f"cp3{minor}")) or (abi == "abi3" and 2 <= minor <= python[1])
