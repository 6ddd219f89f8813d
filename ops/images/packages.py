"""Which Debian packages each root file system is made of, and what of them is kept."""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

FILE = Path(__file__).with_name("packages.toml")
LOCK = Path(__file__).with_name("packages.lock")
BUILDER = "builder"

_PROGRAM_FOLDERS = ("bin", "sbin", "usr/bin", "usr/sbin")
# Nobody reads these where there is no shell; licences are in usr/share/doc/*/copyright and stay.
_DROP_EVERYWHERE = (
    "etc/cron.*",
    "etc/logrotate.d/*",
    "etc/update-motd.d/*",
    "lib/systemd/*",
    "usr/lib/systemd/*",
    "usr/share/bash-completion/*",
    "usr/share/bug/*",
    "usr/share/info/*",
    "usr/share/lintian/*",
    "usr/share/locale/*",
    "usr/share/man/*",
    "usr/share/pixmaps/*",
)
_DOCS = "usr/share/doc/"


@dataclass(frozen=True, slots=True)
class RootFs:
    """One root file system; ``on`` names another one that it is a layer over.

    ``folders`` are mount points that every user of group 0 may write to.
    """

    name: str
    suite: str
    packages: tuple[str, ...]
    programs: frozenset[str] = frozenset()
    drop: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    on: str = ""

    def keeps(self, path: str) -> bool:
        """Say whether a file of a package, by its path without a leading slash, is in the image."""
        if path in self.programs:
            return True
        if path.startswith(_DOCS):
            # The name of a package that shares another one's folder is a link to it.
            return path.count("/") == 3 or PurePosixPath(path).name == "copyright"
        if str(PurePosixPath(path).parent) in _PROGRAM_FOLDERS:
            return False
        return not any(fnmatch.fnmatchcase(path, pattern) for pattern in (*self.drop, *_DROP_EVERYWHERE))


def load_packages(path: Path = FILE) -> dict[str, RootFs]:
    """Read the root file systems, by name."""
    tables = tomllib.loads(path.read_text("utf-8"))
    return {
        name: RootFs(
            name=name,
            suite=table["suite"],
            packages=tuple(table["packages"]),
            programs=frozenset(table.get("programs", ())),
            drop=tuple(table.get("drop", ())),
            folders=tuple(table.get("folders", ())),
            on=table.get("on", ""),
        )
        for name, table in tables.items()
    }


def read_lock(path: Path = LOCK) -> dict[str, str]:
    """Return what is recorded: SHA-256 by ``root file system/package version architecture``."""
    if not path.exists():
        return {}
    lines = (line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def write_lock(packages: dict[str, str], path: Path = LOCK) -> None:
    """Record packages, as ``read_lock`` returns them."""
    head = "# The Debian packages of the last release's images; `make bases` says where Debian has newer ones.\n"
    path.write_text(head + "".join(f"{packages[name]}  {name}\n" for name in sorted(packages)), "utf-8")
