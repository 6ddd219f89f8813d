"""Replace this process by a command, after the few system calls that Python's ``subprocess`` cannot make safely.

A stand-alone script (``python -I -S launch.py [options] -- COMMAND...``), because a ``preexec_fn`` would run Python
between fork and exec in a process that holds gRPC threads (grpc/grpc#22624), and util-linux ``unshare`` knows
``--map-user`` only from 2.34 on.

``--die-with-parent=PID:SIGNAL``  the kernel sends SIGNAL when the parent, which must be PID, dies
``--namespace=UID``               become UID in a user namespace of our own: Postgres refuses to run as root, and a
                                  mapped user keeps the caller's access to 0700 trees
``--drop=UID``                    become UID for real, keeping only the right to pass directories; for root in
                                  containers that forbid user namespaces
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 1, 8, 47, 2
_CAP_DAC_OVERRIDE = 1
_LINUX_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilityData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _checked(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _prctl(option: int, *arguments: int) -> None:
    words = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_libc.prctl(option, *words), "prctl")


def die_with_parent(value: str) -> None:
    """Ask the kernel for a signal at the parent's death; leave at once when it is dead already."""
    parent, signal_number = (int(part) for part in value.split(":"))
    _prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        sys.exit(1)


def enter_namespace(value: str) -> None:
    """Become user and group ``value`` in a new user namespace, mapped to the caller's own."""
    uid, gid = os.geteuid(), os.getegid()
    _checked(_libc.unshare(_CLONE_NEWUSER), "unshare")
    # The kernel lets an unprivileged process map its group only after it has given up setgroups.
    for name, text in (("setgroups", "deny"), ("gid_map", f"{value} {gid} 1"), ("uid_map", f"{value} {uid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def drop(value: str) -> None:
    """Become user and group ``value``, keeping CAP_DAC_OVERRIDE so that 0700 parents can still be passed."""
    target = int(value)
    _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(target, target, target)
    os.setresuid(target, target, target)
    header = _CapabilityHeader(_LINUX_CAPABILITY_VERSION_3, 0)
    bit = 1 << _CAP_DAC_OVERRIDE
    data = (_CapabilityData * 2)(_CapabilityData(bit, bit, bit), _CapabilityData(0, 0, 0))
    _checked(_libc.capset(ctypes.byref(header), data), "capset")
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE)


_OPTIONS: dict[str, Callable[[str], None]] = {
    "--die-with-parent": die_with_parent,
    "--namespace": enter_namespace,
    "--drop": drop,
}


def main(arguments: list[str]) -> None:
    """Apply the options in order, then exec the command."""
    split = arguments.index("--")
    for option in arguments[:split]:
        name, _, value = option.partition("=")
        _OPTIONS[name](value)
    command = arguments[split + 1 :]
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
