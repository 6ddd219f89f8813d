"""Start the search service: ``python -m services.search``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc.aio
from undercroft.search.v1 import search_service_pb2, search_service_pb2_grpc

from services.core.authorization import AllowAll, Visible
from services.core.cpu import cpu_threads
from services.core.db import Database, check_schema
from services.core.grpc import serve
from services.core.notifications import GENERATIONS, Notifications
from services.core.pages import PageTokens, load_key
from services.core.sidecars import Volume
from services.core.snapshots import resolve
from services.core.starting import start
from services.search.clients import IngestClient
from services.search.embedding import EmbedClient, QueryCache
from services.search.indexes import Indexes
from services.search.pipeline import load_presets
from services.search.server import SearchServicer
from services.search.service import SearchService
from services.search.settings import SearchSettings


async def main(settings: SearchSettings) -> None:
    # Index searches release the GIL; more threads than processors only wait for each other.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(settings.threads or cpu_threads() + 2))
    url = settings.database_url.get_secret_value()
    async with contextlib.AsyncExitStack() as stack:
        database = Database(url, size=settings.database_pool_size, prepare=settings.database_prepare)
        await database.open()
        stack.push_async_callback(database.close)
        await check_schema(database)
        embed, ingest = EmbedClient(settings.embed_target), IngestClient(settings.ingest_target)
        stack.push_async_callback(embed.close)
        stack.push_async_callback(ingest.close)
        vectors = QueryCache(
            embed.embed_query, max_entries=settings.query_cache_entries, max_bytes=settings.query_cache_bytes
        )
        notifications = Notifications(url, GENERATIONS)
        await stack.enter_async_context(notifications.running())

        async def repair(project_id: int) -> None:
            async with database.snapshot() as connection:
                scopes = await resolve(connection, [], Visible(frozenset({project_id})))
            for scope in scopes:
                await ingest.repair(scope.project)

        indexes = Indexes(
            database,
            Volume(settings.sidecar_dir),
            settings.local_dir / "search",
            notifications,
            poll_s=settings.poll_s,
            lease_s=settings.lease_s,
            repair=repair,
        )
        await stack.enter_async_context(indexes.running())
        presets = load_presets(settings.presets_dir)
        service = SearchService(database, indexes, vectors.vector, ingest, presets, settings.default_preset)
        servicers = _register(service, PageTokens(load_key(settings.secrets_dir)))
        await serve("search", settings, servicers, needs={"database": database.ping})


def _register(service: SearchService, pages: PageTokens) -> Callable[[grpc.aio.Server], list[str]]:
    def register(server: grpc.aio.Server) -> list[str]:
        servicer = SearchServicer(service, AllowAll(), pages)
        search_service_pb2_grpc.add_SearchServiceServicer_to_server(servicer, server)
        return [search_service_pb2.DESCRIPTOR.services_by_name["SearchService"].full_name]

    return register


if __name__ == "__main__":
    start("search", SearchSettings, main)
