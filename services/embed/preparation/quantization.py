"""Lower the arithmetic of a float32 graph, the same way each time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence

import nncf
import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from nncf.common.logging import track_progress
from rich.progress import Progress

from services.embed.preparation.graph import ATTENTION_MASK, INPUT_IDS
from services.embed.recipe import Quantization, Recipe
from services.embed.shapes import bucket_of
from services.embed.tokenization import Tokens

Report = Callable[[float], None]


def quantize(
    model: ov.Model, tokens: Sequence[Tokens], recipe: Recipe, *, report: Report = lambda share: None
) -> ov.Model:
    """Return the graph in the arithmetic that the recipe names.

    ``tokens`` calibrate qint8, in their order; ``report`` is told the share of calibration that is done.

    qint8: weights and activations, after SmoothQuant (Xiao et al. 2023). int8: weights alone.
    """
    with _quiet():
        match recipe.quantization:
            case Quantization.FLOAT32:
                return model
            case Quantization.INT8:
                return nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
            case Quantization.QINT8:
                samples = _Samples(tokens, recipe, report)
                return nncf.quantize(
                    model,
                    nncf.Dataset(samples),
                    model_type=nncf.ModelType.TRANSFORMER,
                    subset_size=len(tokens),
                    # Weights use seven bits, so that sums of two products fit into the 16 bits that processors
                    # without VNNI add them in. Otherwise those clip, and one model gives two sets of vectors
                    # (microsoft/onnxruntime#6004): cosine .997 between processors with eight bits, .9998 with seven.
                    advanced_parameters=nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix.ENABLE),
                )


class _Samples:
    """Calibration inputs, one text each, padded as the engine pads them."""

    # SmoothQuant and the ranges each go through the samples.
    _PASSES = 2

    def __init__(self, tokens: Sequence[Tokens], recipe: Recipe, report: Report) -> None:
        self._tokens = tokens
        self._recipe = recipe
        self._report = report
        self._served = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[dict[str, np.ndarray[tuple[int, int], np.dtype[np.int64]]]]:
        for item in self._tokens:
            bucket = bucket_of(len(item.ids), self._recipe.max_length_tokens)
            ids = np.full((1, bucket), self._recipe.pad_token_id, dtype=np.int64)
            mask = np.zeros((1, bucket), dtype=np.int64)
            ids[0, : len(item.ids)] = item.ids
            mask[0, : len(item.ids)] = 1
            yield {INPUT_IDS: ids, ATTENTION_MASK: mask}
            self._served += 1
            self._report(min(1.0, self._served / (self._PASSES * len(self._tokens))))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep nncf's progress bars and notes off the terminal, without touching what the caller prints there."""
    logger = logging.getLogger("nncf")
    level = logger.level
    kinds = {name: getattr(track_progress, name) for name in ("Progress", "WeightedProgress")}

    def hidden(kind: type[Progress]) -> Callable[..., Progress]:
        return lambda *columns, **options: kind(*columns, **{**options, "disable": True})

    logger.setLevel(logging.ERROR)
    # nncf has no setting for this.
    for name, kind in kinds.items():
        setattr(track_progress, name, hidden(kind))
    try:
        yield
    finally:
        for name, kind in kinds.items():
            setattr(track_progress, name, kind)
        logger.setLevel(level)
