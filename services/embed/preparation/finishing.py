"""The last step of a preparation: what the finished graph computes is written down beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from services.core.errors import UndercroftError
from services.embed.engine import Engine
from services.embed.manifest import (
    MANIFEST_NAME,
    RECIPE_NAME,
    Fidelity,
    Manifest,
    Probe,
    describe_file,
    digest_of,
    model_digest,
)
from services.embed.processor import describe_processor
from services.embed.recipe import Purpose

# Probes stay within the vocabulary of any English model: an unknown token in them means a foreign tokenizer.
_PROBES: Sequence[tuple[str, Purpose]] = (
    ("open a file and read it line by line", Purpose.QUERY),
    ("why are writes ordered before the commit", Purpose.QUERY),
    ("def add(a, b):\n    return a + b", Purpose.PASSAGE),
    ("The worker takes the oldest job first and gives it back when its time is over.", Purpose.PASSAGE),
    ("class Stack:\n    def push(self, item):\n        self.items.append(item)\n" * 4, Purpose.PASSAGE),
    ("A queue that is full refuses new work, so that the sender can slow down or go away. " * 8, Purpose.PASSAGE),
)


def finish(directory: Path, graph: str, engine: Engine, fidelity: Fidelity, inputs: Mapping[str, str]) -> Manifest:
    """Write recipe and manifest into ``directory``, which holds everything else that the model has.

    ``engine`` has read ``graph``, the stem of the graph's files, from there; it is empty for the second engine.
    ``inputs`` names everything that the result depends on. Raises ``UndercroftError`` when the graph gives no finite
    vectors.
    """
    (directory / RECIPE_NAME).write_text(engine.recipe.to_json(), encoding="utf-8")
    files = {
        path.relative_to(directory).as_posix(): describe_file(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    manifest = Manifest(
        digest=model_digest(engine.recipe, graph, files),
        graph=graph,
        files=files,
        probes=tuple(_probe(engine, text, purpose) for text, purpose in _PROBES),
        fidelity=fidelity,
        inputs=inputs,
        inputs_digest=digest_of(inputs),
        processor=describe_processor(),
    )
    (directory / MANIFEST_NAME).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _probe(engine: Engine, text: str, purpose: Purpose) -> Probe:
    embedded = engine.embed([text], purpose)
    vector = embedded.vectors[0]
    if not np.isfinite(vector).all():
        raise UndercroftError(
            f"The prepared model gives no finite vector for {text[:40]!r}.",
            remedy="Check that the weights are whole; then report this with the model's name.",
        )
    return Probe(text=text, purpose=purpose, vector=vector)
