"""JSON documents of model directories, which may come from anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# All that reading values out of a document that is none raises.
MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError)
_MOST = 2**31


def parse_document(data: bytes) -> Mapping[str, Any]:
    """Read a JSON object whose texts can be stored and sent. Raises what ``MALFORMED`` names."""
    document = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    # Escapes can spell half a character, which no message may carry.
    json.dumps(document, ensure_ascii=False).encode("utf-8")
    return document


def number(value: object, least: int = 0) -> int:
    """Return a whole number from ``least`` to 2^31 - 1."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _MOST:
        raise ValueError(f"{str(value)[:40]} is no whole number from {least:,} to {_MOST - 1:,}")
    return value


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number")
