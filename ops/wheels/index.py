"""A static package index beside the wheels, for pip's ``--index-url`` and any web server that hands out files.

``simple/`` has pages in HTML (PEP 503) and the same in JSON (PEP 691, ``index.json``), each file with its SHA-256;
beside each wheel lies its METADATA (PEP 658), so that a resolver need not fetch wheels to read what they require.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import quote

from ops.wheels.files import metadata_of, read_metadata, sha256_of
from ops.wheels.platforms import WheelName
from services.core.errors import InvalidArgument

FOLDER = "simple"
METADATA_SUFFIX = ".metadata"
_PAGE_NAMES = ("index.html", "index.json")
_PAGE = """<!DOCTYPE html>
<html>
<head><meta name="pypi:repository-version" content="1.1"><title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def write_index(mirror: Path, wheels: Iterable[Path] | None = None) -> int:
    """Write the index of these wheels, or of all in a mirror; returns the number of projects.

    What is as it should be already is not touched, so a whole mirror may be read-only.
    """
    simple = mirror / FOLDER
    if simple.is_symlink():
        raise InvalidArgument(f"{FOLDER} is a link, and the index would be written through it.", remedy="Remove it.")
    wanted = index_files(mirror, mirror.glob("*.whl") if wheels is None else wheels)
    for path in strays(mirror, wanted):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path, content in wanted.items():
        if not has_content(path, content):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Whoever reads meanwhile, or after a full disk, sees the old file or the new one.
            partial = path.with_name(f"{path.name}.partial")
            try:
                partial.write_bytes(content)
                partial.replace(path)
            except OSError:
                partial.unlink(missing_ok=True)
                raise
    return sum(path.name == _PAGE_NAMES[0] for path in wanted) - 1


def index_files(mirror: Path, wheels: Iterable[Path]) -> dict[Path, bytes]:
    """Return what the index of these wheels consists of; the same wheels give the same bytes."""
    files: dict[Path, bytes] = {}
    projects: dict[str, list[dict[str, object]]] = {}
    for wheel in sorted(wheels):
        project = WheelName.parse(wheel.name).project
        metadata = wheel.with_name(wheel.name + METADATA_SUFFIX)
        files[metadata] = metadata_of(wheel)
        projects.setdefault(project, []).append(_entry(wheel, files[metadata]))
    simple = mirror / FOLDER
    for project, entries in sorted(projects.items()):
        page, data = (simple / project / name for name in _PAGE_NAMES)
        files[page] = _page(f"Links for {project}", (_link(entry) for entry in entries))
        versions = sorted({WheelName.parse(str(entry["filename"])).version for entry in entries})
        files[data] = _json({"name": project, "versions": versions, "files": entries})
    page, data = (simple / name for name in _PAGE_NAMES)
    files[page] = _page(
        "Simple index", (f'<a href="{name}/">{name}</a>' for name in map(html.escape, sorted(projects)))
    )
    files[data] = _json({"projects": [{"name": name} for name in sorted(projects)]})
    return files


def strays(mirror: Path, wanted: Collection[Path]) -> list[Path]:
    """Return what lies where the index does and is no part of it: files, folders, and links to whatever."""
    folders = {path.parent for path in wanted}
    found = [path for path in mirror.glob(f"*{METADATA_SUFFIX}*") if not _may_be(path, wanted)]
    waiting = [mirror / FOLDER]
    while waiting:
        folder = waiting.pop()
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path in folders and not path.is_symlink() and path.is_dir():
                waiting.append(path)
            elif not _may_be(path, wanted):
                found.append(path)
    return sorted(found)


def has_content(path: Path, content: bytes) -> bool:
    """Say whether a file is there with just this content."""
    return path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content


def _may_be(path: Path, wanted: Collection[Path]) -> bool:
    return path in wanted and path.is_file() and not path.is_symlink()


def _entry(wheel: Path, metadata: bytes) -> dict[str, object]:
    entry: dict[str, object] = {
        "filename": wheel.name,
        "url": f"../../{quote(wheel.name)}",
        "hashes": {"sha256": sha256_of(wheel)},
        "size": wheel.stat().st_size,
        "core-metadata": {"sha256": hashlib.sha256(metadata).hexdigest()},
    }
    if requires := read_metadata(wheel).get("Requires-Python"):
        entry["requires-python"] = str(requires)
    return entry


def _link(entry: dict[str, object]) -> str:
    hashes, metadata = entry["hashes"], entry["core-metadata"]
    assert isinstance(hashes, dict)
    assert isinstance(metadata, dict)
    attributes = f'href="{entry["url"]}#sha256={hashes["sha256"]}" data-core-metadata="sha256={metadata["sha256"]}"'
    if "requires-python" in entry:
        attributes += f' data-requires-python="{html.escape(str(entry["requires-python"]))}"'
    return f"<a {attributes}>{html.escape(str(entry['filename']))}</a><br>"


def _page(title: str, links: Iterable[str]) -> bytes:
    return _PAGE.format(title=title, links="\n".join(links)).encode()


def _json(content: dict[str, object]) -> bytes:
    return (json.dumps({"meta": {"api-version": "1.1"}, **content}, indent=1, sort_keys=True) + "\n").encode()
