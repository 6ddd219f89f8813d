"""Use cases of the embed service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import structlog

from services.core.errors import InvalidArgument, NotReady, Unavailable
from services.embed import metrics
from services.embed.backends import Float32Array
from services.embed.backends.openvino import describe_device, describe_engine
from services.embed.engine import Engine
from services.embed.recipe import Purpose
from services.embed.registry import LoadedModel, ModelState, Registry
from services.embed.settings import EmbedSettings
from services.embed.tokenization import Tokens
from services.embed.verify import ProbeResult

log = structlog.get_logger(__name__)

# What an answer carries besides its vectors: counts, indexes, headers.
_ANSWER_MARGIN_BYTES = 64 * 1024

# Texts tokenized on another thread at a time: about a tenth of a second.
_SLICE_CHARS = 200_000
# Less than this takes no longer than handing it to another thread would.
_QUICK_CHARS = 500


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors (float32, texts x dimensions) in the order of the texts, and what happened to the texts.

    ``token_counts`` are taken before truncation; ``truncated`` holds the indexes of the texts that were cut.
    """

    vectors: Float32Array
    model_digest: str
    probe: ProbeResult
    token_counts: tuple[int, ...]
    truncated: tuple[int, ...]
    queue_s: float
    tokenize_s: float
    infer_s: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts of texts, and the most that the model reads."""

    token_counts: tuple[int, ...]
    max_length_tokens: int


@dataclass(frozen=True, slots=True)
class Info:
    """Models, limits and processor."""

    models: tuple[ModelState, ...]
    max_texts: int
    max_text_chars: int
    max_request_bytes: int
    queue_capacity: int
    queue_length: int
    threads: int
    engine: str
    processor: str


class EmbedService:
    """Embeds texts by side-loaded models. Stateless besides the models in memory."""

    def __init__(self, registry: Registry, settings: EmbedSettings) -> None:
        self._registry = registry
        self._settings = settings
        self._engine = describe_engine()
        self._processor = describe_device()

    async def preload(self) -> None:
        """Load the models that the settings name; one that cannot be loaded is logged, the others are served."""
        try:
            known = self._registry.names()
        except NotReady:
            # Logged there, and told to everyone who asks.
            known = []
        for name in self._settings.preloaded(known):
            try:
                await self._model(name, None)
            except Exception as error:
                log.error("model not preloaded", model=name, cause=str(error) or type(error).__name__)

    async def embed(
        self,
        model: str,
        texts: Sequence[str],
        purpose: Purpose,
        *,
        expected_digest: str = "",
        timeout_s: float | None = None,
    ) -> Vectors:
        """Embed texts.

        ``timeout_s`` is the time that the caller still waits. Raises ``InvalidArgument`` above the limits, ``NotFound``
        and ``NotReady`` for a model that is missing or refused, ``Overloaded`` when the queue is full.
        """
        started = time.monotonic()
        self._check_texts(texts)
        loaded = await self._model(model, timeout_s)
        if expected_digest and expected_digest != loaded.digest:
            raise NotReady(
                f"The model {loaded.name} has digest {loaded.digest[:12]}…, not {expected_digest[:12]}….",
                remedy="Index again with this model, or load the one that the index was made with.",
                reason="MODEL_CHANGED",
                metadata={"model": loaded.name, "digest": loaded.digest},
            )
        self._check_answer(len(texts), loaded.recipe.dimensions)
        tokenizing = time.monotonic()
        tokens = await self._tokenize(loaded.verified.engine, texts, purpose)
        empty = next((index for index, item in enumerate(tokens) if not len(item.ids)), None)
        if empty is not None:
            raise InvalidArgument(
                f"The text at {empty} has nothing that the model {loaded.name} reads.",
                remedy="Leave it out: a vector of it would mean nothing.",
                reason="TEXT_HAS_NO_TOKENS",
                metadata={"index": str(empty)},
            )
        tokenized = time.monotonic()
        left_s = None if timeout_s is None else timeout_s - (tokenized - started)
        answer = await loaded.batcher.embed(tokens, purpose, timeout_s=left_s)
        truncated = tuple(index for index, item in enumerate(tokens) if item.is_truncated)
        self._record(loaded.name, purpose, tokens, truncated)
        return Vectors(
            vectors=answer.vectors,
            model_digest=loaded.digest,
            probe=loaded.verified.probe,
            token_counts=tuple(item.count for item in tokens),
            truncated=truncated,
            queue_s=answer.queue_s,
            tokenize_s=tokenized - tokenizing,
            infer_s=answer.infer_s,
        )

    async def count_tokens(self, model: str, texts: Sequence[str], purpose: Purpose) -> Counts:
        """Count the tokens of texts as the model reads them."""
        self._check_texts(texts)
        loaded = await self._model(model, None)
        tokens = await self._tokenize(loaded.verified.engine, texts, purpose)
        return Counts(
            token_counts=tuple(item.count for item in tokens), max_length_tokens=loaded.recipe.max_length_tokens
        )

    async def info(self) -> Info:
        """Tell models, limits and processor."""
        models = await self._registry.describe_all()
        return Info(
            models=models,
            max_texts=self._settings.max_texts,
            max_text_chars=self._settings.max_text_chars,
            max_request_bytes=self._settings.max_message_bytes,
            queue_capacity=self._settings.queue_capacity,
            queue_length=self._registry.queue_length,
            threads=self._registry.threads,
            engine=self._engine,
            processor=self._processor,
        )

    async def get_model(self, name: str) -> ModelState:
        """Tell what is known about a model."""
        return await self._registry.describe(name)

    async def verify_model(self, name: str) -> ModelState:
        """Check a model directory from its files on."""
        return await self._registry.check(name)

    async def load_model(self, name: str) -> ModelState:
        """Bring a model into memory."""
        loaded = await self._registry.get(name)
        return await self._registry.describe(loaded.name)

    async def unload_model(self, name: str) -> None:
        """Take a model out of memory."""
        await self._registry.unload(name)

    async def close(self) -> None:
        """Take every model out of memory."""
        await self._registry.close()

    async def _model(self, name: str, timeout_s: float | None) -> LoadedModel:
        if (ready := self._registry.ready(name)) is not None:
            return ready
        limit_s = self._settings.load_timeout_s
        wait_s = limit_s if timeout_s is None else min(timeout_s, limit_s)
        try:
            # Shielded: who gives up must not stop the load that others wait for.
            return await asyncio.wait_for(asyncio.shield(self._registry.get(name)), wait_s)
        except TimeoutError as error:
            raise Unavailable(
                f"The model {name} is still loading.", remedy="Call again.", reason="MODEL_LOADING"
            ) from error

    def _check_texts(self, texts: Sequence[str]) -> None:
        if not texts:
            raise InvalidArgument("The request has no texts.", remedy="Send at least one.")
        if len(texts) > self._settings.max_texts:
            raise InvalidArgument(
                f"The request has {len(texts)} texts, {self._settings.max_texts} are allowed.",
                remedy="Send them in several requests; GetInfo states the limit.",
                reason="TOO_MANY_TEXTS",
                metadata={"max_texts": str(self._settings.max_texts)},
            )
        longest = max(map(len, texts))
        if longest > self._settings.max_text_chars:
            raise InvalidArgument(
                f"A text has {longest} characters, {self._settings.max_text_chars} are allowed.",
                remedy="Split it: no model reads more than its first part.",
                reason="TEXT_TOO_LONG",
                metadata={"max_text_chars": str(self._settings.max_text_chars)},
            )

    async def _tokenize(self, engine: Engine, texts: Sequence[str], purpose: Purpose) -> list[Tokens]:
        """Tokenize in slices, so that a caller who goes away stops the work and short texts need not wait for long."""
        if sum(map(len, texts)) <= _QUICK_CHARS:
            return engine.tokenize(texts, purpose)
        tokens: list[Tokens] = []
        for part in _slices(texts):
            tokens += await asyncio.to_thread(engine.tokenize, part, purpose)
        return tokens

    def _check_answer(self, texts: int, dimensions: int) -> None:
        fitting = (self._settings.max_message_bytes - _ANSWER_MARGIN_BYTES) // (4 * dimensions + 16)
        if texts > fitting:
            raise InvalidArgument(
                f"The vectors of {texts} texts do not fit into one answer; {fitting} do.",
                remedy="Send them in several requests.",
                reason="TOO_MANY_TEXTS",
                metadata={"max_texts": str(fitting)},
            )

    @staticmethod
    def _record(model: str, purpose: Purpose, tokens: Sequence[Tokens], truncated: Sequence[int]) -> None:
        metrics.TEXTS.labels(model, purpose.value).inc(len(tokens))
        metrics.TOKENS.labels(model, purpose.value).inc(sum(len(item.ids) for item in tokens))
        if truncated:
            metrics.TRUNCATED.labels(model).inc(len(truncated))
            log.info("texts truncated", model=model, texts=len(truncated), of=len(tokens))


def _slices(texts: Sequence[str]) -> Iterator[list[str]]:
    """Cut texts into runs of about ``_SLICE_CHARS`` characters."""
    part: list[str] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text)
        if size >= _SLICE_CHARS:
            yield part
            part, size = [], 0
    if part:
        yield part
