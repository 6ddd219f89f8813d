"""What callers can ask of search."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from services.core import text
from services.core.authorization import Visible
from services.core.db import Connection, Database
from services.core.errors import InvalidArgument, NotReady
from services.core.snapshots import Scope, at_generation, resolve
from services.search import pipeline, store
from services.search.clients import IngestClient
from services.search.embedding import EmbedQuery, QueryEmbedding
from services.search.indexes import Indexes, OpenGeneration
from services.search.pipeline import Preset, Ranking
from services.search.queries import Answer, Chunk, Filter, Hint, Hit, LegReport, Ranked, Reference, Symbol
from services.search.steps.base import Query, dotted, identifiers_in

STALE_OK, WAIT, REQUIRE_FRESH = "stale_ok", "wait", "require_fresh"

MAX_QUERY_CHARS = 8192
_MOST_FACET_VALUES = 1000
_CHARS_PER_TOKEN = 4
_PUNCTUATION = ".,;:!?()[]{}<>\"'`"
_MAX_READ_BYTES = 1024 * 1024
# Part of the deadline that is left to answer once waiting for an index run has ended.
_ANSWER_RESERVE_S = 1.0
_WORKING = ("ready", "degraded", "stale")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search as asked for. ``generations`` pins projects, ``offset`` skips hits of earlier pages."""

    text: str
    visible: Visible
    projects: Sequence[str] = ()
    preset: str = ""
    restriction: Filter = field(default_factory=Filter)
    limit: int = 10
    offset: int = 0
    freshness: str = STALE_OK
    generations: Mapping[str, int] = field(default_factory=dict)
    budget_tokens: int = 8000
    timeout_s: float | None = None


