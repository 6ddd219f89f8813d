"""One model in memory: texts to vectors that depend on the text alone.

int8 results depend on the padded length, so a text always runs at the bucket of its own token count. They must not
depend on how many texts share a batch either: the int8 kernels add in whole numbers and do not, the float kernels of
some processors do. So the engine compares both when it starts, and runs texts one by one where they differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from services.embed.backends import Backend, Float32Array, Lane
from services.embed.recipe import Purpose, Recipe
from services.embed.shapes import Batch, batches, bucket_of, rows_of
from services.embed.tokenization import TextTokenizer, TokenIds, Tokens

# Large enough for kernels to differ where they do, small enough not to be felt at start.
_CHECKED_BUCKET = 48
_CHECKED_ROWS = 8


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors (float32, texts x dimensions) and the tokens they were made from, in the order of the texts."""

    vectors: Float32Array
    tokens: tuple[Tokens, ...]


class Engine:
    """A model that is ready to embed. Its methods are safe to call from several threads."""

    def __init__(self, backend: Backend, tokenizer: TextTokenizer, recipe: Recipe) -> None:
        self.recipe = recipe
        self.threads = backend.threads
        self._backend = backend
        self._tokenizer = tokenizer
        self.rows_are_independent = self._compare_rows()

    def tokenize(self, texts: Sequence[str], purpose: Purpose) -> list[Tokens]:
        """Tokenize texts as the model reads them."""
        return self._tokenizer.tokenize(texts, purpose)

    def bucket(self, tokens: Tokens) -> int:
        """Return the padded length at which a text always runs."""
        return bucket_of(len(tokens.ids), self.recipe.max_length_tokens)

    def most_rows(self, bucket: int) -> int:
        """Return how many texts of this padded length may share a batch."""
        return rows_of(bucket) if self.rows_are_independent else 1

    def infer(self, rows: Sequence[TokenIds], bucket: int, lane: Lane) -> Float32Array:
        """Run one batch whose rows all belong to ``bucket``; return float32, rows x dimensions."""
        ids = np.full((len(rows), bucket), self.recipe.pad_token_id, dtype=np.int64)
        mask = np.zeros((len(rows), bucket), dtype=np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        return self._backend.infer(ids, mask, lane)

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Embedded:
        """Embed texts in the calling thread. Services go through the batcher instead."""
        tokens = self.tokenize(texts, purpose)
        vectors = np.empty((len(tokens), self.recipe.dimensions), dtype=np.float32)
        for batch in self._batches(tokens):
            rows = [tokens[index].ids for index in batch.indexes]
            vectors[list(batch.indexes)] = self.infer(rows, batch.bucket, Lane.BULK)
        return Embedded(vectors=vectors, tokens=tuple(tokens))

    def count_unknown(self, tokens: Tokens) -> int:
        """Count the tokens of a text that are outside of the vocabulary."""
        return self._tokenizer.count_unknown(tokens)

    def _batches(self, tokens: Sequence[Tokens]) -> list[Batch]:
        most_rows = None if self.rows_are_independent else 1
        return batches([len(item.ids) for item in tokens], self.recipe.max_length_tokens, most_rows=most_rows)

    def _compare_rows(self) -> bool:
        """Tell whether a row's result is the same alone and among others, bit by bit, on this processor."""
        text = "def open_session(user, timeout_s=30): return Session(user.id, deadline=now() + timeout_s) " * 8
        ids = self.tokenize([text], Purpose.PASSAGE)[0].ids
        length = min(_CHECKED_BUCKET, len(ids), self.recipe.max_length_tokens)
        bucket = bucket_of(length, self.recipe.max_length_tokens)
        rows = [np.roll(ids, -shift)[: length - shift % 16] for shift in range(rows_of(bucket))]
        for width in (min(_CHECKED_ROWS, len(rows)), 2):
            together = self.infer(rows[:width], bucket, Lane.BULK)
            for number in {0, width - 1}:
                alone = self.infer([rows[number]], bucket, Lane.QUERY)[0]
                if not np.array_equal(alone, together[number]):
                    return False
        return True
