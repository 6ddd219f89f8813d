"""What the search service counts."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

_LOOKUPS = Counter("undercroft_search_query_cache_lookups_total", "Query vectors asked of the cache.", ("result",))
HITS = _LOOKUPS.labels("hit")
MISSES = _LOOKUPS.labels("miss")
SHARED = _LOOKUPS.labels("shared")
EVICTED = Counter("undercroft_search_query_cache_evicted_total", "Query vectors dropped to make room for others.")
ENTRIES = Gauge("undercroft_search_query_cache_entries", "Query vectors kept.")
BYTES = Gauge("undercroft_search_query_cache_bytes", "Memory of the query vectors kept, their texts included.")
