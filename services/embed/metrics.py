"""What the embed service counts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

TEXTS = Counter("undercroft_embed_texts_total", "Texts embedded.", ("model", "purpose"))
TOKENS = Counter("undercroft_embed_tokens_total", "Tokens embedded, padding left out.", ("model", "purpose"))
TRUNCATED = Counter("undercroft_embed_truncated_total", "Texts that were longer than the model reads.", ("model",))
REFUSED = Counter("undercroft_embed_refused_total", "Texts refused because the queue was full.", ("purpose",))
EXPIRED = Counter("undercroft_embed_expired_total", "Texts whose deadline passed while they waited.", ("purpose",))
WAITING = Gauge("undercroft_embed_waiting_texts", "Texts that wait for a batch.", ("purpose",))
BATCH_ROWS = Histogram("undercroft_embed_batch_rows", "Texts per batch.", buckets=(1, 2, 4, 8, 16, 32, 64))
BATCH_SECONDS = Histogram(
    "undercroft_embed_batch_seconds",
    "Time of a batch in seconds.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
