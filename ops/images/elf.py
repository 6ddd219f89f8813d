"""What a program or library asks the loader for: the names in its dynamic section, and where it looks first."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29


@dataclass(frozen=True, slots=True)
class Dynamic:
    """``needed`` are names of libraries; ``search_path`` are folders, with $ORIGIN for the file's own."""

    needed: tuple[str, ...]
    search_path: tuple[str, ...]


def read_dynamic(path: Path) -> Dynamic | None:
    """Return the dynamic section of a 64-bit little-endian ELF file; None for any other file.

    A static program has an empty one. Raises ``ValueError`` for a damaged file.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return None
        content = MAGIC + file.read()
    try:
        return _dynamic(content)
    except (struct.error, IndexError) as error:
        raise ValueError(f"{path} is a damaged ELF file: {error}") from error


def _dynamic(content: bytes) -> Dynamic:
    offset, entry_size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", content, offset + entry_size * index) for index in range(count)]
    if any(start + size > len(content) for _, _, start, _, _, size, _, _ in segments):
        raise IndexError("it ends within a segment")
    loads = [(virtual, start, size) for kind, _, start, virtual, _, size, _, _ in segments if kind == _PT_LOAD]
    entries: list[tuple[int, int]] = []
    for kind, _, start, _, _, size, _, _ in segments:
        if kind == _PT_DYNAMIC:
            entries += struct.iter_unpack("<qQ", content[start : start + size - size % 16])
    address = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
    table = next(
        (start + address - virtual for virtual, start, size in loads if virtual <= address < virtual + size), 0
    )

    def text(position: int) -> str:
        begin = table + position
        return content[begin : content.index(b"\0", begin)].decode()

    needed = tuple(text(value) for tag, value in entries if tag == _DT_NEEDED)
    paths = [text(value) for tag, value in entries if tag in {_DT_RPATH, _DT_RUNPATH}]
    return Dynamic(needed, tuple(folder for path in paths for folder in path.split(":") if folder))
