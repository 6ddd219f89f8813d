"""What the readers of manifests find, and the one way by which they read files."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import Version

from services.ingest.dependencies.versions import MAX_NAME_CHARS
from services.ingest.dependencies.versions import version as parsed_version
from services.ingest.discovery import read
from services.ingest.skips import Skipped, SkipReason

MAX_MANIFEST_BYTES = 1024 * 1024
MAX_PROJECT_BYTES = 256 * 1024  # of pyproject.toml and setup.cfg: their parsers are slow
MAX_LOCK_BYTES = 16 * 1024 * 1024
_MAX_SHOWN_CHARS = 80
_MAX_PROBLEMS = 100  # of one file
_CREDENTIALS = re.compile(r"//[^/\s]*@")
# What of TOML may hold dots that are no part of a key; each runs to the end of the text where it has no end of its own.
# Atomic groups, since Python before 3.11.5 takes possessive quantifiers of groups wrongly (python/cpython#106052).
_TOML_TEXT = re.compile(
    r'''
    """(?>(?:[^"\\]++|\\.|"(?!""))*)(?:"{3,5}|\Z|\\)
    |\'{3}(?>(?:[^']++|'(?!''))*)(?:'{3,5}|\Z)
    |"(?>(?:[^"\\\n]++|\\.)*)(?:"|\Z|\n|\\)
    |'[^'\n]*+(?:'|\Z|\n)
    |\#[^\n]*+
    ''',
    re.VERBOSE | re.DOTALL,
)
_MAX_KEY_PARTS = 16
_LONG_KEY = re.compile(rf"(?<![\w\"-])(?:[\w\"-]++[ \t]*+\.[ \t]*+){{{_MAX_KEY_PARTS}}}")
_PASSING = (SkipReason.UNREADABLE, SkipReason.UNSTABLE)  # another run may read the file
_WHY_UNREAD = {
    SkipReason.VANISHED: "there is no such file",
    SkipReason.LINK: "it is a link, and links are not followed",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of a manifest that does not count. ``detail`` is in words and holds no credentials."""

    path: str  # relative to the root
    detail: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file that was looked at, as it was then; ``size_bytes`` is -1 where there was none."""

    path: str  # relative to the root
    size_bytes: int
    mtime_ns: int

    @classmethod
    def at(cls, root: Path, path: str) -> Manifest:
        """Look at a file without opening it."""
        try:
            status = os.lstat(root / path)
        except (OSError, ValueError):
            return cls(path, -1, -1)
        return cls(path, status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A range of versions that a manifest asks for."""

    name: str  # canonical
    specifier: SpecifierSet
    path: str


@dataclass(frozen=True, slots=True)
class Locked:
    """The version that a lock file fixes."""

    name: str  # canonical
    version: Version
    path: str


@dataclass(slots=True)
class Findings:
    """Gathers what the readers find in the manifests of one root."""

    root: Path
    wanted: list[Wanted] = field(default_factory=list)
    constraints: list[Wanted] = field(default_factory=list)
    locked: list[Locked] = field(default_factory=list)
    declined: set[str] = field(default_factory=set)  # names that are declared for other platforms or Pythons
    own: set[str] = field(default_factory=set)  # names of the project itself and of its workspace
    problems: dict[Problem, None] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)  # how many problems, by path
    files: dict[str, Manifest] = field(default_factory=dict)
    is_complete: bool = True  # no file was given up as a whole although it may well declare something

    def problem(self, path: str, detail: str) -> None:
        """Report what does not count, once."""
        path = shown(path, len(path))
        count = self.reported.get(path, 0)
        if count > _MAX_PROBLEMS:
            return
        problem = Problem(path, detail if count < _MAX_PROBLEMS else "there is more that does not count")
        if problem not in self.problems:
            self.problems[problem] = None
            self.reported[path] = count + 1

    def give_up(self, path: str, detail: str) -> None:
        """Report a whole file that is there, but could not be read or parsed this time."""
        self.problem(path, detail)
        self.is_complete = False

    def want(self, name: str, specifier: SpecifierSet, path: str) -> None:
        """Note a range."""
        if len(name) > MAX_NAME_CHARS:
            self.problem(path, f"{shown(name)} is no name: it is too long")
            return
        self.wanted.append(Wanted(canonicalize_name(name), specifier, path))

    def decline(self, name: str) -> None:
        """Note a name whose marker does not hold."""
        self.declined.add(canonicalize_name(name))

    def lock(self, name: str, version: str, path: str) -> None:
        """Note a fixed version, or report why it is none."""
        try:
            if len(name) > MAX_NAME_CHARS:
                raise InvalidName(name)
            self.locked.append(Locked(canonicalize_name(name, validate=True), parsed_version(version), path))
        except ValueError:
            self.problem(path, f"{shown(name)} {shown(version)} is no name with a version")

    def claim(self, name: object) -> None:
        """Note a name as the project's own."""
        if isinstance(name, str):
            self.own.add(canonicalize_name(name))

    def text(self, path: str, *, max_bytes: int = MAX_MANIFEST_BYTES) -> str | None:
        """Read a file of the root; None, and a problem, where it cannot be read or is no text."""
        self.files[path] = Manifest.at(self.root, path)
        try:
            body = read(self.root, path, max_bytes=max_bytes)
        except ValueError:  # a name that no file can have
            body = Skipped(path, SkipReason.VANISHED)
        if isinstance(body, Skipped):
            report = self.give_up if body.reason in _PASSING else self.problem
            report(path, f"cannot be read: {_WHY_UNREAD.get(body.reason, body.detail)}")
            return None
        encoding = "utf-16" if body.data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
        try:
            return body.data.decode(encoding)
        except UnicodeDecodeError as error:
            self.give_up(path, f"is no {encoding.removesuffix('-sig')} text: {error.reason} at byte {error.start}")
            return None

    def toml(self, path: str, *, max_bytes: int = MAX_MANIFEST_BYTES) -> dict[str, object] | None:
        """Read a TOML file of the root; None, and a problem, where it is none."""
        text = self.text(path, max_bytes=max_bytes)
        if text is None:
            return None
        if _LONG_KEY.search(_TOML_TEXT.sub('"', text)) is not None:  # tomllib needs the square of a key's parts
            self.give_up(path, f"has a key of more than {_MAX_KEY_PARTS} parts")
            return None
        try:
            return tomllib.loads(text)
        except ValueError as error:
            self.give_up(path, f"is no TOML: {shown(str(error))}")
        except RecursionError:
            self.give_up(path, "is nested too deeply")
        return None


def table(value: object) -> dict[str, object]:
    """Return a table of a parsed document, an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return a list of a parsed document, an empty one for anything else."""
    return value if isinstance(value, list) else []


def shown(text: str, most_chars: int = _MAX_SHOWN_CHARS) -> str:
    """Make text of a manifest fit to be shown and stored: short, printable, and without credentials."""
    text = _CREDENTIALS.sub("//…@", text)
    text = "".join(char if char.isprintable() else "\ufffd" for char in text)
    return text if len(text) <= most_chars else text[:most_chars] + "…"
