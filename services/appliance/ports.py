"""Free TCP ports on loopback."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"

_FIRST_PORT = 10_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _candidates() -> range:
    """Return the ports below the ephemeral range.

    A port inside it can be taken by any outgoing connection while its service restarts; worse, a client that calls it
    meanwhile can connect to itself.
    """
    try:
        first_ephemeral = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        first_ephemeral = 32_768
    if first_ephemeral - _FIRST_PORT < 1_000:
        return range(_FIRST_PORT, 65_536)
    return range(_FIRST_PORT, first_ephemeral)


def _listen(port: int) -> socket.socket | None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # As servers do: a connection in TIME_WAIT does not make a port busy.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(1)
    except OSError:
        listener.close()
        return None
    return listener


def is_free(port: int) -> bool:
    """Tell whether a server could listen on ``port`` of loopback now."""
    listener = _listen(port)
    if listener is None:
        return False
    listener.close()
    return True


def free_ports(count: int, *, owner: str | None = None) -> list[int]:
    """Return ``count`` different ports that are free now: for one owner the same ones, as long as they are free."""
    candidates = _candidates()
    held: dict[int, socket.socket] = {}
    try:
        for port in random.Random(owner).sample(candidates, len(candidates)):
            if len(held) == count:
                break
            listener = _listen(port)
            if listener is not None:
                held[port] = listener
        if len(held) < count:
            raise OSError(f"No {count} free TCP ports on {LOOPBACK}.")
        return list(held)
    finally:
        for listener in held.values():
            listener.close()
