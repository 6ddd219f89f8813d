"""Transport of search: proto messages in, use cases, proto messages out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc.aio
from undercroft.common.v1 import common_pb2
from undercroft.search.v1 import search_pb2, search_service_pb2, search_service_pb2_grpc

from services.core.authorization import Authorizer, Visible
from services.core.errors import InvalidArgument, Unimplemented
from services.core.grpc import metadata_of, remaining_s
from services.core.names import parse_project, project_name
from services.core.pages import PageTokens
from services.core.snapshots import snapshot_message
from services.search import service as use_cases
from services.search.queries import Answer, Chunk, Filter, Hint, Hit, LegReport, Place, Reference, Symbol
from services.search.service import SearchQuery, SearchService

_FRESHNESS = {
    common_pb2.FRESHNESS_UNSPECIFIED: use_cases.STALE_OK,
    common_pb2.FRESHNESS_STALE_OK: use_cases.STALE_OK,
    common_pb2.FRESHNESS_WAIT: use_cases.WAIT,
    common_pb2.FRESHNESS_REQUIRE_FRESH: use_cases.REQUIRE_FRESH,
}
_STATES = {
    "ready": common_pb2.METHOD_STATE_READY,
    "degraded": common_pb2.METHOD_STATE_DEGRADED,
    "broken": common_pb2.METHOD_STATE_BROKEN,
    "absent": common_pb2.METHOD_STATE_ABSENT,
}
_MAX_HITS = 100
_MAX_BUDGET_TOKENS = 100_000
_MAX_NEIGHBOURS = 10
_MAX_FILTER_VALUES = 100
_MAX_GLOB_CHARS = 1024
_MAX_WILDCARDS = 32

Context = grpc.aio.ServicerContext[Any, Any]


class SearchServicer(search_service_pb2_grpc.SearchServiceServicer):
    def __init__(self, service: SearchService, authorizer: Authorizer, pages: PageTokens) -> None:
        self._service = service
        self._authorizer = authorizer
        self._pages = pages

    async def Search(
        self, request: search_service_pb2.SearchRequest, context: Context
    ) -> search_service_pb2.SearchResponse:
        pinned = {parse_project(one.project): one.generation for one in request.generations}
        offset = 0
        if request.page_token:
            position = self._pages.open(request, request.page_token)
            offset = int(str(position["offset"]))
            generations = position["generations"]
            assert isinstance(generations, dict)
            pinned = {project: int(str(number)) for project, number in generations.items()}
        limit = _limit(request.page_size, 10, _MAX_HITS)
        answer = await self._service.search(
            SearchQuery(
                text=request.query,
                visible=await self._visible(context),
                projects=[parse_project(name) for name in request.projects] or list(pinned),
                preset=request.preset,
                restriction=_filter(request.filter),
                limit=limit,
                offset=offset,
                freshness=use_cases.STALE_OK if request.page_token else _freshness(request.freshness),
                generations=pinned,
                budget_tokens=_limit(request.budget_tokens, 8000, _MAX_BUDGET_TOKENS),
                timeout_s=remaining_s(context),
            )
        )
        token = ""
        if answer.more:
            generations = {scope.project: scope.generation for scope in answer.scopes}
            token = self._pages.seal(request, {"offset": offset + limit, "generations": {**generations}})
        return _answer(answer, token)

    async def ListSymbols(
        self, request: search_service_pb2.ListSymbolsRequest, context: Context
    ) -> search_service_pb2.ListSymbolsResponse:
        limit = _limit(request.page_size, 50, 1000)
        after = ("", "", "", 0)
        if request.page_token:
            position = self._pages.open(request, request.page_token)["after"]
            assert isinstance(position, list)
            after = (str(position[0]), str(position[1]), str(position[2]), int(str(position[3])))
        scopes, found = await self._service.list_symbols(
            request.name,
            [parse_project(name) for name in request.projects],
            await self._visible(context),
            _filter(request.filter),
            after,
            limit + 1,
        )
        token = ""
        if len(found) > limit:
            last = found[limit - 1]
            place = last.place
            token = self._pages.seal(
                request, {"after": [place.project, last.qualified_name, place.path, place.start_line]}
            )
        return search_service_pb2.ListSymbolsResponse(
            symbols=map(_symbol, found[:limit]), next_page_token=token, snapshots=map(snapshot_message, scopes)
        )

    async def ListFacets(
        self, request: search_service_pb2.ListFacetsRequest, context: Context
    ) -> search_service_pb2.ListFacetsResponse:
        scopes, facets = await self._service.list_facets(
            [parse_project(name) for name in request.projects],
            await self._visible(context),
            _filter(request.filter),
            _limit(request.max_values, 20, 1000),
        )
        return search_service_pb2.ListFacetsResponse(
            facets=[
                search_pb2.Facet(
                    key=key, values=[search_pb2.FacetValue(value=value, files=files) for value, files in values]
                )
                for key, values in facets.items()
            ],
            snapshots=map(snapshot_message, scopes),
        )

    async def ListReferences(
        self, request: search_service_pb2.ListReferencesRequest, context: Context
    ) -> search_service_pb2.ListReferencesResponse:
        limit = _limit(request.page_size, 50, 1000)
        offset = int(str(self._pages.open(request, request.page_token)["offset"])) if request.page_token else 0
        scopes, symbols, found = await self._service.list_references(
            request.symbol,
            [parse_project(name) for name in request.projects],
            await self._visible(context),
            _filter(request.filter),
            outgoing=request.direction == search_service_pb2.REFERENCE_DIRECTION_OUTGOING,
            kinds=list(request.kinds),
            resolved_only=request.resolved_only,
            offset=offset,
            limit=limit + 1,
        )
        token = self._pages.seal(request, {"offset": offset + limit}) if len(found) > limit else ""
        hints = []
        if not found and not offset:
            told = f"No definition of {request.symbol!r} and nothing that names it. Search for it instead."
            if symbols:
                told = (
                    "Nothing is known to refer to it. Uses as a type or a value (parameters, callbacks, except clauses)"
                    " are not recorded yet."
                )
            if request.resolved_only:
                told += " What is known by name only is left out, as asked for."
            hints.append(search_pb2.Hint(kind="no_evidence", message=told))
        return search_service_pb2.ListReferencesResponse(
            references=map(_reference, found[:limit]),
            next_page_token=token,
            symbols=map(_symbol, symbols),
            snapshots=map(snapshot_message, scopes),
            hints=hints,
        )

    async def GetChunk(
        self, request: search_service_pb2.GetChunkRequest, context: Context
    ) -> search_service_pb2.GetChunkResponse:
        scope, chunk, before, after = await self._service.get_chunk(
            parse_project(request.project),
            await self._visible(context),
            request.chunk_key,
            request.generation,
            min(max(request.neighbours, 0), _MAX_NEIGHBOURS),
        )
        return search_service_pb2.GetChunkResponse(
            chunk=_chunk(chunk),
            before=map(_chunk, before),
            after=map(_chunk, after),
            snapshot=snapshot_message(scope),
        )

    async def ListChunks(
        self, request: search_service_pb2.ListChunksRequest, context: Context
    ) -> search_service_pb2.ListChunksResponse:
        limit = _limit(request.page_size, 100, 1000)
        after, generation = "", 0
        if request.page_token:
            position = self._pages.open(request, request.page_token)
            after, generation = str(position["after"]), int(str(position["generation"]))
        scope, found = await self._service.list_chunks(
            parse_project(request.parent),
            await self._visible(context),
            _filter(request.filter),
            after,
            limit + 1,
            generation,
        )
        token = ""
        if len(found) > limit:
            token = self._pages.seal(request, {"after": found[limit - 1].key, "generation": scope.generation})
        return search_service_pb2.ListChunksResponse(
            chunks=map(_chunk, found[:limit]), next_page_token=token, snapshot=snapshot_message(scope)
        )

    async def ReadFile(
        self, request: search_service_pb2.ReadFileRequest, context: Context
    ) -> search_service_pb2.ReadFileResponse:
        span = None
        if request.HasField("span"):
            span = (request.span.start_line or 1, request.span.end_line or 2**31 - 1)
        scope, package, text, (first, last), line_count = await self._service.read_file(
            parse_project(request.project),
            await self._visible(context),
            request.path,
            request.package,
            span,
            request.generation,
        )
        wanted = min(span[1] if span else line_count, line_count)
        return search_service_pb2.ReadFileResponse(
            text=text,
            place=_place(Place(scope.project, package, request.path, first, last)),
            line_count=line_count,
            truncated=last < wanted,
            snapshot=snapshot_message(scope),
        )

    async def ListPresets(
        self, request: search_service_pb2.ListPresetsRequest, context: Context
    ) -> search_service_pb2.ListPresetsResponse:
        return search_service_pb2.ListPresetsResponse(
            presets=[
                search_pb2.Preset(
                    name=preset.name,
                    description=preset.description,
                    steps=[
                        search_pb2.PresetStep(step=name, settings={key: str(value) for key, value in settings.items()})
                        for name, settings in preset.described
                    ],
                )
                for preset in self._service.presets.values()
            ],
            default_preset=self._service.default_preset,
        )

    async def Grep(self, request: search_service_pb2.GrepRequest, context: Context) -> search_service_pb2.GrepResponse:
        raise Unimplemented("Grep is not available in this release; search with the lexical preset instead.")

    async def _visible(self, context: Context) -> Visible:
        return await self._authorizer.visible(metadata_of(context))


def _freshness(asked: common_pb2.Freshness.ValueType) -> str:
    if asked not in _FRESHNESS:
        raise InvalidArgument(f"There is no freshness {asked}.", remedy="Leave it out, or name one of the enum.")
    return _FRESHNESS[asked]


def _limit(asked: int, default: int, largest: int) -> int:
    if asked < 0:
        raise InvalidArgument("A size is negative.", remedy="Leave it out or give a positive number.")
    return min(asked or default, largest)


def _filter(message: common_pb2.Filter) -> Filter:
    described = [value for one in message.metadata for value in (one.key, *one.values)]
    texts = (message.packages, message.path_globs, message.languages, described)
    if any(len(one) > _MAX_FILTER_VALUES for one in (*texts, message.kinds)) or any(
        len(g) > _MAX_GLOB_CHARS for g in message.path_globs
    ):
        raise InvalidArgument(
            "The filter is too large.",
            remedy=f"At most {_MAX_FILTER_VALUES} values of a field, {_MAX_GLOB_CHARS} characters of a glob.",
        )
    if any("\0" in value for one in texts for value in one):
        raise InvalidArgument("The filter names what no file can have: a NUL character.", remedy="Leave it out.")
    if any(sum(glob.count(wild) for wild in "*?[") > _MAX_WILDCARDS for glob in message.path_globs):
        raise InvalidArgument("A path glob has too many wildcards.", remedy=f"At most {_MAX_WILDCARDS} of *, ? and [.")
    return Filter(
        packages=tuple(message.packages),
        path_globs=tuple(message.path_globs),
        languages=tuple(language.lower() for language in message.languages),
        kinds=tuple(message.kinds),
        metadata=tuple((one.key, tuple(one.values)) for one in message.metadata),
    )


def _place(place: Place) -> common_pb2.Place:
    return common_pb2.Place(
        project=project_name(place.project),
        package=place.package,
        path=place.path,
        span=common_pb2.Span(start_line=place.start_line, end_line=place.end_line),
    )


def _chunk(chunk: Chunk) -> search_pb2.Hit:
    return search_pb2.Hit(
        chunk_key=chunk.key,
        place=_place(chunk.places[0]),
        other_places=map(_place, chunk.places[1:]),
        kind=common_pb2.ChunkKind.ValueType(chunk.kind),
        language=chunk.language,
        title=chunk.title,
        qualified_name=chunk.qualified_name,
        text=chunk.text,
    )


def _hit(hit: Hit) -> search_pb2.Hit:
    message = _chunk(hit.chunk)
    message.text, message.text_truncated, message.score = hit.text, hit.text_truncated, hit.score
    for part in hit.parts:
        message.parts.add(
            leg=part.leg,
            rank=part.rank,
            score=part.score,
            contribution=part.contribution,
            matched_terms=part.matched_terms,
        )
    return message


def _leg(report: LegReport) -> search_pb2.LegReport:
    return search_pb2.LegReport(
        leg=report.leg,
        project=project_name(report.project),
        state=_STATES[report.state],
        reason=report.reason,
        remedy=report.remedy,
        candidates=report.candidates,
    )


def _hints(hints: Iterable[Hint]) -> list[search_pb2.Hint]:
    return [search_pb2.Hint(kind=one.kind, message=one.message, terms=one.terms) for one in hints]


def _answer(answer: Answer, token: str) -> search_service_pb2.SearchResponse:
    return search_service_pb2.SearchResponse(
        hits=map(_hit, answer.hits),
        next_page_token=token,
        snapshots=map(snapshot_message, answer.scopes),
        legs=map(_leg, answer.legs),
        hints=_hints(answer.hints),
        preset=answer.preset,
        timing=search_pb2.SearchTiming(total_us=answer.total_us, steps_us=answer.steps_us),
        truncated_hits=sum(hit.text_truncated for hit in answer.hits),
    )


def _symbol(symbol: Symbol) -> search_pb2.Symbol:
    return search_pb2.Symbol(
        qualified_name=symbol.qualified_name,
        name=symbol.name,
        kind=symbol.kind,
        signature=symbol.signature,
        summary=symbol.summary,
        place=_place(symbol.place),
        language=symbol.language,
    )


def _reference(reference: Reference) -> search_pb2.Reference:
    return search_pb2.Reference(
        source_symbol=reference.source_symbol,
        place=_place(reference.place),
        kind=search_pb2.ReferenceKind.ValueType(reference.kind),
        target_symbol=reference.target_symbol,
        resolved=reference.resolved,
        line=reference.line_text,
    )
