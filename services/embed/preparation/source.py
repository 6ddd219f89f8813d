"""The recipe of a Hugging Face / sentence-transformers directory, read strictly.

A directory that lacks modules.json, its pooling or its tokenizer would still load, and give wrong vectors with no
error; here whatever is missing, ambiguous or foreign is refused in words, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from services.core.errors import InvalidArgument
from services.embed.directory import Document, read_document, read_json, refuse_foreign_code, require_model_directory
from services.embed.manifest import TOKENIZER_NAME
from services.embed.preparation.graph import ACTIVATIONS, ARCHITECTURES, EncoderShape
from services.embed.recipe import Pooling, Prompts, Quantization, Recipe

_LIBRARY = "sentence_transformers."
_POOLING_FLAGS: Mapping[str, Pooling | None] = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_max_tokens": None,
    "pooling_mode_mean_sqrt_len_tokens": None,
    "pooling_mode_weightedmean_tokens": None,
    "pooling_mode_lasttoken": None,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A source directory, understood: what its graph looks like and how its texts are treated."""

    directory: Path
    shape: EncoderShape
    recipe: Recipe


def read_source(directory: Path, *, quantization: Quantization, prompts: Prompts | None = None) -> Source:
    """Read and check a source directory.

    ``prompts`` replaces those of config_sentence_transformers.json, for models whose card names prompts that their
    files do not. Raises ``InvalidArgument`` or ``NotFound`` with what is missing.
    """
    require_model_directory(directory)
    refuse_foreign_code(directory)
    pooling_directory, normalize = _read_modules(directory)
    config = read_document(_required(directory, "config.json"))
    sentence = read_document(_required(directory, "sentence_bert_config.json"))
    library = read_document(_required(directory, "config_sentence_transformers.json"))
    pooling_config = read_document(_required(pooling_directory, "config.json"))
    _required(directory, TOKENIZER_NAME)
    shape = _read_shape(config)
    recipe = Recipe(
        architecture=shape.model_type,
        dimensions=shape.dimensions,
        max_length_tokens=_max_length(shape, sentence),
        pooling=_read_pooling(pooling_directory, pooling_config, shape.dimensions),
        normalize=normalize,
        quantization=quantization,
        pad_token_id=shape.pad_token_id,
        lower_case=sentence.get("do_lower_case") is True,
        prompts=prompts if prompts is not None else _read_prompts(library),
    )
    return Source(directory=directory, shape=shape, recipe=recipe)


def _required(directory: Path, name: str) -> Path:
    path = directory / name
    if not path.is_file():
        raise InvalidArgument(
            f"{directory} has no {name}; without it the model would load and give wrong vectors.",
            remedy="Copy the whole model directory, with every configuration file.",
            reason="MODEL_FILE_MISSING",
        )
    return path


def _read_modules(directory: Path) -> tuple[Path, bool]:
    """Return the pooling module's directory and whether a normalisation follows."""
    path = _required(directory, "modules.json")
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InvalidArgument(f"{path} is not a list of modules.", remedy="Copy the model directory again.")
    ordered = sorted(modules, key=lambda module: int(module.get("idx", 0)))
    types = [str(module.get("type", "")) for module in ordered]
    foreign = [kind for kind in types if not kind.startswith(_LIBRARY)]
    if foreign:
        raise InvalidArgument(
            f"{path} names modules with code of their own: {', '.join(foreign)}.",
            remedy="Choose a model that needs no remote code.",
            reason="MODEL_NEEDS_REMOTE_CODE",
        )
    kinds = [kind.rsplit(".", 1)[-1] for kind in types]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise InvalidArgument(
            f"{path} describes {' → '.join(kinds) or 'no module'}.",
            remedy="Transformer → Pooling, with or without Normalize, is what can be prepared.",
            reason="MODEL_UNSUPPORTED",
        )
    if str(ordered[0].get("path", "")) not in ("", "."):
        raise InvalidArgument(
            f"{path} keeps its transformer in a folder of its own, {ordered[0]['path']!r}.",
            remedy="Move the files of that folder beside modules.json and set the path to the empty string.",
            reason="MODEL_UNSUPPORTED",
        )
    pooling_directory = (directory / str(ordered[1].get("path", ""))).resolve()
    if pooling_directory.parent != directory.resolve():
        raise InvalidArgument(
            f"{path} names a pooling folder outside of the model directory.", remedy="Copy the model directory again."
        )
    return pooling_directory, len(kinds) == 3