class SearchService:
    """Use cases of search. It only reads."""

    def __init__(
        self,
        database: Database,
        indexes: Indexes,
        embed: EmbedQuery,
        ingest: IngestClient,
        presets: Mapping[str, Preset],
        default_preset: str,
    ) -> None:
        if default_preset not in presets:
            raise InvalidArgument(
                f"There is no preset {default_preset!r}.",
                remedy=f"UNDERCROFT_DEFAULT_PRESET names one of {', '.join(presets)}.",
            )
        self._database = database
        self._indexes = indexes
        self._embed = embed
        self._ingest = ingest
        self.presets = presets
        self.default_preset = default_preset

    async def search(self, asked: SearchQuery) -> Answer:
        """Find chunks; see ``SearchService.Search`` in the proto."""
        start = time.perf_counter()
        if not asked.text.strip():
            raise InvalidArgument("The query is empty.", remedy="Give words, an identifier or a question.")
        if len(asked.text) > MAX_QUERY_CHARS:
            raise InvalidArgument(
                f"The query has {len(asked.text)} characters.", remedy=f"At most {MAX_QUERY_CHARS} are read."
            )
        preset = self.presets.get(asked.preset or self.default_preset)
        if preset is None:
            raise InvalidArgument(
                f"There is no preset {asked.preset!r}.",
                remedy=f"Presets are: {', '.join(self.presets)}.",
                reason="PRESET_NOT_FOUND",
            )
        if asked.freshness != STALE_OK:
            await self._freshen(asked)
        embedding = QueryEmbedding(self._embed, asked.text)
        try:
            async with self._reading(asked) as (connection, scopes, targets):
                if any(leg.name == "dense" for leg in preset.legs):
                    for _, opened in targets:
                        if opened.dense is not None:
                            embedding.ask(opened.model_name, opened.model_digest)
                terms = text.query_tokens(asked.text)
                query = Query(
                    text=asked.text,
                    identifiers=identifiers_in(asked.text),
                    terms=terms,
                    words=_words(asked.text),
                    restriction=asked.restriction,
                    targets=targets,
                    connection=connection,
                    vectors=embedding,
                )
                ranking = await pipeline.run(preset, query)
                _refuse_dead_method(preset, ranking)
                page = ranking.ranked[asked.offset : asked.offset + asked.limit]
                chunks = await self._chunks(connection, scopes, asked.restriction, page)
        finally:
            await embedding.close()
        hits = tuple(_within_budget(page, chunks, asked.budget_tokens))
        return Answer(
            hits=hits,
            more=len(ranking.ranked) > asked.offset + asked.limit,
            scopes=tuple(scopes),
            legs=ranking.reports,
            hints=() if hits or asked.offset else tuple(_hints(asked, terms, targets, ranking.reports)),
            preset=preset.name,
            steps_us=ranking.steps_us,
            total_us=round((time.perf_counter() - start) * 1e6),
        )

    async def _freshen(self, asked: SearchQuery) -> None:
        """Have the projects of a query compared with their sources, and bring up to date or refuse stale ones."""
        async with self._database.snapshot(asked.timeout_s) as connection:
            scopes = await resolve(connection, asked.projects, asked.visible)
        for scope in scopes:
            stale, reason = await self._ingest.observe(scope.project)
            if stale and asked.freshness == REQUIRE_FRESH:
                raise NotReady(
                    f"{scope.project} is stale: {reason}.",
                    remedy="Index it, or ask with FRESHNESS_WAIT or FRESHNESS_STALE_OK.",
                    reason="STALE",
                )
            if stale:
                left_s = None if asked.timeout_s is None else max(0.1, asked.timeout_s - _ANSWER_RESERVE_S)
                await self._ingest.bring_up_to_date(scope.project, left_s)

    @contextlib.asynccontextmanager
    async def _reading(
        self, asked: SearchQuery
    ) -> AsyncIterator[tuple[Connection, list[Scope], list[tuple[Scope, OpenGeneration]]]]:
        """Open a snapshot whose generations are all open; what is not is opened outside of it, then looked at anew."""
        opened: dict[tuple[int, int], OpenGeneration] = {}
        while True:
            async with self._database.snapshot(asked.timeout_s) as connection:
                scopes = await resolve(connection, asked.projects, asked.visible)
                for place, scope in enumerate(scopes):
                    if asked.generations.get(scope.project):
                        scopes[place] = await at_generation(connection, scope, asked.generations[scope.project])
                wanted = [scope for scope in scopes if scope.generation]
                for scope in wanted:
                    known = self._indexes.known(scope.project_id, scope.generation)
                    if known is not None:
                        opened[scope.project_id, scope.generation] = known
                missing = [scope for scope in wanted if (scope.project_id, scope.generation) not in opened]
                if not missing:
                    yield connection, scopes, [(s, opened[s.project_id, s.generation]) for s in wanted]
                    return
            for scope in missing:
                generation = await self._indexes.open(scope.project_id, scope.generation)
                opened[scope.project_id, scope.generation] = generation

    @staticmethod
    async def _chunks(
        connection: Connection, scopes: Sequence[Scope], restriction: Filter, page: Sequence[Ranked]
    ) -> dict[tuple[int, int], Chunk]:
        """Return the chunks of a page by (project id, content id)."""
        chunks: dict[tuple[int, int], Chunk] = {}
        for scope in scopes:
            ids = [one.candidate.content_id for one in page if one.candidate.project_id == scope.project_id]
            if ids:
                found = await store.chunks_of_contents(connection, scope, restriction, ids)
                chunks.update({(scope.project_id, content_id): chunk for content_id, chunk in found.items()})
        return chunks

    @contextlib.asynccontextmanager
    async def _one(self, project: str, visible: Visible, generation: int) -> AsyncIterator[tuple[Connection, Scope]]:
        """Open a snapshot on one project, at a generation or at the live one."""
        async with self._database.snapshot() as connection:
            (scope,) = await resolve(connection, [project], visible)
            yield connection, await at_generation(connection, scope, generation or scope.generation)

    async def get_chunk(
        self, project: str, visible: Visible, key: str, generation: int, neighbours: int
    ) -> tuple[Scope, Chunk, list[Chunk], list[Chunk]]:
        async with self._one(project, visible, generation) as (connection, scope):
            return scope, *await store.chunk_with_neighbours(connection, scope, key, neighbours)

    async def list_chunks(
        self, project: str, visible: Visible, restriction: Filter, after: str, limit: int, generation: int
    ) -> tuple[Scope, list[Chunk]]:
        async with self._one(project, visible, generation) as (connection, scope):
            return scope, await store.list_chunks(connection, scope, restriction, after, limit)

    async def read_file(
        self, project: str, visible: Visible, path: str, package: str, span: tuple[int, int] | None, generation: int
    ) -> tuple[Scope, str, str, tuple[int, int], int]:
        """Return scope, package, text, the lines that the text is of, and how many lines the file has."""
        async with self._one(project, visible, generation) as (connection, scope):
            package, content = await store.file_text(connection, scope, path, package)
        lines = content.split("\n")
        if lines[-1] == "":
            lines.pop()
        first, last = span or (1, len(lines))
        if first < 1 or last < first:
            raise InvalidArgument(f"{first}-{last} is no span of lines.", remedy="Lines count from 1, first to last.")
        last = min(last, len(lines))
        taken: list[str] = []
        size = 0
        for line in lines[first - 1 : last]:
            size += len(line.encode()) + 1
            if size > _MAX_READ_BYTES and taken:
                break
            taken.append(line)
        ends_open = first - 1 + len(taken) == len(lines) and not content.endswith("\n")
        body = "\n".join(taken) + ("\n" if taken and not ends_open else "")
        return scope, package, body, (first, first - 1 + len(taken)), len(lines)

    async def list_symbols(
        self,
        name: str,
        projects: Sequence[str],
        visible: Visible,
        restriction: Filter,
        after: tuple[str, str, str, int],
        limit: int,
    ) -> tuple[list[Scope], list[Symbol]]:
        """List definitions by project, then qualified name, path and line, after such a position."""
        _check_name(name)
        name = dotted(name)
        found: list[Symbol] = []
        async with self._database.snapshot() as connection:
            scopes = await resolve(connection, projects, visible)
            for scope in scopes:
                if scope.project < after[0] or len(found) >= limit:
                    continue
                position = after[1:] if scope.project == after[0] else ("", "", 0)
                found += await store.symbols(connection, scope, restriction, name, position, limit - len(found))
        return scopes, found

    async def list_facets(
        self, projects: Sequence[str], visible: Visible, restriction: Filter, limit: int
    ) -> tuple[list[Scope], dict[str, list[tuple[str, int]]]]:
        """Count files by metadata: per key its values with the most files, ``limit`` at the most.

        Over several projects, values beyond the thousandth of a project do not count.
        """
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        async with self._database.snapshot() as connection:
            scopes = await resolve(connection, projects, visible)
            for scope in scopes:
                for key, value, files in await store.facets(connection, scope, restriction, _MOST_FACET_VALUES):
                    counts[key][value] += files
        ordered = {
            key: sorted(values.items(), key=lambda item: (-item[1], item[0].encode()))[:limit]
            for key, values in sorted(counts.items())
        }
        return scopes, ordered

    async def list_references(
        self,
        name: str,
        projects: Sequence[str],
        visible: Visible,
        restriction: Filter,
        *,
        outgoing: bool,
        kinds: Sequence[int],
        resolved_only: bool,
        offset: int,
        limit: int,
    ) -> tuple[list[Scope], list[Symbol], list[Reference]]:
        """List edges project by project, and the definitions that the name stands for."""
        _check_name(name)
        name = dotted(name)
        defined: dict[str, list[Symbol]] = {}
        found: list[Reference] = []
        async with self._database.snapshot() as connection:
            scopes = await resolve(connection, projects, visible)
            for scope in scopes:
                defined[scope.project] = await store.symbols(connection, scope, Filter(), name, ("", "", 0), 100)
            definitions = [symbol for symbols in defined.values() for symbol in symbols]
            for scope in scopes:
                found += await store.references(
                    connection,
                    scope,
                    restriction,
                    name=name,
                    definitions=sorted({symbol.qualified_name for symbol in definitions}),
                    outgoing=outgoing,
                    kinds=kinds,
                    # A project that does not define the name has many others of that name: only certain edges count.
                    resolved_only=resolved_only or (bool(definitions) and not defined[scope.project]),
                    limit=offset + limit,
                )
        found.sort(key=lambda reference: not reference.resolved)
        return scopes, definitions, found[offset : offset + limit]


