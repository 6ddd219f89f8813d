"""Addresses in settings: where to listen, and where a sister service is."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_NUMBERS = re.compile(r"[0-9.]+")
_DNS = re.compile(r"dns:(?://[^/]*/)?(?P<address>[^/]*)")
_LAST_PORT = 65_535
_LISTEN = "must be host:port, such as 0.0.0.0:50051 or [::]:50051, with a port from 0 to 65535"
_TARGET = "must be host:port, such as 127.0.0.1:50052 or dns:///embed:50052, with a port from 1 to 65535"


def check_listen(value: str) -> str:
    """Return ``host:port`` to listen on, or empty; ValueError says what it must be."""
    if value and not _is_address(value, first_port=0):
        raise ValueError(_LISTEN)
    return value


def check_target(value: str) -> str:
    """Return a target of gRPC, or empty; ValueError says what it must be.

    ``host:port`` and the schemes dns, ipv4, ipv6, unix and unix-abstract (grpc/grpc doc/naming.md); a port is asked for
    always, since gRPC's own of 443 is nobody's here.
    """
    if not value:
        return value
    scheme, _, rest = value.partition(":")
    if scheme in ("unix", "unix-abstract"):
        valid = bool(rest.strip("/"))
    elif scheme in ("ipv4", "ipv6"):
        valid = all(_is_address(one, first_port=1, ip=int(scheme[-1])) for one in unquote(rest).split(","))
    else:
        named = _DNS.fullmatch(value)
        # A host may be called dns.
        valid = _is_address(value, first_port=1) or (named is not None and _is_address(named["address"], first_port=1))
    if not valid:
        raise ValueError(_TARGET)
    return value


def _is_address(value: str, *, first_port: int, ip: int | None = None) -> bool:
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and first_port <= int(port) <= _LAST_PORT):
        return False
    if host.startswith("[") and host.endswith("]"):
        return ip != 4 and _is_ip(host[1:-1].partition("%")[0], 6)
    # What has digits alone is no name that anybody could look up.
    if _NUMBERS.fullmatch(host):
        return ip != 6 and _is_ip(host, 4)
    return ip is None and _NAME.fullmatch(host) is not None and ".." not in host


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False
