"""One model in memory: OpenVINO on the processor, with vectors that depend on the text alone.

int8 results depend on the padded length, so a text always runs at the bucket of its own token count. They must not
depend on how many texts share a batch either: the int8 kernels add in whole numbers and do not, the float kernels of
some processors do. So the engine compares both when it starts, and runs texts one by one where they differ.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import openvino as ov  # type: ignore[import-untyped]

from services.core.errors import DataLoss
from services.embed.recipe import Purpose, Recipe
from services.embed.shapes import Batch, batches, bucket_of, rows_of
from services.embed.tokenization import TextTokenizer, TokenIds, Tokens

Float32Array = npt.NDArray[np.float32]

DEVICE: Final = "CPU"
_INPUTS = ("input_ids", "attention_mask")
# Large enough for kernels to differ where they do, small enough not to be felt at start.
_CHECKED_BUCKET = 48
_CHECKED_ROWS = 8


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors (float32, texts x dimensions) and the tokens they were made from, in the order of the texts."""

    vectors: Float32Array
    tokens: tuple[Tokens, ...]


class Lane(StrEnum):
    """Which requests of the engine a batch runs on: those of bulk work, or the one that is kept free for queries."""

    BULK = "bulk"
    QUERY = "query"


class _Requests:
    """A compiled copy of the graph with as many requests as it has threads, each running on one thread.

    One thread per request: a request then never waits for another one's thread, and how many threads there are
    cannot change a result.
    """

    def __init__(self, core: ov.Core, model: ov.Model, requests: int) -> None:
        self._compiled = core.compile_model(
            model,
            DEVICE,
            {
                # The default of some processors is bf16 or f16, which is slower here, and other vectors.
                "INFERENCE_PRECISION_HINT": "f32",
                "INFERENCE_NUM_THREADS": requests,
                "NUM_STREAMS": requests,
                # Several services pinned to the same first cores would share them and leave the rest idle.
                "ENABLE_CPU_PINNING": False,
                "CACHE_DIR": "",
            },
        )
        self._free: queue.SimpleQueue[ov.InferRequest] = queue.SimpleQueue()
        for _ in range(requests):
            self._free.put(self._compiled.create_infer_request())

    @contextmanager
    def request(self) -> Iterator[ov.InferRequest]:
        request = self._free.get()
        try:
            yield request
        finally:
            self._free.put(request)


