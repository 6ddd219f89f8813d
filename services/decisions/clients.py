"""The search service as decisions uses it: passages of records that answer a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
from undercroft.common.v1 import common_pb2
from undercroft.search.v1 import search_pb2, search_service_pb2, search_service_pb2_grpc

from services.core.errors import InvalidArgument, NotFound, NotReady, Overloaded, Unavailable, UndercroftError
from services.core.grpc import error_reason, open_channel, told
from services.core.names import parse_project, project_name
from services.core.words import COMMON_WORDS
from services.decisions.store import FileKey

_TIMEOUT_S = 30.0
# Part of the deadline that is left to answer without search when it does not come in time.
_RESERVE_S = 0.5
_PAGE_SIZE = 50
# The most that search takes: which texts are shown is decided once it is known which records are.
_BUDGET_TOKENS = 100_000
_IMPAIRED = (common_pb2.METHOD_STATE_DEGRADED, common_pb2.METHOD_STATE_BROKEN)
_ERRORS: Mapping[grpc.StatusCode, type[UndercroftError]] = {
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.FAILED_PRECONDITION: NotReady,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
}


@dataclass(frozen=True, slots=True)
class FoundPassage:
    """A chunk of a decision record at one of its places."""

    project: str
    file: FileKey
    start_line: int
    end_line: int
    text: str
    score: float
    legs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundPage:
    """Passages, best first; the generation of each project that they are of; what search says besides."""

    passages: tuple[FoundPassage, ...]
    generations: Mapping[str, int]
    hints: tuple[str, ...]
    # Legs that could not search, or not everything, in words.
    impaired: tuple[str, ...]
    next_page_token: str


# Cosine from which meaning alone is evidence: answers to real questions lie above .37 in 99 of 100 cases.
_NEAR = 0.35


class SearchClient:
    """Without a target, every call fails with NotReady."""

    def __init__(self, target: str) -> None:
        self._channel = open_channel(target) if target else None

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def find(
        self, query: str, projects: Sequence[str], page_token: str = "", timeout_s: float | None = None
    ) -> FoundPage:
        """Find passages of decision records in the named projects; Unavailable or NotReady when search can't."""
        if self._channel is None:
            raise NotReady(
                "No search service is configured, so questions in free text find nothing.",
                remedy="Set UNDERCROFT_SEARCH_TARGET, or ask for a path or a symbol.",
                reason="SEARCH_NOT_CONFIGURED",
            )
        request = search_service_pb2.SearchRequest(
            query=query,
            projects=[project_name(project) for project in projects],
            filter=common_pb2.Filter(kinds=[common_pb2.CHUNK_KIND_DECISION]),
            page_size=_PAGE_SIZE,
            page_token=page_token,
            budget_tokens=_BUDGET_TOKENS,
        )
        limit_s = _TIMEOUT_S if timeout_s is None else min(_TIMEOUT_S, max(0.1, timeout_s - _RESERVE_S))
        try:
            stub: search_service_pb2_grpc.SearchServiceAsyncStub = search_service_pb2_grpc.SearchServiceStub(
                self._channel
            )
            response = await stub.Search(request, timeout=limit_s)
        except grpc.aio.AioRpcError as error:
            raise _search_error(error) from error
        return FoundPage(
            passages=tuple(passage for hit in response.hits if _is_evidence(hit) for passage in _passages(hit)),
            generations={parse_project(one.project): one.generation for one in response.snapshots},
            # That filters remove other chunks is how records are told from the rest, and no news to the caller.
            hints=tuple(_hint(one) for one in response.hints if one.kind != "filtered_out"),
            impaired=tuple(
                f"The {leg.leg} method of {leg.project} is not whole: {leg.reason} {leg.remedy}".strip()
                for leg in response.legs
                if leg.state in _IMPAIRED
            ),
            next_page_token=response.next_page_token,
        )


def _is_evidence(hit: search_pb2.Hit) -> bool:
    """Tell words in common, other than those of any question, and a near meaning from a mere nearest neighbour."""
    for part in hit.parts:
        if part.leg == "dense" and part.score >= _NEAR:
            return True
        if part.leg == "lexical" and any(word.lower() not in COMMON_WORDS for word in part.matched_terms):
            return True
    return False


def _passages(hit: search_pb2.Hit) -> list[FoundPassage]:
    """Return a hit at each of its places: one text may stand in several records."""
    return [
        FoundPassage(
            project=parse_project(place.project),
            file=FileKey(place.package, place.path),
            start_line=place.span.start_line,
            end_line=place.span.end_line,
            text=hit.text,
            score=hit.score,
            legs=tuple(part.leg for part in hit.parts),
        )
        for place in (hit.place, *hit.other_places)
    ]


def _hint(hint: search_pb2.Hint) -> str:
    return f"{hint.message} {', '.join(hint.terms)}".strip()


def _search_error(error: grpc.aio.AioRpcError) -> UndercroftError:
    kind = _ERRORS.get(error.code())
    if kind is None:
        return Unavailable(
            f"The search service does not answer ({error.code().name}).",
            remedy="Start it or wait for it; a path or a symbol that records name is found without it.",
            reason="SEARCH_UNAVAILABLE",
        )
    reason, _ = error_reason(error)
    message, remedy = told(error)
    return kind(message, remedy=remedy, reason=reason or None)
