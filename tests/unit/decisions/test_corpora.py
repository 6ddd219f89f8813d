"""Real records of five organisations, against labels made by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_adr", ROOT / "ops" / "bench" / "adr.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCH = _bench()
CORPORA: list[Path] = BENCH.corpora(BENCH.default_directory())


@pytest.mark.skipif(not CORPORA, reason=f"no labelled records under {BENCH.default_directory()}")
@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: path.name)
def test_real_records_are_read_as_labelled(corpus: Path) -> None:
    result = BENCH.score(corpus)
    both, mined, gold = (result.records[key] for key in ("both", "mined", "gold"))
    assert both >= 0.95 * max(mined, gold), result.wrong
    for attribute in BENCH.ATTRIBUTES:
        assert result.right[attribute] >= 0.95 * result.judged, (attribute, result.wrong)
    for counts in result.pairs.values():
        assert counts["both"] >= 0.95 * max(counts["mined"], counts["gold"]), result.wrong
