"""Why a file or folder is not indexed: the one vocabulary of discovery, sniffing and extraction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SkipReason(StrEnum):
    """A stable code that programs match on; people read ``Skipped.detail``."""

    EXCLUDED = "excluded"  # the exclusion floor: tool state, vendored packages, build artefacts
    VIRTUAL_ENVIRONMENT = "virtual_environment"
    CACHE_DIRECTORY = "cache_directory"  # carries a CACHEDIR.TAG
    DATA_DIRECTORY = "data_directory"  # the product's own state
    IGNORED = "ignored"  # by .gitignore, .git/info/exclude or the project's own patterns
    IGNORE_RULES_UNREADABLE = "ignore_rules_unreadable"  # the folder is scanned without these rules
    MANIFEST_INVALID = "manifest_invalid"  # the folder is indexed without it
    SECRET = "secret"
    LINK = "link"  # points inside the root: the target is indexed under its own path
    LINK_OUTSIDE = "link_outside"
    LINK_BROKEN = "link_broken"
    SPECIAL = "special"  # socket, fifo, device
    SUBMODULE = "submodule"  # another repository, that this one only names
    LFS_POINTER = "lfs_pointer"  # stands for a file that is kept elsewhere
    TOO_LARGE = "too_large"
    TOO_DEEP = "too_deep"
    NAME_NOT_UTF8 = "name_not_utf8"
    NAME_TOO_LONG = "name_too_long"
    UNREADABLE = "unreadable"
    UNREACHABLE = "unreachable"  # the file system fails: a mount that is away, a disk error
    VANISHED = "vanished"
    UNSTABLE = "unstable"  # changed each time while it was being read
    BINARY = "binary"
    UNDECODABLE = "undecodable"
    GENERATED = "generated"
    MINIFIED = "minified"
    EXTRACTION_TIMEOUT = "extraction_timeout"
    EXTRACTION_MEMORY = "extraction_memory"
    EXTRACTION_CRASHED = "extraction_crashed"
    EXTRACTION_FAILED = "extraction_failed"
    NOT_STORABLE = "not_storable"  # the database refuses something in it


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something of a source that is not indexed.

    ``path`` is relative to the root, with ``/`` between names; a folder ends with ``/``, and then nothing below it is
    indexed either. Bytes of a name that are no UTF-8 appear as ``\\xNN``, so the path can always be stored and shown.
    """

    path: str
    reason: SkipReason
    detail: str = ""
