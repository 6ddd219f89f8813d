"""The manifest of a model directory: what each file must be, what the model computes, how good it is.

``manifest.json`` holds no times and no paths, so preparing the same source twice writes the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from services.core.errors import DataLoss
from services.embed.directory import open_regular
from services.embed.documents import MALFORMED, number, parse_document
from services.embed.recipe import EngineKind, Purpose, Recipe

Float32Array = npt.NDArray[np.float32]

MANIFEST_FORMAT = 1
IDENTITY_FORMAT = 1

MANIFEST_NAME = "manifest.json"
RECIPE_NAME = "recipe.json"
TOKENIZER_NAME = "tokenizer.json"
# Of the files of a sentence-transformers directory, those that the library reads.
LIBRARY_SUFFIXES = (".json", ".safetensors", ".txt", ".model")

_BLOCK_BYTES = 1 << 20
_MAX_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a file of the directory must be."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Probe:
    """A text and the vector that the preparing machine gave it."""

    text: str
    purpose: Purpose
    vector: Float32Array


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How near the stored graph comes to the float32 one, over held-out texts of the project.

    ``top10_overlap`` is the share of each text's ten nearest neighbours that both graphs agree on.
    """

    texts: int
    mean_cosine: float
    min_cosine: float
    top10_overlap: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that a model directory says about itself, besides its recipe.

    ``digest`` is the identity of the model: hex SHA-256 over all that determines a vector. ``inputs`` names what it
    was prepared from (digests and versions), ``inputs_digest`` is one hash over that, and ``graph`` is the file stem
    of the OpenVINO graph, empty for a model of the second engine.
    """

    digest: str
    graph: str
    files: Mapping[str, ModelFile]
    probes: tuple[Probe, ...]
    fidelity: Fidelity
    inputs: Mapping[str, str]
    inputs_digest: str
    processor: str

    def to_json(self) -> str:
        """Serialise in a fixed order."""
        document = {
            "format": MANIFEST_FORMAT,
            "digest": self.digest,
            "graph": self.graph,
            "files": {
                name: {"size_bytes": file.size_bytes, "sha256": file.sha256} for name, file in self.files.items()
            },
            "probes": [
                {
                    "text": probe.text,
                    "purpose": probe.purpose.value,
                    "vector_float32_le_base64": base64.b64encode(probe.vector.astype("<f4").tobytes()).decode(),
                }
                for probe in self.probes
            ],
            "fidelity": {
                "texts": self.fidelity.texts,
                "mean_cosine": self.fidelity.mean_cosine,
                "min_cosine": self.fidelity.min_cosine,
                "top10_overlap": self.fidelity.top10_overlap,
            },
            "inputs": dict(self.inputs),
            "inputs_digest": self.inputs_digest,
            "processor": self.processor,
        }
        return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Read a manifest; raise ``DataLoss`` when it is malformed or of a later format."""
        try:
            document = parse_document(data)
            if document["format"] != MANIFEST_FORMAT:
                raise DataLoss(
                    f"The model's manifest has format {document['format']}, this release reads {MANIFEST_FORMAT}.",
                    remedy="Prepare the model again with this release.",
                )
            return cls(
                digest=str(document["digest"]),
                graph=_stem(document["graph"]),
                files={
                    _file_name(name): ModelFile(size_bytes=int(file["size_bytes"]), sha256=str(file["sha256"]))
                    for name, file in document["files"].items()
                },
                probes=tuple(_read_probe(probe) for probe in document["probes"]),
                fidelity=Fidelity(
                    texts=number(document["fidelity"]["texts"]),
                    mean_cosine=float(document["fidelity"]["mean_cosine"]),
                    min_cosine=float(document["fidelity"]["min_cosine"]),
                    top10_overlap=float(document["fidelity"]["top10_overlap"]),
                ),
                inputs={str(key): str(value) for key, value in document["inputs"].items()},
                inputs_digest=str(document["inputs_digest"]),
                processor=str(document["processor"]),
            )
        except MALFORMED as error:
            raise DataLoss(
                f"The model's {MANIFEST_NAME} cannot be read: {error!r:.200}.",
                remedy="Prepare or copy the model again.",
            ) from error


def model_digest(recipe: Recipe, graph: str, files: Mapping[str, ModelFile]) -> str:
    """Return the model's identity: hex SHA-256 over graph, weights, tokenizer and recipe.

    A model of the second engine has no graph: all files that the library reads count.
    """
    if recipe.engine is EngineKind.SENTENCE_TRANSFORMERS:
        read = {name: file.sha256 for name, file in files.items() if Path(name).suffix in LIBRARY_SUFFIXES}
        return digest_of({"format": IDENTITY_FORMAT, "files": read, "recipe": recipe.identity()})
    identity = {
        "format": IDENTITY_FORMAT,
        "graph": files[f"{graph}.xml"].sha256,
        "weights": files[f"{graph}.bin"].sha256,
        "tokenizer": files[TOKENIZER_NAME].sha256,
        "recipe": recipe.identity(),
    }
    return digest_of(identity)


def digest_of(document: Mapping[str, object]) -> str:
    """Return the hex SHA-256 of a document's canonical JSON."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8")).hexdigest()


def describe_file(path: Path) -> ModelFile:
    """Measure a file: its size and hex SHA-256."""
    digest, size_bytes = hashlib.sha256(), 0
    with open_regular(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
            size_bytes += len(block)
    return ModelFile(size_bytes=size_bytes, sha256=digest.hexdigest())


def _stem(name: object) -> str:
    if not isinstance(name, str) or "/" in name:
        raise ValueError(f"{name!r} is no file stem")
    return _file_name(name) if name else ""


def _file_name(name: object) -> str:
    """Refuse names that lead out of the directory: a manifest may come from anywhere."""
    parts = name.split("/") if isinstance(name, str) else [""]
    plain = all(part and "\\" not in part and "\0" not in part and not part.startswith(".") for part in parts)
    if not plain or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        raise ValueError(f"{str(name)[:80]!r} is no plain file name")
    return "/".join(parts)


def _read_probe(document: Mapping[str, object]) -> Probe:
    packed = base64.b64decode(str(document["vector_float32_le_base64"]), validate=True)
    return Probe(
        text=str(document["text"]),
        purpose=Purpose(str(document["purpose"])),
        vector=np.frombuffer(packed, dtype="<f4").astype(np.float32),
    )
