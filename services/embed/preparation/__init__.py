"""Models prepared for the hot path: a BERT-family directory becomes an OpenVINO model directory, without torch.

Invariants: the source is only read; the destination is complete or absent; the same source, texts and tool versions
give the same bytes on the same kind of processor.
"""

from __future__ import annotations

from services.embed.preparation.prepare import PreparedModel, Progress, prepare
from services.embed.preparation.wheel import unpack_wheel_model

__all__ = ["PreparedModel", "Progress", "prepare", "unpack_wheel_model"]
