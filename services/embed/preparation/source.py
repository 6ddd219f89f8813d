"""The recipe of a Hugging Face / sentence-transformers directory, read strictly.

A directory that lacks modules.json, its pooling or its tokenizer would still load, and give wrong vectors with no
error; here whatever is missing, ambiguous or foreign is refused in words, and nothing is guessed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import openvino as ov  # type: ignore[import-untyped]

from services.core.errors import InvalidArgument
from services.embed.directory import Document, read_document, read_json, refuse_foreign_code, require_model_directory
from services.embed.manifest import TOKENIZER_NAME
from services.embed.preparation.graph import ACTIVATIONS, ARCHITECTURES, EncoderShape, build_encoder
from services.embed.preparation.options import Options, chosen_dimensions
from services.embed.preparation.vocabulary import check_vocabulary
from services.embed.preparation.weights import load_weights, weight_files
from services.embed.recipe import Pooling, Prompts, Recipe
from services.embed.tokenization import TextTokenizer

_LIBRARY = "sentence_transformers."
_SETTINGS = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    TOKENIZER_NAME,
)
# Reason of a refusal of what is whole, but no plain encoder of the BERT family.
UNSUPPORTED = "MODEL_UNSUPPORTED"
# The names of the newer spelling.
POOLING_MODES: Mapping[str, Pooling] = {"mean": Pooling.MEAN, "cls": Pooling.CLS, "lasttoken": Pooling.LAST_TOKEN}
# What tokenizers say that have no limit.
_NO_LIMIT_TOKENS = 1_000_000
_POOLING_FLAGS: Mapping[str, Pooling | None] = {
    "pooling_mode_cls_token": Pooling.CLS,
    "pooling_mode_mean_tokens": Pooling.MEAN,
    "pooling_mode_max_tokens": None,
    "pooling_mode_mean_sqrt_len_tokens": None,
    "pooling_mode_weightedmean_tokens": None,
    "pooling_mode_lasttoken": Pooling.LAST_TOKEN,
}


@dataclass(frozen=True, slots=True)
class Source:
    """A source directory, understood: what its graph looks like and how its texts are treated."""

    directory: Path
    shape: EncoderShape
    recipe: Recipe

    def build(self, recipe: Recipe) -> ov.Model:
        """Return the float32 graph, with what ``recipe`` says after the encoder."""
        highest = TextTokenizer(self.directory, recipe).highest_id()
        return build_encoder(self.shape, load_weights(self.directory), recipe, highest_token=highest)

    def tokenizer_json(self) -> bytes:
        """Return the content of tokenizer.json."""
        return (self.directory / TOKENIZER_NAME).read_bytes()

    def files(self) -> list[Path]:
        """Return the files that the result depends on."""
        return [*weight_files(self.directory), *(self.directory / name for name in _SETTINGS)]

    @property
    def tools(self) -> Sequence[str]:
        """The packages that the result depends on, besides those of every preparation."""
        return ()

    @property
    def library(self) -> None:
        """What the graph is proved against: nothing, it is built from the papers and tested against them."""
        return None


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the chain: its class, and the folder with its files."""

    kind: str
    directory: Path


def read_source(directory: Path, options: Options) -> Source:
    """Read and check a source directory of the BERT family.

    Raises ``InvalidArgument`` or ``NotFound`` with what is missing; with reason ``UNSUPPORTED`` when it is another
    kind of model.
    """
    require_model_directory(directory)
    refuse_foreign_code(directory)
    pooling_directory, normalize = _read_plain_modules(directory)
    config = read_document(required(directory, "config.json"))
    shape = _read_shape(config)
    sentence = read_document(required(directory, "sentence_bert_config.json"))
    library = read_document(required(directory, "config_sentence_transformers.json"))
    pooling_config = read_document(required(pooling_directory, "config.json"))
    required(directory, TOKENIZER_NAME)
    check_vocabulary(directory)
    trained_for = matryoshka_dimensions(config)
    dimensions = chosen_dimensions(options.dimensions, shape.dimensions, trained_for)
    recipe = Recipe(
        architecture=shape.model_type,
        dimensions=dimensions,
        max_length_tokens=_max_length(directory, shape, sentence, options.max_length_tokens),
        pooling=_read_pooling(pooling_directory, pooling_config, shape.dimensions),
        normalize=normalize,
        quantization=options.quantization,
        pad_token_id=shape.pad_token_id,
        lower_case=sentence.get("do_lower_case") is True,
        prompts=options.prompts_over(read_prompts(library)),
        full_dimensions=0 if dimensions == shape.dimensions else shape.dimensions,
        matryoshka_dimensions=trained_for,
    )
    return Source(directory=directory, shape=shape, recipe=recipe)


