"""What ``pyproject.toml`` declares (PEP 621, PEP 735, the tables of tools from before them), and ``setup.cfg``.

Every optional group and every dependency group counts: what a project may use is worth finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from configparser import Error as ConfigError
from configparser import RawConfigParser

from packaging.utils import canonicalize_name

from services.ingest.dependencies import poetry
from services.ingest.dependencies.findings import MAX_PROJECT_BYTES, Findings, items, shown, table
from services.ingest.dependencies.requirements import read_line

PYPROJECT = "pyproject.toml"
SETUP_CFG = "setup.cfg"
# configparser needs the square of the spaces in a line, and of the lines that it does not understand.
_GAP = re.compile(r"(?<=\S)[^\S\n]+")
_MAX_CFG_LINES = 5_000


def read_pyproject(findings: Findings) -> list[str]:
    """Note what the file declares; return the requirements files that it names as its dependencies."""
    document = findings.toml(PYPROJECT, max_bytes=MAX_PROJECT_BYTES)
    if document is None:
        return []
    project, tool = table(document.get("project")), table(document.get("tool"))
    findings.claim(project.get("name"))
    for where, requirements in _lists(project, tool):
        _read_list(PYPROJECT, where, requirements, findings)
    _read_groups(table(document.get("dependency-groups")), findings)
    poetry.read_tables(table(tool.get("poetry")), PYPROJECT, findings)
    return _dynamic(project, tool, findings)


def read_setup_cfg(findings: Findings) -> list[str]:
    """Note what the file declares for setuptools; return the requirements files that it names as its dependencies."""
    text = findings.text(SETUP_CFG, max_bytes=MAX_PROJECT_BYTES)
    if text is None:
        return []
    if text.count("\n") >= _MAX_CFG_LINES:
        findings.give_up(SETUP_CFG, f"has more than {_MAX_CFG_LINES:,} lines")
        return []
    parser = RawConfigParser(strict=False)
    try:
        parser.read_string(_GAP.sub(" ", text))
    except ConfigError as error:
        findings.give_up(SETUP_CFG, f"is no configuration file: {shown(str(error))}")
        return []
    findings.claim(parser.get("metadata", "name", fallback=None))
    values = {"install_requires": parser.get("options", "install_requires", fallback="")}
    if parser.has_section("options.extras_require"):
        values |= {f"extras_require.{shown(group)}": value for group, value in parser.items("options.extras_require")}
    files: list[str] = []
    for where, value in values.items():
        if value.startswith("file:"):
            files += _inside_root(SETUP_CFG, where, [file.strip() for file in value[5:].split(",")], findings)
        else:
            _read_list(SETUP_CFG, where, [line for line in map(str.strip, value.splitlines()) if line], findings)
    return files


def _lists(project: dict[str, object], tool: dict[str, object]) -> Iterator[tuple[str, object]]:
    yield "project.dependencies", project.get("dependencies", [])
    for group, requirements in table(project.get("optional-dependencies")).items():
        yield f"project.optional-dependencies.{shown(group)}", requirements
    yield "tool.uv.dev-dependencies", table(tool.get("uv")).get("dev-dependencies", [])
    for group, requirements in table(table(tool.get("pdm")).get("dev-dependencies")).items():
        yield f"tool.pdm.dev-dependencies.{shown(group)}", requirements


def _read_list(path: str, where: str, requirements: object, findings: Findings) -> None:
    if not isinstance(requirements, list):
        findings.problem(path, f"{where} is no list of requirements")
    for requirement in items(requirements):
        if not isinstance(requirement, str) or not read_line(requirement, where, path, findings):
            findings.problem(path, f"{where}: {shown(str(requirement))} is no requirement")


def _read_groups(groups: dict[str, object], findings: Findings) -> None:
    """Read dependency groups (PEP 735). All count, so that an included group needs no resolving, only to exist."""
    known = {canonicalize_name(group) for group in groups}
    for group, members in groups.items():
        where = f"dependency-groups.{shown(group)}"
        if not isinstance(members, list):
            findings.problem(PYPROJECT, f"{where} is no list of requirements")
            continue
        _read_list(PYPROJECT, where, [member for member in members if not isinstance(member, dict)], findings)
        for member in members:
            if isinstance(member, dict) and canonicalize_name(str(member.get("include-group", ""))) not in known:
                findings.problem(PYPROJECT, f"{where}: {shown(str(member))} includes no group of this file")


def _dynamic(project: dict[str, object], tool: dict[str, object], findings: Findings) -> list[str]:
    """Return the files that setuptools takes dependencies from; report dependencies that only a build tells."""
    sources = table(table(tool.get("setuptools")).get("dynamic"))
    tables = [table(sources.get("dependencies")), *map(table, table(sources.get("optional-dependencies")).values())]
    files: list[str] = []
    for source in tables:
        named = source.get("file", [])
        each = items(named) if isinstance(named, list) else [named]
        files += _inside_root(PYPROJECT, "tool.setuptools.dynamic", each, findings)
    if "dependencies" in items(project.get("dynamic")) and not files and not table(tool.get("poetry")):
        findings.problem(PYPROJECT, "project.dependencies are computed by the build, which is not run")
    return files


def _inside_root(path: str, where: str, named: Sequence[object], findings: Findings) -> list[str]:
    files: list[str] = []
    for file in named:
        if isinstance(file, str) and not file.startswith("/") and ".." not in file.split("/"):
            files.append(file.removeprefix("./"))
        else:
            findings.problem(path, f"{where}: {shown(str(file))} is not read")
    return files