class Engine:
    """A model that is ready to embed. Its methods are safe to call from several threads.

    ``threads`` passages run at once, and one query beside them.
    """

    def __init__(self, model: ov.Model | Path, tokenizer: TextTokenizer, recipe: Recipe, *, threads: int) -> None:
        core = ov.Core()
        graph = _read_graph(core, model) if isinstance(model, Path) else model
        names = {name for port in graph.inputs for name in port.get_names()}
        if names != set(_INPUTS) or len(graph.outputs) != 1:
            raise DataLoss(
                f"The graph takes {', '.join(sorted(names))}, not {' and '.join(_INPUTS)}.",
                remedy="Prepare the model again with this release.",
            )
        width = graph.outputs[0].get_partial_shape()[-1]
        if width != recipe.dimensions:
            raise DataLoss(
                f"The graph gives vectors of {width} dimensions, its recipe says {recipe.dimensions}.",
                remedy="Prepare the model again.",
            )
        self.recipe = recipe
        self.threads = threads
        self._tokenizer = tokenizer
        with ThreadPoolExecutor(len(Lane)) as pool:
            requests = {Lane.BULK: threads, Lane.QUERY: 1}
            compiled = pool.map(lambda count: _Requests(core, graph, count), requests.values())
            self._lanes = dict(zip(requests, compiled, strict=True))
        self.rows_are_independent = self._compare_rows()

    def tokenize(self, texts: Sequence[str], purpose: Purpose) -> list[Tokens]:
        """Tokenize texts as the model reads them."""
        return self._tokenizer.tokenize(texts, purpose)

    def batches(self, tokens: Sequence[Tokens]) -> list[Batch]:
        """Group texts into the batches that ``infer`` takes."""
        most_rows = None if self.rows_are_independent else 1
        return batches([len(item.ids) for item in tokens], self.recipe.max_length_tokens, most_rows=most_rows)

    def infer(self, rows: Sequence[TokenIds], bucket: int, lane: Lane) -> Float32Array:
        """Run one batch whose rows all belong to ``bucket``; return float32, rows x dimensions."""
        ids = np.full((len(rows), bucket), self.recipe.pad_token_id, dtype=np.int64)
        mask = np.zeros((len(rows), bucket), dtype=np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        with self._lanes[lane].request() as request:
            request.infer({"input_ids": ids, "attention_mask": mask})
            # The output tensor belongs to the request and is overwritten by its next run.
            return np.array(request.get_output_tensor(0).data, dtype=np.float32)

    def embed(self, texts: Sequence[str], purpose: Purpose) -> Embedded:
        """Embed texts in the calling thread. Services go through the batcher instead."""
        tokens = self.tokenize(texts, purpose)
        vectors = np.empty((len(tokens), self.recipe.dimensions), dtype=np.float32)
        for batch in self.batches(tokens):
            rows = [tokens[index].ids for index in batch.indexes]
            vectors[list(batch.indexes)] = self.infer(rows, batch.bucket, Lane.BULK)
        return Embedded(vectors=vectors, tokens=tuple(tokens))

    def count_unknown(self, tokens: Tokens) -> int:
        """Count the tokens of a text that are outside of the vocabulary."""
        return self._tokenizer.count_unknown(tokens)

    def _compare_rows(self) -> bool:
        """Tell whether a row's result is the same alone and among others, bit by bit, on this processor."""
        text = "def open_session(user, timeout_s=30): return Session(user.id, deadline=now() + timeout_s) " * 8
        ids = self.tokenize([text], Purpose.PASSAGE)[0].ids
        length = min(_CHECKED_BUCKET, len(ids), self.recipe.max_length_tokens)
        bucket = bucket_of(length, self.recipe.max_length_tokens)
        rows = [np.roll(ids, -shift)[: length - shift % 16] for shift in range(rows_of(bucket))]
        for width in (min(_CHECKED_ROWS, len(rows)), 2):
            together = self.infer(rows[:width], bucket, Lane.BULK)
            for number in {0, width - 1}:
                alone = self.infer([rows[number]], bucket, Lane.QUERY)[0]
                if not np.array_equal(alone, together[number]):
                    return False
        return True


def _read_graph(core: ov.Core, path: Path) -> ov.Model:
    try:
        # Mapped weights would turn a file that changes on a network volume into SIGBUS.
        core.set_property({"ENABLE_MMAP": False})
        return core.read_model(path)
    except RuntimeError as error:
        raise DataLoss(f"OpenVINO cannot read {path}: {error}.", remedy="Prepare or copy the model again.") from error


def describe_engine() -> str:
    """Name the inference engine and its version."""
    return f"OpenVINO {ov.get_version()}"


def describe_processor() -> str:
    """Name the processor and the instruction sets that decide how int8 is computed."""
    core = ov.Core()
    name = str(core.get_property(DEVICE, "FULL_DEVICE_NAME"))
    capabilities = ", ".join(sorted(str(item) for item in core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")))
    return f"{name} ({instruction_sets()}; {capabilities})"


def instruction_sets(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name the vector instruction sets of this processor that matter for int8."""
    known = ("amx_int8", "avx512_vnni", "avx_vnni", "avx512f", "avx2", "asimddp", "i8mm")
    try:
        lines = cpuinfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return "unknown"
    flags = next(
        (set(line.split(":", 1)[1].split()) for line in lines if line.startswith(("flags", "Features"))), set()
    )
    return " ".join(name for name in known if name in flags) or "baseline"
