"""How near the embed service comes to what the processor can give, and to what others make of it.

    python ops/bench/embed.py compare [--rival PYTHON --source DIRECTORY] [--texts N] [--rounds N]
    python ops/bench/embed.py mixed [--seconds N]
    python ops/bench/embed.py start [--rival PYTHON --source DIRECTORY] [--rounds N]
    python ops/bench/embed.py memory [--texts N]

``compare`` runs the same texts on the same int8 weights through the service over gRPC (1, 8 and 32 callers), through
sentence-transformers' OpenVINO back end in its own process (``--rival`` is a Python with the ``models`` extra,
``--source`` the model's sentence-transformers directory), and shape by shape through OpenVINO's benchmark_app, whose
rates give the limit: the time of the batches that the service makes of these texts, with nothing around them. Rounds
alternate between the systems, and medians are compared. ``mixed`` measures queries with and without bulk work beside
them, ``start`` the time from the start of the process to the first vector, ``memory`` what is resident while texts of
random lengths go by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from undercroft.embed.v1 import embed_pb2

from ops.bench.embed_limit import Shape, batches_per_s, latency_ms, planned_shapes
from ops.bench.embed_service import ROOT, Service, embed_all, query_times_ms, running_service
from ops.bench.embed_texts import FIXED_TOKENS, MIXED_TOKENS, QUERY_TOKENS, TextSource
from ops.bench.indexing import machine
from services.core.cpu import cpu_threads
from services.embed.tokenization import TextTokenizer
from services.embed.verify import VerifiedModel, verify

MODEL = ROOT / ".cache" / "models" / "all-minilm-l6-v2"
CALLERS = (1, 8, 32)
RIVAL_BATCH_SIZES = (1, 8, 32, 128)
QUERIES_PER_S = 20.0
LIMIT_SECONDS = 4.0


class Rival:
    """sentence-transformers in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.ready_s = float(self._read()["ready"])

    def embed_all(self, texts: Sequence[str], batch_size: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"texts": list(texts), "batch_size": batch_size}) + "\n")
        self._process.stdin.flush()
        return float(self._read()["seconds"])

    def _read(self) -> dict[str, float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        sys.exit("sentence-transformers did not answer")


@contextmanager
def running_rival(python: Path, source: Path, model: VerifiedModel) -> Iterator[Rival]:
    """Start sentence-transformers on the model's own int8 weights, without the pooling that the graph has in it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "model"
        folder.mkdir()
        for path in source.iterdir():
            if path.suffix != ".safetensors":
                (folder / path.name).symlink_to(path)
        _save_without_head(model.directory / f"{model.manifest.graph}.xml", folder / "openvino_model_qint8.xml")
        process = subprocess.Popen(
            [str(python), str(ROOT / "ops" / "bench" / "embed_rival.py"), str(folder)],
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield Rival(process)
        finally:
            process.terminate()
            process.communicate()


def _save_without_head(graph: Path, destination: Path) -> None:
    """Cut mean pooling and normalisation off, so that the graph gives token vectors."""
    # Not before the product's own modules: they block its telemetry.
    import openvino as ov

    model = ov.Core().read_model(graph)
    pooling = next(
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "ReduceSum" and node.input_value(0).get_node().get_type_name() == "Multiply"
    )
    tokens = pooling.input_value(0).get_node().input_value(0)
    tokens.get_tensor().set_names({"last_hidden_state"})
    encoder = ov.Model([ov.opset15.result(tokens)], model.get_parameters(), "encoder")
    ov.save_model(encoder, destination, compress_to_fp16=False)


def compare(arguments: argparse.Namespace, model: VerifiedModel) -> None:
    """Print texts per second of each system on each set of texts."""
    source = TextSource(TextTokenizer(model.directory, model.recipe))
    sets = {
        f"{FIXED_TOKENS} tokens": source.fixed(arguments.texts, FIXED_TOKENS),
        f"{MIXED_TOKENS[0]}-{MIXED_TOKENS[1]} tokens": source.mixed(arguments.texts),
        f"queries of {QUERY_TOKENS} tokens": source.fixed(arguments.texts, QUERY_TOKENS),
    }
    graph = model.directory / f"{model.manifest.graph}.xml"
    threads = cpu_threads()
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    with running_service(model.directory) as service:
        for _ in range(arguments.rounds):
            for name, texts in sets.items():
                for callers in CALLERS:
                    seconds = asyncio.run(embed_all(service, texts, callers))
                    rates[name, f"service, {callers} callers"].append(len(texts) / seconds)
    if arguments.rival:
        with running_rival(arguments.rival, arguments.source, model) as rival:
            for _ in range(arguments.rounds):
                for name, texts in sets.items():
                    for size in RIVAL_BATCH_SIZES:
                        seconds = rival.embed_all(texts, size)
                        rates[name, f"sentence-transformers, batches of {size}"].append(len(texts) / seconds)
    known: dict[Shape, float] = {}
    for name, texts in sets.items():
        shapes = planned_shapes(model.engine, texts)
        for shape in shapes:
            if shape not in known:
                known[shape] = batches_per_s(graph, shape, streams=threads, seconds=LIMIT_SECONDS)
        limit = len(texts) / sum(count / known[shape] for shape, count in shapes.items())
        print(f"\n{name}: {len(texts)} texts, {len(shapes)} shapes; limit by benchmark_app {limit:.1f} texts/s")
        for (of, system), values in rates.items():
            if of == name:
                median = statistics.median(values)
                spread = f"{min(values):.1f} to {max(values):.1f}"
                print(f"  {system:<42} {median:7.1f} texts/s ({spread}), {median / limit:.2f} of the limit")


def mixed(arguments: argparse.Namespace, model: VerifiedModel) -> None:
    """Print what queries take alone and beside bulk work, and what bulk work takes beside queries."""
    source = TextSource(TextTokenizer(model.directory, model.recipe))
    queries = source.fixed(200, QUERY_TOKENS)
    texts = source.mixed(2048)
    bare = latency_ms(model.directory / f"{model.manifest.graph}.xml", (1, 16), seconds=LIMIT_SECONDS)
    print(f"a query of {QUERY_TOKENS} tokens, bare inference (benchmark_app, 1 thread): p50 {bare:.1f} ms")
    with running_service(model.directory) as service:
        for name, has_bulk in (("alone", False), ("beside bulk", True), ("alone", False), ("beside bulk", True)):
            times, rate = asyncio.run(_queries(service, queries, texts if has_bulk else [], arguments.seconds))
            p50, p95, p99 = np.percentile(times, [50, 95, 99])
            bulk = f", bulk {rate:.1f} texts/s" if has_bulk else ""
            print(
                f"  {QUERIES_PER_S:g} queries/s {name:<12} p50 {p50:.1f} p95 {p95:.1f} p99 {p99:.1f} ms, "
                f"n = {len(times)}{bulk}"
            )


async def _queries(
    service: Service, queries: Sequence[str], texts: Sequence[str], seconds: float
) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], float]:
    embedded = 0

    async def bulk() -> None:
        nonlocal embedded
        stub = service.stub()
        start = 0
        while True:
            await stub.Embed(service.request(texts[start : start + 16]))
            embedded += 16
            start = (start + 16) % len(texts)

    callers = [asyncio.create_task(bulk()) for _ in range(8)] if texts else []
    await asyncio.sleep(2.0 if texts else 0.0)
    before, started = embedded, time.perf_counter()
    times = await query_times_ms(service, queries, per_s=QUERIES_PER_S, seconds=seconds)
    rate = (embedded - before) / (time.perf_counter() - started)
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    return times, rate


def start(arguments: argparse.Namespace, model: VerifiedModel) -> None:
    """Print the time from the start of the process to the first vector."""
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        started = time.perf_counter()
        with running_service(model.directory) as service:
            asyncio.run(_first_answer(service))
            ours.append(time.perf_counter() - started)
            rss = service.rss_mib
        if arguments.rival:
            with running_rival(arguments.rival, arguments.source, model) as rival:
                theirs.append(rival.ready_s)
    print(f"service, to the first vector over gRPC: {statistics.median(ours):.2f} s, resident {rss:.0f} MiB")
    if theirs:
        print(f"sentence-transformers, to the first vector in process: {statistics.median(theirs):.2f} s")


async def _first_answer(service: Service) -> None:
    await service.stub().Embed(service.request(["first answer"], embed_pb2.EMBED_TASK_QUERY))


def memory(arguments: argparse.Namespace, model: VerifiedModel) -> None:
    """Print resident memory as texts of random lengths go by."""
    source = TextSource(TextTokenizer(model.directory, model.recipe))
    texts = source.mixed(4096, span=(4, model.recipe.max_length_tokens))
    generator = np.random.default_rng(3)
    with running_service(model.directory) as service:
        print(f"      0 texts: {service.rss_mib:.0f} MiB")
        done, shown = 0, 1000
        while done < arguments.texts:
            chosen = [texts[index] for index in generator.integers(0, len(texts), 500)]
            asyncio.run(embed_all(service, chosen, 8))
            done += len(chosen)
            if done >= shown:
                print(f"{done:7d} texts: {service.rss_mib:.0f} MiB", flush=True)
                shown += 1000 if done < 10_000 else 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "mixed", "start", "memory"))
    parser.add_argument("--model", type=Path, default=MODEL, help="prepared model directory")
    parser.add_argument("--rival", type=Path, help="Python with the models extra")
    parser.add_argument("--source", type=Path, help="the model's sentence-transformers directory")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    if arguments.rival and not arguments.source:
        parser.error("--rival needs --source")
    model = verify(arguments.model.resolve(), threads=1)
    print(f"{machine()}, {cpu_threads()} threads, {model.recipe.architecture} {model.recipe.quantization}")
    {"compare": compare, "mixed": mixed, "start": start, "memory": memory}[arguments.what](arguments, model)


if __name__ == "__main__":
    main()
