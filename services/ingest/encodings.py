"""The encoding of a text that is no UTF-8 and does not say what it is in.

Legacy encodings are guessed by chardetng, the detector of a browser, from the lines that are not all ASCII: in source
code a few comments would drown in what says nothing. UTF-16 without a mark is what it leaves out. All is a function of
the bytes, and looks at no more than a bounded part of them.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

_PROBE_BYTES = 64 * 1024
_SCRIPT_CHARACTERS = 4_096
_HIGH = re.compile(rb"[\x80-\xff]")
# Of XML, HTML, CSS and gettext; quoted or not.
_DECLARED = re.compile(
    rb"<\?xml[^>]{1,200}?encoding=[\"']([\w.:-]{2,40})|<meta[^>]{1,200}?charset=[\"']?([\w.:-]{2,40})"
    rb"|\A@charset [\"']([\w.:-]{2,40})|Content-Type: text/plain; charset=([\w.:-]{2,40})",
    re.IGNORECASE,
)
_DECLARED_BYTES = 2_048
# What Python decodes where the Web's name is that of a smaller set.
_SUPERSETS = {
    "shift_jis": "cp932", "euc-kr": "cp949", "gbk": "gb18030", "gb2312": "gb18030", "big5": "big5hkscs",
    "iso-8859-8-i": "iso8859-8", "windows-874": "cp874", "x-mac-cyrillic": "mac-cyrillic", "iso-8859-1": "cp1252",
}  # fmt: skip
_IMPOSSIBLE = frozenset({"Cc", "Cn", "Co", "Cs"})  # categories: controls, and what has no character
_HUNGARIAN = frozenset("áéíóöüÁÉÍÓÖÜ")
_NOT_HUNGARIAN = frozenset("ãñçäåøæßÃÑÇÄÅØÆ")


def declared(data: bytes) -> str | None:
    """Return the codec that markup or gettext names in its head, if there is one of that name."""
    match = _DECLARED.search(data[:_DECLARED_BYTES])
    if match is None:
        return None
    name = next(group for group in match.groups() if group).decode("ascii").lower()
    try:
        return codecs.lookup(_SUPERSETS.get(name, name)).name
    except (LookupError, ValueError):
        return None


def guessed(data: bytes) -> str:
    """Guess the codec of a text in a legacy encoding."""
    from chardetng_py import EncodingDetector

    telling = _telling(data)
    detector = EncodingDetector()
    # Where the probe was cut, half of a character may stand at its end.
    detector.feed(telling[:_PROBE_BYTES], last=len(telling) <= _PROBE_BYTES)
    name = detector.guess(tld=None, allow_utf8=False).lower()
    if name == "windows-1252" and _is_hungarian(telling):
        name = "windows-1250"
    try:
        return codecs.lookup(_SUPERSETS.get(name, name)).name
    except LookupError:
        return "cp1252"


def is_iso2022_jp(data: bytes) -> bool:
    """Whether the bytes, all of ASCII, shift to Japanese and back by the escapes of ISO-2022-JP."""
    return (b"\x1b$B" in data or b"\x1b$@" in data) and (b"\x1b(B" in data or b"\x1b(J" in data)


def utf16_order(data: bytes) -> str | None:
    """Return the codec of UTF-16 without a mark, or None where the bytes are none.

    Both orders are tried on the head. The right one yields characters that are assigned and no controls, and more of
    ASCII than the other: a text has spaces or line ends, which the wrong order makes something else of.
    """
    if len(data) % 2 or len(data) < 4:
        return None
    head = data[: 2 * _SCRIPT_CHARACTERS]
    plain = {codec: _plain_characters(head, codec) for codec in ("utf-16-le", "utf-16-be")}
    best = max(plain, key=lambda codec: plain[codec])
    return best if plain[best] > 0 and plain[best] > 2 * min(plain.values()) else None


def is_script(text: str) -> bool:
    """Whether what a text has beyond ASCII is mostly letters, as in a text in another script."""
    beyond = [character for character in text[: 4 * _SCRIPT_CHARACTERS] if character > "\x7f"]
    letters = sum(unicodedata.category(character)[0] in "LM" for character in beyond)
    return letters * 10 >= len(beyond) * 7


def _telling(data: bytes) -> bytes:
    """Return the lines that are not all ASCII, up to about a bounded size."""
    lines: list[bytes] = []
    size = 0
    for line in data.splitlines(keepends=True):
        if line.isascii():
            continue
        if len(line) > _PROBE_BYTES:
            first = _HIGH.search(line)
            line = line[first.start() if first else 0 :]  # noqa: PLW2901 - the rest of it says nothing
        lines.append(line[: _PROBE_BYTES + 1])
        size += len(lines[-1])
        if size > _PROBE_BYTES:
            break
    return b"".join(lines)


def _is_hungarian(telling: bytes) -> bool:
    """Tell Hungarian in windows-1250, which differs from a text in windows-1252 in two letters."""
    found = set(telling.decode("cp1252", "replace"))
    return bool(found & set("õûÕÛ")) and len(found & _HUNGARIAN) >= 3 and not found & _NOT_HUNGARIAN


def _plain_characters(head: bytes, codec: str) -> int:
    """Count the ASCII characters of a text; 0 where it can't be one."""
    if len(head) >= 2 * _SCRIPT_CHARACTERS:
        head = head[:-2]  # the head may end within a pair
        unit = int.from_bytes(head[-2:], "little" if codec.endswith("le") else "big")
        head = head[:-2] if 0xD800 <= unit < 0xDC00 else head
    try:
        text = head.decode(codec)
    except UnicodeDecodeError:
        return 0
    if any(unicodedata.category(character) in _IMPOSSIBLE and character not in "\t\n\r\f" for character in set(text)):
        return 0
    return sum(character < "\x80" for character in text)
