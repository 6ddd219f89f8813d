"""OpenVINO on the processor."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import openvino as ov  # type: ignore[import-untyped]

from services.core.errors import DataLoss
from services.embed.backends import Float32Array, Int64Array, Lane
from services.embed.processor import describe_processor

DEVICE: Final = "CPU"
_INPUTS: Final = ("input_ids", "attention_mask")
# How far bulk work steps back behind queries. The gap to 0 is all that counts: a query of one core's work beside bulk
# work on every core has a p95 of 15 ms instead of 22, and bulk loses nothing that could be measured.
_BULK_NICENESS: Final = 10


class OpenVinoBackend:
    """A graph with pooling and normalisation in it, compiled once for bulk work and once for queries."""

    def __init__(self, graph: ov.Model, *, threads: int) -> None:
        core = ov.Core()
        self.threads = threads
        with ThreadPoolExecutor(len(Lane)) as pool:
            bulk = pool.submit(_niced, lambda: _Requests(core, graph, threads))
            query = pool.submit(_Requests, core, graph, 1)
            self._lanes = {Lane.BULK: bulk.result(), Lane.QUERY: query.result()}

    def infer(self, input_ids: Int64Array, attention_mask: Int64Array, lane: Lane) -> Float32Array:
        """Run one batch: two arrays of rows x tokens, padded on the right; return float32, rows x dimensions."""
        with self._lanes[lane].request() as request:
            # A blocking call is as fast as AsyncInferQueue (53.8 against 53.0 ms of processor
            # time per text, within the noise), and an error reaches the caller: the queue never calls back for one.
            request.infer(dict(zip(_INPUTS, (input_ids, attention_mask), strict=True)))
            # The output tensor belongs to the request and is overwritten by its next run.
            return np.array(request.get_output_tensor(0).data, dtype=np.float32)


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


def _niced(compile_lane: Callable[[], _Requests]) -> _Requests:
    """Compile on a thread of low priority: OpenVINO's own threads are started from it and inherit that."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BULK_NICENESS)
    return compile_lane()


def read_graph(path: Path, dimensions: int) -> ov.Model:
    """Read a graph with its weights; raise ``DataLoss`` unless it takes tokens and gives vectors of ``dimensions``."""
    core = ov.Core()
    # Mapped weights would turn a file that changes on a network volume into SIGBUS.
    core.set_property({"ENABLE_MMAP": False})
    try:
        graph = core.read_model(path)
    except RuntimeError as error:
        raise DataLoss(f"OpenVINO cannot read {path}: {error}.", remedy="Prepare or copy the model again.") from error
    names = {name for port in graph.inputs for name in port.get_names()}
    if names != set(_INPUTS) or len(graph.outputs) != 1:
        raise DataLoss(
            f"The graph {path} takes {', '.join(sorted(names))}, not {' and '.join(_INPUTS)}.",
            remedy="Prepare the model again with this release.",
            reason="MODEL_GRAPH_FOREIGN",
        )
    width = graph.outputs[0].get_partial_shape()[-1]
    if width != dimensions:
        raise DataLoss(
            f"The graph {path} gives vectors of {width} dimensions, its recipe says {dimensions}.",
            remedy="Prepare the model again.",
            reason="MODEL_DIMENSIONS_DIFFER",
        )
    return graph


def describe_engine() -> str:
    """Name the inference engine and its version."""
    return f"OpenVINO {ov.get_version()}"


def describe_device() -> str:
    """Name the processor, its instruction sets and what OpenVINO makes of them."""
    core = ov.Core()
    name = str(core.get_property(DEVICE, "FULL_DEVICE_NAME"))
    capabilities = ", ".join(sorted(str(item) for item in core.get_property(DEVICE, "OPTIMIZATION_CAPABILITIES")))
    return f"{name} ({describe_processor()}; {capabilities})"
