"""An image in the OCI image layout, of files that a test names."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path


def layout(
    folder: Path,
    layers: list[dict[str, bytes]],
    history: str = "",
    base: str = "",
    links: dict[str, str] | None = None,
) -> Path:
    """Write an image with one layer per dictionary of files into a folder; ``links`` are in every layer."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    described = []
    for files in layers:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
            for name, target in (links or {}).items():
                info = tarfile.TarInfo(name)
                info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)
        described.append(put(buffer.getvalue()))
    config = put(json.dumps({"config": {"User": "1"}, "history": [{"comment": history}]}).encode())
    annotations = {"org.opencontainers.image.title": "t", "org.opencontainers.image.base.digest": base}
    manifest = put(json.dumps({"config": config, "layers": described, "annotations": annotations}).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    return folder
