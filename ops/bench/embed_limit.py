"""What the processor can give: OpenVINO's own benchmark_app on the service's graph, shape by shape."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from services.embed.engine import Engine
from services.embed.recipe import Purpose
from services.embed.shapes import batches

Shape = tuple[int, int]

# benchmark_app imports openvino itself; the service's package blocks its telemetry first.
_BENCHMARK_APP = (
    "import services.embed, sys; from openvino.tools.benchmark.main import main; sys.argv[0] = 'benchmark_app'; main()"
)


def planned_shapes(engine: Engine, texts: Sequence[str]) -> Counter[Shape]:
    """Count the batches (rows, tokens) into which the service groups these texts."""
    lengths = [len(item.ids) for item in engine.tokenize(texts, Purpose.PASSAGE)]
    return Counter((len(batch.indexes), batch.bucket) for batch in batches(lengths, engine.recipe.max_length_tokens))


def batches_per_s(graph: Path, shape: Shape, *, streams: int, seconds: float) -> float:
    """Return how many batches of one shape benchmark_app runs in a second, on ``streams`` streams of one thread."""
    return _run(graph, shape, streams=streams, seconds=seconds, api="async")[0]


def latency_ms(graph: Path, shape: Shape, *, seconds: float) -> float:
    """Return benchmark_app's median latency of one shape in milliseconds, on one thread, one request at a time."""
    return _run(graph, shape, streams=1, seconds=seconds, api="sync")[1]


def _run(graph: Path, shape: Shape, *, streams: int, seconds: float, api: str) -> tuple[float, float]:
    rows, tokens = shape
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        generator = np.random.default_rng(1)
        np.save(folder / "ids.npy", generator.integers(1000, 20_000, (rows, tokens)))
        np.save(folder / "mask.npy", np.ones((rows, tokens), np.int64))
        (folder / "config.json").write_text(json.dumps({"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}))
        done = subprocess.run(
            [
                *(sys.executable, "-c", _BENCHMARK_APP),
                *("-m", str(graph), "-d", "CPU", "-hint", "none", "-api", api, "-t", str(max(1, round(seconds)))),
                *("-nstreams", str(streams), "-nthreads", str(streams), "-nireq", str(streams), "-pin", "NO"),
                *("-load_config", str(folder / "config.json")),
                *("-data_shape", f"input_ids[{rows},{tokens}],attention_mask[{rows},{tokens}]"),
                *("-i", f"input_ids:{folder / 'ids.npy'},attention_mask:{folder / 'mask.npy'}"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    found = [re.search(rf"{name}:\s+([\d.]+)", done.stdout) for name in ("Count", "Duration", "Median")]
    if done.returncode or None in found:
        sys.exit(f"benchmark_app failed on {shape}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    iterations, duration_ms, median_ms = (float(match.group(1)) for match in found if match)
    return iterations / (duration_ms / 1000), median_ms
