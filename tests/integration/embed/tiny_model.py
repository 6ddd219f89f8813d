"""A model directory of a few kilobytes with random weights, and what it must compute, in plain numpy.

The reference is written from the papers, apart from the product's graph: loops and softmax spelled out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

Float32Array = npt.NDArray[np.float32]
Weights = Mapping[str, Float32Array]

_ST = "sentence_transformers.models."
PADDING_TOKEN, UNKNOWN_TOKEN = "[PAD]", "[UNK]"


@dataclass(frozen=True, slots=True)
class Tiny:
    """Sizes of a tiny model."""

    model_type: str = "bert"
    pooling: str = "mean"
    normalize: bool = True
    activation: str = "gelu"
    layers: int = 2
    heads: int = 4
    dimensions: int = 32
    inner: int = 64
    max_length: int = 96
    seed: int = 1

    @property
    def pad_id(self) -> int:
        return 1 if self.model_type == "roberta" else 0

    @property
    def positions(self) -> int:
        return self.max_length + (self.pad_id + 1 if self.model_type == "roberta" else 0)


def write_source(directory: Path, tiny: Tiny) -> Path:
    """Write a sentence-transformers directory."""
    directory.mkdir(parents=True)
    tokenizer = tokenizer_of(tiny)
    # What real files carry and what must be reset: fixed padding, and truncation far below the model's length.
    tokenizer.enable_padding(length=8, pad_id=tiny.pad_id, pad_token=PADDING_TOKEN)
    tokenizer.enable_truncation(8)
    tokenizer.save(str(directory / "tokenizer.json"))
    save_file(
        {name: np.ascontiguousarray(array) for name, array in weights_of(tiny).items()}, directory / "model.safetensors"
    )
    modules = [
        {"idx": 0, "path": "", "type": f"{_ST}Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": f"{_ST}Pooling"},
        *([{"idx": 2, "path": "2_Normalize", "type": f"{_ST}Normalize"}] if tiny.normalize else []),
    ]
    distil = tiny.model_type == "distilbert"
    names = {
        "layers": "n_layers" if distil else "num_hidden_layers",
        "heads": "n_heads" if distil else "num_attention_heads",
        "dimensions": "dim" if distil else "hidden_size",
        "activation": "activation" if distil else "hidden_act",
    }
    documents: dict[str, object] = {
        "modules.json": modules,
        "1_Pooling/config.json": {
            "word_embedding_dimension": tiny.dimensions,
            "pooling_mode_cls_token": tiny.pooling == "cls",
            "pooling_mode_mean_tokens": tiny.pooling == "mean",
            "pooling_mode_lasttoken": tiny.pooling == "lasttoken",
        },
        "sentence_bert_config.json": {"max_seq_length": tiny.max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "q ", "passage": ""}},
        "config.json": {
            "model_type": tiny.model_type,
            names["layers"]: tiny.layers,
            names["heads"]: tiny.heads,
            names["dimensions"]: tiny.dimensions,
            names["activation"]: tiny.activation,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": tiny.positions,
            "pad_token_id": tiny.pad_id,
        },
    }
    for name, document in documents.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(json.dumps(document))
    (directory / "LICENSE").write_text("Free to use in tests.\n")
    return directory


def tokenizer_of(tiny: Tiny) -> Tokenizer:
    """Return a WordPiece tokenizer of single characters."""
    characters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    special = [PADDING_TOKEN, UNKNOWN_TOKEN] if tiny.pad_id == 0 else [UNKNOWN_TOKEN, PADDING_TOKEN]
    vocabulary = [*special, "[CLS]", "[SEP]", *characters, *(f"##{character}" for character in characters)]
    ids = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=UNKNOWN_TOKEN, max_input_chars_per_word=1000))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    return tokenizer


def weights_of(tiny: Tiny) -> dict[str, Float32Array]:
    """Return random weights under the names of the model's family."""
    generator = np.random.default_rng(tiny.seed)

    def normal(*shape: int, scale: float = 0.3) -> Float32Array:
        return (generator.normal(size=shape) * scale).astype(np.float32)

    width, inner = tiny.dimensions, tiny.inner
    prefix = {"bert": "", "roberta": "roberta.", "distilbert": "distilbert."}[tiny.model_type]
    weights = {
        f"{prefix}embeddings.word_embeddings.weight": normal(tokenizer_of(tiny).get_vocab_size(), width, scale=1.0),
        f"{prefix}embeddings.position_embeddings.weight": normal(tiny.positions, width, scale=0.5),
        f"{prefix}embeddings.LayerNorm.weight": 1 + normal(width),
        f"{prefix}embeddings.LayerNorm.bias": normal(width),
    }
    if tiny.model_type != "distilbert":
        weights[f"{prefix}embeddings.token_type_embeddings.weight"] = normal(2, width)
    for number in range(tiny.layers):
        for role, (rows, columns) in {
            "query": (width, width),
            "key": (width, width),
            "value": (width, width),
            "attention_output": (width, width),
            "intermediate": (inner, width),
            "output": (width, inner),
        }.items():
            name = prefix + layer_name(tiny, number, role)
            weights[f"{name}.weight"], weights[f"{name}.bias"] = normal(rows, columns), normal(rows)
        for role in ("attention_norm", "output_norm"):
            name = prefix + layer_name(tiny, number, role)
            weights[f"{name}.weight"], weights[f"{name}.bias"] = 1 + normal(width), normal(width)
    return weights


