"""What a record says of other records: in its status, its fields, its title and its prose.

Prose is read with caution. An active verb needs this record as its subject, a passive one must not have another record
as its subject, and the other record has to follow at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from services.decisions.mining.document import Document, Field
from services.decisions.mining.references import Reference, find_references
from services.decisions.records import Relation, RelationKind

_PART = r"(?:[\s*_(]+(?:in part|in parts|partly|partially|entirely|fully|completely))?"
_VERBS = re.compile(
    rf"(?P<SUPERSEDED_BY>\b(?:super[sc]eded|replaced|obsoleted|supplanted|overridden|undone|reverted|revoked){_PART}"
    rf"[\s*_:]+by\b)"
    rf"|(?P<AMENDED_BY>\b(?:amended|extended|clarified|refined|updated|modified|hardened|renamed|complemented){_PART}"
    rf"[\s*_:]+by\b)"
    r"|(?P<SUPERSEDES>\b(?:super[sc]edes?|super[sc]eding|replaces|obsoletes|undoes|reverts|revokes|overrides)\b)"
    r"|(?P<AMENDS>\b(?:amends|extends|clarifies|refines|modifies|updates)\b)"
    r"|(?P<RELATES_TO>\b(?:relates? to|related(?: to)?|depends on|builds on|follow[- ]?up (?:to|of|on)|see(?: also)?|"
    r"in favou?r of|follows)\b)"
    r"|(?P<BARE>\bsuper[sc]eded\b)",
    re.IGNORECASE,
)
_WORTH_READING = re.compile(
    r"supersed|superced|replace[sd]|obsolete[sd]|supplanted|overrid|und(?:one|oes)|revert(?:s|ed)|revoke[sd]|amend|"
    r"extends|clarifies|relate[sd]|depends on|builds on|follow",
    re.IGNORECASE,
)
_TITLE = re.compile(
    r"\b(?:undo(?:ing)?|revert(?:ing)?|super[sc]ed(?:e|ing)|replac(?:e|ing)|revok(?:e|ing)|repeal(?:ing)?)\b",
    re.IGNORECASE,
)
_SELF = re.compile(
    r"\b(?:this|the present|our)(?: new)? (?:adr|decision|record|document|proposal|one)\b|^\W*(?:it|we)\b",
    re.IGNORECASE,
)
_SELF_OBJECT = re.compile(
    r"^\W*(?:this|the present)(?: (?:adr|decision|record|document|proposal|one))?\b", re.IGNORECASE
)
_RELATIVE = re.compile(
    r"\b(?:which|that|(?P<part>whose\b[^.;]{0,120})) (?:this(?: (?:adr|decision|record|one))?|it) $", re.IGNORECASE
)
_MODAL = re.compile(
    r"\b(?:may|might|could|would|should|can|must|will|to|not|if|when|unless|until)(?: be| have been)?\W*$",
    re.IGNORECASE,
)
_PARTIAL = re.compile(r"\bpart(?:ly|ial|ially|s)?\b|\bin-part\b|§|\bsome of\b|\bsections?\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!?](?=\s|$)|;|\n\n")
_DENIED = re.compile(r"\b(?:no|not|without|any)\W*$", re.IGNORECASE)
_NONE = re.compile(r"^\W*(?:none|n/?a|nothing|no|nil|null|tbd|\{.*|\[[^\]]*\]?)?\W*$", re.IGNORECASE)
_BARE_NUMBER = re.compile(r"^\W{0,6}(?:no\.? )?(?P<number>\d{1,6})(?![\w/]|-\d\d-\d\d|\.\d)")
_LEAD = re.compile(r"^\s*(?:>\s*)*(?:[-*+]\s+|\d{1,3}[.)]\s+)?[\W_]{0,6}$")
# Only these are worth a report when nothing but a bare title or number stands behind them.
_REPLACING = (RelationKind.SUPERSEDES, RelationKind.SUPERSEDED_BY)
_MAX_RELATIONS = 200
_MAX_BLOCK_CHARS = 4000
# How far behind its verb a target may stand in prose: looser verbs need it closer.
_GAP_CHARS = {"supersed": 60, "superced": 60, "amends": 30, "amended": 30}
_NEAR_CHARS = 15


def title_relations(title: str, line: int, targets: Mapping[str, str]) -> Iterator[Relation]:
    """Yield the relation that a title states (``Partly undo ADR 109``)."""
    verb = _TITLE.search(title)
    if verb:
        _, references = find_references(title, targets)
        for reference in references:
            if 0 <= reference.start - verb.end() <= _NEAR_CHARS and reference.explicit:
                yield _relation(RelationKind.SUPERSEDES, reference, line, bool(_PARTIAL.search(title)))


def field_relations(field: Field, targets: Mapping[str, str]) -> Iterator[Relation]:
    """Yield what a field states whose label is a relation (``Supersedes: ADR-2``)."""
    kinds = [_kind(match) for match in _VERBS.finditer(field.label.replace("-", " "))]
    kind = next((kind for kind in kinds if kind in _REPLACING), kinds[0] if kinds else RelationKind.RELATES_TO)
    value = _plain(field.value)
    if _NONE.match(value) and "](" not in value:
        return
    end = _SENTENCE.search(_shield(value))
    clause = value[: end.start()] if end else value
    partial = bool(_PARTIAL.search(field.label) or _PARTIAL.search(clause))
    references = _outside(*find_references(clause, targets)) or find_references(value, targets)[1]
    references = [reference for reference in references if reference.explicit]
    if references:
        for reference in references:
            yield _relation(kind, reference, field.line + 1, partial)
        return
    if kind in _REPLACING:
        yield from _unmarked(kind, clause, field.line + 1, partial)


def status_relations(status_raw: str, line: int, targets: Mapping[str, str]) -> Iterator[Relation]:
    """Yield what the text of a status states; any other record that it names is related."""
    text = _plain(status_raw)
    plain, references = find_references(text, targets)
    used: set[int] = set()
    verbs = list(_VERBS.finditer(plain))
    for index, verb in enumerate(verbs):
        kind = _kind(verb)
        limit = verbs[index + 1].start() if index + 1 < len(verbs) else len(plain)
        reach = min(_reach(plain, verb.end()), limit)
        partial = bool(_PARTIAL.search(plain[max(0, verb.start() - 30) : min(reach, verb.end() + 20)]))
        start_line = line + plain.count("\n", 0, verb.start())
        inside = [reference for reference in references if verb.end() <= reference.start < reach and reference.explicit]
        near = _outside(plain[verb.end() : reach], inside, verb.end()) or inside
        for reference in near:
            used.add(reference.start)
            yield _relation(kind, reference, start_line, partial)
        denied = _DENIED.search(plain[max(0, verb.start() - 12) : verb.start()])
        if not near and kind in _REPLACING and verb.lastgroup != "BARE" and not denied:
            yield from _unmarked(kind, text[verb.end() : reach], start_line, partial)
    for reference in references:
        if reference.start not in used and reference.numbered:
            yield _relation(RelationKind.RELATES_TO, reference, line + plain.count("\n", 0, reference.start), False)


def prose_relations(document: Document, start: int, end: int) -> Iterator[Relation]:
    """Yield what the prose of lines [start, end) states of this record."""
    found = 0
    for block in document.blocks(start, end):
        raw = block.text[:_MAX_BLOCK_CHARS]
        if not _WORTH_READING.search(raw):
            continue
        text = _plain(raw)
        plain, references = find_references(text, document.targets)
        if not references:
            continue
        for verb in _VERBS.finditer(plain):
            for relation in _stated(plain, references, verb, block.line + 1):
                yield relation
                found += 1
            if found >= _MAX_RELATIONS:
                return


def _stated(plain: str, references: list[Reference], verb: re.Match[str], line: int) -> Iterator[Relation]:
    """Yield what one verb states: of the record before it, or of those behind it."""
    begin = _sentence_start(plain, verb.start())
    before = plain[begin : verb.start()]
    if verb.lastgroup == "BARE" or _MODAL.search(before):
        return
    kind = _kind(verb)
    subjects = [reference for reference in references if begin <= reference.start < verb.start()]
    line += plain.count("\n", 0, verb.start())
    leads = bool(_LEAD.match(before))
    about_self = leads or bool(_SELF.search(before))
    passive = kind in (RelationKind.SUPERSEDED_BY, RelationKind.AMENDED_BY)
    partial = bool(_PARTIAL.search(plain[max(begin, verb.start() - 30) : verb.end() + 20]))
    relative = _RELATIVE.search(before) if kind is RelationKind.SUPERSEDES else None
    inverse = bool(_SELF_OBJECT.match(plain[verb.end() :])) and not about_self
    if relative or (inverse and (passive or kind is RelationKind.SUPERSEDES)):
        stated = kind if relative else kind.inverse
        partial = partial or bool(relative and relative.group("part"))
        for reference in subjects[-1:]:
            if reference.explicit:
                yield _relation(stated, reference, line, partial)
        return
    of_another = bool(subjects) and not _SELF.search(plain[subjects[-1].end : verb.start()])
    if (of_another if passive else not about_self) or (kind is RelationKind.RELATES_TO and not leads):
        return
    word = verb.group().lower()
    gap = next((chars for stem, chars in _GAP_CHARS.items() if word.startswith(stem)), _NEAR_CHARS)
    reach = _reach(plain, verb.end())
    near = [reference for reference in references if verb.end() <= reference.start < reach and reference.explicit]
    if near and near[0].start - verb.end() <= gap:
        for reference in _outside(plain[verb.end() : reach], near, verb.end()):
            yield _relation(kind, reference, line, partial)


def _kind(verb: re.Match[str]) -> RelationKind:
    group = verb.lastgroup or ""
    return RelationKind.SUPERSEDED_BY if group == "BARE" else RelationKind[group]


def _relation(kind: RelationKind, reference: Reference, line: int, partial: bool) -> Relation:
    return Relation(
        kind=kind,
        raw=reference.raw,
        line=line,
        number=reference.number,
        target_path=reference.target_path,
        title=reference.title,
        partial=partial and kind is not RelationKind.RELATES_TO,
    )


def _unmarked(kind: RelationKind, text: str, line: int, partial: bool) -> Iterator[Relation]:
    """Yield a relation whose target is a bare number or a bare title."""
    raw = " ".join(text.split()).strip(" .:;,*_\"'()")
    number = _BARE_NUMBER.match(raw)
    if number:
        yield Relation(kind, raw, line, number=int(number.group("number")), title=raw, partial=partial)
    elif raw and len(raw) <= 200 and not _NONE.match(raw):
        yield Relation(kind, raw, line, title=raw, partial=partial)


def _outside(plain: str, references: list[Reference], offset: int = 0) -> list[Reference]:
    """Return the references that stand outside brackets opened in ``plain`` (which begins at ``offset``)."""
    depth = 0
    depths: list[int] = []
    for character in plain:
        depths.append(depth)
        if character == "(":
            depth += 1
        elif character == ")" and depth:
            depth -= 1
    return [
        reference
        for reference in references
        if 0 <= reference.start - offset < len(depths) and depths[reference.start - offset] == 0
    ]


def _reach(plain: str, start: int) -> int:
    """Return where the clause ends that begins at ``start``: the sentence, or the bracket around it."""
    depth = 0
    for position in range(start, min(len(plain), start + 400)):
        character = plain[position]
        if character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
            if depth < 0:
                return position
        elif depth == 0 and (
            character in ";!?" or (character == "." and plain[position + 1 : position + 2] in ("", " ", "\n"))
        ):
            return position
    return min(len(plain), start + 400)


def _sentence_start(plain: str, end: int) -> int:
    start = 0
    for match in _SENTENCE.finditer(plain, max(0, end - 600), end):
        start = match.end()
    return start


def _plain(text: str) -> str:
    """Return ``text`` at equal length with emphasis, struck text and our link mark blanked."""
    text = re.sub(r"~~[^~]{0,300}~~", lambda match: " " * len(match.group()), text.replace("\x01", " "))
    text = text.replace("*", " ")
    return re.sub(r"(?<![A-Za-z0-9/])_+|_+(?![A-Za-z0-9./])", lambda match: " " * len(match.group()), text)


def _shield(text: str) -> str:
    """Return ``text`` at equal length with link destinations blanked, so that their dots end no sentence."""
    return re.sub(r"\([^()\s]{1,600}\)", lambda match: "\x01" * len(match.group()), text)
