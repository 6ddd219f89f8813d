"""What extraction finds in real trees, and what it costs: by language, in this process.

    python ops/bench/extraction.py FOLDER... [--language NAME] [--tokenizer tokenizer.json]

Prints per language files, megabytes, chunks, symbols, references, the files that became plain text although their
language is known, CPU seconds per megabyte (parsing, dividing, and counting tokens, by estimate unless a tokenizer is
given), the slowest file, and the notes by code.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from services.ingest.chunks import ChunkKind
from services.ingest.extraction import extract
from services.ingest.extraction.languages import CODE_LANGUAGES
from services.ingest.extraction.tokens import token_counter
from services.ingest.sniffing import TextFile, sniff

BUDGET_TOKENS = 254
MAX_BYTES = 2 * 1024 * 1024


@dataclass
class Total:
    """Sums over the files of a language."""

    files: int = 0
    size: int = 0
    chunks: int = 0
    symbols: int = 0
    references: int = 0
    resolved: int = 0
    text: int = 0
    cpu_s: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    notes: Counter[str] = field(default_factory=Counter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--language")
    parser.add_argument("--tokenizer", type=Path)
    arguments = parser.parse_args()
    count = token_counter(arguments.tokenizer)
    totals: dict[str, Total] = defaultdict(Total)
    for folder in arguments.folders:
        for file in sorted(folder.rglob("*")):
            if not file.is_file() or file.is_symlink() or file.stat().st_size > MAX_BYTES:
                continue
            path = str(file.relative_to(folder))
            found = sniff(file.read_bytes(), path)
            if not isinstance(found, TextFile):
                continue
            started = time.process_time()
            extraction = extract(path, found.text, module="", count_tokens=count, budget_tokens=BUDGET_TOKENS)
            cpu_s = time.process_time() - started
            language = extraction.language
            if language not in {*CODE_LANGUAGES, "python"} or arguments.language not in (None, language):
                continue
            total = totals[language]
            total.files += 1
            total.size += len(found.text.encode())
            total.chunks += len(extraction.chunks)
            total.symbols += len(extraction.symbols)
            total.references += len(extraction.references)
            total.resolved += sum(one.resolved for one in extraction.references)
            total.text += any(one.kind is ChunkKind.TEXT for one in extraction.chunks)
            total.cpu_s += cpu_s
            total.slowest = max(total.slowest, (cpu_s, path))
            total.notes.update({note.code for note in extraction.notes})
    print(
        f"{'language':<12}{'files':>6}{'MB':>7}{'chunks':>8}{'symbols':>9}{'refs':>8}{'resolved':>9}{'text':>6}{'s/MB':>7}"
    )
    for language, one in sorted(totals.items()):
        megabytes = one.size / 1e6
        print(
            f"{language:<12}{one.files:>6}{megabytes:>7.2f}{one.chunks:>8}{one.symbols:>9}{one.references:>8}"
            f"{one.resolved / max(1, one.references):>9.0%}{one.text:>6}{one.cpu_s / max(megabytes, 1e-9):>7.2f}"
            f"   slowest {one.slowest[0]:.2f} s {one.slowest[1]}   {dict(one.notes)}"
        )


if __name__ == "__main__":
    main()
