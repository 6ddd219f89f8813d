"""What indexing costs: a folder cold, again with no change, and after one function was changed.

    python ops/bench/indexing.py FOLDER [--rounds N]

Starts an appliance of its own in a scratch directory (the prepared model is taken from ``.cache/models``), copies
FOLDER, and prints wall time and CPU seconds per service, as the kernel accounts them, children included. "Searchable"
counts the time from the command to a search answer that has the changed function.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import psutil

from tests.support.appliance import Appliance, running_appliance

SERVICES = ("ingest", "embed", "search", "decisions")


def cpu_seconds(appliance: Appliance) -> dict[str, float]:
    """Return the CPU seconds that each service has used so far, its living and ended children included."""
    used = {}
    for service in SERVICES:
        process = psutil.Process(appliance.pid(service))
        total = process.cpu_times()
        seconds = total.user + total.system + total.children_user + total.children_system
        for child in process.children(recursive=True):
            times = child.cpu_times()
            seconds += times.user + times.system
        used[service] = seconds
    return used


def measured(appliance: Appliance, name: str, work: Callable[[], object]) -> None:
    """Run a step, and print its wall time and the CPU seconds of each service."""
    before, start = cpu_seconds(appliance), time.perf_counter()
    result = work()
    wall = time.perf_counter() - start
    used = {service: seconds - before[service] for service, seconds in cpu_seconds(appliance).items()}
    parts = ", ".join(f"{service} {seconds:.2f}" for service, seconds in used.items())
    print(f"{name:<28} wall {wall:7.2f} s   CPU-s {sum(used.values()):7.2f} ({parts})   {result}")


def change_one_function(folder: Path) -> str:
    """Put a line with a new word into the first function with a body that can take one, and return the word."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(errors="replace")
        found = re.search(r"^def \w+\([^)]*\):\n(    \"\"\"[^\"]*\"\"\"\n)", text, re.MULTILINE)
        if found:
            word = f"quicksilver{time.time_ns() % 10**9}"
            path.write_text(text[: found.end()] + f"    {word} = None\n" + text[found.end() :])
            return word
    sys.exit("no function to change")


def machine() -> str:
    """Say what matters of the processor."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    flags = set(re.findall(r"\w+", next(line for line in cpuinfo.splitlines() if line.startswith("flags"))))
    kind = "AVX-512 VNNI" if "avx512_vnni" in flags else "AVX2 without VNNI" if "avx2" in flags else "no AVX2"
    return f"{psutil.cpu_count()} processors, {kind}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / arguments.folder.name
        shutil.copytree(arguments.folder, folder)
        with running_appliance(Path(scratch) / "home") as appliance:
            appliance.create_project("bench", [folder])

            def index() -> str:
                report = appliance.index("bench")
                return (
                    f"{report.files.new} new, {report.files.changed} changed, {report.files.unchanged} unchanged;"
                    f" {report.chunks.added} chunks added, {report.embeddings.embedded} embedded"
                )

            measured(appliance, "cold", index)
            index()
            for _ in range(arguments.rounds):
                measured(appliance, "no change", index)
            for _ in range(arguments.rounds):
                word = change_one_function(folder)

                def until_searchable(word: str = word) -> str:
                    seen = index()
                    hits = appliance.search(word, "bench", preset="lexical").hits
                    if not hits or word not in hits[0].text:
                        sys.exit(f"{word} is not found")
                    return seen

                measured(appliance, "one function, to searchable", until_searchable)


if __name__ == "__main__":
    main()