def _read_shape(config: Document) -> EncoderShape:
    model_type = str(config.get("model_type", ""))
    if model_type not in ARCHITECTURES:
        raise InvalidArgument(
            f"Models of type {model_type!r} cannot be prepared without torch.",
            remedy=f"Choose one of {', '.join(ARCHITECTURES)}.",
            reason="MODEL_UNSUPPORTED",
        )
    distil = model_type == "distilbert"
    activation = str(config.get("activation" if distil else "hidden_act", ""))
    unusual = {
        "position_embedding_type": config.get("position_embedding_type", "absolute") != "absolute",
        "is_decoder": config.get("is_decoder") is True,
        "hidden_act": activation not in ACTIVATIONS,
    }
    if any(unusual.values()):
        raise InvalidArgument(
            f"config.json cannot be prepared because of {', '.join(key for key, bad in unusual.items() if bad)}.",
            remedy="Choose an encoder with absolute positions.",
            reason="MODEL_UNSUPPORTED",
        )
    return EncoderShape(
        model_type=model_type,
        layers=_whole(config, "n_layers" if distil else "num_hidden_layers"),
        heads=_whole(config, "n_heads" if distil else "num_attention_heads"),
        dimensions=_whole(config, "dim" if distil else "hidden_size"),
        activation=activation,
        layer_norm_epsilon=_fraction(config, "layer_norm_eps", 1e-12),
        pad_token_id=_whole(config, "pad_token_id", minimum=0, default=0),
        max_positions=_whole(config, "max_position_embeddings"),
    )


def _max_length(shape: EncoderShape, sentence: Document) -> int:
    reserved = shape.pad_token_id + 1 if ARCHITECTURES[shape.model_type].positions_follow_padding else 0
    possible = shape.max_positions - reserved
    if sentence.get("max_seq_length") is None:
        return possible
    wanted = _whole(sentence, "max_seq_length")
    if wanted > possible:
        raise InvalidArgument(
            f"sentence_bert_config.json asks for {wanted} tokens, the model has {possible} positions.",
            remedy="Correct max_seq_length.",
        )
    return wanted


def _read_pooling(directory: Path, config: Document, dimensions: int) -> Pooling:
    path = directory / "config.json"
    if config.get("include_prompt") is False:
        raise InvalidArgument(
            f"{path} leaves prompts out of pooling, which cannot be prepared.",
            remedy="Choose another model.",
            reason="MODEL_UNSUPPORTED",
        )
    named = config.get("pooling_mode")
    if isinstance(named, str):
        chosen = [named]
        known = {pooling.value: pooling for pooling in Pooling}
    else:
        chosen = [flag for flag in config if flag.startswith("pooling_mode_") and config[flag] is True]
        known = {flag: pooling for flag, pooling in _POOLING_FLAGS.items() if pooling is not None}
    if len(chosen) != 1 or chosen[0] not in known:
        raise InvalidArgument(
            f"{path} pools by {', '.join(chosen) or 'nothing'}.",
            remedy="Exactly one of mean and cls can be prepared.",
            reason="MODEL_UNSUPPORTED",
        )
    width = config.get("word_embedding_dimension", config.get("embedding_dimension", dimensions))
    if width != dimensions:
        raise InvalidArgument(
            f"{path} pools {width} dimensions, the model has {dimensions}.", remedy="Copy the model directory again."
        )
    return known[chosen[0]]


def _read_prompts(library: Document) -> Prompts:
    prompts = library.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise InvalidArgument("The prompts of config_sentence_transformers.json are not an object.")
    fallback = str(prompts.get(str(library.get("default_prompt_name")), ""))
    query = prompts.get("query", fallback)
    passage = next((prompts[name] for name in ("passage", "document") if name in prompts), fallback)
    return Prompts(query=str(query), passage=str(passage))


def _whole(document: Document, key: str, *, minimum: int = 1, default: int | None = None) -> int:
    value = document.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidArgument(f"{key} is {value!r}, not a whole number from {minimum} on.", remedy="Correct the file.")
    return value


def _fraction(document: Document, key: str, default: float) -> float:
    value = document.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
        raise InvalidArgument(f"{key} is {value!r}, not a number between 0 and 1.", remedy="Correct the file.")
    return float(value)
