"""When a processor is said to compute vectors otherwise than another one (microsoft/onnxruntime#6004)."""

from __future__ import annotations

from typing import Final

# Cosine between the vectors that two processors give one text. int8 without VNNI comes to .9998 of int8 with it.
DRIFTED_BELOW_COSINE: Final = 0.9999
