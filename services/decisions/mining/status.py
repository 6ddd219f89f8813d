"""Status words in the wild, mapped to the six that we keep."""

from __future__ import annotations

import re
from itertools import pairwise

from services.decisions.mining.dates import find_dates
from services.decisions.records import Status

_WORDS: dict[Status, str] = {
    Status.PROPOSED: (
        r"propos(?:ed|al)|draft(?:ed)?|pending|(?:in|under|for|needs)[ -](?:review|discussion|consideration|progress)|"
        r"review|provisional(?:ly)?|incomplete|wip|work in progress|rfc|request for comments?|on[ -]hold|"
        r"deferred|postponed|undecided|not (?:yet )?(?:accepted|approved|decided|agreed)"
    ),
    Status.ACCEPTED: (
        r"accept(?:ed)?|approved?|adopted|agreed|ratified|decided|implemented|finali[sz]ed|final|active|in force|"
        r"in effect|done|completed?"
    ),
    Status.REJECTED: r"reject(?:ed)?|declined?|reverted|abandoned|withdrawn|cancell?ed|denied|discarded|dropped",
    Status.DEPRECATED: r"deprecated?|obsoleted?|retired|archived|outdated|no longer (?:valid|relevant|applicable)",
    Status.SUPERSEDED: r"super[sc]eded|replaced|supplanted|obsoleted by|overridden",
}
_WORD = re.compile(
    "|".join(
        rf"(?P<{status.name}>\b(?:{_WORDS[status]})\b)"
        # Longer phrases first: "not accepted" before "accepted", "obsoleted by" before "obsoleted".
        for status in (Status.PROPOSED, Status.SUPERSEDED, Status.REJECTED, Status.DEPRECATED, Status.ACCEPTED)
    ),
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(r"^[\s\"'*_`)\]}]*(?:[|/]|,\s*(?:or\b)?|\bor\b)[\s\"'*_`(\[{]*(?:or\s+)?$", re.IGNORECASE)
_ARROW = re.compile(r"^\s*[*_`]*\s*(?:-+>|=+>|→|⇒|➡\ufe0f?)")
_IMPLEMENTED = re.compile(r"\bimplemented\b", re.IGNORECASE)
_HEDGED = re.compile(
    r"(?:\bpart(?:ly|ially)|\bnot(?: yet)?|\bnever|\bto be|\bbeing|\bonce|\bwhen|\buntil|\bun|\bin part)[\s*_-]*$",
    re.IGNORECASE,
)
_LINK = re.compile(r"\[([^\[\]]{0,300})\](?:\([^()\s]{0,500}\)|\[[^\[\]]{0,100}\])?")
_URL = re.compile(r"<?https?://\S+")
_STRUCK = re.compile(r"~~[^~]{0,300}~~")
_CHECKED = re.compile(r"^\s*(?:[-*+]\s+)?\[[xX]\]\s*(.*)$", re.MULTILINE)
_UNCHECKED = re.compile(r"^\s*(?:[-*+]\s+)?\[ \]", re.MULTILINE)
_EMOJI: tuple[tuple[str, Status], ...] = (
    ("✅", Status.ACCEPTED),
    ("✔", Status.ACCEPTED),
    ("🟢", Status.ACCEPTED),
    ("👍", Status.ACCEPTED),
    ("❌", Status.REJECTED),
    ("🚫", Status.REJECTED),
    ("👎", Status.REJECTED),
    ("⌛", Status.SUPERSEDED),
    ("🤔", Status.PROPOSED),
    ("🚧", Status.PROPOSED),
    ("🟡", Status.PROPOSED),
    ("📝", Status.PROPOSED),
    ("⚠", Status.DEPRECATED),
)
# How far a day may stand from the word that it dates, and how many days of a history are looked at.
_BESIDE_CHARS = 16
_MAX_HISTORY = 20
_SUPERSEDED_PHRASE = re.compile(
    r"\b(?:super[sc]eded|supplanted)\b|\b(?:replaced|obsoleted|overridden)\s+by\b", re.IGNORECASE
)
_OTHERS_SUPERSEDED = re.compile(r"\b(?:no|not|never|nothing|was|previously)\W+(?:yet\W+)?$", re.IGNORECASE)


def read_status(raw: str) -> Status:
    """Return what ``raw`` says; unfilled alternatives and unknown words are UNSPECIFIED."""
    text = _readable(raw)
    words = [(match.start(), match.end(), Status[match.lastgroup or ""]) for match in _WORD.finditer(text)]
    if not words:
        return next((status for mark, status in _EMOJI if mark in text), Status.UNSPECIFIED)
    if _alternatives(text, words):
        return Status.UNSPECIFIED
    for match in _SUPERSEDED_PHRASE.finditer(text):
        if not _OTHERS_SUPERSEDED.search(text[max(0, match.start() - 30) : match.start()]):
            return Status.SUPERSEDED
    latest = _latest(text, words)
    if latest is not None:
        return latest
    chosen = words[0]
    for earlier, later in pairwise(words):
        if earlier is chosen and _ARROW.match(text[earlier[1] : later[0]]):
            chosen = later
    return chosen[2]


def says_implemented(raw: str) -> bool:
    """Return whether ``raw`` says that the decision is implemented, and not in part."""
    text = _readable(raw)
    return any(
        not _HEDGED.search(text[max(0, match.start() - 30) : match.start()]) for match in _IMPLEMENTED.finditer(text)
    )


def status_words(text: str) -> list[tuple[int, Status]]:
    """Return (offset, status) of each status word in ``text`` without its link destinations."""
    return [(match.start(), Status[match.lastgroup or ""]) for match in _WORD.finditer(_readable(text))]


def _readable(raw: str) -> str:
    checked = _CHECKED.findall(raw)
    if checked and _UNCHECKED.search(raw):
        raw = "\n".join(checked)
    return _URL.sub(" ", _LINK.sub(r"\1", _STRUCK.sub(" ", raw)))


def _latest(text: str, words: list[tuple[int, int, Status]]) -> Status | None:
    """Return the youngest status of a dated history (``Proposed 2020-01-05, accepted 2020-02-01``)."""
    days = find_dates(text, limit=_MAX_HISTORY)
    after = [(day, status) for _, end, status in words for offset, day in days if 0 <= offset - end <= _BESIDE_CHARS]
    before = [
        (day, status) for start, _, status in words for offset, day in days if 0 <= start - offset <= _BESIDE_CHARS
    ]
    history = after if len({status for _, status in after}) > 1 else before
    if len({status for _, status in history}) < 2 or len({day for day, _ in history}) < 2:
        return None
    return max(history, key=lambda entry: entry[0])[1]


def _alternatives(text: str, words: list[tuple[int, int, Status]]) -> bool:
    """Return whether the words are a choice that nobody made: ``Proposed | Accepted``, ``proposed, accepted or …``."""
    run = 1
    barred = False
    for earlier, later in pairwise(words):
        between = text[earlier[1] : later[0]]
        if earlier[2] is not later[2] and _ALTERNATIVE.match(between):
            run += 1
            barred = barred or "|" in between
        elif earlier[2] is not later[2]:
            break
    return run >= 3 or (run == 2 and barred)
