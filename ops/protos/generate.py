"""Make the stubs under ``proto/undercroft`` from the .proto files beside them.

Usage: ``python ops/protos/generate.py [--check]``. With ``--check`` nothing is written, and a stub that differs from
what would be generated is named and fails the run. Also lays Google's protos out under ``.cache/googleapis`` for buf.
"""

from __future__ import annotations

import argparse
import filecmp
import shutil
import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "proto"
BIN = Path(sys.executable).parent
GOOGLEAPIS = ROOT / ".cache" / "googleapis"
GOOGLE = Path(str(resources.files("google.rpc").joinpath("status.proto"))).parents[1]
STUB_PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def lay_out_googleapis(destination: Path) -> None:
    """Copy the protos of the googleapis-common-protos wheel, ``operations.proto`` under its right name.

    The wheel names the file ``operations_proto.proto`` while its descriptor says ``operations.proto``.
    """
    for area in ("api", "longrunning", "rpc"):
        folder = GOOGLE / area
        target = destination / "google" / area
        target.mkdir(parents=True, exist_ok=True)
        for proto in sorted(folder.glob("*.proto")):
            name = "operations.proto" if proto.name == "operations_proto.proto" else proto.name
            shutil.copyfile(proto, target / name)


def generate(out: Path) -> None:
    """Write all stubs below ``out``."""
    wheel_protos = str(resources.files("grpc_tools") / "_proto")
    files = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"-I{PROTOS}",
            f"-I{GOOGLEAPIS}",
            f"-I{wheel_protos}",
            # Of this environment, whatever PATH says.
            *(f"--plugin={BIN / plugin}" for plugin in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")),
            f"--python_out={out}",
            f"--mypy_out=quiet:{out}",
            f"--grpc_python_out={out}",
            f"--mypy_grpc_out=quiet:{out}",
            *files,
        ]
    )
    if status:
        sys.exit(status)
    for stub in sorted(out.rglob("*_pb2_grpc.py")):
        if "\nclass " not in stub.read_text():
            # Files without a service get an empty module from the plugin.
            stub.unlink()
            stub.with_suffix(".pyi").unlink(missing_ok=True)


def stubs(folder: Path) -> list[Path]:
    """List the stubs below ``folder``."""
    return sorted(path for pattern in STUB_PATTERNS for path in folder.rglob(pattern))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a stub differs from its .proto")
    check = parser.parse_args().check
    lay_out_googleapis(GOOGLEAPIS)
    with tempfile.TemporaryDirectory() as made:
        out = Path(made)
        generate(out)
        fresh = {path.relative_to(out) for path in stubs(out)}
        present = {path.relative_to(PROTOS) for path in stubs(PROTOS)}
        drifted = sorted(
            str(path)
            for path in fresh | present
            if path not in fresh or path not in present or not filecmp.cmp(out / path, PROTOS / path, shallow=False)
        )
        if check:
            if drifted:
                sys.exit("stubs differ from their .proto, run `make protos`: " + ", ".join(drifted))
            return
        for path in present - fresh:
            (PROTOS / path).unlink()
        for path in fresh:
            shutil.copyfile(out / path, PROTOS / path)


if __name__ == "__main__":
    main()
