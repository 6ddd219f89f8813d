"""The decisions of a project at one generation, linked to each other and to the files that they name.

A generation never changes, so a corpus is made once for it and kept. Links between records stay within a package: paths
and numbers mean something there only.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.core.db import Connection
from services.core.errors import NotFound
from services.core.snapshots import Scope
from services.decisions import store
from services.decisions.linking import link
from services.decisions.records import Decision, MentionKind, RelationKind, Resolution
from services.decisions.store import FileKey

AFFECTS = "affects"

_KEPT_CORPORA = 16
# Between the package and the path where the path alone names several records; no path begins with a slash.
_PACKAGE_END = "//"


@dataclass(frozen=True, slots=True)
class RecordLink:
    """A link of a decision. ``other`` is the record that it leads to, ``other_id`` its id; ``target`` is that one's
    path, the file of the project that it affects, or what the record says where there is no such record."""

    kind: str
    other: FileKey | None
    other_id: str
    target: str
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A file or a symbol that a record names. ``certain``: ``text`` is the path of a file or folder of the package."""

    kind: MentionKind
    text: str
    line: int
    certain: bool


# Compared by identity: a corpus has each record once.
@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A decision of a generation. ``id`` is its resource id before encoding: its path, if no other package has it."""

    id: str
    key: FileKey
    decision: Decision
    links: tuple[RecordLink, ...]
    named: tuple[Named, ...]


class Corpus:
    """The records of a generation by path, then package."""

    def __init__(self, decisions: Sequence[tuple[FileKey, Decision]], files: Iterable[FileKey]) -> None:
        by_package: dict[str, dict[str, Decision]] = {}
        for key, decision in decisions:
            by_package.setdefault(key.package, {})[key.path] = decision
        trees = {package: _Tree() for package in by_package}
        for file in files:
            if file.package in trees:
                trees[file.package].add(file.path)
        named = {key: _named(decision, trees[key.package]) for key, decision in decisions}
        shared = Counter(key.path for key, _ in decisions)
        ids = {
            key: key.path if shared[key.path] == 1 else f"{key.package}{_PACKAGE_END}{key.path}" for key, _ in decisions
        }
        links = _relation_links(by_package, ids)
        for key, _ in decisions:
            links[key] += _affects(named[key], by_package[key.package])
        self.records = tuple(
            Record(
                id=ids[key],
                key=key,
                decision=decision,
                links=tuple(links[key]),
                named=named[key],
            )
            for key, decision in decisions
        )
        self._by_key = {record.key: record for record in self.records}

    def get(self, key: FileKey) -> Record | None:
        return self._by_key.get(key)

    def find(self, scope: Scope, record_id: str) -> Record:
        """Return a record by its id, with or without the package; NotFound says which there are of a shared path."""
        package, end, path = record_id.rpartition(_PACKAGE_END)
        found = [one for one in self.records if one.key.path == path and (not end or one.key.package == package)]
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(
                f"Several packages of {scope.project} have a decision {path!r}.",
                remedy=f"Name one of: {', '.join(one.id for one in found)}.",
                reason="DECISION_AMBIGUOUS",
            )
        raise NotFound(
            f"Generation {scope.generation} of {scope.project} has no decision {record_id!r}.",
            remedy="List the decisions of the project; the id is the path of the record, percent-encoded.",
            reason="DECISION_NOT_FOUND",
        )

    def successors(self, record: Record) -> list[Record]:
        """Return the records that replace this one as a whole, by path."""
        return [
            self._by_key[one.other]
            for one in record.links
            if one.kind == RelationKind.SUPERSEDED_BY and one.other is not None and not one.partial
        ]


class Corpora:
    """Corpora by generation, the latest used kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, datetime | None], Corpus] = OrderedDict()

    async def get(self, connection: Connection, scope: Scope) -> Corpus:
        """Return the corpus of a scope."""
        # The time tells a generation from one of the same number that came after a restored backup.
        key = (scope.project_id, scope.generation, scope.published_at)
        corpus = self._kept.get(key)
        if corpus is None:
            decisions = await store.decisions(connection, scope)
            files = await store.file_keys(connection, scope) if decisions else []
            corpus = await asyncio.to_thread(Corpus, decisions, files)
            self._kept[key] = corpus
        self._kept.move_to_end(key)
        while len(self._kept) > _KEPT_CORPORA:
            self._kept.popitem(last=False)
        return corpus


class _Tree:
    """The files and folders of a package."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)

    def add(self, path: str) -> None:
        self._files.add(path)
        self._by_name[posixpath.basename(path)].append(path)
        folder = posixpath.dirname(path)
        while folder and folder not in self._folders:
            self._folders.add(folder)
            folder = posixpath.dirname(folder)

    def resolve(self, text: str) -> tuple[str, ...]:
        """Return the paths that ``text`` may mean: itself, or all files whose path ends with it."""
        if text in self._files or text in self._folders:
            return (text,)
        return tuple(path for path in self._by_name.get(posixpath.basename(text), ()) if path.endswith("/" + text))


def _named(decision: Decision, tree: _Tree) -> tuple[Named, ...]:
    named = []
    for mention in decision.mentions:
        if mention.kind is not MentionKind.FILE:
            named.append(Named(mention.kind, mention.text, mention.line, False))
            continue
        text = mention.text.removeprefix("./").strip("/")
        means = tree.resolve(text)
        # A bare name that several files have says of none of them that it is meant.
        if len(means) <= 1 or "/" in text:
            certain = len(means) == 1
            named.append(Named(mention.kind, means[0] if certain else text, mention.line, certain))
    return tuple(named)


def _relation_links(
    by_package: Mapping[str, Mapping[str, Decision]], ids: Mapping[FileKey, str]
) -> defaultdict[FileKey, list[RecordLink]]:
    links: defaultdict[FileKey, list[RecordLink]] = defaultdict(list)
    for package, decisions in by_package.items():
        for found in link(list(decisions.values())):
            other = FileKey(package, found.target) if found.resolution is Resolution.RESOLVED else None
            links[FileKey(package, found.source)].append(
                RecordLink(
                    kind=found.kind.value,
                    other=other,
                    other_id=ids[other] if other else "",
                    target=other.path if other else found.raw,
                    partial=found.partial,
                )
            )
    return links


def _affects(named: Iterable[Named], decisions: Mapping[str, Decision]) -> list[RecordLink]:
    paths = {one.text for one in named if one.certain and one.text not in decisions}
    return [RecordLink(AFFECTS, None, "", path) for path in sorted(paths)]
