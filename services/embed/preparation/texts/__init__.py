"""Texts of the project, in a fixed order: what quantization is calibrated on, and what its fidelity is measured on.

Changing a text or their order changes the digest of every model that is prepared afterwards.
"""

from __future__ import annotations

import json
from importlib import resources

CALIBRATION = "calibration.jsonl"
HOLDOUT = "holdout.jsonl"


def read_texts(name: str) -> list[str]:
    """Read one of the two sets, in file order."""
    lines = read_bytes(name).decode("utf-8").splitlines()
    return [str(json.loads(line)["text"]) for line in lines]


def read_bytes(name: str) -> bytes:
    """Read the raw bytes of a set, for its digest."""
    return resources.files(__package__).joinpath(name).read_bytes()
