"""What the embed service says to each bad model directory, and how long it takes to say it.

    python ops/bench/embed_refusals.py [--model DIRECTORY]

Each case is a copy of a good model with one thing wrong. The service is started once over all of them; each is then
named in an Embed call, as a client would, and the answer and its time are printed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import grpc
from undercroft.client import explain
from undercroft.embed.v1 import embed_service_pb2, embed_service_pb2_grpc

from ops.bench.embed_service import ROOT, running_service
from services.embed.manifest import Manifest, describe_file, model_digest
from services.embed.recipe import Recipe

MODEL = ROOT / ".cache" / "models" / "all-minilm-l6-v2"


def flip(directory: Path, name: str) -> None:
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / name).write_bytes(content)


def edit(directory: Path, name: str, **changes: object) -> None:
    path = directory / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def reseal(directory: Path) -> None:
    """Make the manifest agree with the files again, as a forger would."""
    path = directory / "manifest.json"
    manifest = Manifest.from_json(path.read_bytes())
    files = {name: describe_file(directory / name) for name in manifest.files}
    try:
        digest = model_digest(Recipe.from_json((directory / "recipe.json").read_bytes()), manifest.graph, files)
    except Exception:
        digest = manifest.digest
    path.write_text(replace(manifest, files=files, digest=digest).to_json())


def forged(name: str, **changes: object) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        edit(directory, name, **changes)
        reseal(directory)

    return change


CASES: dict[str, Callable[[Path], None]] = {
    "missing-weights": lambda folder: next(folder.glob("*.bin")).unlink(),
    "missing-tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "missing-recipe": lambda folder: (folder / "recipe.json").unlink(),
    "not-prepared": lambda folder: (folder / "manifest.json").unlink(),
    "bit-flipped-weights": lambda folder: flip(folder, next(folder.glob("*.bin")).name),
    "truncated-weights": lambda folder: (weights := next(folder.glob("*.bin"))).write_bytes(weights.read_bytes()[:-1]),
    "damaged-tokenizer": lambda folder: flip(folder, "tokenizer.json"),
    "wrong-dimension": forged("recipe.json", dimensions=256),
    "unknown-pooling": forged("recipe.json", pooling="attention"),
    "edited-recipe": lambda folder: edit(folder, "recipe.json", normalize=False),
    "remote-code": lambda folder: (folder / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.Own"}}'),
    "own-script": lambda folder: (folder / "modeling_own.py").write_text("import os\n"),
    "adapter": lambda folder: (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}'),
    "broken-manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "second-engine": forged("recipe.json", engine="sentence_transformers"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, help="a good prepared model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        models = Path(scratch)
        shutil.copytree(arguments.model, models / "good")
        for name, damage in CASES.items():
            damage(Path(shutil.copytree(arguments.model, models / name)))
        with running_service(models / "good") as service:
            stub = embed_service_pb2_grpc.EmbedServiceStub(grpc.insecure_channel(service.target))
            stub.Embed(service.request(["warm"]))
            for name in (*CASES, "org/model-on-a-hub", "/etc", "absent"):
                started = time.perf_counter()
                try:
                    stub.Embed(embed_service_pb2.EmbedRequest(model=name, texts=["x"]))
                    sys.exit(f"{name} was served")
                except grpc.RpcError as error:
                    told = explain(error)
                elapsed_ms = (time.perf_counter() - started) * 1000
                print(
                    f"{name:<20} {elapsed_ms:6.0f} ms  {told.code} {told.reason}: {told.message.replace(scratch, '…')}"
                )


if __name__ == "__main__":
    main()
