"""The process that imports: reads its work from standard input, and writes what failed as a list in JSON.

Runs by itself in an interpreter without any packages, so it imports nothing of ours before it is told where that is.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def failure_of(module: str, name: str = "") -> str:
    """Import a module and a name in it; returns the reason where that fails, else nothing."""
    try:
        found = importlib.import_module(module)
        if name and name != "*" and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Import our first packages, then what others wrote, then all of ours."""
    work = json.load(sys.stdin)
    sys.path[:0] = work["paths"]
    # Libraries may print while they are imported: only the answer goes to the caller.
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    failed = [f"{name}: {reason}" for name in work["first"] if (reason := failure_of(name))]
    for module, name, where in work["foreign"]:
        if reason := failure_of(module, name):
            failed.append(f"{module}{f'.{name}' if name else ''}, which {where} imports: {reason}")
    if not failed:
        failed = [f"{name}: {reason}" for name in work["own"] if (reason := failure_of(name))]
    answer.write(json.dumps(failed) + "\n")
    answer.close()


if __name__ == "__main__":
    main()
