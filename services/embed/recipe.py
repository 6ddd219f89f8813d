"""What turns a text into the tokens that a model expects, and what its output means."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum

from services.core.errors import DataLoss
from services.embed.documents import MALFORMED, number, parse_document

RECIPE_FORMAT = 1


class Pooling(StrEnum):
    """How token vectors become one text vector."""

    MEAN = "mean"
    CLS = "cls"
    LAST_TOKEN = "last_token"


class EngineKind(StrEnum):
    """What runs the model: OpenVINO on a graph of its own, or sentence-transformers with torch."""

    OPENVINO = "openvino"
    SENTENCE_TRANSFORMERS = "sentence_transformers"


class Quantization(StrEnum):
    """The arithmetic of the stored graph: int8 throughout, int8 weights alone, or float32."""

    QINT8 = "qint8"
    INT8 = "int8"
    FLOAT32 = "float32"


class Purpose(StrEnum):
    """What a text is embedded for; asymmetric models prefix each differently."""

    QUERY = "query"
    PASSAGE = "passage"


@dataclass(frozen=True, slots=True)
class Prompts:
    """The text put in front of a query or of a passage; empty for symmetric models."""

    query: str = ""
    passage: str = ""

    def of(self, purpose: Purpose) -> str:
        return self.query if purpose is Purpose.QUERY else self.passage


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything besides weights and tokenizer that determines a vector.

    ``max_length_tokens`` counts the special tokens too. ``lower_case`` asks to lower-case before the tokenizer does
    its own normalisation. ``full_dimensions`` is what the model gives before its vectors are cut to ``dimensions``
    (Kusupati et al. 2022, Matryoshka), 0 when they are not; ``matryoshka_dimensions`` are those it was trained for.
    """

    architecture: str
    dimensions: int
    max_length_tokens: int
    pooling: Pooling
    normalize: bool
    quantization: Quantization
    pad_token_id: int = 0
    lower_case: bool = False
    prompts: Prompts = field(default_factory=Prompts)
    engine: EngineKind = EngineKind.OPENVINO
    full_dimensions: int = 0
    matryoshka_dimensions: tuple[int, ...] = ()

    def identity(self) -> dict[str, object]:
        """Return what determines a vector; a setting at its default is left out, so that a new one changes nothing."""
        identity: dict[str, object] = {
            "architecture": self.architecture,
            "dimensions": self.dimensions,
            "max_length_tokens": self.max_length_tokens,
            "pooling": self.pooling.value,
            "normalize": self.normalize,
            "quantization": self.quantization.value,
        }
        if self.pad_token_id != 0:
            identity["pad_token_id"] = self.pad_token_id
        if self.lower_case:
            identity["lower_case"] = True
        prompts = {
            key: text for key, text in (("query", self.prompts.query), ("passage", self.prompts.passage)) if text
        }
        if prompts:
            identity["prompts"] = prompts
        if self.engine is not EngineKind.OPENVINO:
            identity["engine"] = self.engine.value
        if self.full_dimensions:
            identity["full_dimensions"] = self.full_dimensions
        return identity

    def to_json(self) -> str:
        """Serialise with every setting written out, sorted, so that equal recipes are equal bytes."""
        document = {
            **self.identity(),
            "format": RECIPE_FORMAT,
            "pad_token_id": self.pad_token_id,
            "lower_case": self.lower_case,
            "prompts": {"query": self.prompts.query, "passage": self.prompts.passage},
            "engine": self.engine.value,
            "full_dimensions": self.full_dimensions,
            "matryoshka_dimensions": self.matryoshka_dimensions,
        }
        return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, data: bytes) -> Recipe:
        """Read a recipe; raise ``DataLoss`` when it is malformed or of a later format."""
        try:
            document = parse_document(data)
            if document["format"] != RECIPE_FORMAT:
                raise DataLoss(
                    f"The recipe has format {document['format']}, this release reads {RECIPE_FORMAT}.",
                    remedy="Prepare the model again with this release.",
                )
            return cls(
                architecture=str(document["architecture"]),
                dimensions=number(document["dimensions"], 1),
                max_length_tokens=number(document["max_length_tokens"], 1),
                pooling=Pooling(document["pooling"]),
                normalize=bool(document["normalize"]),
                quantization=Quantization(document["quantization"]),
                pad_token_id=number(document["pad_token_id"]),
                lower_case=bool(document["lower_case"]),
                prompts=Prompts(query=str(document["prompts"]["query"]), passage=str(document["prompts"]["passage"])),
                # Recipes of the first release lack these.
                engine=EngineKind(document.get("engine", EngineKind.OPENVINO)),
                full_dimensions=number(document.get("full_dimensions", 0)),
                matryoshka_dimensions=tuple(number(one, 1) for one in document.get("matryoshka_dimensions", ())),
            )
        except MALFORMED as error:
            raise DataLoss(f"The recipe cannot be read: {error!r:.200}.", remedy="Prepare the model again.") from error
