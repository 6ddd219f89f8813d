"""The OCI image layout of one image: written so that its digest depends on what is in it alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

_LABELS = "org.opencontainers.image."
_OF_BASE = f"{_LABELS}base."


def make_canonical(layout: Path) -> str:
    """Leave out of an image what tells of the build and not of the image; returns the digest.

    A builder's history names the images of each step, and these depend on what its cache has from other builds; so do
    annotations about the base. Layers, and what a container is started with, stay as they are.
    """
    index = json.loads((layout / "index.json").read_text("utf-8"))
    (entry,) = index["manifests"]
    manifest = json.loads(_take(layout, entry["digest"]))
    config = json.loads(_take(layout, manifest["config"]["digest"]))
    config.pop("history", None)
    manifest["config"] |= _put(layout, config)
    annotations = manifest.get("annotations", {})
    kept = {name: value for name, value in annotations.items() if _is_ours(name)}
    manifest["annotations"] = kept
    entry |= _put(layout, manifest)
    (layout / "index.json").write_text(json.dumps(index, sort_keys=True), "utf-8")
    return str(entry["digest"])


def _is_ours(name: str) -> bool:
    return name.startswith(_LABELS) and not name.startswith(_OF_BASE)


def _take(layout: Path, digest: str) -> bytes:
    path = layout / "blobs" / digest.replace(":", "/")
    content = path.read_bytes()
    path.unlink()
    return content


def _put(layout: Path, value: object) -> dict[str, object]:
    content = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}
