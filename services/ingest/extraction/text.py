"""Any other text: blocks between blank lines, packed into chunks within the budget.

Cuts fall where a reader would make them: before a heading or a table of a config format behind a blank line, else at a
blank line, else at a line that is not indented. They depend on what stands before them alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.ingest.chunks import Budget, ChunkKind, Extraction, Note, Unit, bounded
from services.ingest.sniffing import split_lines

_STRONG = re.compile(
    r"\[{1,2}[^\]]+\]{1,2}\s*$|---\s*$|#{1,6} |={2,6} |(def|class|func|fn|function|type|struct|impl)\b"
)
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+.:_])\1{2,}\s*$")


def extract_text(
    path: str, text: str, *, language: str, module: str, budget: Budget, notes: Sequence[Note] = ()
) -> Extraction:
    """Extract a file whose structure is not known; ``text`` has LF line ends."""
    lines = split_lines(text)
    unit = Unit(
        kind=ChunkKind.TEXT,
        anchor=(),
        qualified_name=path,
        name=path.rpartition("/")[2],
        title=path.replace("/", " > "),
        start_line=1,
        end_line=len(lines),
    )
    chunks, size_notes = bounded([unit], lines, cut_ranks(lines), budget, path=path, language=language, module=module)
    return Extraction(path, language, module, chunks, (), (), (*notes, *size_notes))


def cut_ranks(lines: Sequence[str]) -> list[int]:
    """Rank the lines of any text as places to cut at; 0 is best."""
    ranks: list[int] = []
    for number, line in enumerate(lines):
        after_blank = number == 0 or not lines[number - 1].strip()
        indented = line[:1].isspace()
        underlined = number + 1 < len(lines) and bool(_UNDERLINE.match(lines[number + 1])) and bool(line.strip())
        if not indented and (underlined or _STRONG.match(line)):
            rank = 0 if after_blank else 4
        elif after_blank:
            rank = 3 if indented else 1
        else:
            rank = 9 if indented else 6
        ranks.append(rank)
    return ranks
