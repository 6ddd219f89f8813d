"""Handing evidence to the decisions service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
from undercroft.decisions.v1 import evidence_internal_service_pb2 as pb
from undercroft.decisions.v1 import evidence_internal_service_pb2_grpc as pb_grpc

from services.core.errors import Conflict, NotReady, Unavailable
from services.core.grpc import open_channel

# Languages whose files may be decision records.
EVIDENCE_LANGUAGES = frozenset({"markdown", "rst"})

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """A file that may be a decision record."""

    source_id: int
    path: str
    text: str


class EvidenceSink:
    """The decisions service as ingest uses it. Without a target, every call fails with NotReady."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target) if target else None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def stage(
        self, project_id: int, run_id: int, fence: int, evidence: Sequence[Evidence]
    ) -> list[tuple[int, str]]:
        """Have evidence mined and staged under a run; return (source id, path) of the decision records in it."""
        if self._channel is None:
            raise NotReady(
                "No decisions service is configured.",
                remedy="Set UNDERCROFT_DECISIONS_TARGET.",
                reason="DECISIONS_NOT_CONFIGURED",
            )
        files = [pb.EvidenceFile(source_id=one.source_id, path=one.path, text=one.text) for one in evidence]
        request = pb.StageEvidenceRequest(project_id=project_id, run_id=run_id, fence=fence, files=files)
        try:
            stub: pb_grpc.EvidenceInternalServiceAsyncStub = pb_grpc.EvidenceInternalServiceStub(self._channel)
            response = await stub.StageEvidence(request, timeout=_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.ABORTED:
                raise Conflict("Another worker has taken this run over.", reason="RUN_FENCED_OFF") from error
            raise Unavailable(
                f"The decisions service does not answer ({error.code().name}).",
                remedy="Start it or wait for it; the next index run mines the decisions.",
                reason="DECISIONS_UNAVAILABLE",
            ) from error
        return [(record.source_id, record.path) for record in response.records]
