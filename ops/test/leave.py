"""Try to leave the machine, by an address and by a name: what ops/test/recorded must see."""

import contextlib
import socket

with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.sendto(b"x", ("198.51.100.7", 53))
with contextlib.suppress(OSError):
    socket.getaddrinfo("outside.example", 443)
