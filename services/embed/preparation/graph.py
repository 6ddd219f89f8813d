"""A BERT-family sentence encoder as an OpenVINO graph, built from its weights without torch.

The graph takes ``input_ids`` and ``attention_mask`` (both int64, rows x tokens, padded on the right) and returns
``sentence_embedding`` (float32, rows x dimensions). Token types are constant, since a text is always one segment.

Devlin et al. 2019 (BERT), Liu et al. 2019 (RoBERTa), Sanh et al. 2019 (DistilBERT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import openvino as ov  # type: ignore[import-untyped]
from openvino import opset15 as op

from services.core.errors import InvalidArgument
from services.embed.preparation.head import integers, pool, sentence_embedding
from services.embed.preparation.weights import Float32Array
from services.embed.recipe import Recipe

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"

_MASKED = np.float32(-1e9)
_WORDS = "embeddings.word_embeddings.weight"


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one model family names its tensors; ``{n}`` is the layer number."""

    prefixes: tuple[str, ...]
    layer: str
    query: str
    key: str
    value: str
    attention_output: str
    attention_norm: str
    intermediate: str
    output: str
    output_norm: str
    has_token_types: bool
    positions_follow_padding: bool


_BERT = Architecture(
    prefixes=("bert.", "roberta.", "xlm-roberta."),
    layer="encoder.layer.{n}.",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_output="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    intermediate="intermediate.dense",
    output="output.dense",
    output_norm="output.LayerNorm",
    has_token_types=True,
    positions_follow_padding=False,
)
_ROBERTA = Architecture(
    prefixes=_BERT.prefixes,
    layer=_BERT.layer,
    query=_BERT.query,
    key=_BERT.key,
    value=_BERT.value,
    attention_output=_BERT.attention_output,
    attention_norm=_BERT.attention_norm,
    intermediate=_BERT.intermediate,
    output=_BERT.output,
    output_norm=_BERT.output_norm,
    has_token_types=True,
    positions_follow_padding=True,
)
_DISTILBERT = Architecture(
    prefixes=("distilbert.",),
    layer="transformer.layer.{n}.",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_output="attention.out_lin",
    attention_norm="sa_layer_norm",
    intermediate="ffn.lin1",
    output="ffn.lin2",
    output_norm="output_layer_norm",
    has_token_types=False,
    positions_follow_padding=False,
)
ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
}
ACTIVATIONS: Mapping[str, str | None] = {
    "gelu": "erf",
    "gelu_new": "tanh",
    "gelu_pytorch_tanh": "tanh",
    "relu": None,
}
# What checkpoints bring besides the encoder, under the names that transformers gives them: poolers of the next-sentence
# task, heads of masked language models, and a buffer. Anything else that the graph does not use is a sign that
# config.json describes another model.
_UNUSED = (
    "pooler.",
    "cls.",
    "lm_head.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "embeddings.position_ids",
)
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """The numbers of ``config.json`` that the graph depends on; ``inner`` and ``vocabulary`` where it says them."""

    model_type: str
    layers: int
    heads: int
    dimensions: int
    activation: str
    layer_norm_epsilon: float
    pad_token_id: int
    max_positions: int
    inner: int | None = None
    vocabulary: int | None = None


class _Builder:
    """Builds nodes from named weights and gives every node a name that depends on its place alone.

    Names that OpenVINO makes up count up over the life of the process, and would make each preparation's file differ.
    """

    def __init__(self, weights: Mapping[str, Float32Array], architecture: Architecture) -> None:
        self._weights: dict[str, Float32Array] = {}
        for name, value in weights.items():
            plain = _without_prefix(name, architecture.prefixes)
            if plain in self._weights:
                raise _foreign(f"The weights have two tensors {plain!r}.")
            self._weights[plain] = value
        self._used: set[str] = set()
        self.architecture = architecture

    def tensor(self, name: str, *sizes: int | None) -> Float32Array:
        """Return a tensor of the given sizes; None stands for any."""
        tensor = self._weights.get(name)
        if tensor is None:
            raise _foreign(f"The weights have no tensor {name!r}, which config.json promises.")
        if len(tensor.shape) != len(sizes) or any(
            size not in (None, found) for size, found in zip(sizes, tensor.shape, strict=True)
        ):
            promised = " x ".join("any" if size is None else str(size) for size in sizes)
            found = " x ".join(map(str, tensor.shape)) or "no sizes"
            raise _foreign(f"The tensor {name!r} has {found}, config.json promises {promised}.")
        if not np.isfinite(tensor).all():
            raise _foreign(f"The tensor {name!r} holds values that are no finite numbers.")
        self._used.add(name)
        return tensor

    def weight(self, name: str, *sizes: int | None) -> ov.Node:
        node: ov.Node = op.constant(self.tensor(name, *sizes))
        node.set_friendly_name(name)
        return node

    def linear(self, x: ov.Node, name: str, into: int, out_of: int) -> ov.Node:
        product = op.matmul(x, self.weight(f"{name}.weight", into, out_of), False, True)
        return op.add(product, self.weight(f"{name}.bias", into))

    def layer_norm(self, x: ov.Node, name: str, width: int, epsilon: float) -> ov.Node:
        normal = op.mvn(x, integers([-1]), True, epsilon, "inside_sqrt")
        scaled = op.multiply(normal, self.weight(f"{name}.weight", width))
        return op.add(scaled, self.weight(f"{name}.bias", width))

    def refuse_unused(self) -> None:
        """Refuse weights of which the graph leaves a part out that is no head."""
        unused = sorted(name for name in self._weights.keys() - self._used if not name.startswith(_UNUSED))
        if unused:
            named = f"{', '.join(unused[:_MOST_NAMED])}{' and more' if len(unused) > _MOST_NAMED else ''}"
            raise _foreign(f"Nothing that config.json promises uses {len(unused)} of the tensors: {named}.")


