"""Try to leave the machine in one way: what ops/test/recorded must see. As root, since two of them are raw sockets."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

_OUTSIDE, _OUTSIDE6 = "198.51.100.7", "2001:db8:1::7"
_EXPERIMENT = 253  # a protocol that is neither TCP, UDP nor ICMP (RFC 3692)
# A question for an echo: its type, code, checksum, number and sequence.
_ECHO = struct.pack("!BBHHH", 8, 0, 0xF7FE, 1, 0)


def datagram() -> None:
    """Send to an address and a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.sendto(b"x", (_OUTSIDE, 53))


def stream() -> None:
    """Connect to an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        probe.connect((_OUTSIDE, 443))


def name() -> None:
    """Ask a resolver for a name."""
    socket.getaddrinfo("outside.example", 443)


def echo() -> None:
    """Ping an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as probe:
        probe.sendto(_ECHO, (_OUTSIDE, 0))


def protocol() -> None:
    """Send what has no ports."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, _EXPERIMENT) as probe:
        probe.sendto(b"x", (_OUTSIDE, 0))


def protocol6() -> None:
    """Send what has no ports, the newer way."""
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, _EXPERIMENT) as probe:
        probe.sendto(b"x", (_OUTSIDE6, 0))


WAYS = {way.__name__: way for way in (datagram, stream, name, echo, protocol, protocol6)}

if __name__ == "__main__":
    with contextlib.suppress(OSError):
        WAYS[sys.argv[1]]()