def layer_name(tiny: Tiny, number: int, role: str) -> str:
    """Return the family's name of a tensor of one layer, without the model's prefix."""
    if tiny.model_type == "distilbert":
        names = {
            "query": "attention.q_lin",
            "key": "attention.k_lin",
            "value": "attention.v_lin",
            "attention_output": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "intermediate": "ffn.lin1",
            "output": "ffn.lin2",
            "output_norm": "output_layer_norm",
        }
        return f"transformer.layer.{number}.{names[role]}"
    names = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "attention_output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "intermediate": "intermediate.dense",
        "output": "output.dense",
        "output_norm": "output.LayerNorm",
    }
    return f"encoder.layer.{number}.{names[role]}"


def reference(tiny: Tiny, weights: Weights, ids: Sequence[int]) -> Float32Array:
    """Return the vector of one unpadded sequence of token ids, computed in float64."""
    w = {
        name.split(".", 1)[1] if name.startswith(("roberta.", "distilbert.")) else name: value.astype(np.float64)
        for name, value in weights.items()
    }

    def norm(x: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float64]:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / spread * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float64]:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    first = tiny.pad_id + 1 if tiny.model_type == "roberta" else 0
    x = w["embeddings.word_embeddings.weight"][list(ids)]
    x = x + w["embeddings.position_embeddings.weight"][first : first + len(ids)]
    if tiny.model_type != "distilbert":
        x = x + w["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    width = tiny.dimensions // tiny.heads
    for number in range(tiny.layers):

        def named(role: str, number: int = number) -> str:
            return layer_name(tiny, number, role)

        query, key, value = (linear(x, named(role)) for role in ("query", "key", "value"))
        heads = []
        for head in range(tiny.heads):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / math.sqrt(width)
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            heads.append(shares / shares.sum(axis=1, keepdims=True) @ value[:, part])
        attended = linear(np.concatenate(heads, axis=1), named("attention_output"))
        x = norm(x + attended, named("attention_norm"))
        hidden = _activate(linear(x, named("intermediate")), tiny.activation)
        x = norm(x + linear(hidden, named("output")), named("output_norm"))
    vector = {"mean": x.mean(axis=0), "cls": x[0], "lasttoken": x[-1]}[tiny.pooling]
    if tiny.normalize:
        vector = vector / np.linalg.norm(vector)
    return vector.astype(np.float32)


def _activate(x: npt.NDArray[np.float64], activation: str) -> npt.NDArray[np.float64]:
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "gelu":
        return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
