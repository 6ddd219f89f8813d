"""The user as whom Postgres runs: it refuses to run as root, and initdb wants a user that has a name."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from services.core.errors import NotReady, PermissionDenied

_NOBODY = 65_534
_LAUNCH = Path(__file__).with_name("launch.py")
_PROBE_LIMIT_S = 20


class Standing(Enum):
    """How the server gets its user."""

    DIRECT = "direct"
    NAMESPACE = "namespace"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Account:
    """A way to run Postgres, and the owner that its files have, seen from here."""

    standing: Standing
    uid: int
    owner: int

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` as this account."""
        if self.standing is Standing.DIRECT:
            return list(command)
        return [*launcher(), f"--{self.standing.value}={self.uid}", "--", *command]

    def claim(self, directory: Path) -> None:
        """Give a directory tree to this account, when an earlier start ran as another.

        Raises: PermissionDenied when that is not ours to give.
        """
        if directory.stat().st_uid == self.owner:
            return
        try:
            for folder, folders, files in os.walk(directory, topdown=False):
                for name in (*folders, *files):
                    os.chown(os.path.join(folder, name), self.owner, self.owner, follow_symlinks=False)
            # The top comes last: it is what the next start looks at.
            os.chown(directory, self.owner, self.owner)
        except PermissionError as error:
            raise PermissionDenied(
                f"{directory} belongs to user {directory.stat().st_uid} and cannot be given to user {self.owner}.",
                remedy="Run as the user who started the appliance before.",
            ) from error


def launcher() -> list[str]:
    """Return the command that starts ``launch.py``, isolated from the environment."""
    return [sys.executable, "-I", "-S", str(_LAUNCH)]


@cache
def current_account() -> Account:
    """Return the account for the user of this process.

    Raises: NotReady when this is root and the system offers no way out of root.
    """
    uid = os.geteuid()
    if uid != 0 and _has_name(uid):
        return Account(Standing.DIRECT, uid, uid)
    named = _named_user()
    for account in (Account(Standing.NAMESPACE, named, uid), Account(Standing.DROP, named, named)):
        # Only root can drop; an unnamed user can still enter a namespace in which it has a name.
        if (account.standing is Standing.NAMESPACE or uid == 0) and _works(account):
            return account
    if uid != 0:
        return Account(Standing.DIRECT, uid, uid)
    raise NotReady(
        "Postgres does not run as root, and this system allows root neither a user namespace nor another user.",
        remedy="Run as an ordinary user, or allow user namespaces (sysctl user.max_user_namespaces; in a container, "
        "a seccomp profile that allows unshare, or the capabilities SETUID and SETGID).",
        reason="ROOT_NOT_SUPPORTED",
    )


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _named_user() -> int:
    if _has_name(_NOBODY):
        return _NOBODY
    return next((entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0), _NOBODY)


def _works(account: Account) -> bool:
    # -I -S: the probe must not depend on the user's site directory.
    probe = account.command([sys.executable, "-I", "-S", "-c", f"import os; assert os.geteuid() == {account.uid}"])
    try:
        return subprocess.run(probe, capture_output=True, timeout=_PROBE_LIMIT_S, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
