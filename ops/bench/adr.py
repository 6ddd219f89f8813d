"""How well decisions are mined: each corpus of decision records against its reference labels.

    python ops/bench/adr.py [DIRECTORY] [--wrong]

DIRECTORY holds one folder per corpus, with its files below it and a ``gold.jsonl`` beside them (default:
``../shared/eval/adr`` beside the checkout, or the environment's UNDERCROFT_EVAL with ``/adr``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from services.decisions.linking import link
from services.decisions.mining import mine
from services.decisions.records import Decision, RelationKind, Resolution

ATTRIBUTES = ("number", "title", "status", "status_raw", "implemented", "date")
RELATIONS = (RelationKind.SUPERSEDES, RelationKind.SUPERSEDED_BY)


@dataclass
class Score:
    """Counts of one corpus; ``right`` and ``pairs`` by attribute and relation."""

    files: int = 0
    seconds: float = 0.0
    records: Counter[str] = field(default_factory=Counter)
    judged: int = 0
    right: Counter[str] = field(default_factory=Counter)
    pairs: dict[str, Counter[str]] = field(default_factory=lambda: {kind.value: Counter() for kind in RELATIONS})
    unresolved: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def default_directory() -> Path:
    """Return where the evaluation data lies unless it is named."""
    root = os.environ.get("UNDERCROFT_EVAL")
    return (Path(root) if root else Path(__file__).resolve().parents[3] / "shared" / "eval") / "adr"


def corpora(directory: Path) -> list[Path]:
    """Return the folders of ``directory`` that hold labels."""
    return sorted(path.parent for path in directory.glob("*/gold.jsonl"))


def score(corpus: Path) -> Score:
    """Mine one corpus and compare."""
    result = Score()
    gold = [json.loads(line) for line in (corpus / "gold.jsonl").read_text("utf-8").splitlines() if line.strip()]
    started = time.process_time()
    mined: dict[str, Decision | None] = {}
    for entry in gold:
        mined[entry["path"]] = mine(entry["path"], (corpus / entry["path"]).read_bytes().decode("utf-8", "replace"))
    links = link([decision for decision in mined.values() if decision is not None])
    result.seconds = time.process_time() - started
    result.files = len(gold)
    for found in links:
        result.unresolved[found.resolution.value] += not found.derived
    for entry in gold:
        _compare(entry, mined[entry["path"]], result)
        for kind in RELATIONS:
            targets = {
                found.target
                for found in links
                if found.source == entry["path"] and found.kind is kind and found.resolution is Resolution.RESOLVED
            }
            expected = set(entry[kind.value])
            counts = result.pairs[kind.value]
            counts["both"] += len(targets & expected)
            counts["mined"] += len(targets)
            counts["gold"] += len(expected)
            if targets != expected:
                result.wrong.append(f"{entry['path']}: {kind.value} {sorted(targets)} for {sorted(expected)}")
    return result


def _compare(entry: dict[str, object], decision: Decision | None, result: Score) -> None:
    expected = bool(entry["is_decision"])
    result.records["gold"] += expected
    result.records["mined"] += decision is not None
    result.records["both"] += expected and decision is not None
    if expected != (decision is not None):
        result.wrong.append(f"{entry['path']}: decision {decision is not None} for {expected}")
    if not expected or decision is None:
        return
    result.judged += 1
    for attribute in ATTRIBUTES:
        value = getattr(decision, attribute)
        value = value.isoformat() if attribute == "date" and value else value
        if value == entry[attribute]:
            result.right[attribute] += 1
        else:
            result.wrong.append(f"{entry['path']}: {attribute} {value!r} for {entry[attribute]!r}")


def _rate(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "  -  "


def main() -> int:
    """Print one line per corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=Path, default=default_directory())
    parser.add_argument("--wrong", action="store_true", help="list every difference")
    arguments = parser.parse_args()
    folders = corpora(arguments.directory)
    if not folders:
        print(f"No corpora with gold.jsonl under {arguments.directory}: nothing measured.")
        return 0
    print("corpus            files  is P  is R  is F1 " + " ".join(f"{name:>11}" for name in ATTRIBUTES), end="")
    print("   supersedes P/R   superseded_by P/R   ambiguous missing  CPU ms/file")
    for folder in folders:
        result = score(folder)
        both, mined, gold = (result.records[key] for key in ("both", "mined", "gold"))
        line = f"{folder.name:<16} {result.files:>6}  "
        line += f"{_rate(both, mined)} {_rate(both, gold)} {_rate(2 * both, mined + gold)}"
        line += " " + " ".join(f"{_rate(result.right[name], result.judged):>11}" for name in ATTRIBUTES)
        for kind in RELATIONS:
            counts = result.pairs[kind.value]
            precision, recall = _rate(counts["both"], counts["mined"]), _rate(counts["both"], counts["gold"])
            line += f"   {precision} / {recall} ({counts['gold']})"
        line += f"   {result.unresolved['ambiguous']:>6} {result.unresolved['missing']:>6}"
        print(line + f"   {1000 * result.seconds / max(1, result.files):.2f}")
        if arguments.wrong:
            print("".join(f"    {difference}\n" for difference in result.wrong), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
