"""How much of a text a model must be able to read."""

from __future__ import annotations

from typing import Final

# Tokens besides prompt and special tokens. Chunks of fewer say nothing, and their titles alone would fill them.
MIN_BUDGET_TOKENS: Final = 32
