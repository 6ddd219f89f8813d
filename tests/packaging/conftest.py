"""A small checkout with its mirror, made anew for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.wheelhouse import SmallHouse, make_house


@pytest.fixture
def house(tmp_path: Path) -> SmallHouse:
    return make_house(tmp_path)