def matryoshka_dimensions(config: Document) -> tuple[int, ...]:
    """Return the dimensions that config.json says the model was trained for; empty when it does not say."""
    named = config.get("matryoshka_dimensions")
    if not isinstance(named, list):
        return ()
    return tuple(sorted(size for size in named if isinstance(size, int) and not isinstance(size, bool) and size > 0))


def required(directory: Path, name: str) -> Path:
    """Return a file of the directory; raise ``InvalidArgument`` when it is not there."""
    path = directory / name
    # Not Path.is_file, which raises for a name that is too long.
    if not os.path.isfile(path):
        raise InvalidArgument(
            f"{directory} has no {name}; without it the model would load and give wrong vectors.",
            remedy="Copy the whole model directory, with every configuration file.",
            reason="MODEL_FILE_MISSING",
        )
    return path


def read_modules(directory: Path) -> list[Module]:
    """Return the modules that modules.json chains, all of them sentence-transformers' own."""
    path = required(directory, "modules.json")
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise InvalidArgument(f"{path} is not a list of modules.", remedy="Copy the model directory again.")
    for module in modules:
        place, folder = module.get("idx", 0), module.get("path", "")
        if not isinstance(place, int) or not isinstance(folder, str) or "\0" in folder:
            raise InvalidArgument(
                f"{path} puts a module in place {place!r} and folder {folder!r}.",
                remedy="Copy the model directory again.",
            )
    ordered = sorted(modules, key=lambda module: module.get("idx", 0))
    types = [str(module.get("type", "")) for module in ordered]
    foreign = [kind for kind in types if not kind.startswith(_LIBRARY)]
    if foreign:
        raise InvalidArgument(
            f"{path} names modules with code of their own: {', '.join(foreign)}.",
            remedy="Choose a model that needs no remote code.",
            reason="MODEL_NEEDS_REMOTE_CODE",
        )
    # Not Path.resolve, which raises for links in a circle.
    folders = [Path(os.path.realpath(directory / module.get("path", ""))) for module in ordered]
    if not all(folder.is_relative_to(directory.resolve()) for folder in folders):
        raise InvalidArgument(
            f"{path} names a folder outside of the model directory.", remedy="Copy the model directory again."
        )
    return [Module(kind.rsplit(".", 1)[-1], folder) for kind, folder in zip(types, folders, strict=True)]


