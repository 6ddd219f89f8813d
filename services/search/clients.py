"""The service that search calls for freshness and repair: ingest."""

from __future__ import annotations

import grpc
import grpc.aio
from google.longrunning import operations_pb2, operations_pb2_grpc
from undercroft.ingest.v1 import index_service_pb2, index_service_pb2_grpc

from services.core.errors import NotReady, Unavailable, UndercroftError
from services.core.grpc import error_reason, open_channel, told
from services.core.names import project_name

_OBSERVE_TIMEOUT_S = 60.0
_REPAIR_TIMEOUT_S = 3600.0


class IngestClient:
    """The ingest service as search uses it."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target) if target else None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def observe(self, project: str) -> tuple[bool, str]:
        """Have a project's sources compared with its live generation; return (stale, reason)."""
        request = index_service_pb2.ObserveProjectRequest(project=project_name(project))
        try:
            response = await self._index().ObserveProject(request, timeout=_OBSERVE_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise _ingest_error(error) from error
        return response.snapshot.stale, response.snapshot.stale_reason

    async def bring_up_to_date(self, project: str, timeout_s: float | None) -> None:
        """Run an index run to its end; Unavailable when it is not done in time, NotReady when it failed."""
        request = index_service_pb2.RunIndexRequest(project=project_name(project))
        try:
            operation = await self._index().RunIndex(request, timeout=_OBSERVE_TIMEOUT_S)
            wait = operations_pb2.WaitOperationRequest(name=operation.name)
            operation = await operations_pb2_grpc.OperationsStub(self._channel).WaitOperation(wait, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _ingest_error(error) from error
        if operation.HasField("error"):
            raise NotReady(
                f"{project} can't be brought up to date: {operation.error.message}",
                remedy="Ask with FRESHNESS_STALE_OK for an answer from what is published.",
                reason="INDEX_RUN_FAILED",
            )

    async def repair(self, project: str) -> None:
        """Have the sidecars of a project checked and rebuilt."""
        request = index_service_pb2.RepairProjectRequest(project=project_name(project))
        try:
            await self._index().RepairProject(request, timeout=_REPAIR_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise _ingest_error(error) from error

    def _index(self) -> index_service_pb2_grpc.IndexServiceAsyncStub:
        if self._channel is None:
            raise NotReady("No ingest service is configured.", remedy="Set UNDERCROFT_INGEST_TARGET.")
        return index_service_pb2_grpc.IndexServiceStub(self._channel)


def _ingest_error(error: grpc.aio.AioRpcError) -> UndercroftError:
    reason, _ = error_reason(error)
    if reason and error.code() is not grpc.StatusCode.UNAVAILABLE:
        message, remedy = told(error)
        return NotReady(message, remedy=remedy, reason=reason)
    return Unavailable(
        f"The ingest service does not answer ({error.code().name}): {error.details()}",
        remedy="Ask with FRESHNESS_STALE_OK for an answer from what is published.",
        reason="INGEST_UNAVAILABLE",
    )
