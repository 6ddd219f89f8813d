"""Transport of the embedding cache: the calls of IndexService that belong to no project."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from google.protobuf import duration_pb2
from undercroft.ingest.v1 import index_service_pb2, index_service_pb2_grpc

from services.core.authorization import Authorizer
from services.core.errors import InvalidArgument, PermissionDenied
from services.core.grpc import metadata_of
from services.ingest.caching import EmbeddingCache

# What a Duration can say.
_LONGEST_S = 315_576_000_000

Context = grpc.aio.ServicerContext[Any, Any]


class CacheServicer(index_service_pb2_grpc.IndexServiceServicer):
    """ExportCache, ImportCache, GetCacheStatus and PruneCache.

    Vectors are shared by all projects, and a vector tells much of its text. So these calls are for callers who see
    every project: an authorizer that is to allow them to somebody resolves that caller to ``Visible()``.
    """

    def __init__(self, cache: EmbeddingCache, authorizer: Authorizer) -> None:
        self._cache = cache
        self._authorizer = authorizer

    async def ExportCache(
        self, request: index_service_pb2.ExportCacheRequest, context: Context
    ) -> AsyncIterator[index_service_pb2.ExportCacheResponse]:
        await self._check(context)
        async with contextlib.aclosing(self._cache.export(request.model)) as parts:
            async for part in parts:
                yield index_service_pb2.ExportCacheResponse(data=part)

    async def ImportCache(
        self, request_iterator: AsyncIterator[index_service_pb2.ImportCacheRequest], context: Context
    ) -> index_service_pb2.ImportCacheResponse:
        await self._check(context)
        imported = await self._cache.take_in(request.data async for request in request_iterator)
        return index_service_pb2.ImportCacheResponse(added=imported.added, known=imported.known)

    async def GetCacheStatus(
        self, request: index_service_pb2.GetCacheStatusRequest, context: Context
    ) -> index_service_pb2.GetCacheStatusResponse:
        await self._check(context)
        return index_service_pb2.GetCacheStatusResponse(
            models=[
                index_service_pb2.CachedModel(
                    digest=one.digest,
                    dimensions=one.dimensions,
                    vectors=one.vectors,
                    unused=one.unused,
                    size_bytes=one.size_bytes,
                )
                for one in await self._cache.models()
            ],
            retention=_duration(self._cache.retention_s),
        )

    async def PruneCache(
        self, request: index_service_pb2.PruneCacheRequest, context: Context
    ) -> index_service_pb2.PruneCacheResponse:
        await self._check(context)
        unused_for_s = None
        if request.HasField("unused_for"):
            unused_for_s = request.unused_for.seconds + request.unused_for.nanos / 1e9
            if unused_for_s < 0:
                raise InvalidArgument(
                    "unused_for is negative.", remedy="Leave it out for the service's retention, or give 0 for all."
                )
        pruned = await self._cache.prune(unused_for_s)
        return index_service_pb2.PruneCacheResponse(removed=pruned.removed, kept=pruned.kept)

    async def _check(self, context: Context) -> None:
        visible = await self._authorizer.visible(metadata_of(context))
        if visible.ids is not None:
            raise PermissionDenied(
                "The embedding cache has vectors of every project, and you may not see all of them.",
                remedy="Ask somebody who may see every project.",
                reason="CACHE_NOT_VISIBLE",
            )


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(min(seconds, _LONGEST_S) * 1e9))
    return duration
