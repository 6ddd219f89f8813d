"""A network namespace that leads nowhere: loopback works, all else is recorded and dropped, DNS too."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

RESOLVER = "203.0.113.53"

_RULES = Path(__file__).with_name("sink.nft")
_TABLE = ("inet", "record")
_SETS = ("tried4", "tried6", "other4", "other6")


@dataclass(frozen=True, slots=True)
class Sink:
    """A namespace with the record of what tried to leave it."""

    name: str

    @property
    def path(self) -> str:
        """The namespace as a file, for container engines."""
        return f"/run/netns/{self.name}"

    def run(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *command], check=False, capture_output=True, text=True, env=environment
        )

    def start(self, *command: str, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a command inside; its output goes nowhere."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )

    def tried(self) -> list[str]:
        """Return every destination that something tried to reach, as ``address protocol port``, or without a port."""
        listing = json.loads(_must(*self._inside("nft", "-j", "list", "table", *_TABLE)))
        found = []
        for entry in listing["nftables"]:
            for element in entry.get("set", {}).get("elem", ()):
                value = element["elem"]["val"] if "elem" in element else element
                found.append(" ".join(str(part) for part in value["concat"]))
        return sorted(found)

    def forget(self) -> None:
        """Empty the record."""
        for name in _SETS:
            _must(*self._inside("nft", "flush", "set", *_TABLE, name))

    def _inside(self, *command: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self.name, *command)


@contextmanager
def opened() -> Iterator[Sink]:
    """Make a namespace, and remove it in the end. Needs root, iproute2 and nftables."""
    sink = Sink(f"undercroft-{os.getpid()}")
    _must("ip", "netns", "add", sink.name)
    try:
        for command in (
            "link set lo up",
            "link add sink type bridge",
            "address add 203.0.113.2/24 dev sink",
            "-6 address add 2001:db8::2/64 dev sink nodad",
            "link set sink up",
            "route add default dev sink",
            "-6 route add default dev sink",
        ):
            _must("ip", "-n", sink.name, *command.split())
        _must("ip", "netns", "exec", sink.name, "nft", "-f", str(_RULES))
        yield sink
    finally:
        _must("ip", "netns", "delete", sink.name)


def _must(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