def _words(query: str) -> dict[str, str]:
    """Return the word of the query that each lexical term is made from."""
    return {term: word.strip(_PUNCTUATION) for word in reversed(query.split()) for term in text.query_tokens(word)}


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > 1024:
        raise InvalidArgument("The symbol is empty or too long.", remedy="Give a name or a qualified name.")


def _refuse_dead_method(preset: Preset, ranking: Ranking) -> None:
    """A preset none of whose methods works anywhere fails; otherwise it answers with what is left."""
    reports = [one for one in ranking.reports if one.leg != "symbol"]
    if reports and all(one.state not in _WORKING for one in reports):
        first = reports[0]
        raise NotReady(
            f"The {first.leg} method can't answer: {first.reason}", remedy=first.remedy, reason="METHOD_NOT_READY"
        )


def _within_budget(page: Sequence[Ranked], chunks: Mapping[tuple[int, int], Chunk], budget_tokens: int) -> list[Hit]:
    """Cut texts at a line where the answer would exceed its budget."""
    left = budget_tokens * _CHARS_PER_TOKEN
    hits = []
    for one in page:
        chunk = chunks[one.candidate.project_id, one.candidate.content_id]
        shown = chunk.text
        if len(shown) > left:
            shown = shown[:left].rpartition("\n")[0]
        left -= len(shown)
        hits.append(Hit(chunk, one.score, one.parts, shown, shown != chunk.text))
    return hits


def _hints(
    asked: SearchQuery,
    terms: Sequence[str],
    targets: Sequence[tuple[Scope, OpenGeneration]],
    reports: Sequence[LegReport],
) -> list[Hint]:
    """Say why nothing was found, and what to try."""
    if not targets:
        return [Hint("nothing_published", "Nothing has been published yet: index a folder, or wait for its first run.")]
    hints = []
    known = [opened.lexical for _, opened in targets if opened.lexical is not None]
    if asked.restriction and any(index.frequency(term) for index in known for term in terms):
        hints.append(Hint("filtered_out", "Chunks with words of the query exist, but the filters remove them."))
    unknown = [term for term in terms if not any(index.frequency(term) for index in known)]
    near = sorted({word for term in unknown for index in known for word in index.nearest_terms(term, 3)})
    if near:
        hints.append(Hint("near_vocabulary", "These words of the corpus are near to those of the query.", tuple(near)))
    hints += [
        Hint("impaired", f"{one.project} was searched without its {one.leg} method: {one.reason}")
        for one in reports
        if one.state == "broken"
    ]
    return hints or [Hint("no_evidence", "Nothing in the corpus has words of the query or is near to its meaning.")]
