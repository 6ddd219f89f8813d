"""How soon an edit of a watched folder is searchable, and what watching costs when nothing happens.

    python ops/bench/watch.py [--edits N] [--burst N] [--lexical]

Starts an appliance of its own in a scratch directory, as ``indexing.py`` does. Edits are written in bursts, each with a
word of its own; the time runs from the end of the write to the first search that finds it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from tests.support.appliance import MODEL, Appliance, running_appliance

PROJECT = "bench-watch"
CORPUS = "markdown_it"
_POLL_S = 0.02
_IDLE_S = 30.0


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "it did not become searchable"
        time.sleep(_POLL_S)


def edited(appliance: Appliance, folder: Path, edits: int, burst: int) -> list[float]:
    """Edit files in bursts, and return the seconds until each edit was found, ascending."""
    chosen = random.Random(11)
    files = sorted(folder.rglob("*.py"))
    taken: list[float] = []
    number = 0
    while number < edits:
        written: dict[str, float] = {}
        for _ in range(min(burst, edits - number)):
            number += 1
            word = f"zq{number}x{chosen.randrange(10**9)}"
            path = chosen.choice(files)
            path.write_text(f"{path.read_text()}\n\ndef {word}():\n    return {number}\n")
            written[word] = time.monotonic()
        for word, at in written.items():
            wait(lambda word=word: found(appliance, word))  # type: ignore[misc]
            taken.append(time.monotonic() - at)
        time.sleep(chosen.uniform(0.0, 1.5))
    return sorted(taken)


def found(appliance: Appliance, word: str) -> bool:
    """Tell whether a search finds the word itself: its parts are words too, which other edits have."""
    return any(word in hit.text for hit in appliance.search(word, PROJECT, preset="lexical").hits)


def idle_share(appliance: Appliance) -> float:
    """Return the share of a core that the ingest service uses when nothing happens."""
    process = psutil.Process(appliance.pid("ingest"))
    time.sleep(5)
    before = sum(process.cpu_times()[:2])
    time.sleep(_IDLE_S)
    return (sum(process.cpu_times()[:2]) - before) / _IDLE_S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=100)
    parser.add_argument("--burst", type=int, default=5)
    parser.add_argument("--lexical", action="store_true", help="a project without a model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, running_appliance(Path(scratch) / "home") as appliance:
        folder = Path(scratch) / CORPUS
        shutil.copytree(str(resources.files(CORPUS)), folder, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        unwatched = idle_share(appliance)
        appliance.create_project(PROJECT, [folder], model="" if options.lexical else MODEL)
        appliance.update_project(PROJECT, watch=True)
        wait(lambda: appliance.status(PROJECT).files > 0)
        taken = edited(appliance, folder, options.edits, options.burst)
        print(
            f"{len(taken)} edits in bursts of {options.burst}: searchable after {statistics.median(taken):.2f} s"
            f" (median), {taken[int(0.95 * (len(taken) - 1))]:.2f} s (p95), {taken[-1]:.2f} s (most); idle:"
            f" {100 * idle_share(appliance):.2f} % of a core watching, {100 * unwatched:.2f} % before"
        )


if __name__ == "__main__":
    main()
