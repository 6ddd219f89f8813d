"""Models with random weights, made by the libraries that real ones are made with."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

import services.embed  # noqa: F401  (sets the offline switches before anything else is imported)
from tests.integration.embed.conftest import start_server  # noqa: F401  (a fixture)
from tests.integration.embed.tiny_model import Tiny, tokenizer_of

# What torch and transformers say of themselves is not what these tests are about.
warnings.filterwarnings("ignore")

VOCABULARY = 260
MAX_LENGTH = 96
WIDTH = 32


@pytest.fixture(autouse=True)
def _no_warnings_of_the_libraries() -> None:
    warnings.simplefilter("ignore")


def byte_tokenizer() -> Tokenizer:
    """Return a tokenizer of byte-level BPE that ends a text with one token and starts it with none."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: number for number, token in enumerate(["<pad>", "<end>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 1)])
    return tokenizer


def piece_tokenizer() -> Tokenizer:
    """Return a unigram tokenizer as sentencepiece models have, with RoBERTa's special tokens."""
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0)]
    pieces += [(chr(code), -3.0 - code % 7) for code in range(33, 127)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.Replace(Regex(r"\s"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def write_model(
    directory: Path, architecture: str, pooling: str = "mean", extra: Sequence[str] = ("normalize",)
) -> Path:
    """Write a sentence-transformers directory of random weights."""
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers import models as modules

    torch.manual_seed(len(architecture))
    sizes = {
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "vocab_size": VOCABULARY,
        # RoBERTa numbers its positions from the padding id on.
        "max_position_embeddings": MAX_LENGTH + 2,
    }
    causal = {**sizes, "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "eos_token_id": 1}
    configs = {
        "bert": lambda: transformers.BertConfig(**sizes),
        "mpnet": lambda: transformers.MPNetConfig(**sizes),
        "modernbert": lambda: transformers.ModernBertConfig(
            **sizes, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3
        ),
        "deberta-v2": lambda: transformers.DebertaV2Config(**sizes),
        "xlm-roberta": lambda: transformers.XLMRobertaConfig(**sizes, pad_token_id=1),
        "qwen3": lambda: transformers.Qwen3Config(**causal),
        "gemma3_text": lambda: transformers.Gemma3TextConfig(**causal, use_bidirectional_attention=True),
        "t5": lambda: transformers.T5Config(
            d_model=WIDTH, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=VOCABULARY
        ),
    }
    if architecture in ("qwen3", "gemma3_text", "t5"):
        tokenizer, special = byte_tokenizer(), {"pad_token": "<pad>", "eos_token": "<end>"}
    elif architecture == "xlm-roberta":
        tokenizer = piece_tokenizer()
        special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    else:
        tokenizer = tokenizer_of(Tiny())
        special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    encoder = directory.with_name(f"{directory.name}-encoder")
    config = configs[architecture]()
    if architecture == "t5":
        transformers.T5EncoderModel(config).save_pretrained(encoder)
    else:
        transformers.AutoModel.from_config(config).save_pretrained(encoder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=MAX_LENGTH, **special
    ).save_pretrained(encoder)
    made = {
        "dense": lambda: modules.Dense(WIDTH, 24, activation_function=torch.nn.Tanh()),
        "normalize": modules.Normalize,
    }
    chain = [
        modules.Transformer(str(encoder), max_seq_length=MAX_LENGTH),
        modules.Pooling(WIDTH, pooling),
        *(made[name]() for name in extra),
    ]
    model = SentenceTransformer(modules=chain, prompts={"query": "find: ", "document": ""}, device="cpu")
    model.save(str(directory))
    return directory
