"""The directory of an index: which files belong to it, and the state file that says so."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import tantivy

from services.core.errors import DataLoss, NotReady
from services.core.lexical.document import FIELD_WEIGHTS
from services.core.text import TOKENIZER_VERSION

#: Changes whenever the files of an index, or what they mean, change: an index of another format is rebuilt.
FORMAT = 1

STATE_FILE = "lexical.json"
TANTIVY_META_FILE = "meta.json"
TEXT_FIELD = "text"
ROW_FIELD = "row"

#: A row as tantivy keeps it: number of the forward file above, position in it below.
ROW_BITS = 32


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of an index: its name in the directory, its SHA-256 in hexadecimal, its size."""

    name: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One forward file and its dead rows."""

    number: int
    documents: int
    dead: int = 0

    @property
    def forward_name(self) -> str:
        return f"forward-{self.number:06d}.bin"

    @property
    def dead_name(self) -> str:
        return f"dead-{self.number:06d}.bin"

    @property
    def live(self) -> int:
        return self.documents - self.dead

    def read_dead(self, directory: Path) -> npt.NDArray[np.uint32]:
        """Return the dead rows, ascending. Raises ``DataLoss`` where their file does not fit."""
        if not self.dead:
            return np.empty(0, dtype=np.uint32)
        try:
            rows = np.fromfile(directory / self.dead_name, dtype=np.uint32)
        except OSError as error:
            raise damaged(directory, f"{self.dead_name}: {error.strerror}") from error
        if len(rows) != self.dead or rows[-1] >= self.documents:
            raise damaged(directory, f"{self.dead_name} does not fit {STATE_FILE}")
        return rows


@dataclass(frozen=True, slots=True)
class State:
    """What ``lexical.json`` says."""

    segments: tuple[Segment, ...]
    next_number: int
    tokenizer: str = TOKENIZER_VERSION
    format: int = FORMAT
    weights: tuple[int, ...] = tuple(FIELD_WEIGHTS.values())

    @property
    def documents(self) -> int:
        return sum(segment.live for segment in self.segments)

    def write(self, directory: Path) -> None:
        text = json.dumps(asdict(self), indent=1, sort_keys=True)
        (directory / STATE_FILE).write_text(text + "\n", encoding="utf-8")


def read_state(directory: Path) -> State:
    """Read the state of an index.

    Raises ``NotReady`` where another release wrote it (format, tokenizer or weights differ), ``DataLoss`` where it
    cannot be read.
    """
    try:
        raw = json.loads((directory / STATE_FILE).read_text(encoding="utf-8"))
        state = State(
            segments=tuple(Segment(**segment) for segment in raw["segments"]),
            next_number=raw["next_number"],
            tokenizer=raw["tokenizer"],
            format=raw["format"],
            weights=tuple(raw["weights"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(directory, f"{STATE_FILE}: {error}") from error
    expected = State(segments=(), next_number=0)
    if (state.format, state.tokenizer, state.weights) != (expected.format, expected.tokenizer, expected.weights):
        raise NotReady(
            f"The lexical index was written as format {state.format}, tokenizer {state.tokenizer}; "
            f"this release reads format {FORMAT}, tokenizer {TOKENIZER_VERSION}.",
            remedy="Index the project again, or rebuild its lexical index.",
            reason="LEXICAL_INDEX_OUTDATED",
        )
    return state


def count_documents(directory: Path) -> int:
    """Return how many live documents an index has, as it says itself. Raises as ``read_state`` does."""
    return read_state(directory).documents


def schema() -> tantivy.Schema:
    """Return the schema: terms as they are, with their counts; no positions and nothing stored."""
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field(ROW_FIELD, indexed=True, fast=True)
    builder.add_text_field(TEXT_FIELD, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def open_tantivy(directory: Path) -> tantivy.Index:
    """Open tantivy's part of an index."""
    index = tantivy.Index.open(str(directory))
    # Its default follows the directory from a thread, which leaves lock files in folders that others remove. It has
    # begun when the index is open; what it does in that moment can't be prevented.
    index.config_reader(reload_policy="manual")
    return index


def tantivy_files(directory: Path) -> list[str]:
    """Return the names of the files that tantivy's current commit needs."""
    meta = json.loads((directory / TANTIVY_META_FILE).read_text(encoding="utf-8"))
    names = [TANTIVY_META_FILE]
    for segment in meta["segments"]:
        stem = segment["segment_id"].replace("-", "")
        deletes = f"{stem}.{segment['deletes']['opstamp']}.del" if segment["deletes"] else None
        names += [
            path.name for path in directory.glob(f"{stem}.*") if not path.name.endswith(".del") or path.name == deletes
        ]
    return names


def index_files(
    directory: Path, state: State, base: Path | None = None, known: Mapping[str, IndexFile] = MappingProxyType({})
) -> tuple[IndexFile, ...]:
    """Return all files of the index in ``directory``, by name: hashed, unless they are links to known ones of base."""
    names = [STATE_FILE, *tantivy_files(directory)]
    for segment in state.segments:
        names += [segment.forward_name, *([segment.dead_name] if segment.dead else [])]
    files = []
    for name in sorted(names):
        path = directory / name
        if base is not None and name in known and os.path.samefile(base / name, path):
            files.append(known[name])
            continue
        with path.open("rb") as file:
            files.append(IndexFile(name, hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size))
    return tuple(files)


def damaged(directory: Path, cause: str) -> DataLoss:
    """Return the error for an index whose files do not fit one another."""
    return DataLoss(
        f"The lexical index in {directory} is damaged: {cause}.",
        remedy="Rebuild the lexical index of the project.",
        reason="LEXICAL_INDEX_DAMAGED",
    )
