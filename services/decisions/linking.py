"""Linking: what records say of each other, placed in the corpus and seen from both ends.

A link exists only where its target is certain. Numbers collide (two people took the same one), so a number that fits
several records is told apart by the title beside it or by what those records say in return, and otherwise reported as
ambiguous. Nothing is removed: a superseded record keeps its place, and a relation without a target is reported.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from services.decisions.records import Decision, Link, MentionKind, Relation, RelationKind, Resolution

_DROPPED = re.compile(r"[#?].*$")
_EXTENSION = re.compile(r"\.(?:md|markdown|mdown|mkd|rst|rest|html?)$", re.IGNORECASE)
_PREFIX = re.compile(r"^\W*(?:(?:adr|madr|decision|record)s?)?[\s#:_.-]*\d{1,8}[\s:._)\]-]*", re.IGNORECASE)
_NOT_WORD = re.compile(r"[\W_]+")


def link(decisions: Sequence[Decision]) -> list[Link]:
    """Return all links of a corpus, each edge once from either end, ordered by source, kind and target."""
    corpus = _Corpus(decisions)
    links: dict[tuple[str, RelationKind, str, str], Link] = {}
    for decision in sorted(decisions, key=lambda decision: decision.path):
        for relation in decision.relations:
            found = corpus.resolve(decision, relation)
            if found.target != decision.path:
                _keep(links, found)
    for found in list(links.values()):
        if found.resolution is Resolution.RESOLVED:
            _keep(
                links,
                Link(
                    source=found.target,
                    kind=found.kind.inverse,
                    target=found.source,
                    resolution=Resolution.RESOLVED,
                    raw="",
                    line=0,
                    partial=found.partial,
                    derived=True,
                ),
            )
    return [links[key] for key in sorted(links)]


def _keep(links: dict[tuple[str, RelationKind, str, str], Link], found: Link) -> None:
    unresolved = "" if found.resolution is Resolution.RESOLVED else found.raw
    links.setdefault((found.source, found.kind, found.target, unresolved), found)


class _Corpus:
    """All records by path, by stem, by number and by title."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self._records = {decision.path: decision for decision in decisions}
        self._stems: defaultdict[str, list[str]] = defaultdict(list)
        self._numbers: defaultdict[int, list[str]] = defaultdict(list)
        self._titles: defaultdict[str, list[str]] = defaultdict(list)
        for path, decision in sorted(self._records.items()):
            self._stems[_stem(path)].append(path)
            if decision.number is not None:
                self._numbers[decision.number].append(path)
            self._titles[_plain(decision.title)].append(path)

    def resolve(self, decision: Decision, relation: Relation) -> Link:
        """Return the link that a relation makes: resolved, ambiguous, or missing."""
        candidates = self._by_path(decision.path, relation.target_path)
        if not candidates and relation.number is not None and not _elsewhere(relation.target_path):
            candidates = self._by_number(decision, relation)
        if not candidates and relation.title:
            candidates = self._by_title(relation.title)
        if len(candidates) > 1:
            candidates = self._told_apart(decision, relation, candidates)
        resolution = (
            Resolution.MISSING
            if not candidates
            else Resolution.RESOLVED
            if len(candidates) == 1
            else Resolution.AMBIGUOUS
        )
        return Link(
            source=decision.path,
            kind=relation.kind,
            target=candidates[0] if resolution is Resolution.RESOLVED else "",
            resolution=resolution,
            raw=relation.raw,
            line=relation.line,
            partial=relation.partial,
            candidates=tuple(candidates) if resolution is Resolution.AMBIGUOUS else (),
        )

    def _by_path(self, source: str, target: str) -> list[str]:
        target = unquote(_DROPPED.sub("", target)).strip()
        if not target:
            return []
        if "://" in target:
            found = [path for path in self._stems.get(_stem(target), ()) if target.endswith("/" + path) and "/" in path]
            return found if len(found) == 1 else []
        folder = posixpath.dirname(source)
        written = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
        exact = posixpath.normpath(written)
        if exact in self._records:
            return [exact]
        same_stem = self._stems.get(_stem(target), [])
        without = _EXTENSION.sub("", exact)
        return (
            [path for path in same_stem if _EXTENSION.sub("", path) == without]
            or [path for path in same_stem if posixpath.dirname(path) == folder]
            or list(same_stem)
        )

    def _by_number(self, decision: Decision, relation: Relation) -> list[str]:
        assert relation.number is not None
        others = [path for path in self._numbers.get(relation.number, ()) if path != decision.path]
        return _nearest(decision.path, others)

    def _by_title(self, title: str) -> list[str]:
        plain = _plain(title)
        return list(self._titles.get(plain, ())) or list(self._titles.get(_plain(_PREFIX.sub("", title)), ()))

    def _told_apart(self, decision: Decision, relation: Relation, candidates: list[str]) -> list[str]:
        """Return the one candidate that title or answer single out, else all."""
        title = _plain(_PREFIX.sub("", relation.title))
        if title:
            titled = [path for path in candidates if title in (_plain(self._records[path].title), _slug(path))]
            if len(titled) == 1:
                return titled
        # The record links the one that it means elsewhere in its text.
        named = {mention.text for mention in decision.mentions if mention.kind is MentionKind.FILE}
        linked = [path for path in candidates if path in named]
        if len(linked) == 1:
            return linked
        answering = [path for path in candidates if self._answers(path, decision, relation.kind.inverse)]
        return answering if len(answering) == 1 else candidates

    def _answers(self, path: str, decision: Decision, kind: RelationKind) -> bool:
        """Return whether the record at ``path`` states the relation in return, in words that fit no other record."""
        return any(
            relation.kind is kind and self._sole(self._records[path], relation) == decision.path
            for relation in self._records[path].relations
        )

    def _sole(self, decision: Decision, relation: Relation) -> str:
        found = self._by_path(decision.path, relation.target_path)
        if not found and relation.number is not None:
            found = self._by_number(decision, relation)
        return found[0] if len(found) == 1 else ""


def _nearest(source: str, paths: Iterable[str]) -> list[str]:
    """Return those of ``paths`` in the folder of ``source``, else those in the closest folder around it, else all."""
    paths = list(paths)
    folder = posixpath.dirname(source)
    while True:
        inside = [path for path in paths if posixpath.dirname(path) == folder]
        if inside or not folder:
            break
        folder = posixpath.dirname(folder)
    return inside or paths


def _elsewhere(target: str) -> bool:
    """Return whether a link leads out of the project, so that its number counts in another corpus."""
    return "://" in target


def _stem(path: str) -> str:
    return _EXTENSION.sub("", posixpath.basename(path.rstrip("/"))).lower()


def _slug(path: str) -> str:
    return _plain(_PREFIX.sub("", _stem(path)))


def _plain(title: str) -> str:
    return _NOT_WORD.sub(" ", title).strip().casefold()
