"""What a preparation may be told beyond what the source's files say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from services.core.errors import InvalidArgument
from services.embed.directory import read_bytes
from services.embed.documents import decode_json
from services.embed.manifest import digest_of
from services.embed.preparation import texts as built_in
from services.embed.recipe import EngineKind, Prompts, Quantization

SECOND_ENGINE = "`undercroft models prepare --engine sentence-transformers`"

_FEWEST_TEXTS = 32
_MOST_TEXTS = 300
_MOST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Calibration:
    """Texts whose activations set the ranges of int8; ``digest`` is that of what they were read from."""

    texts: tuple[str, ...]
    digest: str

    @classmethod
    def built_in(cls) -> Calibration:
        """Return the texts that come with this release: code and prose."""
        content = built_in.read_bytes(built_in.CALIBRATION).decode("utf-8")
        return cls(tuple(built_in.read_texts(built_in.CALIBRATION)), digest_of({"texts": content}))

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read texts of one's own: JSON lines with a ``text`` each, or one text a line.

        Of many, every n-th is taken, the same ones each time. Raises ``InvalidArgument`` when there are too few.
        """
        try:
            content = read_bytes(path, most_bytes=_MOST_BYTES)
            # Not by splitlines: a text may hold separators that JSON does not escape, U+2028 among them.
            lines = content.decode("utf-8").replace("\r\n", "\n").split("\n")
            texts = list(dict.fromkeys(filter(str.strip, map(_text_of, filter(str.strip, lines)))))
        except (OSError, UnicodeError) as error:
            raise InvalidArgument(
                f"{path} cannot be read as calibration texts: {error}.", remedy="Give a file in UTF-8, a text a line."
            ) from error
        if len(texts) < _FEWEST_TEXTS:
            raise InvalidArgument(
                f"{path} has {len(texts)} different texts, calibration needs {_FEWEST_TEXTS} or more.",
                remedy="Give some hundreds of typical texts: what you index, as long as its chunks are.",
            )
        step = -(-len(texts) // _MOST_TEXTS)
        return cls(tuple(texts[::step]), hashlib.sha256(content).hexdigest())


def _text_of(line: str) -> str:
    if line.lstrip().startswith("{"):
        try:
            document = decode_json(line)
        except UnicodeError:
            raise
        except ValueError:
            return line
        if isinstance(document, dict) and isinstance(document.get("text"), str):
            return str(document["text"])
    return line


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a preparation. None takes what the source says.

    Prompts are for models whose card names some that their files do not. ``dimensions`` cuts the vectors of a model
    that was trained for that (Matryoshka).
    """

    quantization: Quantization = Quantization.QINT8
    query_prompt: str | None = None
    passage_prompt: str | None = None
    max_length_tokens: int | None = None
    dimensions: int | None = None
    calibration: Calibration | None = None
    engine: EngineKind = EngineKind.OPENVINO

    def __post_init__(self) -> None:
        if self.engine is EngineKind.SENTENCE_TRANSFORMERS and self.quantization is not Quantization.FLOAT32:
            raise InvalidArgument("The second engine runs models as they are.", remedy="Choose float32.")
        if self.calibration is not None and self.quantization is not Quantization.QINT8:
            raise InvalidArgument(
                f"Calibration texts are of no use for {self.quantization}.", remedy="Choose qint8, or leave them out."
            )

    def prompts_over(self, source: Prompts) -> Prompts:
        """Return the prompts that count, given those of the source."""
        return Prompts(
            query=source.query if self.query_prompt is None else self.query_prompt,
            passage=source.passage if self.passage_prompt is None else self.passage_prompt,
        )


def chosen_dimensions(wanted: int | None, full: int, trained_for: tuple[int, ...]) -> int:
    """Return the dimensions that vectors are cut to, ``full`` when they are not; raise ``InvalidArgument``."""
    if wanted is None or wanted == full:
        return full
    if not 0 < wanted < full or wanted % 8:
        raise InvalidArgument(
            f"Vectors can't be cut to {wanted} dimensions.",
            remedy=f"Choose a multiple of 8 below {full}: the index packs dimensions by eight.",
            reason="DIMENSIONS_NOT_POSSIBLE",
        )
    if trained_for and wanted not in trained_for:
        raise InvalidArgument(
            f"The model was not trained for {wanted} dimensions.",
            remedy=f"Choose one of {', '.join(map(str, trained_for))}.",
            reason="DIMENSIONS_NOT_POSSIBLE",
        )
    return wanted
