"""Texts to token ids, by the model's own tokenizer and under the recipe's limits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from services.core.budget import MIN_BUDGET_TOKENS
from services.core.errors import DataLoss, InvalidArgument
from services.embed.directory import read_text
from services.embed.manifest import TOKENIZER_NAME
from services.embed.recipe import Purpose, Recipe

TokenIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as the model reads it.

    ``count`` is its length before truncation, special tokens and prompt included; ``ids`` is never longer than the
    recipe allows.
    """

    ids: TokenIds
    count: int

    @property
    def is_truncated(self) -> bool:
        return self.count > len(self.ids)


class TextTokenizer:
    """Tokenizes under a recipe. Safe to use from several threads; releases the GIL while it works.

    ``content`` is the tokenizer.json of a ``directory`` that has none yet.
    """

    def __init__(self, directory: Path, recipe: Recipe, *, content: bytes | None = None) -> None:
        path = directory / TOKENIZER_NAME
        try:
            document = json.loads(read_text(path) if content is None else content.decode("utf-8"))
            self._whole = _load(document)
            self._cut = _load(document)
        except Exception as error:  # tokenizers raises bare Exception
            raise DataLoss(f"{path} cannot be read: {error}.", remedy="Copy the model directory again.") from error
        self._cut.enable_truncation(recipe.max_length_tokens)
        self._recipe = recipe
        self._unknown_id = _unknown_id(document, self._whole)

    def tokenize(self, texts: Sequence[str], purpose: Purpose) -> list[Tokens]:
        """Tokenize texts, with the prompt of their purpose put in front."""
        prompt = self._recipe.prompts.of(purpose)
        inputs = [prompt + text for text in texts] if prompt else list(texts)
        if self._recipe.lower_case:
            inputs = [text.lower() for text in inputs]
        limit = self._recipe.max_length_tokens
        tokens: list[Tokens] = []
        for text, encoding in zip(inputs, self._whole.encode_batch_fast(inputs), strict=True):
            ids = encoding.ids
            count = len(ids)
            # The tokenizer itself cuts, since it knows which special tokens stay at the end.
            kept = ids if count <= limit else self._cut.encode_batch_fast([text])[0].ids
            tokens.append(Tokens(ids=np.array(kept, dtype=np.int64), count=count))
        return tokens

    def require_room(self) -> None:
        """Raise ``InvalidArgument`` unless the recipe leaves room for a text, and no text can have zero tokens."""
        for purpose in Purpose:
            used = len(self._whole.encode(self._recipe.prompts.of(purpose)).ids)
            if used == 0:
                raise InvalidArgument(
                    "The tokenizer adds no special tokens, so that an empty text has no tokens and no vector.",
                    remedy="Choose a model whose tokenizer.json has a post_processor that adds them.",
                    reason="MODEL_TOKENIZER_UNSUPPORTED",
                )
            room = self._recipe.max_length_tokens - used
            if room < MIN_BUDGET_TOKENS:
                shorter = f", or a shorter --{purpose.value}-prompt" if self._recipe.prompts.of(purpose) else ""
                raise InvalidArgument(
                    f"The model reads {self._recipe.max_length_tokens} tokens, of which prompt and special tokens of a"
                    f" {purpose.value} take {used}: {max(room, 0)} are left, {MIN_BUDGET_TOKENS} are needed.",
                    remedy=f"Prepare it with a longer --max-length{shorter}.",
                    reason="MODEL_TOO_SHORT",
                )

    def highest_id(self) -> int:
        """Return the highest token id that a text can be given."""
        return max([*self._whole.get_vocab(with_added_tokens=True).values(), *self._whole.encode("").ids])

    def count_unknown(self, tokens: Tokens) -> int:
        """Count the tokens that stand for text outside of the vocabulary."""
        return 0 if self._unknown_id is None else int((tokens.ids == self._unknown_id).sum())


def _load(document: dict[str, object]) -> Tokenizer:
    # The file may carry padding and truncation to 128 tokens; the recipe alone decides both.
    return Tokenizer.from_str(json.dumps({**document, "padding": None, "truncation": None}))


def _unknown_id(document: dict[str, object], tokenizer: Tokenizer) -> int | None:
    model = document.get("model")
    if not isinstance(model, dict):
        return None
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    unknown = model.get("unk_token")
    return tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None
