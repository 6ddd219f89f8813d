"""Every architecture that sentence-transformers knows, exported with torch from a local directory.

The one module of preparation that needs the ``models`` extra. The whole chain of modules up to the normalisation is
traced, so pooling and dense layers are what the library computes. OpenVINO's own converter does it: of twelve
architectures tried it took twelve, optimum-intel 2.1 seven. Whatever the chain is, the graph is used only after it gave
the library's own vectors and its tokenizer the library's own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import openvino as ov  # type: ignore[import-untyped]

from services.core.errors import InvalidArgument, NotReady
from services.embed.backends.sentence_transformers import load_library
from services.embed.directory import read_document
from services.embed.manifest import LIBRARY_SUFFIXES, TOKENIZER_NAME
from services.embed.preparation.head import sentence_embedding
from services.embed.preparation.options import SECOND_ENGINE, Options, chosen_dimensions
from services.embed.preparation.source import (
    POOLING_MODES,
    UNSUPPORTED,
    matryoshka_dimensions,
    read_modules,
    read_prompts,
    required,
)
from services.embed.preparation.vocabulary import check_vocabulary
from services.embed.preparation.weights import Float32Array, weight_files
from services.embed.recipe import Purpose, Recipe

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Traced with more than one text and one of them padded: what depends on neither is no constant of the graph then.
_EXAMPLE_TOKENS = (24, 20)
_TOOLS = ("torch", "transformers", "sentence-transformers")


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model of sentence-transformers in memory, and the recipe that its files give."""

    directory: Path
    model: SentenceTransformer
    recipe: Recipe

    def tokenizer_json(self) -> bytes:
        """Return the tokenizer as tokenizer.json has it, made from a sentencepiece model where that is all there is."""
        backend = getattr(self.model.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise InvalidArgument(
                f"The tokenizer of {self.directory} exists in Python only.",
                remedy="Choose a model with a tokenizer.json.",
                reason=UNSUPPORTED,
            )
        return str(backend.to_str()).encode()

    def files(self) -> list[Path]:
        """Return the files that the result may depend on."""
        return sorted(path for path in self.directory.rglob("*") if path.suffix in LIBRARY_SUFFIXES and path.is_file())

    @property
    def tools(self) -> Sequence[str]:
        """The packages that the result depends on, besides those of every preparation."""
        return _TOOLS

    @property
    def library(self) -> ExportedModel:
        """What the graph is proved against."""
        return self

    def build(self, recipe: Recipe) -> ov.Model:
        """Return the float32 graph of the chain, with what ``recipe`` says after it.

        Raises ``InvalidArgument`` when the converter cannot take it over.
        """
        import torch

        model, normalize = self.model, recipe.normalize
        chain = list(model)[:-1] if normalize else list(model)

        class Chain(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.chain = torch.nn.ModuleList(chain)

            def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
                features = {"input_ids": input_ids, "attention_mask": attention_mask}
                for module in self.chain:
                    features = module(features)
                return features["sentence_embedding"]

        longest, shorter = _EXAMPLE_TOKENS
        mask = torch.ones((2, longest), dtype=torch.int64)
        mask[1, shorter:] = 0
        ids = torch.arange(longest).repeat(2, 1) % model.tokenizer.vocab_size
        example = {"input_ids": ids, "attention_mask": mask}
        dynamic = [(name, [-1, -1], np.int64) for name in example]
        try:
            with torch.no_grad():
                graph = ov.convert_model(Chain().eval(), example_input=example, input=dynamic)
        except Exception as error:
            raise InvalidArgument(
                f"OpenVINO cannot take over a model of type {recipe.architecture!r}: {str(error).strip()[:200]}",
                remedy=f"Serve it by the second engine: {SECOND_ENGINE}.",
                reason="MODEL_NOT_EXPORTABLE",
            ) from error
        # The names of the trace count up in an order that depends on hashes, and would make each export differ.
        for node in graph.get_ordered_ops():
            if node.get_type_name() != "Parameter":
                for output in node.outputs():
                    output.get_tensor().set_names(set())
        vector = sentence_embedding(graph.outputs[0].get_node().input_value(0), recipe)
        return ov.Model([ov.opset15.result(vector)], graph.get_parameters(), recipe.architecture)

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Float32Array:
        """Return the library's own vectors, float32, with nothing cut, text by text."""
        vectors = self.model.encode(
            list(texts), prompt=self.recipe.prompts.of(purpose), batch_size=1, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    def tokenize(self, texts: Sequence[str], purpose: Purpose) -> list[list[int]]:
        """Return the library's own tokens."""
        prompt = self.recipe.prompts.of(purpose)
        return [self.model.preprocess([prompt + text])["input_ids"][0].tolist() for text in texts]


def load(directory: Path, options: Options, refusal: InvalidArgument) -> ExportedModel:
    """Load a model of any architecture; ``refusal`` says why it cannot be prepared without torch.

    Raises it with another remedy where the ``models`` extra is not installed, and ``InvalidArgument`` for a model that
    the library does not load, or not in a way that can be served.
    """
    kinds = [module.kind for module in read_modules(directory)]
    if kinds[:1] != ["Transformer"] or kinds.count("Pooling") != 1 or "Normalize" in kinds[:-1]:
        raise InvalidArgument(
            f"{directory / 'modules.json'} describes {' → '.join(kinds) or 'no module'}.",
            remedy="Transformer, Pooling and what follows it, with Normalize as the last if at all, can be prepared.",
            reason=UNSUPPORTED,
        )
    transformer = read_modules(directory)[0].directory
    # Weights of other kinds are pickles.
    weight_files(transformer)
    if (transformer / TOKENIZER_NAME).is_file():
        check_vocabulary(transformer)
    try:
        model = load_library(directory, "cpu")
    except NotReady as error:
        raise InvalidArgument(
            refusal.message,
            remedy="Prepare it where the `models` extra is installed, and carry the prepared directory here.",
            reason=refusal.reason,
        ) from error
    recipe = _read_recipe(directory, model, options, normalize=kinds[-1] == "Normalize")
    model.max_seq_length = recipe.max_length_tokens
    return ExportedModel(directory, model, recipe)


def _read_recipe(directory: Path, model: SentenceTransformer, options: Options, *, normalize: bool) -> Recipe:
    transformer = read_modules(directory)[0].directory
    config = read_document(required(transformer, "config.json"))
    library = read_document(required(directory, "config_sentence_transformers.json"))
    pooling = next(module for module in model if type(module).__name__ == "Pooling")
    if pooling.pooling_mode not in POOLING_MODES or not pooling.include_prompt:
        raise InvalidArgument(
            f"{directory} pools by {pooling.pooling_mode}{'' if pooling.include_prompt else ', leaving prompts out'}.",
            remedy="Exactly one of mean, cls and lasttoken can be prepared, with the prompt counted in.",
            reason=UNSUPPORTED,
        )
    max_length = options.max_length_tokens or model.max_seq_length
    if not isinstance(max_length, int) or max_length < 1:
        raise InvalidArgument(
            f"{directory} does not say how many tokens the model reads.", remedy="Say it with --max-length."
        )
    full, trained_for = int(model.get_embedding_dimension() or 0), matryoshka_dimensions(config)
    dimensions = chosen_dimensions(options.dimensions, full, trained_for)
    sentence = transformer / "sentence_bert_config.json"
    return Recipe(
        architecture=str(config.get("model_type", "")),
        dimensions=dimensions,
        max_length_tokens=max_length,
        pooling=POOLING_MODES[pooling.pooling_mode],
        normalize=normalize,
        quantization=options.quantization,
        engine=options.engine,
        pad_token_id=model.tokenizer.pad_token_id or 0,
        lower_case=sentence.is_file() and read_document(sentence).get("do_lower_case") is True,
        prompts=options.prompts_over(read_prompts(library)),
        full_dimensions=0 if dimensions == full else full,
        matryoshka_dimensions=trained_for,
    )
