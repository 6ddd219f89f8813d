"""JSON documents of model directories, which may come from anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

# All that reading values out of a document that is none raises.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
_MOST = 2**31


def parse_document(data: bytes) -> Mapping[str, Any]:
    """Read a JSON object whose texts can be stored and sent. Raises what ``MALFORMED`` names."""
    document = decode_json(data.decode("utf-8"), parse_constant=_refuse)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def decode_json(text: str, *, parse_constant: Callable[[str], object] | None = None) -> object:
    """Decode JSON whose strings are Unicode text; raise ``ValueError`` for anything else.

    ``parse_constant`` is given NaN and the infinities, which are floats without it.
    """
    try:
        document: object = json.loads(text, parse_constant=parse_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if "\\u" in text:
        # Escapes can spell half a character, which nothing can store or send.
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def number(value: object, least: int = 0) -> int:
    """Return a whole number from ``least`` to 2^31 - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _MOST:
        raise ValueError(f"{str(value)[:40]} is no whole number from {least:,} to {_MOST - 1:,}")
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number")
