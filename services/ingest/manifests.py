"""What the folders of a source say of their own files: how they are cut, and metadata to filter by.

A manifest is a file ``.undercroft.yaml`` of any folder, for the files below it. Nearer wins: a deeper manifest over a
higher one, a later override over an earlier one, and what a file says of itself (front matter) over all.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pydantic
import yaml

from services.core.globs import Glob
from services.ingest.discovery import read
from services.ingest.file_settings import (
    MAX_KEYS,
    MAX_VALUES,
    ChunkBy,
    FileSettings,
    Metadata,
    checked_key,
    checked_value,
)
from services.ingest.skips import Skipped, SkipReason

MANIFEST_NAME = ".undercroft.yaml"
_MAX_BYTES = 64 * 1024
_MAX_OVERRIDES = 200
_MAX_GLOBS = 500
_MAX_GLOB_CHARS = 500
_MAX_WILDCARDS = 32
_MAX_CAUSE_CHARS = 300
_KINDS = frozenset({"str", "bool", "int", "float", "date", "datetime"})

# Strict: else the number 1 is true, and 1.0 is 1.
Scalar = (
    pydantic.StrictStr
    | pydantic.StrictBool
    | pydantic.StrictInt
    | pydantic.StrictFloat
    | Annotated[datetime.datetime, pydantic.Strict()]
    | Annotated[datetime.date, pydantic.Strict()]
)


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    chunk_by: ChunkBy | None = None
    metadata: dict[str, Scalar | list[Scalar]] = pydantic.Field(default_factory=dict, max_length=MAX_KEYS)

    @pydantic.field_validator("metadata")
    @classmethod
    def _is_short(cls, value: dict[str, Scalar | list[Scalar]]) -> dict[str, Scalar | list[Scalar]]:
        as_metadata(value)
        return value


class _Override(_Part):
    files: str | list[str]

    @pydantic.field_validator("files")
    @classmethod
    def _are_globs(cls, value: str | list[str]) -> str | list[str]:
        globs = [value] if isinstance(value, str) else value
        if not globs or any(not 0 < len(one) <= _MAX_GLOB_CHARS or one.startswith("/") for one in globs):
            raise ValueError("globs over paths relative to the manifest's folder")
        if any(sum(map(one.count, "*?[")) > _MAX_WILDCARDS for one in globs):
            raise ValueError(f"a glob with more than {_MAX_WILDCARDS} of *, ? and [")
        return value


class _File(_Part):
    version: Literal[1]
    overrides: list[_Override] = pydantic.Field(default_factory=list, max_length=_MAX_OVERRIDES)

    @pydantic.field_validator("version", mode="before")
    @classmethod
    def _is_number(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("the number 1")
        return value

    @pydantic.field_validator("overrides")
    @classmethod
    def _are_few(cls, value: list[_Override]) -> list[_Override]:
        if sum(len(_globs(one)) for one in value) > _MAX_GLOBS:
            raise ValueError(f"more than {_MAX_GLOBS} globs in one manifest")
        return value


@dataclass(frozen=True, slots=True)
class Rule:
    """A part of a manifest: what it says of the files that its globs fit, or of all below its folder."""

    manifest: str  # path of the file
    globs: tuple[Glob, ...]  # relative to its folder; none for all
    chunk_by: ChunkBy | None
    metadata: Metadata

    @property
    def shown(self) -> str:
        return ", ".join(glob.text for glob in self.globs) or "all files below it"


# A rule, and those of its globs that may fit a file of the folder, with how far they have come.
_AtFolder = tuple[Rule, list[tuple[Glob, frozenset[int]]]]


@dataclass(slots=True)
class Manifests:
    """The manifests of a source. ``problems`` are those that can't be read: their folders go without."""

    problems: list[Skipped] = field(default_factory=list)
    _rules: dict[str, list[Rule]] = field(default_factory=dict)  # by folder, ending with "/" or ""
    _used: set[int] = field(default_factory=set)
    # Of one folder, as files come folder by folder: its rules, with the globs that may fit its files.
    _folder: tuple[str, list[_AtFolder]] | None = None

    @classmethod
    def of(cls, root: Path, paths: Iterable[str]) -> Manifests:
        """Read those among the files of a source. They are few and small, so each run reads them all."""
        found = cls()
        for path in paths:
            if path == MANIFEST_NAME or path.endswith(f"/{MANIFEST_NAME}"):
                rules = _read(root, path)
                if isinstance(rules, Skipped):
                    found.problems.append(rules)
                else:
                    found._rules[path.removesuffix(MANIFEST_NAME)] = rules
        return found

    def settings(self, path: str) -> FileSettings:
        """Return what the manifests say of a file."""
        if not self._rules:
            return FileSettings()
        chunk_by = ChunkBy.AUTO
        metadata: dict[str, tuple[str, ...]] = {}
        for rule in self._of(path):
            self._used.add(id(rule))
            chunk_by = rule.chunk_by or chunk_by
            metadata.update(rule.metadata)
        return FileSettings(chunk_by, tuple(sorted(metadata.items())))

    def unused(self) -> list[Rule]:
        """Return the rules that none of the files fits whose settings were asked for."""
        return [rule for rules in self._rules.values() for rule in rules if rule.globs and id(rule) not in self._used]

    def _of(self, path: str) -> Iterator[Rule]:
        """Yield the rules for a file, the weakest first."""
        folder, _, name = path.rpartition("/")
        if self._folder is None or self._folder[0] != folder:
            self._folder = folder, list(self._at(folder))
        for rule, globs in self._folder[1]:
            if not rule.globs or any(glob.fits(states, name) for glob, states in globs):
                yield rule

    def _at(self, folder: str) -> Iterator[_AtFolder]:
        inside = f"{folder}/" if folder else ""
        for manifests in ("", *(inside[: place + 1] for place, character in enumerate(inside) if character == "/")):
            relative = folder[len(manifests) :]
            for rule in self._rules.get(manifests, ()):
                globs = [(glob, states) for glob in rule.globs if (states := glob.below(relative))]
                if globs or not rule.globs:
                    yield rule, globs


