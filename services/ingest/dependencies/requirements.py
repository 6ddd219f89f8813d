"""Requirements files, as pip reads them, without following anything out of the root.

Continuation lines, comments, per-requirement options (``--hash``), markers, extras, ``-r`` and ``-c``. Options that
tell an installer where to look are no dependencies and are left alone. What is no requirement is reported: by kind,
because a file of another sort may well have such a name.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from services.ingest.dependencies.distributions import parse, parse_address
from services.ingest.dependencies.findings import Findings, Wanted, shown
from services.ingest.dependencies.markers import holds
from services.ingest.dependencies.versions import requirement as parsed_requirement

# No expression may begin with what it can begin again within: that takes the square of a line of spaces.
_COMMENT = re.compile(r"(?<!\S)#.*$")
_OPTIONS = re.compile(r"(?<=\s)--?[A-Za-z].*$")
_OPTION = re.compile(
    r"(?:-(?P<short>[rce])\s*|--(?P<long>requirement|constraint|editable)(?:\s*=\s*|\s+))(?P<value>\S.*)"
)
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://|file:", re.IGNORECASE)
_OWN_FOLDER = re.compile(r"\./?(\[[^\]]*\])?")
_MAX_LINE_CHARS = 4096
_MAX_REPORTED_LINES = 5
_MAX_LINES = 10_000  # of one file, continued ones counted once, without comments
_MAX_FILES = 1_000  # of one root


class Guard(Protocol):
    """Keeps a fault met in one file from the others."""

    def __call__(self, path: str, findings: Findings, /) -> AbstractContextManager[None]: ...


def read_requirements(paths: Iterable[str], findings: Findings, guard: Guard) -> None:
    """Note what requirements files and those that they include ask for, each file once and under a guard."""
    pending = [(path, False) for path in paths]
    seen: set[tuple[str, bool]] = set()  # a file may well be a requirement here and a constraint there
    while pending:
        file = pending.pop()
        if file not in seen:
            if len(seen) == _MAX_FILES:
                findings.give_up(file[0], f"is not read: there are more than {_MAX_FILES:,} requirements files")
                return
            seen.add(file)
            with guard(file[0], findings):
                pending += _read_file(*file, findings)


def read_line(line: str, where: str, path: str, findings: Findings, *, constrains: bool = False) -> bool:
    """Note what one requirement asks for; False where it is none. ``where`` says its place in ``path``."""
    if len(line) > _MAX_LINE_CHARS:
        return False
    if parse(line) is not None:  # the name of a file of this folder, although it is a valid name of a project too
        _note_address(line, where, path, findings)
        return True
    try:
        requirement = parsed_requirement(line)
    except (ValueError, RecursionError):
        return _read_address(line, where, path, findings)
    if not holds(requirement.marker):
        findings.decline(requirement.name)
    elif requirement.url is not None:
        _note_address(requirement.url, f"{where}: {shown(requirement.name)}", path, findings)
    elif constrains:
        findings.constraints.append(Wanted(canonicalize_name(requirement.name), requirement.specifier, path))
    else:
        findings.want(requirement.name, requirement.specifier, path)
    return True


def _read_file(path: str, constrains: bool, findings: Findings) -> list[tuple[str, bool]]:
    """Read one file and return those that it includes, each with whether it only constrains."""
    text = findings.text(path)
    if text is None:
        return []
    included: list[tuple[str, bool]] = []
    unknown: list[str] = []
    for count, (number, line) in enumerate(_logical_lines(text), start=1):
        where = f"line {number}"
        if count > _MAX_LINES:
            findings.give_up(path, f"{where}: more than {_MAX_LINES:,} requirements, the rest is not read")
            break
        if len(line) > _MAX_LINE_CHARS:
            unknown.append(f"{where}: {shown(line[:_MAX_LINE_CHARS])}")
            continue
        option = _OPTION.fullmatch(line)
        if option is not None:
            kind, value = option["short"] or option["long"][0], option["value"].strip("\"' ")
            if kind == "e":
                if not _OWN_FOLDER.fullmatch(value):
                    _note_address(value, where, path, findings)
            elif (file := _inside(path, value, where, findings)) is not None:
                included.append((file, constrains or kind == "c"))
        elif not line.startswith("-") and not read_line(
            _OPTIONS.sub("", line).rstrip(), where, path, findings, constrains=constrains
        ):
            unknown.append(f"{where}: {shown(line)}")
    for detail in unknown[:_MAX_REPORTED_LINES]:
        findings.problem(path, f"{detail} is no requirement")
    if len(unknown) > _MAX_REPORTED_LINES:
        findings.problem(path, f"{len(unknown) - _MAX_REPORTED_LINES} more lines are no requirements")
    return included


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join continued lines and drop comments; each with the number of its first line."""
    parts: list[str] = []
    first = 1
    for number, line in enumerate([*re.split(r"\r\n|\r|\n", text), ""], start=1):
        if not parts:
            first = number
        is_comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not is_comment:
            parts.append(line.removesuffix("\\"))
            continue
        parts.append(f" {line}" if is_comment else line)
        joined = _COMMENT.sub("", "".join(parts)).strip()
        parts = []
        if joined:
            yield first, joined


def _inside(path: str, value: str, where: str, findings: Findings) -> str | None:
    """Resolve a file named in another one; None, and a problem, where that is not in the root."""
    if _SCHEME.match(value):
        findings.problem(path, f"{where}: includes an address, which is not followed")
        return None
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), value))
    if posixpath.isabs(value) or file.split("/")[0] == "..":
        findings.problem(path, f"{where}: {shown(value)} is outside of the source and is not read")
        return None
    return file


def _read_address(line: str, where: str, path: str, findings: Findings) -> bool:
    """Note a requirement that is an address or a path alone; False where it is neither."""
    bare = line.partition(" ;")[0].strip()
    if _OWN_FOLDER.fullmatch(bare):
        return True
    if _SCHEME.match(bare) or bare.startswith((".", "/", "~")) or ("/" in bare and not re.search(r"\s", bare)):
        _note_address(bare, where, path, findings)
        return True
    return False


def _note_address(address: str, where: str, path: str, findings: Findings) -> None:
    """Report an address; where it ends with the name of a wheel or sdist, that version is what is wanted."""
    match = _SCHEME.match(address)
    kind = f"an address ({(match['scheme'] or 'file').lower()})" if match else "a local path"
    distribution = parse_address(address)
    if distribution is None:
        findings.problem(path, f"{where}: {kind} is not followed")
        return
    wanted = f"{distribution.name} {distribution.version} is looked for in the wheel directory"
    findings.problem(path, f"{where}: {kind} is not followed, {wanted}")
    findings.want(distribution.name, SpecifierSet(f"=={distribution.version}"), path)
