"""Names that come from files, made to fit where they are stored: a database index holds no entry over 2.7 kB."""

from __future__ import annotations

import hashlib

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 600
_DIGEST_CHARS = 16


def fitted(name: str, most_bytes: int = MAX_NAME_BYTES) -> str:
    """Return a name as it is, or its beginning with a hash of all of it: different names stay different."""
    raw = name.encode()
    if len(raw) <= most_bytes:
        return name
    digest = hashlib.sha256(raw).hexdigest()[:_DIGEST_CHARS]
    return raw[: most_bytes - _DIGEST_CHARS - 4].decode(errors="ignore") + "…" + digest