def as_metadata(values: Mapping[str, object]) -> Metadata:
    """Return keys and values as they are stored, sorted. ValueError for what can't be."""
    if len(values) > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS} keys")
    metadata = []
    for key, value in sorted(values.items()):
        listed = value if isinstance(value, list) else [value]
        if len(listed) > MAX_VALUES:
            raise ValueError(f"{key} has more than {MAX_VALUES} values")
        metadata.append((checked_key(key), tuple(dict.fromkeys(checked_value(one) for one in listed))))
    return tuple(metadata)


def _read(root: Path, path: str) -> list[Rule] | Skipped:
    body = read(root, path, max_bytes=_MAX_BYTES)
    if isinstance(body, Skipped):
        return body
    try:
        file = _File.model_validate(yaml.load(body.data, Loader=yaml.CSafeLoader))
    except Exception as error:  # whatever the parser makes of it: a tag with a bad value raises anything
        cause = _first_cause(error)
        return Skipped(path, SkipReason.MANIFEST_INVALID, f"{cause}; the folder is indexed without it")
    parts: Sequence[_Part] = (file, *file.overrides)
    return [Rule(path, tuple(map(Glob.of, _globs(part))), part.chunk_by, as_metadata(part.metadata)) for part in parts]


def _globs(part: _Part) -> list[str]:
    if not isinstance(part, _Override):
        return []
    return [part.files] if isinstance(part.files, str) else part.files


def _first_cause(error: Exception) -> str:
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        # The names of the kinds that were tried say nothing to whoever wrote it.
        place = ".".join(str(one) for one in first["loc"] if str(one) not in _KINDS and "[" not in str(one))
        said = "there is no such key" if first["type"] == "extra_forbidden" else first["msg"]
        return f"{place or 'the file'}: {said.removeprefix('Value error, ')}"[:_MAX_CAUSE_CHARS]
    return (" ".join(str(error).split()) or type(error).__name__)[:_MAX_CAUSE_CHARS]
