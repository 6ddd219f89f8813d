"""Models prepared for the hot path: a sentence-transformers directory becomes an OpenVINO model directory.

The BERT family needs no torch; every other architecture is exported with it (the ``models`` extra).

Invariants: the source is only read; the destination is complete or absent; the same source, texts and tool versions
give the same bytes on the same kind of processor.
"""

from __future__ import annotations

from services.embed.preparation.options import Calibration, Options
from services.embed.preparation.prepare import PreparedModel, Progress, prepare
from services.embed.preparation.wheel import unpack_wheel_model

__all__ = ["Calibration", "Options", "PreparedModel", "Progress", "prepare", "unpack_wheel_model"]