def _read_plain_modules(directory: Path) -> tuple[Path, bool]:
    """Return the pooling module's directory and whether a normalisation follows."""
    modules = read_modules(directory)
    kinds = [module.kind for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise InvalidArgument(
            f"{directory / 'modules.json'} describes {' → '.join(kinds) or 'no module'}.",
            remedy="Transformer → Pooling, with or without Normalize, can be prepared without torch.",
            reason=UNSUPPORTED,
        )
    if modules[0].directory != directory.resolve():
        raise InvalidArgument(
            f"{directory} keeps its transformer in a folder of its own, {modules[0].directory.name!r}.",
            remedy="Move the files of that folder beside modules.json and set the path to the empty string.",
            reason=UNSUPPORTED,
        )
    return modules[1].directory, len(kinds) == 3


def _read_shape(config: Document) -> EncoderShape:
    model_type = str(config.get("model_type", ""))
    if model_type not in ARCHITECTURES:
        raise InvalidArgument(
            f"Models of type {model_type!r} cannot be prepared without torch.",
            remedy=f"Without it these can: {', '.join(ARCHITECTURES)}.",
            reason=UNSUPPORTED,
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
            reason=UNSUPPORTED,
        )
    heads = _whole(config, "n_heads" if distil else "num_attention_heads")
    dimensions = _whole(config, "dim" if distil else "hidden_size")
    if dimensions % heads:
        raise InvalidArgument(
            f"config.json splits {dimensions} dimensions over {heads} heads.", remedy="Copy the model directory again."
        )
    inner = "hidden_dim" if distil else "intermediate_size"
    return EncoderShape(
        model_type=model_type,
        layers=_whole(config, "n_layers" if distil else "num_hidden_layers"),
        heads=heads,
        dimensions=dimensions,
        activation=activation,
        layer_norm_epsilon=_fraction(config, "layer_norm_eps", 1e-12),
        pad_token_id=_whole(config, "pad_token_id", minimum=0, default=0),
        max_positions=_whole(config, "max_position_embeddings"),
        inner=_whole(config, inner) if inner in config else None,
        vocabulary=_whole(config, "vocab_size") if "vocab_size" in config else None,
    )


def _max_length(directory: Path, shape: EncoderShape, sentence: Document, wanted: int | None) -> int:
    reserved = shape.pad_token_id + 1 if ARCHITECTURES[shape.model_type].positions_follow_padding else 0
    possible = shape.max_positions - reserved
    if possible < 1:
        raise InvalidArgument(
            f"config.json has {shape.max_positions} positions, of which padding takes {reserved}.",
            remedy="Copy the model directory again.",
        )
    named = sentence.get("max_seq_length")
    if wanted is None and named is None:
        # sentence-transformers 6 leaves the length to the tokenizer's own limit.
        tokenizer = directory / "tokenizer_config.json"
        named = read_document(tokenizer).get("model_max_length") if tokenizer.is_file() else None
        # Written as a float by some, and as 10^30 by those without a limit.
        limit = named if isinstance(named, int) else _NO_LIMIT_TOKENS
        return min(possible, limit) if limit > 0 else possible
    length = wanted if wanted is not None else _whole(sentence, "max_seq_length")
    if not 0 < length <= possible:
        raise InvalidArgument(
            f"{length} tokens are asked for, the model has {possible} positions.",
            remedy="Correct max_seq_length of sentence_bert_config.json, or --max-length.",
        )
    return length


def _read_pooling(directory: Path, config: Document, dimensions: int) -> Pooling:
    path = directory / "config.json"
    if config.get("include_prompt") is False:
        raise InvalidArgument(
            f"{path} leaves prompts out of pooling, which cannot be prepared.",
            remedy="Choose another model.",
            reason=UNSUPPORTED,
        )
    named = config.get("pooling_mode")
    if isinstance(named, str):
        chosen = [named]
        known = dict(POOLING_MODES)
    else:
        chosen = [flag for flag in config if flag.startswith("pooling_mode_") and config[flag] is True]
        known = {flag: pooling for flag, pooling in _POOLING_FLAGS.items() if pooling is not None}
    if len(chosen) != 1 or chosen[0] not in known:
        raise InvalidArgument(
            f"{path} pools by {', '.join(chosen) or 'nothing'}.",
            remedy="Exactly one of mean, cls and lasttoken can be prepared.",
            reason=UNSUPPORTED,
        )
    width = config.get("word_embedding_dimension", config.get("embedding_dimension", dimensions))
    if width != dimensions:
        raise InvalidArgument(
            f"{path} pools {width} dimensions, the model has {dimensions}.", remedy="Copy the model directory again."
        )
    return known[chosen[0]]


def read_prompts(library: Document) -> Prompts:
    """Return the prompts of queries and of passages that config_sentence_transformers.json names."""
    prompts = library.get("prompts") or {}
    if not isinstance(prompts, dict):
        raise InvalidArgument("The prompts of config_sentence_transformers.json are not an object.")
    fallback = str(prompts.get(str(library.get("default_prompt_name")), ""))
    query = prompts.get("query", fallback)
    passage = next((prompts[name] for name in ("passage", "document") if name in prompts), fallback)
    if not isinstance(query, str) or not isinstance(passage, str):
        raise InvalidArgument("A prompt of config_sentence_transformers.json is no text.", remedy="Correct the file.")
    return Prompts(query=query, passage=passage)


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
