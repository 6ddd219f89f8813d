"""Words of code and prose: the one tokenizer that the lexical index and its queries share.

Whoever changes what ``tokens`` or ``query_tokens`` return must change ``TOKENIZER_VERSION``: an index that was written
by another version is rebuilt, never searched.

========================  ==================================================================
``getUserName``           ``getusername get user name``
``get_user_name``         ``getusername get user name``
``HTTPServer2``           ``httpserver2 http server 2``
``connections``           ``connect`` (Snowball, English; identifiers as a whole are not stemmed)
``Straße`` ``STRASSE``    ``strass``
``数据库``                 ``数据 据库``, and in the index ``数 据 库`` besides
``3f2a9c41``              ``3f2a9c41`` (an opaque word is not split)
========================  ==================================================================
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import Stemmer

#: Names what the tokenizer does, with the release of the stemmer, whose rules differ between major releases.
TOKENIZER_VERSION = f"1+snowball-english-{Stemmer.version()}"

#: Longest term in characters: longer words (encoded data) are cut, so that their beginning can still be found.
MAX_TERM_CHARS = 64

_OPAQUE_DIGIT_PARTS = 3
_RUN = re.compile(r"[A-Za-z0-9_\u0080-\U0010ffff]+")
# Scripts that are written without spaces: Thai, Lao, Myanmar, Khmer, and the CJK scripts (Hangul has spaces, but
# particles stick to its words).
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3105-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)
_LATIN_MARK = re.compile("[\u0300-\u036f]+")
_local = threading.local()


def tokens(text: str) -> list[str]:
    """Return the terms under which ``text`` is indexed, in reading order, repeated as often as they occur."""
    return [term for run in _RUN.findall(_normal(text)) for term in _terms(run, True)]


def query_tokens(text: str) -> list[str]:
    """Return the terms that a query for ``text`` looks up, in reading order.

    They are those of ``tokens``, but a word in an unspaced script gives bigrams only: single characters are looked up
    only where they stand alone, for a shared character is no evidence.
    """
    return [term for run in _RUN.findall(_normal(text)) for term in _terms(run, False)]


def _normal(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


# Source text repeats its words: nine of ten runs are found here.
@lru_cache(maxsize=1 << 16)
def _terms(run: str, index: bool) -> tuple[str, ...]:
    if run.isascii():
        return tuple(_word_terms(run))
    terms: list[str] = []
    for word in _words(run):
        end = 0
        for match in _UNSPACED.finditer(word):
            terms.extend(_word_terms(word[end : match.start()]))
            terms.extend(_gram_terms(match.group(), index))
            end = match.end()
        terms.extend(_word_terms(word[end:]))
    return tuple(terms)


def _words(run: str) -> Iterator[str]:
    start = 0
    for position, char in enumerate(run):
        if char != "_" and unicodedata.category(char)[0] not in "LMN":
            yield run[start:position]
            start = position + 1
    yield run[start:]


def _gram_terms(run: str, index: bool) -> Iterator[str]:
    run = _fold(run)
    if index or len(run) == 1:
        yield from run
    for position in range(len(run) - 1):
        yield run[position : position + 2]


def _word_terms(word: str) -> Iterator[str]:
    # Folding can leave nothing, of a mark that stands alone.
    parts = [fold for piece in word.split("_") if piece for part in _case_parts(piece) if (fold := _fold(part))]
    if len(parts) > 1:
        yield _fold(word.replace("_", ""))[:MAX_TERM_CHARS]
    for part in parts:
        yield _stem(part)


def _case_parts(piece: str) -> list[str]:
    """Split before an upper case letter that begins a word, and between letters and digits."""
    parts: list[str] = []
    start = digits = 0
    for position in range(1, len(piece) + 1):
        if position < len(piece) and not _is_boundary(piece, position):
            continue
        digits += piece[start].isdigit()
        parts.append(piece[start:position])
        start = position
    return [piece] if digits >= _OPAQUE_DIGIT_PARTS else parts


def _is_boundary(piece: str, position: int) -> bool:
    before, char = piece[position - 1], piece[position]
    if before.isdigit() != char.isdigit():
        return True
    if not char.isupper():
        return False
    after = piece[position + 1 : position + 2]
    return not before.isupper() or (after.isalpha() and not after.isupper())


def _fold(word: str) -> str:
    word = word.casefold()
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _LATIN_MARK.sub("", unicodedata.normalize("NFKD", word)))


def _stem(word: str) -> str:
    word = word[:MAX_TERM_CHARS]
    if not word.isascii():
        return word
    # One stemmer per thread: PyStemmer's objects keep a cache that is not made for sharing.
    stemmer = getattr(_local, "stemmer", None)
    if stemmer is None:
        stemmer = _local.stemmer = Stemmer.Stemmer("english")
    return str(stemmer.stemWord(word))
