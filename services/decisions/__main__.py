"""Start the decisions service: ``python -m services.decisions``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import grpc.aio
from undercroft.decisions.v1 import (
    decision_service_pb2,
    decision_service_pb2_grpc,
    evidence_internal_service_pb2,
    evidence_internal_service_pb2_grpc,
)

from services.core.authorization import AllowAll
from services.core.db import Database, check_schema
from services.core.grpc import serve
from services.core.pages import PageTokens, load_key
from services.core.starting import start
from services.decisions.clients import SearchClient
from services.decisions.server import DecisionServicer, EvidenceInternalServicer
from services.decisions.service import DecisionService
from services.decisions.settings import DecisionsSettings
from services.decisions.staging import Staging


async def main(settings: DecisionsSettings) -> None:
    url = settings.database_url.get_secret_value()
    async with contextlib.AsyncExitStack() as stack:
        database = Database(url, size=settings.database_pool_size, prepare=settings.database_prepare)
        await database.open()
        stack.push_async_callback(database.close)
        await check_schema(database)
        search = SearchClient(settings.search_target)
        stack.push_async_callback(search.close)
        pages = PageTokens(load_key(settings.secrets_dir))
        servicers = register(DecisionService(database, search), Staging(database), pages)
        await serve("decisions", settings, servicers, needs={"database": database.ping})


def register(service: DecisionService, staging: Staging, pages: PageTokens) -> Callable[[grpc.aio.Server], list[str]]:
    """Return what adds the servicers to a server and names their services."""

    def add(server: grpc.aio.Server) -> list[str]:
        decision_service_pb2_grpc.add_DecisionServiceServicer_to_server(
            DecisionServicer(service, AllowAll(), pages), server
        )
        evidence_internal_service_pb2_grpc.add_EvidenceInternalServiceServicer_to_server(
            EvidenceInternalServicer(staging), server
        )
        return [
            decision_service_pb2.DESCRIPTOR.services_by_name["DecisionService"].full_name,
            evidence_internal_service_pb2.DESCRIPTOR.services_by_name["EvidenceInternalService"].full_name,
        ]

    return add


if __name__ == "__main__":
    start("decisions", DecisionsSettings, main)
