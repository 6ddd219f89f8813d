"""No test reaches beyond this machine: a guard over this process's sockets, besides the namespace of `make test`."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from typing import Any

import pytest


def _is_local(address: Any) -> bool:
    if isinstance(address, str | bytes):
        return True
    host = address[0]
    if host in ("localhost", ""):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Fail a test that connects or resolves anything but loopback."""
    patch = pytest.MonkeyPatch()
    connect, resolve = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        assert _is_local(address), f"a test tried to reach {address}"
        connect(self, address)

    def guarded_resolve(host: Any, *args: Any, **kwargs: Any) -> Any:
        assert host is None or _is_local((host,)), f"a test tried to resolve {host}"
        return resolve(host, *args, **kwargs)

    patch.setattr(socket.socket, "connect", guarded_connect)
    patch.setattr(socket, "getaddrinfo", guarded_resolve)
    yield
    patch.undo()
