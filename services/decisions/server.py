"""Transport of decisions: proto messages in, use cases, proto messages out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import grpc.aio
from undercroft.common.v1 import common_pb2
from undercroft.decisions.v1 import (
    decision_pb2,
    decision_service_pb2,
    decision_service_pb2_grpc,
    evidence_internal_service_pb2,
    evidence_internal_service_pb2_grpc,
)

from services.core.authorization import Authorizer, Visible
from services.core.errors import InvalidArgument
from services.core.grpc import metadata_of, remaining_s
from services.core.names import decision_name, parse_decision, parse_project, project_name
from services.core.pages import PageTokens
from services.core.snapshots import Scope, snapshot_message
from services.decisions.corpus import Record
from services.decisions.encoding import STATUS_NUMBERS
from services.decisions.reasons import Passage, Reason
from services.decisions.records import SectionKind, Status
from services.decisions.service import DecisionService, WhyQuery
from services.decisions.staging import EvidenceFile, Staging
from services.decisions.store import Run

_STATUSES = {number: status for status, number in STATUS_NUMBERS.items()}
_ROLES = {
    SectionKind.STATUS: "status",
    SectionKind.CONTEXT: "context",
    SectionKind.DRIVERS: "context",
    SectionKind.OPTIONS: "options",
    SectionKind.DECISION: "decision",
    SectionKind.RATIONALE: "decision",
    SectionKind.CONSEQUENCES: "consequences",
    SectionKind.CONFIRMATION: "consequences",
}
_MAX_DECISIONS = 500
_MAX_REASONS = 50

Context = grpc.aio.ServicerContext[Any, Any]


class DecisionServicer(decision_service_pb2_grpc.DecisionServiceServicer):
    def __init__(self, service: DecisionService, authorizer: Authorizer, pages: PageTokens) -> None:
        self._service = service
        self._authorizer = authorizer
        self._pages = pages

    async def ListDecisions(
        self, request: decision_service_pb2.ListDecisionsRequest, context: Context
    ) -> decision_service_pb2.ListDecisionsResponse:
        limit = _limit(request.page_size, 50, _MAX_DECISIONS)
        after, generation = ("", ""), None
        if request.page_token:
            position = self._pages.open(request, request.page_token)
            path, package = position["after"] if isinstance(position["after"], list) else ("", "")
            after, generation = (str(path), str(package)), int(str(position["generation"]))
        scope, records = await self._service.list_decisions(
            parse_project(request.parent),
            await self._visible(context),
            _statuses(request.statuses),
            after,
            generation,
            limit + 1,
        )
        token = ""
        if len(records) > limit:
            last = records[limit - 1].key
            token = self._pages.seal(request, {"after": [last.path, last.package], "generation": scope.generation})
        return decision_service_pb2.ListDecisionsResponse(
            decisions=[_decision(scope, record) for record in records[:limit]],
            next_page_token=token,
            snapshot=snapshot_message(scope),
        )

    async def GetDecision(
        self, request: decision_service_pb2.GetDecisionRequest, context: Context
    ) -> decision_service_pb2.GetDecisionResponse:
        project, record_id = parse_decision(request.name)
        scope, record, texts = await self._service.get_decision(project, await self._visible(context), record_id)
        return decision_service_pb2.GetDecisionResponse(
            decision=_decision(scope, record, texts), snapshot=snapshot_message(scope)
        )

    async def Why(self, request: decision_service_pb2.WhyRequest, context: Context) -> decision_service_pb2.WhyResponse:
        answer = await self._service.why(
            WhyQuery(
                text=request.query,
                visible=await self._visible(context),
                projects=[parse_project(name) for name in request.projects],
                statuses=_statuses(request.statuses),
                limit=_limit(request.page_size, 5, _MAX_REASONS),
                timeout_s=remaining_s(context),
            )
        )
        return decision_service_pb2.WhyResponse(
            reasons=map(_reason, answer.reasons), snapshots=map(snapshot_message, answer.scopes), hints=answer.hints
        )

    async def _visible(self, context: Context) -> Visible:
        return await self._authorizer.visible(metadata_of(context))


class EvidenceInternalServicer(evidence_internal_service_pb2_grpc.EvidenceInternalServiceServicer):
    def __init__(self, staging: Staging) -> None:
        self._staging = staging

    async def StageEvidence(
        self, request: evidence_internal_service_pb2.StageEvidenceRequest, context: Context
    ) -> evidence_internal_service_pb2.StageEvidenceResponse:
        records = await self._staging.stage(
            Run(request.project_id, request.run_id, request.fence),
            [EvidenceFile(file.source_id, file.path, file.text) for file in request.files],
        )
        return evidence_internal_service_pb2.StageEvidenceResponse(
            records=[
                evidence_internal_service_pb2.EvidenceRecord(source_id=source_id, path=path)
                for source_id, path in records
            ]
        )


def _limit(asked: int, default: int, largest: int) -> int:
    if asked < 0:
        raise InvalidArgument("A size is negative.", remedy="Leave it out or give a positive number.")
    return min(asked or default, largest)


def _statuses(numbers: Collection[int]) -> frozenset[Status]:
    for number in numbers:
        if number not in _STATUSES:
            raise InvalidArgument(f"There is no decision status {number}.", remedy="Use values of DecisionStatus.")
    return frozenset(_STATUSES[number] for number in numbers)


def _decision(scope: Scope, record: Record, texts: Sequence[str] = ()) -> decision_pb2.Decision:
    """Return a decision; with the texts of its sections, these too."""
    decision = record.decision
    return decision_pb2.Decision(
        name=decision_name(scope.project, record.id),
        title=decision.title,
        number=decision.number,
        status=decision_pb2.DecisionStatus.ValueType(STATUS_NUMBERS[decision.status]),
        status_text=decision.status_raw,
        date=decision.date.isoformat() if decision.date else "",
        place=_place(scope, record, 1, decision.line_end),
        sections=[
            decision_pb2.DecisionSection(
                role=_ROLES.get(section.kind, "other"),
                heading=section.heading,
                span=common_pb2.Span(start_line=section.line_start, end_line=section.line_end),
                text=text,
            )
            for section, text in zip(decision.sections, texts, strict=False)
        ],
        links=[
            decision_pb2.DecisionLink(
                kind=link.kind,
                decision=decision_name(scope.project, link.other_id) if link.other else "",
                target=link.target,
            )
            for link in record.links
        ],
    )


def _reason(reason: Reason) -> decision_service_pb2.Reason:
    return decision_service_pb2.Reason(
        decision=_decision(reason.scope, reason.record),
        passages=[_passage(reason, passage) for passage in reason.passages],
        score=reason.score,
    )


def _passage(reason: Reason, passage: Passage) -> decision_service_pb2.Passage:
    return decision_service_pb2.Passage(
        place=_place(reason.scope, reason.record, passage.start_line, passage.end_line),
        title=passage.title,
        text=passage.text,
        score=passage.score,
        legs=passage.legs,
    )


def _place(scope: Scope, record: Record, start_line: int, end_line: int) -> common_pb2.Place:
    return common_pb2.Place(
        project=project_name(scope.project),
        package=record.key.package,
        path=record.key.path,
        span=common_pb2.Span(start_line=start_line, end_line=end_line),
    )
