"""A static package index beside the wheels, for pip's ``--index-url`` and any web server that hands out files.

``simple/`` has pages in HTML (PEP 503) and the same in JSON (PEP 691, ``index.json``), each file with its SHA-256;
beside each wheel lies its METADATA (PEP 658), so that a resolver need not fetch wheels to read what they require.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from ops.wheels.files import metadata_of, read_metadata, sha256_of
from ops.wheels.platforms import WheelName

FOLDER = "simple"
METADATA_SUFFIX = ".metadata"
_PAGE = """<!DOCTYPE html>
<html>
<head><meta name="pypi:repository-version" content="1.1"><title>{title}</title></head>
<body>
{links}
</body>
</html>
"""


def write_index(mirror: Path) -> int:
    """Write the index of all wheels of a mirror anew; returns the number of projects."""
    shutil.rmtree(mirror / FOLDER, ignore_errors=True)
    for stale in mirror.glob(f"*{METADATA_SUFFIX}"):
        stale.unlink()
    for path, content in index_files(mirror).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(list((mirror / FOLDER).iterdir())) - 2


def index_files(mirror: Path) -> dict[Path, bytes]:
    """Return what the index of these wheels consists of; the same wheels give the same bytes."""
    files: dict[Path, bytes] = {}
    projects: dict[str, list[dict[str, object]]] = {}
    for wheel in sorted(mirror.glob("*.whl")):
        metadata = wheel.with_name(wheel.name + METADATA_SUFFIX)
        files[metadata] = metadata_of(wheel)
        entry = _entry(wheel, files[metadata])
        projects.setdefault(WheelName.parse(wheel.name).project, []).append(entry)
    simple = mirror / FOLDER
    for project, entries in sorted(projects.items()):
        files[simple / project / "index.html"] = _page(f"Links for {project}", (_link(entry) for entry in entries))
        versions = sorted({WheelName.parse(str(entry["filename"])).version for entry in entries})
        files[simple / project / "index.json"] = _json({"name": project, "versions": versions, "files": entries})
    files[simple / "index.html"] = _page("Simple index", (f'<a href="{name}/">{name}</a>' for name in sorted(projects)))
    files[simple / "index.json"] = _json({"projects": [{"name": name} for name in sorted(projects)]})
    return files


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
    return f"<a {attributes}>{entry['filename']}</a><br>"


def _page(title: str, links: Iterable[str]) -> bytes:
    return _PAGE.format(title=title, links="\n".join(links)).encode()


def _json(content: dict[str, object]) -> bytes:
    return (json.dumps({"meta": {"api-version": "1.1"}, **content}, indent=1, sort_keys=True) + "\n").encode()
