"""Mining: from the text of one Markdown or reStructuredText file to a decision record, or to none.

Mining looks at one file alone, never raises on odd text, and takes time in proportion to its length. What a record says
of others stays as written here; `services.decisions.linking` finds the targets once all records are known.
"""

from __future__ import annotations

from services.decisions.mining.miner import candidate, mine

__all__ = ["candidate", "mine"]
