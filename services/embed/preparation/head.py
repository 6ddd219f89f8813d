"""What follows an encoder: pooling, cutting to fewer dimensions, the L2 norm, as OpenVINO nodes.

They are part of the graph, so no server can forget them (huggingface/sentence-transformers#3307).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from openvino import opset15 as op

from services.embed.recipe import Pooling, Recipe

SENTENCE_EMBEDDING = "sentence_embedding"

_SMALLEST_NORM = np.float32(1e-12)


def integers(values: int | Sequence[int]) -> ov.Node:
    """Return a constant of int64."""
    return op.constant(np.array(values, np.int64))


def pool(x: ov.Node, attention_mask: ov.Node, pooling: Pooling) -> ov.Node:
    """Make one vector of a text's token vectors ``x`` (rows x tokens x dimensions), padded on the right."""
    weights = op.convert(op.unsqueeze(attention_mask, integers([-1])), "f32")
    match pooling:
        case Pooling.CLS:
            first = op.slice(x, integers([0]), integers([1]), integers([1]), integers([1]))
            return op.squeeze(first, integers([1]))
        case Pooling.MEAN:
            total = op.reduce_sum(op.multiply(x, weights), integers([1]), False)
            return op.divide(total, op.reduce_sum(weights, integers([1]), False))
        case Pooling.LAST_TOKEN:
            last = op.subtract(op.reduce_sum(attention_mask, integers([1]), False), integers(1))
            return op.gather(x, last, integers(1), batch_dims=1)


def sentence_embedding(pooled: ov.Output, recipe: Recipe) -> ov.Output:
    """Cut pooled vectors to the recipe's dimensions, then normalise them if it says so; name the result."""
    vector = pooled
    if recipe.full_dimensions:
        cut = op.slice(vector, integers([0]), integers([recipe.dimensions]), integers([1]), integers([1]))
        vector = cut.output(0)
    if recipe.normalize:
        squares = op.reduce_sum(op.multiply(vector, vector), integers([-1]), True)
        unit = op.divide(vector, op.maximum(op.sqrt(squares), op.constant(_SMALLEST_NORM)))
        vector = unit.output(0)
    vector.get_tensor().set_names({SENTENCE_EMBEDDING})
    return vector


def name_by_place(model: ov.Model) -> None:
    """Name every node by its place in the graph, so that equal graphs are saved as equal bytes."""
    for number, node in enumerate(model.get_ordered_ops()):
        if node.get_type_name() != "Parameter":
            node.set_friendly_name(f"{node.get_type_name()}_{number}")
