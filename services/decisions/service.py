"""What callers can ask of decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from services.core.authorization import Visible
from services.core.db import Connection, Database
from services.core.errors import DataLoss, InvalidArgument, NotReady, Unavailable, UndercroftError
from services.core.snapshots import Scope, at_generation, resolve
from services.decisions import reasons, store
from services.decisions.clients import FoundPage, SearchClient
from services.decisions.corpus import Corpora, Corpus, Record
from services.decisions.reasons import Reason
from services.decisions.records import Status
from services.decisions.subjects import Match, Subject

MAX_QUERY_CHARS = 8192
# More pages than this bring passages that are hardly evidence.
_MAX_PAGES = 5
_BUDGET_CHARS = 32_000


@dataclass(frozen=True, slots=True)
class WhyQuery:
    """A question as asked. Without projects all visible ones are asked; without statuses every one will do."""

    text: str
    visible: Visible
    projects: Sequence[str] = ()
    statuses: frozenset[Status] = frozenset()
    limit: int = 5
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """Decisions that answer, best first."""

    reasons: Sequence[Reason]
    scopes: Sequence[Scope]
    hints: Sequence[str]


@dataclass(slots=True)
class _Search:
    """What search has found so far. ``failure`` says why it could not be asked."""

    pages: list[FoundPage] = field(default_factory=list)
    failure: UndercroftError | None = None

    def reasons(self, scopes: Iterable[Scope], corpora: Mapping[str, Corpus]) -> dict[tuple[str, str, str], Reason]:
        passages = [passage for page in self.pages for passage in page.passages]
        return {
            reason.identity: reason
            for scope in scopes
            for reason in reasons.found_reasons(scope, corpora[scope.project], passages).values()
        }


class DecisionService:
    """Use cases of decisions. It only reads."""

    def __init__(self, database: Database, search: SearchClient) -> None:
        self._database = database
        self._search = search
        self._corpora = Corpora()

    async def list_decisions(
        self,
        project: str,
        visible: Visible,
        statuses: frozenset[Status],
        after: tuple[str, str],
        generation: int | None,
        limit: int,
    ) -> tuple[Scope, list[Record]]:
        """List decisions by (path, package) after a position, at a generation or at the live one."""
        async with self._database.snapshot() as connection:
            (scope,) = await resolve(connection, [project], visible)
            if generation is not None:
                scope = await at_generation(connection, scope, generation)
            corpus = await self._corpora.get(connection, scope)
        found = [
            record
            for record in corpus.records
            if (record.key.path, record.key.package) > after and _wanted(record, statuses)
        ]
        return scope, found[:limit]

    async def get_decision(
        self, project: str, visible: Visible, record_id: str
    ) -> tuple[Scope, Record, tuple[str, ...]]:
        """Return a decision and the text of each of its sections."""
        async with self._database.snapshot() as connection:
            (scope,) = await resolve(connection, [project], visible)
            corpus = await self._corpora.get(connection, scope)
            record = corpus.find(scope, record_id)
            text = (await self._texts(connection, scope, [record]))[record]
        return scope, record, tuple(reasons.section_texts(record, text))

    async def why(self, asked: WhyQuery) -> WhyAnswer:
        """Find decisions; see ``DecisionService.Why`` in the proto."""
        if not asked.text.strip():
            raise InvalidArgument("The query is empty.", remedy="Ask a question, or give a path or a symbol.")
        if len(asked.text) > MAX_QUERY_CHARS:
            raise InvalidArgument(
                f"The query has {len(asked.text)} characters.", remedy=f"At most {MAX_QUERY_CHARS} are read."
            )
        async with self._database.snapshot(asked.timeout_s) as connection:
            scopes = await resolve(connection, asked.projects, asked.visible)
        if not any(scope.generation for scope in scopes):
            return WhyAnswer(
                (), scopes, ("Nothing has been published yet: index a folder, or wait for its first run.",)
            )
        search = _Search()
        await self._next_page(asked, scopes, search)
        async with self._database.snapshot(asked.timeout_s) as connection:
            scopes, corpora = await self._pin(connection, scopes, search)
            matches = _matches(Subject(asked.text), corpora)
            texts = {
                scope.project: await self._texts(connection, scope, [record for record, _ in matches[scope.project]])
                for scope in scopes
            }
        if search.failure is not None and not any(matches.values()):
            raise search.failure
        found = search.reasons(scopes, corpora)
        while _count_wanted(found.values(), asked.statuses) < asked.limit and _goes_on(search):
            await self._next_page(asked, scopes, search)
            found = search.reasons(scopes, corpora)
        best_score = max((reason.score for reason in found.values()), default=0.0)
        for scope in scopes:
            for record, lines in matches[scope.project]:
                bare = Reason(scope, corpora[scope.project], record, (), 0)
                reason = found.get(bare.identity, bare)
                found[bare.identity] = reasons.with_mentions(reason, lines, texts[scope.project][record], best_score)
        wanted = [reason for reason in found.values() if _wanted(reason.record, asked.statuses)]
        shown, cut = reasons.within_budget(reasons.ranked(wanted)[: asked.limit], _BUDGET_CHARS)
        return WhyAnswer(shown, scopes, _hints(search, corpora, len(found), len(wanted), cut))

    async def _next_page(self, asked: WhyQuery, scopes: Sequence[Scope], search: _Search) -> None:
        token = search.pages[-1].next_page_token if search.pages else ""
        try:
            page = await self._search.find(asked.text, [scope.project for scope in scopes], token, asked.timeout_s)
        except (NotReady, Unavailable) as failure:
            search.failure = failure
        else:
            search.pages.append(page)

    async def _pin(
        self, connection: Connection, scopes: Sequence[Scope], search: _Search
    ) -> tuple[list[Scope], dict[str, Corpus]]:
        """Put the scopes at the generations that search answered from, so that the answer is of one (DESIGN I3)."""
        generations = search.pages[0].generations if search.pages else {}
        pinned = []
        corpora = {}
        for scope in scopes:
            generation = generations.get(scope.project, scope.generation)
            at = await at_generation(connection, scope, generation)
            pinned.append(at)
            corpora[at.project] = await self._corpora.get(connection, at)
        return pinned, corpora

    @staticmethod
    async def _texts(connection: Connection, scope: Scope, records: Sequence[Record]) -> dict[Record, str]:
        texts = await store.file_texts(connection, scope, [record.key for record in records]) if records else {}
        for record in records:
            if record.key not in texts:
                raise DataLoss(
                    f"Generation {scope.generation} of {scope.project} has no text of {record.key.path}.",
                    remedy="Index the project again with --force.",
                    reason="FILE_TEXT_MISSING",
                )
        return {record: texts[record.key] for record in records}


def _wanted(record: Record, statuses: frozenset[Status]) -> bool:
    return not statuses or record.decision.status in statuses


def _count_wanted(found: Iterable[Reason], statuses: frozenset[Status]) -> int:
    return sum(_wanted(reason.record, statuses) for reason in found)


def _goes_on(search: _Search) -> bool:
    return (
        search.failure is None
        and len(search.pages) < _MAX_PAGES
        and bool(search.pages and search.pages[-1].next_page_token)
    )


def _matches(subject: Subject, corpora: Mapping[str, Corpus]) -> dict[str, list[tuple[Record, list[Match]]]]:
    """Return by project the records that name the subject."""
    return {
        project: [(record, matches) for record in corpus.records if (matches := subject.matches(record))]
        for project, corpus in corpora.items()
    }


def _hints(search: _Search, corpora: Mapping[str, Corpus], found: int, wanted: int, cut: int) -> list[str]:
    """Say what is missing from the answer, and what to try when there is none."""
    hints = []
    if search.failure is not None:
        missing = "Not every record was looked at" if search.pages else "Only records that name it were looked for"
        hints.append(f"{missing}: {search.failure}")
    for page in search.pages[:1]:
        hints += sorted(set(page.impaired))
    if cut:
        hints.append(f"{cut} passages were cut to keep the answer short: get the decision to read it whole.")
    if wanted:
        return hints
    if found:
        hints.append(f"{found} decisions answer, but none has come as far as was asked for: leave the statuses out.")
    elif not any(corpus.records for corpus in corpora.values()):
        hints.append(
            "No decision records are published. They are Markdown or reStructuredText files, numbered, in a folder "
            "such as docs/adr or docs/decisions."
        )
    else:
        hints += [hint for page in search.pages[:1] for hint in page.hints]
        hints.append("No decision record says anything of it. Search the project itself instead.")
    return hints
