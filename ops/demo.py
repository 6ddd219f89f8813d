"""The demo: start the appliance, index three real code bases, ask three questions, print the answers.

Usage: ``python ops/demo.py --models FOLDER``. The data directory is ``$UNDERCROFT_HOME``; it is kept, so that a second
run finds all of it and takes seconds.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

from services.appliance.home import Home

ROOT = Path(__file__).resolve().parents[1]
MODEL = "all-minilm-l6-v2"
PACKAGES = ("psycopg_pool", "markdown_it")
# The project itself: its source, its protos, and its docs with the decision records.
OWN_FOLDERS = ("services", "proto", "docs")
QUESTIONS = (
    ("Where is it?", ["search", "replace a broken connection with a new one", "-p", "psycopg-pool", "-n", "3"]),
    ("What hangs on it?", ["refs", "AsyncConnectionPool.getconn", "-p", "psycopg-pool", "-n", "8"]),
    ("Why is it so?", ["why", "why are scores computed again after the search?", "-p", "undercroft", "-n", "2"]),
)


def undercroft(*arguments: str) -> None:
    """Run a command of the product as a person would, and show it."""
    print(f"\n$ undercroft {shlex.join(arguments)}", flush=True)
    done = subprocess.run([Path(sys.executable).parent / "undercroft", *arguments], cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(f"the demo stopped: undercroft {arguments[0]} ended with {done.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="folder with the prepared model")
    arguments = parser.parse_args()
    start = time.monotonic()
    home = Home.locate(None)
    undercroft("models", "install", str(arguments.models / MODEL))
    undercroft("up")
    for package in PACKAGES:
        undercroft("index", str(resources.files(package)), "--project", package.replace("_", "-"))
    undercroft("index", *OWN_FOLDERS, "--project", "undercroft")
    for question, command in QUESTIONS:
        print(f"\n== {question}", flush=True)
        undercroft(*command)
    place = shlex.quote(os.environ.get("UNDERCROFT_HOME", str(home.root)))
    print(f"\nDone in {time.monotonic() - start:.0f} s. The appliance goes on running: ask it more with")
    print(f"  export UNDERCROFT_HOME={place}; {Path(sys.executable).parent}/undercroft search 'your question'")
    print("and stop it with `make down`.")


if __name__ == "__main__":
    main()