def _foreign(message: str) -> InvalidArgument:
    return InvalidArgument(
        message,
        remedy="Check that config.json and the safetensors files belong to the same model.",
        reason="MODEL_WEIGHTS_FOREIGN",
    )


def build_encoder(
    shape: EncoderShape, weights: Mapping[str, Float32Array], recipe: Recipe, *, highest_token: int = 0
) -> ov.Model:
    """Build the float32 graph; ``highest_token`` is the highest id that the tokenizer gives out.

    Raises ``InvalidArgument`` for an architecture, an activation or a set of weights that this cannot build, and for
    weights that are not what ``shape`` says.
    """
    architecture = ARCHITECTURES.get(shape.model_type)
    if architecture is None:
        raise InvalidArgument(
            f"Models of type {shape.model_type!r} cannot be prepared without torch.",
            remedy=f"Choose one of {', '.join(ARCHITECTURES)}.",
        )
    if shape.activation not in ACTIVATIONS:
        raise InvalidArgument(
            f"The activation {shape.activation!r} is not known.", remedy=f"Known are {', '.join(ACTIVATIONS)}."
        )
    build = _Builder(weights, architecture)
    words = build.tensor(_WORDS, shape.vocabulary, shape.dimensions)
    if max(highest_token, shape.pad_token_id) >= len(words):
        raise InvalidArgument(
            f"The model knows {len(words)} tokens, its tokenizer gives out ids up to {highest_token} and pads with"
            f" {shape.pad_token_id}: they belong to different models.",
            remedy="Copy the whole model directory again.",
            reason="MODEL_TOKENIZER_FOREIGN",
        )
    input_ids = op.parameter([-1, -1], np.int64, name=INPUT_IDS)
    attention_mask = op.parameter([-1, -1], np.int64, name=ATTENTION_MASK)
    x = _embeddings(build, shape, input_ids)
    bias = _attention_bias(attention_mask)
    for number in range(shape.layers):
        x = _layer(build, shape, number, x, bias)
    build.refuse_unused()
    vector = sentence_embedding(pool(x, attention_mask, recipe.pooling).output(0), recipe)
    return ov.Model([op.result(vector)], [input_ids, attention_mask], shape.model_type)


def _without_prefix(name: str, prefixes: Sequence[str]) -> str:
    for prefix in prefixes:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _embeddings(build: _Builder, shape: EncoderShape, input_ids: ov.Node) -> ov.Node:
    architecture = build.architecture
    length = op.gather(op.shape_of(input_ids), integers(1), integers(0))
    # RoBERTa numbers its positions from the padding id on; with padding on the right that is a constant shift.
    first = shape.pad_token_id + 1 if architecture.positions_follow_padding else 0
    positions = op.range(integers(first), op.add(length, integers(first)), integers(1), output_type="i64")
    width = shape.dimensions
    words = op.gather(build.weight(_WORDS, None, width), input_ids, integers(0))
    table = build.weight("embeddings.position_embeddings.weight", shape.max_positions, width)
    places = op.gather(table, op.unsqueeze(positions, integers(0)), integers(0))
    x = op.add(words, places)
    if architecture.has_token_types:
        types = build.tensor("embeddings.token_type_embeddings.weight", None, width)
        x = op.add(x, op.constant(types[0]))
    return build.layer_norm(x, "embeddings.LayerNorm", width, shape.layer_norm_epsilon)


def _attention_bias(attention_mask: ov.Node) -> ov.Node:
    mask = op.convert(op.unsqueeze(attention_mask, integers([1, 2])), "f32")
    return op.multiply(op.subtract(op.constant(np.float32(1)), mask), op.constant(_MASKED))


def _layer(build: _Builder, shape: EncoderShape, number: int, x: ov.Node, bias: ov.Node) -> ov.Node:
    architecture = build.architecture
    prefix, width = architecture.layer.format(n=number), shape.dimensions
    split = integers([0, 0, shape.heads, width // shape.heads])
    swap = integers([0, 2, 1, 3])
    query, key, value = (
        op.transpose(op.reshape(build.linear(x, prefix + name, width, width), split, True), swap)
        for name in (architecture.query, architecture.key, architecture.value)
    )
    attended = op.scaled_dot_product_attention(query, key, value, attention_mask=bias)
    merged = op.reshape(op.transpose(attended, swap), integers([0, 0, width]), True)
    epsilon = shape.layer_norm_epsilon
    attention = op.add(build.linear(merged, prefix + architecture.attention_output, width, width), x)
    x = build.layer_norm(attention, prefix + architecture.attention_norm, width, epsilon)
    inner = len(build.tensor(f"{prefix}{architecture.intermediate}.weight", shape.inner, width))
    hidden = build.linear(x, prefix + architecture.intermediate, inner, width)
    variant = ACTIVATIONS[shape.activation]
    hidden = op.relu(hidden) if variant is None else op.gelu(hidden, variant)
    output = op.add(build.linear(hidden, prefix + architecture.output, width, inner), x)
    return build.layer_norm(output, prefix + architecture.output_norm, width, epsilon)
