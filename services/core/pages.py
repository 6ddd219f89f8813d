"""Page tokens: authenticated, and bound to the request that they continue.

A token is base64url(HMAC-SHA-256(key, body)[:16] + body), body = deflated JSON of the request's digest and the
position. A token for another request, an altered one, and one of another key are all refused alike.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import secrets
import zlib
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.message import Message

from services.core.errors import InvalidArgument, NotReady

_MAC_BYTES = 16
_MAX_TOKEN_CHARS = 8192

JSON = str | int | float | bool | None | list["JSON"] | dict[str, "JSON"]


def load_key(secrets_dir: Path | None) -> bytes:
    """Return the key that all replicas share, made on first use; without a folder, a key of this process."""
    if secrets_dir is None:
        return secrets.token_bytes(32)
    path = secrets_dir / "page-token.key"
    try:
        return _read_key(path)
    except OSError as error:
        raise NotReady(
            f"The key of page tokens, {path}, can't be read or made: {error.strerror}.",
            remedy="Have UNDERCROFT_SECRETS_DIR name a folder with the key, or one that the service may write.",
        ) from error


def _read_key(path: Path) -> bytes:
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(32))
        try:
            # link() fails when another service was first, so all read one key.
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    return path.read_bytes()


def request_digest(request: Message) -> str:
    """Digest what a token is bound to: the request without its page fields."""
    bound = type(request)()
    bound.CopyFrom(request)
    for field in ("page_token", "page_size"):
        if field in bound.DESCRIPTOR.fields_by_name:
            bound.ClearField(field)
    return hashlib.sha256(bound.SerializeToString(deterministic=True)).hexdigest()[:32]


class PageTokens:
    """Seals and opens page tokens with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def seal(self, request: Message, position: Mapping[str, JSON]) -> str:
        """Make the token that continues ``request`` at ``position``."""
        body = zlib.compress(json.dumps([request_digest(request), dict(position)], separators=(",", ":")).encode())
        return base64.urlsafe_b64encode(self._mac(body) + body).decode().rstrip("=")

    def open(self, request: Message, token: str) -> dict[str, JSON]:
        """Return the position in ``token``; InvalidArgument when it is not one of ours for this request."""
        refused = InvalidArgument(
            "The page token does not belong to this request.",
            remedy="Send the token with the arguments of the answer that it came with, or start without one.",
            reason="INVALID_PAGE_TOKEN",
        )
        if len(token) > _MAX_TOKEN_CHARS:
            raise refused
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except (binascii.Error, ValueError):
            raise refused from None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            raise refused
        digest, position = json.loads(zlib.decompress(body))
        if digest != request_digest(request):
            raise refused
        assert isinstance(position, dict)
        return position

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._key, body, "sha256")[:_MAC_BYTES]
